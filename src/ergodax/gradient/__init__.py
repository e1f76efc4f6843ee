"""Gradient estimators: from the whole data, from a batch, or with noise of known law."""

from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.gradient.control_variate import ControlVariate
from ergodax.gradient.covariance import KnownCovariance
from ergodax.gradient.full import FullGradient
from ergodax.gradient.minibatch import Minibatch
from ergodax.gradient.noisy import NoisyGradient
from ergodax.gradient.saga import SAGA
from ergodax.gradient.score_covariance import ScoreCovariance
from ergodax.gradient.sharded import Stratified
from ergodax.gradient.svrg import SVRG

__all__ = [
    "SAGA",
    "SVRG",
    "ControlVariate",
    "Estimate",
    "FullGradient",
    "GradientEstimator",
    "KnownCovariance",
    "Minibatch",
    "NoisyGradient",
    "ScoreCovariance",
    "Stratified",
]
