"""Metropolis tests on subsets of the data."""

from ergodax.exact.austerity import austerity
from ergodax.exact.confidence import confidence
from ergodax.exact.firefly import firefly
from ergodax.exact.logistic import LogisticBound, LogisticRange
from ergodax.exact.lower_bound import LowerBound
from ergodax.exact.tuna import tuna

__all__ = [
    "LogisticBound",
    "LogisticRange",
    "LowerBound",
    "austerity",
    "confidence",
    "firefly",
    "tuna",
]
