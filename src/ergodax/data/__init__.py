"""Data in memory and how batches are drawn from them."""

from ergodax.data.batching import (
    Batching,
    Neighbours,
    ShuffledEpochs,
    WithoutReplacement,
    WithReplacement,
)

__all__ = ["Batching", "Neighbours", "ShuffledEpochs", "WithReplacement", "WithoutReplacement"]
