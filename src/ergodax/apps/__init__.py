"""Whole applications built from the library: regression on tables."""
