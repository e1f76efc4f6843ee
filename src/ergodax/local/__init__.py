"""Local posteriors of trained networks: learning coefficients, influence, susceptibilities."""

from ergodax.local.coefficient import learning_coefficient
from ergodax.local.influence import Influence, influence, susceptibilities
from ergodax.local.result import LearningCoefficient

__all__ = [
    "Influence",
    "LearningCoefficient",
    "influence",
    "learning_coefficient",
    "susceptibilities",
]
