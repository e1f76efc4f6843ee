"""The best of a grid of step sizes and frictions, judged by documents kept for that."""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ergodax.apps.lda.runs import Bench
from ergodax.apps.lda.store import Run
from ergodax.apps.lda.train import Settings
from ergodax.errors import DivergenceError


def search(
    bench: Bench, name: str, settings: Settings, grid: Mapping[str, tuple[float, ...]]
) -> tuple[Settings, list[dict[str, Any]]]:
    """Run every point of a grid once, or take it from the store, diverged ones included.

    Args:
        bench: on the documents that choose.
        name: of the sampler or peer.
        settings: which the points change.
        grid: values of fields of the settings.

    Returns:
        The settings of least perplexity, and a row for each point.

    Raises:
        DivergenceError: at every point.
    """
    rows = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        found = _cell(bench, name, changed(settings, point))
        rows.append({"method": name, **point, "perplexity": found.rows[-1]["perplexity"]})
    best = min(rows, key=lambda row: row["perplexity"])
    chosen = {axis: best[axis] for axis in grid}
    bench.say(f"{name}: chosen " + ", ".join(f"{axis} = {v:g}" for axis, v in chosen.items()))
    return changed(settings, chosen), rows


def changed(settings: Settings, values: Mapping[str, float]) -> Settings:
    """The settings with some numbers changed.

    Args:
        settings: to change.
        values: by the name of the field; those of whole numbers are truncated.
    """
    whole = {f.name for f in dataclasses.fields(Settings) if f.type in (int, "int")}
    return dataclasses.replace(
        settings, **{name: int(v) if name in whole else float(v) for name, v in values.items()}
    )


def _cell(bench: Bench, name: str, settings: Settings) -> Run:
    text = repr(sorted(dataclasses.asdict(settings).items()))
    label = f"{name}-grid-{hashlib.sha1(text.encode()).hexdigest()[:10]}"
    try:
        return bench.run(name, settings, 0, label)
    except DivergenceError:
        bench.say(f"{label}: diverged")
        run = Run([{"perplexity": math.inf}], np.zeros((0, 0)))
        bench.store.save(label, settings, run)
        return run
