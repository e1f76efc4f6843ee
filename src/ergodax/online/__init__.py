"""Summaries of a run that are kept while it runs, so that no draw need be stored."""

from ergodax.online.accumulate import Accumulator, accumulate
from ergodax.online.moments import Moments
from ergodax.online.quantiles import Quantiles

__all__ = ["Accumulator", "Moments", "Quantiles", "accumulate"]
