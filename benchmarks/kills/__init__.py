"""Runs that are killed at random instants and resumed: `python -m benchmarks kills`."""
