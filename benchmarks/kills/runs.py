"""Runs that are kept on disk, as the faults see them: begun, gone on with, read, compared."""

import abc
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.kills.outcomes import Arrays

ROOT = Path(__file__).parents[2]
RUN, DRAWS = "run", "draws.zarr"  # the folder of a run, and that of its draws in it
RETURNED = "returned.zarr"  # beside the folder of the run: the Samples that it ended in
CHAINS = 2
SAVE_EVERY = 0.02  # seconds, so that many of the kills fall into the writing of files


class Kept(abc.ABC):
    """A run that is kept on disk.

    In all methods `data` is a folder for the data that are read while it goes on, and `folder` has
    the folder of the run, and what it ended in.
    """

    @abc.abstractmethod
    def go_on(self, data: Path, folder: Path, part: float = 1.0, every: float = SAVE_EVERY) -> None:
        """Begin the run, or go on from where it stands, to its end or to a part of it.

        It is saved every so many seconds, if it is not a run that saves where it chooses.
        """

    @abc.abstractmethod
    def counted(self, folder: Path) -> int:
        """How many draws its last whole checkpoint counts; 0 without one."""

    @abc.abstractmethod
    def saved(self, data: Path, folder: Path) -> Arrays:
        """What can be read of it at any time: arrays with the draws first, none before the first.

        Raises:
            ex.CheckpointError: it can't be read.
        """

    @abc.abstractmethod
    def ended(self, data: Path, folder: Path) -> Arrays:
        """All that a finished run has stored and returned."""


@dataclasses.dataclass(frozen=True)
class Sampled(Kept):
    """A run of `ex.sample`.

    Attributes:
        kernel: made with the folder for the data.
        num_steps: of each chain.
        start: where the chains begin, made likewise.
        collect: of `ex.sample`.
        thin: likewise.
    """

    kernel: Callable[[Path], Any]
    num_steps: int
    start: Callable[[Path], Any]
    collect: Callable[[Any], Any] | None = None
    thin: int = 20

    def sample(self, data: Path, num_steps: int, **more: Any) -> ex.Samples:
        """A run of so many steps; `more` are further arguments of `ex.sample`."""
        return ex.sample(
            self.kernel(data), self.start(data), num_steps, thin=self.thin, burn_in=100,
            collect=self.collect, num_chains=CHAINS, key=jax.random.key(3), progress=False, **more,
        )  # fmt: skip

    def go_on(self, data: Path, folder: Path, part: float = 1.0, every: float = SAVE_EVERY) -> None:
        """See `Kept`."""
        kept = ex.Checkpoint(folder / RUN, every=every, resume=True)
        samples = self.sample(data, int(part * self.num_steps), checkpoint=kept)
        if part == 1.0:
            samples.save(folder / RETURNED)

    def counted(self, folder: Path) -> int:
        """See `Kept`."""
        names = ("checkpoint", "checkpoint.previous")
        return max(_facts(folder / RUN / name).get("made", 0) for name in names)

    def saved(self, data: Path, folder: Path) -> Arrays:
        """See `Kept`."""
        store = folder / RUN / DRAWS
        if not store.exists():
            return []
        found = ex.Samples.load(store)
        return [np.swapaxes(leaf, 0, 1) for leaf in _arrays((found.position, found.info))]

    def ended(self, data: Path, folder: Path) -> Arrays:
        """See `Kept`."""
        both = [ex.Samples.load(path) for path in (folder / RUN / DRAWS, folder / RETURNED)]
        return _arrays([(each.position, each.info, each.final_state) for each in both])


def _arrays(tree: Any) -> Arrays:
    """The arrays of a tree; the data of keys."""
    return [
        np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _facts(checkpoint: Path) -> dict[str, Any]:
    """What the header of a checkpoint says; nothing where it is not whole.

    It is JSON behind a line that names the format, 64 digits and its own length.
    """
    try:
        body = checkpoint.read_bytes().partition(b"\n")[2][64:]
        return json.loads(body[8 : 8 + int.from_bytes(body[:8], "big")])["facts"]
    except (OSError, ValueError):
        return {}
