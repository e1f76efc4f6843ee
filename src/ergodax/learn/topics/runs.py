"""Runs on a stream of documents: judged snapshot by snapshot, kept in a folder, gone on with."""

import dataclasses
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ergodax.data import archive
from ergodax.errors import CheckpointError
from ergodax.kernel import State
from ergodax.learn.topics.corpus import Corpus
from ergodax.learn.topics.evaluation import (
    Averaged,
    Completion,
    HeldBack,
    Topics,
    describe,
    infer_proportions,
    perplexity,
    split,
    word_probabilities,
)
from ergodax.learn.topics.train import (
    Division,
    Settings,
    Snapshot,
    batches,
    divide,
    first_state,
    train,
    word_distributions,
)
from ergodax.persist import checkpoint, disk

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


@dataclasses.dataclass(frozen=True)
class Part:
    """What is kept of a run that has not ended, as of its last snapshot."""

    rows: list[dict[str, Any]]  # a row for each snapshot
    # the probabilities of the held-back words that are averaged, an array a snapshot
    kept: list[np.ndarray]
    state: State | None  # of the sampler; None before the first snapshot


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
            CheckpointError: the file is damaged, or of another corpus of the same size.
        """
        path = self._path(label, ".npz")
        if path is None or not self.resume or not path.exists():
            return None
        try:
            file = archive.read(path, ("of", "rows", "phi"))
        except ValueError as error:
            raise CheckpointError(f"{error} Or remove it, to make the run again.") from error
        if not self._is_of(str(file["of"]), settings, path):
            return None
        return Run(json.loads(str(file["rows"])), file["phi"])

    def save(self, label: str, settings: Settings, run: Run) -> None:
        """Keep a finished run; one of the same label is replaced, and its parts are removed."""
        path = self._path(label, ".npz")
        if path is None:
            return
        content = io.BytesIO()
        np.savez(content, of=self._of(settings), rows=json.dumps(run.rows), phi=run.phi)
        disk.write(path, content.getvalue())  # on the disk before its parts are removed
        for part in path.parent.glob(f"{label}.part*"):
            part.unlink()

    def load_part(self, label: str, settings: Settings, like: State) -> Part | None:
        """The interrupted run of that label if it was of the same settings, else None.

        `like` is a state of the same shapes.

        Raises:
            CheckpointError: the file is damaged, or the run was of another corpus of the same size.
        """
        path = self._path(label, ".part")
        if path is None or not self.resume:
            return None
        try:
            facts, arrays = checkpoint.read(path)
        except FileNotFoundError:
            return None
        if not self._is_of(facts["of"], settings, path):
            return None
        kept = [jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in arrays.items() if "'kept'" in n]
        tree, facts = checkpoint.load(path, {"kept": kept, "state": like})
        return Part(facts["rows"], [np.asarray(x) for x in tree["kept"]], tree["state"])

    def save_part(self, label: str, settings: Settings, part: Part) -> None:
        """Keep a run as far as it has come."""
        path = self._path(label, ".part")
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        tree = {"kept": part.kept, "state": part.state}
        checkpoint.save(path, tree, {"of": self._of(settings), "rows": part.rows})

    def _path(self, label: str, suffix: str) -> Path | None:
        return None if self.folder is None else self.folder / "runs" / f"{label}{suffix}"

    def _of(self, settings: Settings) -> str:
        return json.dumps([dict(self.facts), dataclasses.asdict(settings)], sort_keys=True)

    def _is_of(self, stored: str, settings: Settings, path: Path) -> bool:
        """Whether a stored run is of the same corpus and settings."""
        then, now = json.loads(stored), json.loads(self._of(settings))
        digests = [facts.pop("digest", None) for facts, _ in (then, now)]
        if then == now and digests[0] != digests[1]:
            raise CheckpointError(
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
        store: of finished and interrupted runs.
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
        """Run a method, go on with its interrupted run, or take the run from the store.

        Args:
            settings: of the run.
            repeat: decides stream, start and noise.
            label: of the run in the store.
            learner: another method than the sampler of the settings: a function of the settings
                and the stream, and of num_documents, vocabulary_size and seed by name, that
                yields a Snapshot now and then.

        Raises:
            ValueError: the documents do not fill a batch.
            DivergenceError: the sampler diverged.
            CheckpointError: the file of the finished or the interrupted run is damaged, or the run
                that is kept is of another corpus of the same size.
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
        part = Part([], [], None)
        if learner is None:
            key = jax.random.fold_in(jax.random.key(self.seed), repeat)
            like = first_state(settings, **sizes, key=key)
            part = self.store.load_part(label, settings, like) or part
            if part.state is not None:
                self.say(f"{label}: goes on after {part.rows[-1]['documents']:,} documents")
                # The stream is a function of its seed: what was seen is read again, passed over.
                stream = itertools.islice(stream, int(part.state.step) * settings.batch_size, None)
            held = batches(stream, settings.batch_size)
            snapshots = train(settings, held, **sizes, key=key, start=part.state)
        else:
            number = int(np.random.default_rng([self.seed, 3, repeat]).integers(2**31))
            snapshots = learner(settings, stream, **sizes, seed=number)
        run = self._judge(label, settings, snapshots, part)
        self.store.save(label, settings, run)
        return run

    def proportions(self, phi: np.ndarray, settings: Settings) -> np.ndarray:
        """The topics of the test documents; the Gibbs sampling has the same key in all runs."""
        return infer_proportions(
            jax.random.fold_in(jax.random.key(self.seed), 2**31 - 1),
            self.completion,
            jnp.asarray(phi),
            alpha=settings.alpha,
            sweeps=settings.gibbs_sweeps,
            burn_in=settings.gibbs_sweeps // 2,
        )

    def topics(self, phi: np.ndarray, settings: Settings) -> Topics:
        """The topics in words, by their shares in the test documents."""
        shares = self.proportions(phi, settings).mean(axis=0)
        documents = itertools.islice(self.corpus.read(), COHERENCE)
        return describe(phi, shares, self.corpus.vocabulary, documents, min(10, phi.shape[1]))

    def _judge(
        self, label: str, settings: Settings, snapshots: Iterator[Snapshot], part: Part
    ) -> Run:
        """Judge each snapshot, after those of an interrupted run, and keep the run so far."""
        held, rows = self.completion, list(part.rows)
        average = Averaged(held.counts, list(part.kept), len(rows))
        phi = None if part.state is None else np.asarray(word_distributions(part.state.position))
        before = rows[-1]["seconds"] if rows else 0.0
        for snapshot in snapshots:
            phi = np.asarray(snapshot.phi)
            proportions = self.proportions(phi, settings)
            found = word_probabilities(proportions, phi, held.documents, held.words)
            row = {
                "documents": int(snapshot.documents),
                "perplexity": average.add(found),
                "alone": perplexity(found, held.counts),
                "seconds": before + float(snapshot.seconds),
                "pace": float(snapshot.pace),
            }
            rows.append(row)
            self.say(
                f"{label}: {snapshot.documents:,} documents, perplexity "
                f"{row['perplexity']:.1f}, {row['seconds']:.1f} s"
            )
            if snapshot.state is not None:
                self.store.save_part(label, settings, Part(rows, average.kept, snapshot.state))
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
    division = divide(corpus, test, validation, seed)
    completion, *others = (
        split(documents, np.random.default_rng([seed, 2]), held_back)
        for documents in (division.test, division.validation)
        if documents
    )
    facts = {
        "documents_in_corpus": corpus.num_documents,
        "vocabulary": len(corpus.vocabulary),
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
