"""Runs on a stream of documents: judged snapshot by snapshot, and kept when they are finished."""

import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import ergodax as ex
from ergodax.learn.topics import (
    Completion,
    Corpus,
    HeldBack,
    Topics,
    counted,
    describe,
    document_weights,
    hold_back,
    perplexity,
)
from experiments.topics.train import Division, Settings, Snapshot, batches, divide, train

COHERENCE = 10_000  # documents in which the topics' words are counted

Learner = Callable[..., Iterator[Snapshot]]  # of settings and documents; see `Bench.run`


@dataclasses.dataclass(frozen=True)
class Run:
    """What is kept of a finished run.

    Attributes:
        rows: a row for each snapshot.
        phi: of the last snapshot, shape (K, W).
    """

    rows: list[dict[str, Any]]
    phi: np.ndarray


@dataclasses.dataclass
class Averaged:
    """Perplexity of the mean prediction of the later half of a run's snapshots.

    The earlier half, on the way to the posterior, is forgotten as the run goes on.
    """

    counts: np.ndarray  # of each held-back word
    # the probabilities of the snapshots that are averaged
    kept: list[np.ndarray] = dataclasses.field(default_factory=list)
    number: int = 0  # of all snapshots

    def add(self, probabilities: Float[np.ndarray, " held"]) -> float:
        """The perplexity with one more snapshot."""
        self.number += 1
        self.kept.append(probabilities.astype(np.float32))
        self.kept = self.kept[-((self.number + 1) // 2) :]
        return perplexity(np.stack(self.kept).astype(float), self.counts)


@dataclasses.dataclass(frozen=True)
class Store:
    """A file for each run; without a folder nothing is kept.

    Attributes:
        folder: made if it does not exist.
        facts: of the corpus and the options, which a stored run must share. Among them may be the
            corpus's "digest": a run that differs in nothing else is refused, not made again.
        resume: use what the folder has.
    """

    folder: Path | None
    facts: Mapping[str, Any]
    resume: bool = True

    def load(self, label: str, settings: Settings) -> Run | None:
        """The finished run of that label if it was of the same settings, else None.

        Raises:
            ex.CheckpointError: the file is damaged, or of another corpus of the same size.
        """
        path = self._path(label)
        if path is None or not self.resume or not path.exists():
            return None
        try:
            with np.load(path) as file:
                found = {name: file[name] for name in ("of", "rows", "phi")}
        except Exception as error:  # of a zip file, of an array, or of a name
            raise ex.CheckpointError(
                f"{path} cannot be read ({error}). Remove it, to make the run again."
            ) from error
        if not self._is_of(str(found["of"]), settings, path):
            return None
        return Run(json.loads(str(found["rows"])), found["phi"])

    def save(self, label: str, settings: Settings, run: Run) -> None:
        """Keep a finished run; one of the same label is replaced."""
        path = self._path(label)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new.npz")
        np.savez(beside, of=self._of(settings), rows=json.dumps(run.rows), phi=run.phi)
        os.replace(beside, path)

    def _path(self, label: str) -> Path | None:
        return None if self.folder is None else self.folder / "runs" / f"{label}.npz"

    def _of(self, settings: Settings) -> str:
        return json.dumps([dict(self.facts), dataclasses.asdict(settings)], sort_keys=True)

    def _is_of(self, stored: str, settings: Settings, path: Path) -> bool:
        """Whether a stored run is of the same corpus and settings."""
        then, now = json.loads(stored), json.loads(self._of(settings))
        digests = [facts.pop("digest", None) for facts, _ in (then, now)]
        if then == now and digests[0] != digests[1]:
            raise ex.CheckpointError(
                f"{path} has a run of another corpus: it has as many documents and words, but "
                "other words or other counts of them. Restore the corpus, choose another folder, "
                "or begin anew with resume=False (--no-resume)."
            )
        return then == now


@dataclasses.dataclass(frozen=True)
class Bench:
    """Where every method meets the same stream and the same held-back words.

    Attributes:
        corpus: that is learnt from.
        division: of the corpus.
        completion: of the test documents.
        documents: of a run.
        seed: of order, start and noise.
        store: of finished runs.
        say: called with a line of progress.
        validation: of documents to choose settings by, if there are any.
    """

    corpus: Corpus
    division: Division
    completion: Completion
    documents: int
    seed: int
    store: Store
    say: Callable[[str], None]
    validation: Completion | None = None

    def run(
        self, settings: Settings, repeat: int, label: str, learner: Learner | None = None
    ) -> Run:
        """Run a method, or take its run from the store.

        Args:
            settings: of the run.
            repeat: decides stream, start and noise.
            label: of the run in the store.
            learner: another method than the sampler of the settings: a function of the settings
                and the stream, and of num_documents, vocabulary_size and seed by name, that
                yields a Snapshot now and then.

        Raises:
            ValueError: the documents do not fill a batch.
            ex.DivergenceError: the sampler diverged.
            CheckpointError: the file of the finished run is damaged, or of another corpus of the
                same size.
        """
        stored = self.store.load(label, settings)
        if stored is not None:
            self.say(f"{label}: finished before, perplexity {stored.rows[-1]['perplexity']:.1f}")
            return stored
        stream = self.division.stream(self.documents, self.seed, repeat)
        words = len(self.corpus.vocabulary)
        sizes: dict[str, Any] = {
            "num_documents": self.division.num_documents,
            "vocabulary_size": words,
        }
        if learner is None:
            key = jax.random.fold_in(jax.random.key(self.seed), repeat)
            held = batches(stream, settings.batch_size)
            snapshots = train(settings, held, **sizes, key=key)
        else:
            number = int(np.random.default_rng([self.seed, 3, repeat]).integers(2**31))
            snapshots = learner(settings, stream, **sizes, seed=number)
        run = self._judge(label, settings, snapshots)
        self.store.save(label, settings, run)
        return run

    def _key(self) -> Any:
        """Of the Gibbs sampling of test documents, the same in all runs."""
        return jax.random.fold_in(jax.random.key(self.seed), 2**31 - 1)

    def topics(self, phi: np.ndarray, settings: Settings) -> Topics:
        """The topics in words, by their shares in the test documents."""
        alpha = np.full(len(phi), settings.alpha)
        weights = document_weights(self._key(), self.completion.seen, phi[None], alpha)
        words = self.corpus.vocabulary
        bags = counted(itertools.islice(self.corpus.read(), COHERENCE), len(words))
        return describe(phi, weights[0].mean(axis=0), words, bags, min(10, phi.shape[1]))

    def _judge(self, label: str, settings: Settings, snapshots: Iterator[Snapshot]) -> Run:
        """Judge each snapshot by the words that are held back, given the settings' alpha."""
        held, rows, phi = self.completion, [], None
        average, burn_in = Averaged(held.counts), settings.gibbs_sweeps // 2
        for snapshot in snapshots:
            phi = np.asarray(snapshot.phi)
            alpha = np.full(len(phi), settings.alpha)
            found = held.probabilities(
                self._key(), phi[None], alpha, burn_in=burn_in, sweeps=max(1, burn_in)
            )[0]
            row = {
                "documents": int(snapshot.documents),
                "perplexity": average.add(found),
                "alone": perplexity(found, held.counts),
                "seconds": float(snapshot.seconds),
                "pace": float(snapshot.pace),
            }
            rows.append(row)
            self.say(
                f"{label}: {snapshot.documents:,} documents, perplexity "
                f"{row['perplexity']:.1f}, {row['seconds']:.1f} s"
            )
        if phi is None:
            raise ValueError(
                f"documents={self.documents} do not fill a batch of {settings.batch_size}."
            )
        return Run(rows, phi)


def open_bench(
    corpus: Corpus,
    documents: int,
    *,
    test: int = 500,
    validation: int = 0,
    held_back: HeldBack = "tenth",
    seed: int = 0,
    folder: Path | None = None,
    resume: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Divide a corpus, hold words of the test documents back, and open the folder of the runs.

    Args:
        corpus: of any size; its documents are read as they are needed.
        documents: of a run, passing over the corpus again if it has fewer.
        test: documents to test on.
        validation: others, to choose settings by.
        held_back: "tenth" or "half" of a test document's tokens.
        seed: of everything.
        folder: keeps the runs, which a second call does not repeat; None keeps nothing.
        resume: use what the folder has.
        say: called with a line of progress.

    Raises:
        ValueError: the corpus has too few documents, or too short ones.
    """
    division, words = divide(corpus, test, validation, seed), len(corpus.vocabulary)
    completion, *others = (
        hold_back(counted(documents, words), np.random.default_rng([seed, 2]), held_back)
        for documents in (division.test, division.validation)
        if documents
    )
    facts = {
        "documents_in_corpus": corpus.num_documents,
        "vocabulary": words,
        "test_documents": len(division.test),
        "held_back_tokens": int(completion.counts.sum()),
        "documents": documents,
        "held_back": held_back,
        "seed": seed,
        "validation": len(division.validation),
        "digest": division.digest,
    }
    store = Store(folder, facts, resume)
    return Bench(corpus, division, completion, documents, seed, store, say, *others)
