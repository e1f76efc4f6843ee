"""Bayesian neural networks beside an optimised one and an ensemble."""
