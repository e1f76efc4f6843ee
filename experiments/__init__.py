"""The papers' experiments: `python -m experiments NAME`. They use ergodax by its public names."""
