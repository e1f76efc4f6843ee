"""Metropolis tests on subsets of the data."""

from ergodax.exact.alias import AliasTable
from ergodax.exact.austerity import austerity
from ergodax.exact.condensed import Condensed, condense
from ergodax.exact.confidence import confidence
from ergodax.exact.delayed_acceptance import delayed_acceptance
from ergodax.exact.firefly import firefly
from ergodax.exact.logistic import LogisticBound, LogisticRange
from ergodax.exact.lower_bound import LowerBound
from ergodax.exact.tuna import tuna

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
