"""Topics of a corpus by several methods on one stream, judged on one test set."""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from ergodax.apps.lda import peers
from ergodax.apps.lda.corpus import Corpus
from ergodax.apps.lda.division import divide
from ergodax.apps.lda.evaluation import Completion, HeldBack, split
from ergodax.apps.lda.kernels import SAMPLERS
from ergodax.apps.lda.runs import Bench
from ergodax.apps.lda.search import search
from ergodax.apps.lda.store import Store
from ergodax.apps.lda.topics import Topics, describe
from ergodax.apps.lda.train import Settings

COHERENCE = 10_000  # documents in which the topics' words are counted


@dataclasses.dataclass(frozen=True)
class Options:
    """What is run.

    Attributes:
        settings: of each sampler and each of `peers.PEERS`, by their names; the latter use the
            priors, the batches, and the offset and power of their learning rate.
        documents: used in each run, passing over the corpus again if it has fewer.
        test: documents to test on, and as many others to choose from a grid.
        repeats: runs of each method that differ in stream, start and noise.
        grid: for some of the methods, values to try of fields of its settings before the runs.
        grid_documents: used in each run of the grid; by default as many as in the others.
        held_back: "tenth" or "half" of a test document's tokens.
        seed: of everything.
        resume: use the finished and interrupted runs of the folder.

    Raises:
        ValueError: no method, an unknown one, or a number out of range.
    """

    settings: Mapping[str, Settings]
    documents: int = 10_000
    test: int = 500
    repeats: int = 3
    grid: Mapping[str, Mapping[str, tuple[float, ...]]] = dataclasses.field(default_factory=dict)
    grid_documents: int | None = None
    held_back: HeldBack = "tenth"
    seed: int = 0
    resume: bool = True

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
            if name not in (*SAMPLERS, *peers.PEERS):
                raise ValueError(
                    f"peers has {name!r}; the known ones are {', '.join(peers.PEERS)}."
                )
        fields = {field.name for field in dataclasses.fields(Settings)} - {"sampler"}
        for method, axes in self.grid.items():
            if method not in self.settings:
                raise ValueError(f"grid has {method!r}, which is not among the methods.")
            for name in axes:
                if name not in fields:
                    raise ValueError(f"grid has {name!r}, which is no number of the settings.")


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found.

    Attributes:
        rows: a row for each method, repeat and snapshot.
        grid: a row for each point of the grid and sampler; empty without a grid.
        topics: of each method's last snapshot of the first repeat.
        settings: of each sampler's runs.
        skipped: peers that are not installed, a sentence each.
        facts: of the corpus and the options.
    """

    rows: pd.DataFrame
    grid: pd.DataFrame
    topics: dict[str, Topics]
    settings: dict[str, Settings]
    skipped: list[str]
    facts: dict[str, Any]

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


def run(
    corpus: Corpus,
    options: Options,
    say: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> Result:
    """Choose from the grid, run every method and judge it by the test documents.

    Args:
        corpus: of any size; its documents are read as they are needed.
        options: what to run.
        say: called with a line of progress.
        folder: keeps finished runs, which a second call does not repeat.

    Raises:
        ValueError: the corpus has too few documents, or too short ones.
        DivergenceError: a sampler left the finite numbers; a smaller step may help.
    """
    division = divide(corpus, options.test, options.test if options.grid else 0, options.seed)
    completion, *validation = (
        split(documents, np.random.default_rng([options.seed, 2]), options.held_back)
        for documents in (division.test, division.validation)
        if documents
    )
    facts = {
        "documents_in_corpus": corpus.num_documents,
        "vocabulary": len(corpus.vocabulary),
        "test_documents": len(division.test),
        "held_back_tokens": int(completion.counts.sum()),
        "documents": options.documents,
        "held_back": options.held_back,
        "seed": options.seed,
    }
    store = Store(folder, {**facts, "validation": len(division.validation)}, options.resume)
    size = len(corpus.vocabulary)
    bench = Bench(division, completion, size, options.documents, options.seed, store, say)
    settings, tried = dict(options.settings), []
    lacking = {name: peers.missing(name) for name in settings if peers.missing(name)}
    skipped = [f"{name} is skipped: {lacks} is not installed" for name, lacks in lacking.items()]
    for name, sentence in zip(lacking, skipped, strict=True):
        say(sentence)
        del settings[name]
    for name in [name for name in settings if name in options.grid]:
        chooser = _chooser(bench, validation[0], options)
        settings[name], points = _searched(chooser, name, settings[name], options)
        tried += points
    rows, topics = [], {}
    for name, of in settings.items():
        for repeat in range(options.repeats):
            found = bench.run(name, of, repeat, f"{name}-{repeat + 1}")
            rows += [{"method": name, "repeat": repeat, **row} for row in found.rows]
            if repeat == 0:
                topics[name] = _topics(bench, found.phi, of, corpus)
    facts |= {"repeats": options.repeats, "device": str(jax.devices()[0])}
    facts |= {"peak_memory_mb": _peak_memory()}
    return Result(pd.DataFrame(rows), pd.DataFrame(tried), topics, settings, skipped, facts)


def _chooser(bench: Bench, validation: Completion, options: Options) -> Bench:
    """The bench of the grid: other test documents, and a shorter run."""
    documents = options.grid_documents or options.documents
    facts = {**bench.store.facts, "documents": documents, "grid": True}
    store = Store(bench.store.folder, facts, options.resume)
    return dataclasses.replace(bench, completion=validation, documents=documents, store=store)


def _searched(
    chooser: Bench, name: str, settings: Settings, options: Options
) -> tuple[Settings, list[dict[str, Any]]]:
    """The settings with the best values of the grid, whose runs give as many snapshots."""
    every = max(1, settings.snapshot_every * chooser.documents // options.documents)
    scaled = dataclasses.replace(settings, snapshot_every=every)
    best, rows = search(chooser, name, scaled, options.grid[name])
    return dataclasses.replace(best, snapshot_every=settings.snapshot_every), rows


def _topics(bench: Bench, phi: np.ndarray, settings: Settings, corpus: Corpus) -> Topics:
    shares = bench.proportions(phi, settings).mean(axis=0)
    documents = itertools.islice(corpus.read(), COHERENCE)
    return describe(phi, shares, corpus.vocabulary, documents, min(10, phi.shape[1]))


def _peak_memory() -> float | None:
    """The most memory that this process has held, in MB; None where the system does not say."""
    try:
        import resource
    except ImportError:  # of Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
