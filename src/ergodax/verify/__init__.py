"""Proving or refuting a recipe, a stochastic differential equation or a kernel."""

from ergodax.verify.curl import Curl, curl
from ergodax.verify.fokker_planck import FokkerPlanck, fokker_planck
from ergodax.verify.grid import Axis
from ergodax.verify.kernel import kernel
from ergodax.verify.kernel_report import KernelReport
from ergodax.verify.recipe import recipe
from ergodax.verify.report import Report
from ergodax.verify.sde import sde
from ergodax.verify.stationary_law import (
    AffineStep,
    GaussianLaw,
    affine_step,
    stationary_law,
)
from ergodax.verify.transition import TransitionLaw, transition_law

__all__ = [
    "AffineStep",
    "Axis",
    "Curl",
    "FokkerPlanck",
    "GaussianLaw",
    "KernelReport",
    "Report",
    "TransitionLaw",
    "affine_step",
    "curl",
    "fokker_planck",
    "kernel",
    "recipe",
    "sde",
    "stationary_law",
    "transition_law",
]
