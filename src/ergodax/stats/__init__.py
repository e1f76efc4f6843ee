"""Statistics of draws, each written once, by NumPy and ArviZ."""

from ergodax.stats.accumulators import Accumulator, Moments, Quantiles
from ergodax.stats.estimators import (
    Efficiency,
    autocorrelation,
    efficiency,
    ess,
    integrated_autocorrelation_time,
    r_hat,
)
from ergodax.stats.summary import summarise, weighted
from ergodax.stats.zero_variance import ZeroVariance, zero_variance

__all__ = [
    "Accumulator",
    "Efficiency",
    "Moments",
    "Quantiles",
    "ZeroVariance",
    "autocorrelation",
    "efficiency",
    "ess",
    "integrated_autocorrelation_time",
    "r_hat",
    "summarise",
    "weighted",
    "zero_variance",
]
