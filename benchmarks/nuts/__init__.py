"""`infer` against NUTS on logistic regressions: `python -m benchmarks nuts`."""
