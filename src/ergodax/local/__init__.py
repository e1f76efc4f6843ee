"""Local posteriors of trained networks: learning coefficients, influence, susceptibilities."""

from ergodax.local.coefficient import learning_coefficient
from ergodax.local.result import LearningCoefficient

__all__ = ["LearningCoefficient", "learning_coefficient"]
