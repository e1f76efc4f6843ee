"""Better estimates from draws that are already there: parts of `stats` and `gradient`, by one name.

They can't stand in one of these: `stats` lies below `gradient` and knows no target.
"""

from ergodax.gradient.at_draws import gradients_at as gradients
from ergodax.stats.summary import weighted
from ergodax.stats.zero_variance import ZeroVariance, zero_variance

__all__ = ["ZeroVariance", "gradients", "weighted", "zero_variance"]
