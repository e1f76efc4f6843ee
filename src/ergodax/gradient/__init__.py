"""Gradient estimators: from the whole data, from a batch, or with noise of known law."""

from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.gradient.batches import Minibatch
from ergodax.gradient.control_variate import SVRG, ControlVariate
from ergodax.gradient.covariance import KnownCovariance, ScoreCovariance
from ergodax.gradient.full import FullGradient, NoisyGradient
from ergodax.gradient.saga import SAGA
from ergodax.gradient.sharded import Stratified

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
