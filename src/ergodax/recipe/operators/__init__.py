"""Linear maps on PyTrees: the blocks of D and Q, masses and covariances."""

from ergodax.recipe.operators.base import Operator
from ergodax.recipe.operators.column import Column
from ergodax.recipe.operators.convert import as_definite, as_operator
from ergodax.recipe.operators.dense import Dense
from ergodax.recipe.operators.diagonal import Diagonal
from ergodax.recipe.operators.low_rank import LowRank
from ergodax.recipe.operators.scalar import Scalar

__all__ = [
    "Column",
    "Dense",
    "Diagonal",
    "LowRank",
    "Operator",
    "Scalar",
    "as_definite",
    "as_operator",
]
