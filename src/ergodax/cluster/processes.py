"""What the processes of one run tell each other, between chunks; one process has nobody to tell."""

import contextlib
import hashlib
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import jax
import numpy as np

from ergodax import tree
from ergodax.errors import CheckpointError

OF_CHAINS = ("key", "position")  # how the names of facts that belong to chains begin
TRANSPORTS = ("Gloo", "NCCL", "coordination service", "heartbeat")  # in the texts of their errors


class ProcessLost(RuntimeError):
    """Another process of the run has ended, or can't be reached."""


class ProcessFailed(RuntimeError):
    """Another process of the run has raised an error, so this one stops as well."""


class Agreement(NamedTuple):
    """What all processes do next."""

    steps: int  # of the next chunk
    signal: int  # by which any was asked to stop, 0 for none
    due: bool  # whether it is time to save for any


class Alone:
    """The one process of a run."""

    number, count = 0, 1

    def together(self) -> contextlib.AbstractContextManager[None]:
        """A context out of which an error comes as it is."""
        return contextlib.nullcontext()

    def agree(self, mine: Agreement) -> Agreement:
        """The same."""
        return mine

    def alike(self, facts: dict[str, str], **more: Any) -> None:
        """Nothing to compare with."""


class Together:
    """One of several processes, which take the same chunks and stop after the same one."""

    def __init__(self) -> None:
        self.number, self.count = jax.process_index(), jax.process_count()

    @contextlib.contextmanager
    def together(self) -> Generator[None]:
        """A context that all leave together. Raises: ProcessFailed where another had an error."""
        try:
            yield
        except ProcessLost:
            raise
        except BaseException:  # an interrupt as well, which the others must hear of
            self.gather(np.array([True]))
            raise
        if (failed := np.flatnonzero(self.gather(np.array([False])))).size:
            raise ProcessFailed(
                f"process {failed[0]} of {self.count} has raised an error, so this one (process "
                f"{self.number}) stops too; the reason is in the output of that process."
            )

    def agree(self, mine: Agreement) -> Agreement:
        """As many steps as process 0 wants; a stop or a save where any process wants it."""
        every = self.gather(np.array(mine, np.int32))
        return Agreement(int(every[0, 0]), int(every[:, 1].max()), bool(every[:, 2].any()))

    def alike(self, facts: dict[str, str], **more: Any) -> None:
        """Check that all run the same, keys and positions of chains aside. Raises: ValueError."""
        facts = facts | {name: str(value) for name, value in more.items()}
        names = sorted(name for name in facts if not name.startswith(OF_CHAINS))
        digests = np.stack([_digest("\n".join(names)), *(_digest(facts[name]) for name in names)])
        counts = self.gather(np.array([len(digests)], np.int32))
        alike = (counts == counts[0]).all() and not _differ(self.gather(digests[0])).any()
        if not alike:
            raise ValueError(
                "the processes run different models or samplers: their kernels do not have the "
                "same parts. Start the same program in all of them."
            )
        where = _differ(self.gather(digests)[:, 1:])
        if where.any():
            changed = [name for name, other in zip(names, where, strict=True) if other]
            rest = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            raise ValueError(
                f"the processes differ in: {'; '.join(changed[:5])}{rest}. Give all of them the "
                "same model, data, key and settings."
            )

    def common(self, steps: list[int]) -> int | None:
        """The latest step saved by all, None where all begin anew. Raises: CheckpointError."""
        padded = np.full(2, -1, np.int32)
        padded[: len(steps)] = steps
        every = [{int(step) for step in one if step >= 0} for one in self.gather(padded)]
        shared = set.intersection(*every)
        if not shared and not set.union(*every) - {0}:
            return None  # killed at the very start, when some had not written that of step 0
        if not shared:
            have = (f"process {k} those of {sorted(one) or 'none'}" for k, one in enumerate(every))
            raise CheckpointError(
                f"the processes have no checkpoint of one step in common: {', '.join(have)}. "
                "Restore the missing ones, or choose another folder for a new run."
            )
        return max(shared)

    def gather(self, value: np.ndarray) -> np.ndarray:
        """What each process says, along a new leading axis. Raises: ProcessLost."""
        from jax.experimental import multihost_utils

        with watched():
            return np.asarray(multihost_utils.process_allgather(value))


@contextlib.contextmanager
def watched() -> Generator[None]:
    """A context in which a broken connection is a process lost. Raises: ProcessLost."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if not any(name in str(error) for name in TRANSPORTS):
            raise
        raise ProcessLost(
            "another process of this run has ended or can't be reached. Start all of them again; "
            "with checkpoint=ex.Checkpoint(folder, resume=True) they go on to the same draws. The "
            f"connection says: {str(error).splitlines()[0]}"
        ) from error


def on_words(function: Callable[[Any], Any], x: Any) -> Any:
    """The function of an array; of keys, on the words that they are made of."""
    if not tree.is_key(x):
        return function(x)
    words = function(jax.random.key_data(x))
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(x))


def _digest(text: str) -> np.ndarray:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), np.uint8)


def _differ(every: np.ndarray) -> Any:
    """Where any process has other digests than the first; the last axis holds one."""
    return (every != every[:1]).any(axis=(0, -1))
