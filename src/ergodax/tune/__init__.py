"""Stages of automatic inference, each usable alone."""

from ergodax.tune.whiten import Whitening, whiten

__all__ = ["Whitening", "whiten"]
