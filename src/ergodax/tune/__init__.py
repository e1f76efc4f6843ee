"""Stages of automatic inference, each usable alone, and `infer`, which is all of them."""

from ergodax.tune.advise import Advice, advise
from ergodax.tune.curvature import (
    curvature_coordinates,
    draws_coordinates,
    round_coordinates,
)
from ergodax.tune.decisions import DecisionLog, Inference, Tuned, error_table
from ergodax.tune.doubts import whole_temperature
from ergodax.tune.estimator import Plan, choose_estimator
from ergodax.tune.infer import infer
from ergodax.tune.nuts import warm_up
from ergodax.tune.nuts_kernel import Nuts
from ergodax.tune.pilot import tune
from ergodax.tune.step_size import StepSearch, find_step, first_step
from ergodax.tune.surrogate import tune_surrogate
from ergodax.tune.whitening import Coordinates, LowRank, in_coordinates

__all__ = [
    "Advice",
    "Coordinates",
    "DecisionLog",
    "Inference",
    "LowRank",
    "Nuts",
    "Plan",
    "StepSearch",
    "Tuned",
    "advise",
    "choose_estimator",
    "curvature_coordinates",
    "draws_coordinates",
    "error_table",
    "find_step",
    "first_step",
    "in_coordinates",
    "infer",
    "round_coordinates",
    "tune",
    "tune_surrogate",
    "warm_up",
    "whole_temperature",
]
