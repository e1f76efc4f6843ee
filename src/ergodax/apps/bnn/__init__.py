"""Bayesian neural networks on tables and images, beside an optimised network and an ensemble."""
