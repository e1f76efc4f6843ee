"""Finished runs in a folder, so that a second call does not repeat them."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Run:
    """What is kept of a run.

    Attributes:
        rows: a row for each snapshot.
        phi: of the last snapshot, shape (K, W).
    """

    rows: list[dict[str, Any]]
    phi: np.ndarray


class Store:
    """A file for each finished run; without a folder nothing is kept.

    Args:
        folder: made if it does not exist.
        facts: of the corpus and the options, which a stored run must share.
    """

    def __init__(self, folder: Path | None, facts: Mapping[str, Any]) -> None:
        self.folder, self.facts = folder, facts

    def load(self, label: str, settings: Any) -> Run | None:
        """The stored run of that label if it was of the same settings, else None.

        Args:
            label: of the run.
            settings: a dataclass.
        """
        if self.folder is None or not (path := self._path(label)).exists():
            return None
        with np.load(path) as file:
            if str(file["of"]) != self._of(settings):
                return None
            return Run(json.loads(str(file["rows"])), file["phi"])

    def save(self, label: str, settings: Any, run: Run) -> None:
        """Keep a finished run; one of the same label is replaced.

        Args:
            label: of the run.
            settings: a dataclass.
            run: to keep.
        """
        if self.folder is None:
            return
        path = self._path(label)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")  # an interrupted write leaves no half of a run
        np.savez(part, of=self._of(settings), rows=json.dumps(run.rows), phi=run.phi)
        part.replace(path)

    def _path(self, label: str) -> Path:
        assert self.folder is not None
        return self.folder / "runs" / f"{label}.npz"

    def _of(self, settings: Any) -> str:
        return json.dumps([dict(self.facts), dataclasses.asdict(settings)], sort_keys=True)
