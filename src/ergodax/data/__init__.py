"""Data in memory or on disk, and how batches are drawn from them."""

from ergodax.data import archive
from ergodax.data.batching import (
    Batching,
    Neighbours,
    ShuffledEpochs,
    WithoutReplacement,
    WithReplacement,
)
from ergodax.data.files import npy
from ergodax.data.formats import parquet, zarr
from ergodax.data.shuffle import shuffle
from ergodax.data.source import Source
from ergodax.data.stream import stream

__all__ = [
    "Batching",
    "Neighbours",
    "ShuffledEpochs",
    "Source",
    "WithReplacement",
    "WithoutReplacement",
    "archive",
    "npy",
    "parquet",
    "shuffle",
    "stream",
    "zarr",
]
