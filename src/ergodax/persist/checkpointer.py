"""What of a run goes to disk: its draws as they come, and from time to time where it stands."""

import contextlib
import dataclasses
import math
import os
import time
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from ergodax.errors import CheckpointError, StorageError
from ergodax.persist import checkpoint, draws

FILE, DRAWS = "checkpoint", "draws.zarr"  # in the folder of checkpoints


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run is kept on disk, for `sample(checkpoint=)`.

    `Checkpoint("run")` keeps the state of the run and its draws in the folder `run`. With
    `resume=True` the same call goes on with the run that is there, to the same draws that it would
    have made uninterrupted, or begins one if there is none; num_steps may be more than it was.
    `Checkpoint(store="draws")` keeps the draws alone: they outlive a kill, but the run can't be
    resumed.

    Args:
        folder: for the state of the run, and for its draws where `store` is not given.
        every: seconds between two times of saving draws and state.
        store: a folder for the draws (Zarr), which go there as they come; `Samples.load` reads it
            at any time, after a kill as well.
        resume: go on with the run in `folder`, if there is one.

    Raises:
        TypeError: a folder that is not a path, or `every` not a number.
        ValueError: no folder at all, `resume` without `folder`, or `every` not positive.
    """

    folder: str | Path | None = None
    _: dataclasses.KW_ONLY
    every: float = 10.0
    store: str | Path | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name, path in (("folder", self.folder), ("store", self.store)):
            if path is not None and not isinstance(path, str | os.PathLike):
                raise TypeError(f"{name} must be a path, not {path!r}. Try folder='run'.")
        if self.folder is None and self.store is None:
            raise ValueError("Checkpoint needs a folder, or store=, the folder of the draws alone.")
        if self.resume and self.folder is None:
            raise ValueError("resume=True needs folder=, that of the run to go on with.")
        if isinstance(self.every, bool) or not isinstance(self.every, int | float):
            raise TypeError(f"every must be a number of seconds, not {self.every!r}. Try 10.")
        if not self.every > 0:
            raise ValueError(f"every must be positive, not {self.every!r}. Try 10.")


class Checkpointer:
    """The folders of one run.

    Args:
        given: what is to be kept, or None.
        part: the folder, inside of these, of one of several processes; empty for the only one.

    Raises:
        TypeError: not a Checkpoint.
        CheckpointError: there is a run already and resume is False, or it is one of more or fewer
            processes.
    """

    def __init__(self, given: Any, part: str = "") -> None:
        if isinstance(given, str | os.PathLike):
            path = os.fspath(given)
            raise TypeError(
                f"checkpoint must be an ex.Checkpoint, not {given!r}. Try "
                f"checkpoint=ex.Checkpoint({path!r}), or ex.Checkpoint({path!r}, resume=True)."
            )
        if not isinstance(given, Checkpoint | None):
            raise TypeError(f"checkpoint must be an ex.Checkpoint, not {given!r}.")
        folder, draws = (given.folder, given.store) if given is not None else (None, None)
        self.resume = given is not None and given.resume
        self.every = given.every if given is not None else math.inf
        for place, own in ((folder, FILE), (draws, "zarr.json")):
            if place is not None:
                _check_parts(Path(place), own, part)
        self.file = None if folder is None else Path(folder) / part / FILE
        inside = None if folder is None else Path(folder) / DRAWS
        self.draws = Path(draws) if draws is not None else inside
        if self.draws is not None:
            self.draws = self.draws / part
        self.saved = time.monotonic()
        there = [path for path in (self.file, self.draws) if path is not None and path.exists()]
        if there and not self.resume:
            advice = "pass resume=True to go on with it, or " if self.file is not None else ""
            raise CheckpointError(
                f"{there[0]} is there already; {advice}choose another folder, or remove it."
            )

    @property
    def kinds(self) -> str:
        """What is kept, in a word: the same in all processes."""
        return f"store {self.draws is not None}, checkpoint {self.file is not None}, {self.resume}"

    @property
    def active(self) -> bool:
        """Whether anything is kept."""
        return self.draws is not None

    @property
    def resumes(self) -> bool:
        """Whether there is a run to go on with."""
        return self.resume and self.file is not None and self._written()

    def _written(self) -> bool:
        assert self.file is not None
        return self.file.exists() or self.file.with_name(FILE + checkpoint.PREVIOUS).exists()

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return self.active and time.monotonic() - self.saved > self.every

    def settle(self, processes: Any) -> None:
        """Where several processes resume, let the last checkpoint be one that all of them have.

        A process can be killed when others have written theirs and it has not.

        Raises:
            CheckpointError: they have none in common.
        """
        if processes.count == 1 or not self.resume or self.file is None:
            return
        previous, steps = self.file.with_name(FILE + checkpoint.PREVIOUS), {}
        for path in (previous, self.file):
            with contextlib.suppress(OSError, CheckpointError):
                steps[checkpoint.read(path)[0]["done"]] = path
        common = processes.common(list(steps))
        if common is None:
            for path in (previous, self.file):
                path.unlink(missing_ok=True)
        elif steps[common] == previous:
            previous.replace(self.file)

    def open(self, row: PyTree) -> draws.DrawStore | None:
        """The store of draws, made if it is not there.

        Args:
            row: (collected, info) of one draw of all chains.

        Raises:
            StorageError: the folder can't be made.
            CheckpointError: draws without a checkpoint, which can't be gone on with.
        """
        if self.draws is None:
            return None
        if self.draws.exists():
            found = draws.DrawStore(self.draws, writable=True)
            if found.draws and not self.resumes:
                raise CheckpointError(
                    f"{self.draws} has {found.draws} draws, but there is no checkpoint to go on "
                    "from. Move them elsewhere and begin again."
                )
            return found
        try:
            return draws.create(self.draws, row)
        except OSError as error:
            raise StorageError(
                f"the draws can't be written to {self.draws}: {error}. Choose a folder that can be "
                "written and has room."
            ) from error

    def write(self, states: PyTree, done: int, made: int, identity: dict[str, str]) -> None:
        """Write the checkpoint, where there is to be one.

        Raises:
            OSError: it can't be written.
        """
        self.saved = time.monotonic()
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            facts = {"done": done, "made": made, "fingerprint": identity, "jax": jax.__version__}
            checkpoint.save(self.file, states, facts)

    def load(self, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
        """The states of the checkpoint and its facts.

        Raises:
            CheckpointError: damaged, or of another run.
        """
        assert self.file is not None
        return checkpoint.load(self.file, like)

    def facts(self) -> dict[str, Any]:
        """The facts of the checkpoint alone."""
        assert self.file is not None
        return checkpoint.read(self.file)[0]

    def where(self) -> str:
        """Where the draws are, for a message."""
        return f"in {self.draws}" if self.draws is not None else "in this error's .samples"

    def how_to_go_on(self) -> str:
        """What to do after an interruption, for a message."""
        if self.file is None:
            return ""
        return " The same call with resume=True goes on from here."


def _check_parts(folder: Path, own: str, part: str) -> None:
    """Refuse the folder of a run of more, fewer or otherwise divided processes.

    Args:
        folder: of all processes.
        own: what a single process would have in it.
        part: the name of this process's folder in it.

    Raises:
        CheckpointError: it is one.
    """
    parts = sorted(path.name for path in folder.glob("process-*"))
    mine = [name for name in parts if name.partition(".")[0] == part.partition(".")[0]]
    if (part and (folder / own).exists()) or (parts and not part) or mine not in ([], [part]):
        raise CheckpointError(
            f"{folder} has the run of {len(parts) or 'one'} processes"
            f"{', among them ' + (mine or parts)[0] if parts else ''}, which can't be gone on with "
            f"by {part or 'a single one'}. Start as many processes with as many chains, or choose "
            "another folder."
        )
