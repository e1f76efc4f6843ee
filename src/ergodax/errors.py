"""Errors that a sampler can end in, beside the standard ValueError and TypeError."""

from typing import Any


class DivergenceError(RuntimeError):
    """A chain diverged; what was drawn before is kept.

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


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop (Ctrl-C, or a signal to terminate) and did, after a whole chunk.

    Attributes:
        samples: the `Samples` drawn so far, or None when there were none.
        signal: the number of the signal.
    """

    def __init__(self, message: str, *, signal: int, samples: Any = None) -> None:
        super().__init__(message)
        self.signal = signal
        self.samples = samples


class StorageError(RuntimeError):
    """Draws could not be written, or rows of a stream not be read; what was drawn is not lost.

    Where an iterator of the user's raised it, that error is the `__cause__`.

    Attributes:
        samples: the `Samples` drawn so far, or None when there were none.
    """

    def __init__(self, message: str, *, samples: Any = None) -> None:
        super().__init__(message)
        self.samples = samples


class CallbackError(RuntimeError):
    """A function of the user's that runs outside of JAX raised an error in the middle of a run.

    That is one behind `jax.pure_callback`, `jax.experimental.io_callback` or `jax.debug.callback`.

    Attributes:
        step: the first step (counted from 0, burn-in included) of those in which it happened.
        samples: the `Samples` drawn before that step, or None when there were none.
    """

    def __init__(self, message: str, *, step: int, samples: Any = None) -> None:
        super().__init__(message)
        self.step = step
        self.samples = samples


class CheckpointError(ValueError):
    """A checkpoint or a store of draws is damaged, or belongs to another run."""
