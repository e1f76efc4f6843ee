"""What a run's draws say about themselves, by ArviZ."""

from ergodax.diagnostics.summary import summarise

__all__ = ["summarise"]
