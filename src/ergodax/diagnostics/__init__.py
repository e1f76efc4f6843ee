"""What a run says about itself: temperature, Stein discrepancy, autocorrelation, bias."""

from ergodax.diagnostics.bias import BiasReport, batch_bias, bias
from ergodax.diagnostics.stein import SteinDiscrepancy, kernel_stein_discrepancy
from ergodax.diagnostics.temperature import Temperature, TemperatureReport, temperature
from ergodax.stats.estimators import (
    Efficiency,
    autocorrelation,
    efficiency,
    ess,
    integrated_autocorrelation_time,
    r_hat,
)

__all__ = [
    "BiasReport",
    "Efficiency",
    "SteinDiscrepancy",
    "Temperature",
    "TemperatureReport",
    "autocorrelation",
    "batch_bias",
    "bias",
    "efficiency",
    "ess",
    "integrated_autocorrelation_time",
    "kernel_stein_discrepancy",
    "r_hat",
    "temperature",
]
