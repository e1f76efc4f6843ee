"""Stages of automatic inference, each usable alone: mode finding, whitening."""

from ergodax.tune.mode import Mode, find_mode
from ergodax.tune.whiten import Whitening, whiten

__all__ = ["Mode", "Whitening", "find_mode", "whiten"]
