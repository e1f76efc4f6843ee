"""Runs in a folder: finished ones are not repeated, interrupted ones go on."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ergodax.kernel import State
from ergodax.persist import checkpoint


@dataclasses.dataclass(frozen=True)
class Run:
    """What is kept of a finished run.

    Attributes:
        rows: a row for each snapshot.
        phi: of the last snapshot, shape (K, W).
    """

    rows: list[dict[str, Any]]
    phi: np.ndarray


@dataclasses.dataclass(frozen=True)
class Part:
    """What is kept of a run that has not ended, as of its last snapshot.

    Attributes:
        rows: a row for each snapshot.
        kept: the probabilities of the held-back words that are averaged, an array a snapshot.
        state: of the sampler.
    """

    rows: list[dict[str, Any]]
    kept: list[np.ndarray]
    state: State


class Store:
    """A file for each run; without a folder nothing is kept.

    Args:
        folder: made if it does not exist.
        facts: of the corpus and the options, which a stored run must share.
        resume: use what the folder has.
    """

    def __init__(self, folder: Path | None, facts: Mapping[str, Any], resume: bool = True) -> None:
        self.folder, self.facts, self.resume = folder, facts, resume

    def load(self, label: str, settings: Any) -> Run | None:
        """The finished run of that label if it was of the same settings, else None.

        Args:
            label: of the run.
            settings: a dataclass.
        """
        path = self._path(label, ".npz")
        if path is None or not self.resume or not path.exists():
            return None
        with np.load(path) as file:
            if str(file["of"]) != self._of(settings):
                return None
            return Run(json.loads(str(file["rows"])), file["phi"])

    def save(self, label: str, settings: Any, run: Run) -> None:
        """Keep a finished run; one of the same label is replaced, and its parts are removed.

        Args:
            label: of the run.
            settings: a dataclass.
            run: to keep.
        """
        path = self._path(label, ".npz")
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".writing.npz")  # never half of a run
        np.savez(unfinished, of=self._of(settings), rows=json.dumps(run.rows), phi=run.phi)
        unfinished.replace(path)
        for part in path.parent.glob(f"{label}.part*"):
            part.unlink()

    def load_part(self, label: str, settings: Any, like: State) -> Part | None:
        """The interrupted run of that label if it was of the same settings, else None.

        Args:
            label: of the run.
            settings: a dataclass.
            like: a state of the same shapes; `jax.ShapeDtypeStruct` will do.

        Raises:
            CheckpointError: the file is damaged, and the one before it too.
        """
        path = self._path(label, ".part")
        if path is None or not self.resume:
            return None
        try:
            facts, arrays = checkpoint.read(path)
        except FileNotFoundError:
            return None
        if facts["of"] != self._of(settings):
            return None
        kept = [jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in arrays.items() if "'kept'" in n]
        tree, facts = checkpoint.load(path, {"kept": kept, "state": like})
        return Part(facts["rows"], [np.asarray(x) for x in tree["kept"]], tree["state"])

    def save_part(self, label: str, settings: Any, part: Part) -> None:
        """Keep a run as far as it has come.

        Args:
            label: of the run.
            settings: a dataclass.
            part: to keep.
        """
        path = self._path(label, ".part")
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        tree = {"kept": part.kept, "state": part.state}
        checkpoint.save(path, tree, {"of": self._of(settings), "rows": part.rows})

    def _path(self, label: str, suffix: str) -> Path | None:
        return None if self.folder is None else self.folder / "runs" / f"{label}{suffix}"

    def _of(self, settings: Any) -> str:
        return json.dumps([dict(self.facts), dataclasses.asdict(settings)], sort_keys=True)
