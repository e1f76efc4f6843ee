"""Topics of a corpus by several methods on one stream, judged on one test set."""

import dataclasses
import hashlib
import itertools
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import ergodax as ex
from ergodax.learn.topics import Corpus, HeldBack, Topics
from experiments.command import Say
from experiments.topics.peers import PEERS, missing
from experiments.topics.runs import Bench, Run, Store, open_bench
from experiments.topics.samplers import SAMPLERS
from experiments.topics.train import Settings


@dataclasses.dataclass(frozen=True)
class Options:
    """What is run.

    Raises:
        ValueError: no method, an unknown one, or a number out of range.
    """

    # of each sampler and each of `peers.PEERS`, by their names; the latter use the
    # priors, the batches, and the offset and power of their learning rate
    settings: Mapping[str, Settings]
    documents: int = 10_000  # used in each run, passing over the corpus again if it has fewer
    test: int = 500  # documents to test on, and as many others to choose from a grid
    repeats: int = 3  # runs of each method that differ in stream, start and noise
    # for some of the methods, values to try of fields of its settings before the runs
    grid: Mapping[str, Mapping[str, tuple[float, ...]]] = dataclasses.field(default_factory=dict)
    # used in each run of the grid; by default as many as in the others
    grid_documents: int | None = None
    held_back: HeldBack = "tenth"  # "tenth" or "half" of a test document's tokens
    seed: int = 0  # of everything
    resume: bool = True  # use the finished runs of the folder

    def __post_init__(self) -> None:
        """Refuse before any work what would fail after it."""
        if not self.settings:
            raise ValueError("settings is empty; give those of at least one method.")
        batch = max(settings.batch_size for settings in self.settings.values())
        least = {"documents": batch, "test": 1, "repeats": 1, "grid_documents": batch}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(f"{name} must be at least {bound}, not {value}.")
        for name in self.settings:
            if name not in (*SAMPLERS, *PEERS):
                known = ", ".join((*SAMPLERS, *PEERS))
                raise ValueError(f"methods has {name!r}; the known ones are {known}.")
        fields = {field.name for field in dataclasses.fields(Settings)} - {"sampler"}
        for method, axes in self.grid.items():
            if method not in self.settings:
                raise ValueError(f"grid has {method!r}, which is not among the methods.")
            for name in axes:
                if name not in fields:
                    raise ValueError(f"grid has {name!r}, which is no number of the settings.")


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    rows: pd.DataFrame  # a row for each method, repeat and snapshot
    grid: pd.DataFrame  # a row for each point of the grid and sampler; empty without a grid
    topics: dict[str, Topics]  # of each method's last snapshot of the first repeat
    settings: dict[str, Settings]  # of each sampler's runs
    skipped: list[str]  # peers that are not installed, a sentence each
    facts: dict[str, Any]  # of the corpus and the options

    @property
    def summary(self) -> pd.DataFrame:
        """Each method's last snapshots: mean and standard error over the repeats."""
        last = self.rows.groupby(["method", "repeat"], sort=False).last().reset_index()
        found = []
        for method, runs in last.groupby("method", sort=False):
            paces = self.rows.loc[self.rows["method"] == method, "pace"]
            found.append(
                {
                    "method": method,
                    "documents": int(runs["documents"].iloc[0]),
                    "perplexity": runs["perplexity"].mean(),
                    "standard_error": _standard_error(runs["perplexity"].to_numpy()),
                    "alone": runs["alone"].mean(),
                    "alone_error": _standard_error(runs["alone"].to_numpy()),
                    "npmi": self.topics[str(method)].coherence.mean(),
                    "seconds": runs["seconds"].mean(),
                    "pace": paces.median(),
                    "runs": len(runs),
                }
            )
        return pd.DataFrame(found)


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan


def run(corpus: Corpus, options: Options, say: Say, folder: Path | None = None) -> Result:
    """Choose from the grid, run every method and judge it by the test documents.

    Args:
        corpus: of any size; its documents are read as they are needed.
        options: what to run.
        say: prints a line of progress.
        folder: keeps finished runs, which a second call does not repeat.

    Raises:
        ValueError: the corpus has too few documents, or too short ones.
        DivergenceError: a sampler diverged; a smaller step may help.
    """
    bench = open_bench(
        corpus, options.documents, test=options.test, held_back=options.held_back,
        validation=options.test if options.grid else 0, seed=options.seed, folder=folder,
        resume=options.resume, say=say,
    )  # fmt: skip
    settings, skipped, tried = dict(options.settings), [], []
    for name in [name for name in settings if missing(name)]:
        skipped.append(f"{name} is skipped: {missing(name)} is not installed")
        say(skipped[-1])
        del settings[name]
    for name in [name for name in settings if name in options.grid]:
        settings[name], points = _searched(_chooser(bench, options), name, settings[name], options)
        tried += points
    rows, topics = [], {}
    for name, of in settings.items():
        for repeat in range(options.repeats):
            found = bench.run(of, repeat, f"{name}-{repeat + 1}", PEERS.get(name))
            rows += [{"method": name, "repeat": repeat, **row} for row in found.rows]
            if repeat == 0:
                topics[name] = bench.topics(found.phi, of)
    facts = {k: v for k, v in bench.store.facts.items() if k != "validation"}
    facts |= {"repeats": options.repeats, "device": str(jax.devices()[0])}
    facts |= {"peak_memory_mb": _peak_memory()}
    return Result(pd.DataFrame(rows), pd.DataFrame(tried), topics, settings, skipped, facts)


def _chooser(bench: Bench, options: Options) -> Bench:
    """The bench of the grid: other test documents, and a shorter run."""
    documents = options.grid_documents or options.documents
    facts = {**bench.store.facts, "documents": documents, "grid": True}
    store = Store(bench.store.folder, facts, options.resume)
    assert bench.validation is not None
    return dataclasses.replace(bench, completion=bench.validation, documents=documents, store=store)


def _searched(
    chooser: Bench, name: str, settings: Settings, options: Options
) -> tuple[Settings, list[dict[str, Any]]]:
    """The settings with the best values of the grid, whose runs give as many snapshots."""
    every = max(1, settings.snapshot_every * chooser.documents // options.documents)
    scaled = dataclasses.replace(settings, snapshot_every=every)
    best, rows = search(chooser, name, scaled, options.grid[name])
    return dataclasses.replace(best, snapshot_every=settings.snapshot_every), rows


def _peak_memory() -> float | None:
    """The most memory that this process has held, in MB; None where the system does not say."""
    try:
        import resource
    except ImportError:  # of Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def search(
    bench: Bench, name: str, settings: Settings, grid: Mapping[str, tuple[float, ...]]
) -> tuple[Settings, list[dict[str, Any]]]:
    """Run every point of a grid once, or take it from the store, diverged ones included.

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
        return bench.run(settings, 0, label, PEERS.get(name))
    except ex.DivergenceError:
        bench.say(f"{label}: diverged")
        run = Run([{"perplexity": math.inf}], np.zeros((0, 0)))
        bench.store.save(label, settings, run)
        return run
