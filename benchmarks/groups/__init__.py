"""Models with groups: `python -m benchmarks groups [CASE ...]`."""
