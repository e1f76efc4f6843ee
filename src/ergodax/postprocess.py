"""Better estimates from draws that are already there."""

from ergodax.gradient.at_draws import gradients_at as gradients
from ergodax.stats.summary import weighted
from ergodax.stats.zero_variance import ZeroVariance, zero_variance

__all__ = ["ZeroVariance", "gradients", "weighted", "zero_variance"]
