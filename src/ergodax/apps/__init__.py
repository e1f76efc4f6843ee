"""Whole applications built from the library: regression."""
