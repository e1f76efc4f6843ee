"""One run of a method on the stream, judged snapshot by snapshot."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ergodax.apps.lda import peers
from ergodax.apps.lda.batches import batches
from ergodax.apps.lda.division import Division
from ergodax.apps.lda.evaluation import (
    Averaged,
    Completion,
    infer_proportions,
    perplexity,
    word_probabilities,
)
from ergodax.apps.lda.store import Part, Run, Store
from ergodax.apps.lda.train import Settings, Snapshot, first_state, train, word_distributions
from ergodax.kernel import State


@dataclasses.dataclass(frozen=True)
class Bench:
    """Where every method meets the same stream and the same held-back words.

    Attributes:
        division: of the corpus.
        completion: of the test documents.
        vocabulary_size: W.
        documents: of a run.
        seed: of order, start and noise.
        store: of finished and interrupted runs.
        say: called with a line of progress.
    """

    division: Division
    completion: Completion
    vocabulary_size: int
    documents: int
    seed: int
    store: Store
    say: Callable[[str], None]

    def run(self, method: str, settings: Settings, repeat: int, label: str) -> Run:
        """Run a method, go on with its interrupted run, or take the run from the store.

        Args:
            method: a sampler or a key of `peers.PEERS`.
            settings: of the run.
            repeat: decides stream, start and noise.
            label: of the run in the store.

        Raises:
            ValueError: the documents do not fill a batch.
            DivergenceError: the sampler left the finite numbers.
            CheckpointError: the interrupted run's file is damaged.
        """
        stored = self.store.load(label, settings)
        if stored is not None:
            self.say(f"{label}: finished before, perplexity {stored.rows[-1]['perplexity']:.1f}")
            return stored
        part = None if method in peers.PEERS else self._part(settings, repeat, label)
        if part is None:
            run = self._judge(label, settings, self._learn(method, settings, repeat))
        else:
            rest = self._learn(method, settings, repeat, part.state)
            run = self._judge(label, settings, rest, part)
        self.store.save(label, settings, run)
        return run

    def proportions(self, phi: np.ndarray, settings: Settings) -> np.ndarray:
        """The topics of the test documents; the Gibbs sampling has the same key in all runs.

        Args:
            phi: each topic's distribution over words, shape (K, W).
            settings: of the run.
        """
        return infer_proportions(
            jax.random.fold_in(jax.random.key(self.seed), 2**31 - 1),
            self.completion,
            jnp.asarray(phi),
            alpha=settings.alpha,
            sweeps=settings.gibbs_sweeps,
            burn_in=settings.gibbs_sweeps // 2,
        )

    def _judge(
        self,
        label: str,
        settings: Settings,
        snapshots: Iterator[Snapshot],
        part: Part | None = None,
    ) -> Run:
        """Judge each snapshot, after those of an interrupted run, and keep the run so far."""
        rows = [] if part is None else list(part.rows)
        average = Averaged(self.completion.counts, [] if part is None else part.kept, len(rows))
        phi = None if part is None else np.asarray(word_distributions(part.state.position))
        before = rows[-1]["seconds"] if rows else 0.0
        for snapshot in snapshots:
            phi = np.asarray(snapshot.phi)
            row = self._row(snapshot, phi, settings, average)
            rows.append(row | {"seconds": before + row["seconds"]})
            self.say(
                f"{label}: {snapshot.documents:,} documents, perplexity "
                f"{row['perplexity']:.1f}, {rows[-1]['seconds']:.1f} s"
            )
            if snapshot.state is not None:
                self.store.save_part(label, settings, Part(rows, average.kept, snapshot.state))
        if phi is None:
            raise ValueError(
                f"documents={self.documents} do not fill a batch of {settings.batch_size}."
            )
        return Run(rows, phi)

    def _row(
        self, snapshot: Snapshot, phi: np.ndarray, settings: Settings, average: Averaged
    ) -> dict[str, Any]:
        held = self.completion
        proportions = self.proportions(phi, settings)
        found = word_probabilities(proportions, phi, held.documents, held.words)
        return {
            "documents": int(snapshot.documents),
            "perplexity": average.add(found),
            "alone": perplexity(found, held.counts),
            "seconds": float(snapshot.seconds),
            "pace": float(snapshot.pace),
        }

    def _part(self, settings: Settings, repeat: int, label: str) -> Part | None:
        """What is kept of the interrupted run of that label, if any."""
        sizes = self.division.num_documents, self.vocabulary_size
        like = first_state(settings, *sizes, self._key(repeat))
        part = self.store.load_part(label, settings, like)
        if part is not None:
            self.say(f"{label}: goes on after {part.rows[-1]['documents']:,} documents")
        return part

    def _key(self, repeat: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(self.seed), repeat)

    def _learn(
        self, method: str, settings: Settings, repeat: int, start: State | None = None
    ) -> Iterator[Snapshot]:
        stream = self.division.stream(self.documents, self.seed, repeat)
        sizes: dict[str, Any] = {
            "num_documents": self.division.num_documents,
            "vocabulary_size": self.vocabulary_size,
        }
        if method in peers.PEERS:
            number = int(np.random.default_rng([self.seed, 3, repeat]).integers(2**31))
            return peers.PEERS[method](settings, stream, **sizes, seed=number)
        # The stream is a function of its seed: what was seen before is read again and passed over.
        done = 0 if start is None else int(start.step) * settings.batch_size
        rest = batches(itertools.islice(stream, done, None), settings.batch_size)
        return train(settings, rest, **sizes, key=self._key(repeat), start=start)
