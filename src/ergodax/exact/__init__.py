"""Metropolis tests on subsets of the data."""

__all__: list[str] = []
