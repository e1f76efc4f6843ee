"""Data in memory and how batches are drawn from them."""

from ergodax.data.batching import (
    Batching,
    ShuffledEpochs,
    WithoutReplacement,
    WithReplacement,
)

__all__ = ["Batching", "ShuffledEpochs", "WithReplacement", "WithoutReplacement"]
