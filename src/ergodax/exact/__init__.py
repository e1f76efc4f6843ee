"""Metropolis tests on subsets of the data."""

from ergodax.exact.condensed import Condensed, condense
from ergodax.exact.confidence import austerity, confidence
from ergodax.exact.delayed_acceptance import delayed_acceptance
from ergodax.exact.firefly import LowerBound, firefly
from ergodax.exact.logistic import LogisticBound, LogisticRange
from ergodax.exact.tuna import AliasTable, tuna

__all__ = [
    "AliasTable",
    "Condensed",
    "LogisticBound",
    "LogisticRange",
    "LowerBound",
    "austerity",
    "condense",
    "confidence",
    "delayed_acceptance",
    "firefly",
    "tuna",
]
