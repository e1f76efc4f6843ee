"""Bayesian neural networks: posteriors of the weights of modules, and what they predict."""

from ergodax.network import likelihoods, priors
from ergodax.network.calibration import Calibration, calibration, coverage, entropy
from ergodax.network.ensemble import Ensemble, deep_ensemble
from ergodax.network.modules import Function
from ergodax.network.posterior import NetworkPosterior, posterior
from ergodax.network.predictive import Prediction, predict, predict_from_outputs, predictive
from ergodax.network.swag import Swag, swag

__all__ = [
    "Calibration",
    "Ensemble",
    "Function",
    "NetworkPosterior",
    "Prediction",
    "Swag",
    "calibration",
    "coverage",
    "deep_ensemble",
    "entropy",
    "likelihoods",
    "posterior",
    "predict",
    "predict_from_outputs",
    "predictive",
    "priors",
    "swag",
]
