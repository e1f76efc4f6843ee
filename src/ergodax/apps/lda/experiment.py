"""Topics of a corpus by several methods on one stream, judged on one test set."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from ergodax.apps.lda import peers
from ergodax.apps.lda.corpus import Corpus
from ergodax.apps.lda.division import divide
from ergodax.apps.lda.evaluation import HeldBack, split
from ergodax.apps.lda.runs import Bench
from ergodax.apps.lda.store import Store
from ergodax.apps.lda.topics import Topics, describe
from ergodax.apps.lda.train import Settings
from ergodax.errors import DivergenceError

COHERENCE = 10_000  # documents in which the topics' words are counted


@dataclasses.dataclass(frozen=True)
class Options:
    """What is run.

    Attributes:
        settings: of every sampler; its `sampler` is replaced.
        samplers: names that Settings knows.
        documents: used in each run, passing over the corpus again if it has fewer.
        test: documents to test on, and as many others to choose from a grid.
        repeats: runs of each method that differ in stream, start and noise.
        peers: keys of `peers.PEERS`.
        grid: values to try of fields of the settings, before the runs.
        held_back: "tenth" or "half" of a test document's tokens.
        seed: of everything.

    Raises:
        ValueError: an unknown peer, or a number out of range.
    """

    settings: Settings
    samplers: tuple[str, ...] = ("sgrhmc",)
    documents: int = 10_000
    test: int = 500
    repeats: int = 3
    peers: tuple[str, ...] = ()
    grid: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    held_back: HeldBack = "tenth"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse before any work what would fail after it."""
        for name, least in (("documents", self.settings.batch_size), ("test", 1), ("repeats", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}.")
        for name in self.peers:
            if name not in peers.PEERS:
                raise ValueError(
                    f"peers has {name!r}; the known ones are {', '.join(peers.PEERS)}."
                )
        fields = {field.name for field in dataclasses.fields(Settings)}
        for name in self.grid:
            if name not in fields or name == "sampler":
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
            values = runs["perplexity"].to_numpy()
            error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
            found.append(
                {
                    "method": method,
                    "documents": int(runs["documents"].iloc[0]),
                    "perplexity": values.mean(),
                    "standard_error": error,
                    "last_alone": runs["alone"].mean(),
                    "npmi": self.topics[str(method)].coherence.mean(),
                    "seconds": runs["seconds"].mean(),
                    "runs": len(values),
                }
            )
        return pd.DataFrame(found)


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
    store = Store(folder, {**facts, "validation": len(division.validation)})
    size = len(corpus.vocabulary)
    bench = Bench(division, completion, size, options.documents, options.seed, store, say)
    settings, tried = {}, []
    for name in options.samplers:
        settings[name] = dataclasses.replace(options.settings, sampler=name)
        if options.grid:
            chooser = dataclasses.replace(bench, completion=validation[0])
            settings[name], points = _search(chooser, settings[name], options.grid)
            tried += points
    rows, topics, skipped = [], {}, []
    for name in (*options.samplers, *options.peers):
        lacks = peers.missing(name) if name in peers.PEERS else None
        if lacks:
            skipped.append(f"{name} is skipped: {lacks} is not installed")
            say(skipped[-1])
            continue
        of = settings.get(name, options.settings)
        for repeat in range(options.repeats):
            found = bench.run(name, of, repeat, f"{name}-{repeat + 1}")
            rows += [{"method": name, "repeat": repeat, **row} for row in found.rows]
            if repeat == 0:
                topics[name] = _topics(bench, found.phi, of, corpus)
    facts |= {"repeats": options.repeats, "device": str(jax.devices()[0])}
    return Result(pd.DataFrame(rows), pd.DataFrame(tried), topics, settings, skipped, facts)


def _search(
    bench: Bench, settings: Settings, grid: Mapping[str, tuple[float, ...]]
) -> tuple[Settings, list[dict[str, Any]]]:
    """The settings of least perplexity on a grid, and the perplexity of every point."""
    rows, name = [], settings.sampler
    for number, values in enumerate(itertools.product(*grid.values())):
        point = dict(zip(grid, values, strict=True))
        try:
            found = bench.run(name, _changed(settings, point), 0, f"{name}-grid-{number + 1}")
            value = found.rows[-1]["perplexity"]
        except DivergenceError:
            value = np.inf
        rows.append({"sampler": name, **point, "perplexity": value})
    best = min(rows, key=lambda row: row["perplexity"] if row["perplexity"] > 0 else np.inf)
    chosen = {axis: best[axis] for axis in grid}
    bench.say(f"{name}: chosen " + ", ".join(f"{axis} = {v:g}" for axis, v in chosen.items()))
    return _changed(settings, chosen), rows


def _topics(bench: Bench, phi: np.ndarray, settings: Settings, corpus: Corpus) -> Topics:
    shares = bench.proportions(phi, settings).mean(axis=0)
    documents = itertools.islice(corpus.read(), COHERENCE)
    return describe(phi, shares, corpus.vocabulary, documents, min(10, phi.shape[1]))


def _changed(settings: Settings, values: Mapping[str, float]) -> Settings:
    whole = {f.name for f in dataclasses.fields(Settings) if f.type in (int, "int")}
    return dataclasses.replace(
        settings, **{name: int(v) if name in whole else float(v) for name, v in values.items()}
    )
