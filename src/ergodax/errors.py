"""Errors that a sampler can end in, beside the standard ValueError and TypeError."""

from typing import Any


class DivergenceError(RuntimeError):
    """A chain left the finite numbers; what was drawn before is kept.

    Attributes:
        step: the first step (counted from 0, burn-in included) whose result was not finite.
        chain: the index of the first chain that failed.
        state: the states of all chains just before that step (leading chain axis), all finite.
        samples: the `Samples` drawn before that step, or None when there were none.
    """

    def __init__(
        self, message: str, *, step: int, chain: int, state: Any, samples: Any = None
    ) -> None:
        super().__init__(message)
        self.step = step
        self.chain = chain
        self.state = state
        self.samples = samples
