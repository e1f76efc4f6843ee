"""One run of a method on the stream, judged snapshot by snapshot."""

import dataclasses
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
from ergodax.apps.lda.store import Run, Store
from ergodax.apps.lda.train import Settings, Snapshot, train


@dataclasses.dataclass(frozen=True)
class Bench:
    """Where every method meets the same stream and the same held-back words.

    Attributes:
        division: of the corpus.
        completion: of the test documents.
        vocabulary_size: W.
        documents: of a run.
        seed: of order, start and noise.
        store: of finished runs.
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
        """Run a method, or take the run from the store.

        Args:
            method: a sampler or a key of `peers.PEERS`.
            settings: of the run.
            repeat: decides stream, start and noise.
            label: of the run in the store.

        Raises:
            ValueError: the documents do not fill a batch.
            DivergenceError: the sampler left the finite numbers.
        """
        stored = self.store.load(label, settings)
        if stored is not None:
            self.say(f"{label}: finished before, perplexity {stored.rows[-1]['perplexity']:.1f}")
            return stored
        average, rows, phi = Averaged(self.completion.counts), [], None
        for snapshot in self._learn(method, settings, repeat):
            phi = np.asarray(snapshot.phi)
            found = self._probabilities(phi, settings)
            mean, alone = average.add(found), perplexity(found, self.completion.counts)
            rows.append(
                {
                    "documents": int(snapshot.documents),
                    # A peer's topics are a point estimate: there is nothing to average.
                    "perplexity": alone if method in peers.PEERS else mean,
                    "alone": alone,
                    "seconds": float(snapshot.seconds),
                }
            )
            self.say(
                f"{label}: {snapshot.documents:,} documents, perplexity "
                f"{rows[-1]['perplexity']:.1f}, {snapshot.seconds:.1f} s"
            )
        if phi is None:
            raise ValueError(
                f"documents={self.documents} do not fill a batch of {settings.batch_size}."
            )
        run = Run(rows, phi)
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

    def _probabilities(self, phi: np.ndarray, settings: Settings) -> np.ndarray:
        held = self.completion
        return word_probabilities(self.proportions(phi, settings), phi, held.documents, held.words)

    def _learn(self, method: str, settings: Settings, repeat: int) -> Iterator[Snapshot]:
        stream = self.division.stream(self.documents, self.seed, repeat)
        sizes: dict[str, Any] = {
            "num_documents": self.division.num_documents,
            "vocabulary_size": self.vocabulary_size,
        }
        if method in peers.PEERS:
            number = int(np.random.default_rng([self.seed, 3, repeat]).integers(2**31))
            return peers.PEERS[method](settings, stream, **sizes, seed=number)
        key = jax.random.fold_in(jax.random.key(self.seed), repeat)
        return train(settings, batches(stream, settings.batch_size), **sizes, key=key)
