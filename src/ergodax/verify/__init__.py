"""Proving or refuting a recipe, a stochastic differential equation or a kernel."""

from ergodax.verify.recipe import recipe
from ergodax.verify.report import Report
from ergodax.verify.sde import sde

__all__ = ["Report", "recipe", "sde"]
