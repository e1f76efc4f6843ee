"""Better estimates from draws that are already there."""

from ergodax.postprocess.gradients import gradients
from ergodax.postprocess.weighted import weighted
from ergodax.postprocess.zero_variance import ZeroVariance, zero_variance

__all__ = ["ZeroVariance", "gradients", "weighted", "zero_variance"]
