"""Proving or refuting a recipe, a stochastic differential equation or a kernel."""
