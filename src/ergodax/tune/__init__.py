"""Stages of automatic inference, each usable alone, and `infer`, which is all of them."""

from ergodax.tune.account import Account, Inference, error_table
from ergodax.tune.advise import Advice, advise, probe_modes
from ergodax.tune.agreement import whole_temperature
from ergodax.tune.coordinates import Coordinates, in_coordinates
from ergodax.tune.estimator import Plan, choose_estimator
from ergodax.tune.infer import infer
from ergodax.tune.low_rank import LowRank
from ergodax.tune.nuts import Nuts, warm_up
from ergodax.tune.pilot import tune
from ergodax.tune.scale import curvature_coordinates, draws_coordinates, round_coordinates
from ergodax.tune.step_size import StepSearch, find_step, first_step
from ergodax.tune.surrogate import tune_surrogate
from ergodax.tune.tuned import Tuned
from ergodax.tune.whiten import Whitening, whiten

__all__ = [
    "Account",
    "Advice",
    "Coordinates",
    "Inference",
    "LowRank",
    "Nuts",
    "Plan",
    "StepSearch",
    "Tuned",
    "Whitening",
    "advise",
    "choose_estimator",
    "curvature_coordinates",
    "draws_coordinates",
    "error_table",
    "find_step",
    "first_step",
    "in_coordinates",
    "infer",
    "probe_modes",
    "round_coordinates",
    "tune",
    "tune_surrogate",
    "warm_up",
    "whiten",
    "whole_temperature",
]
