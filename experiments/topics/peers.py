"""Variational and collapsed-Gibbs LDA of other packages, on the same stream of documents.

Each takes the settings (number of topics, priors, batch size, snapshots, and the offset b and the
power c of the learning rate (b + t)^-c), the stream, the number of documents in the corpus, the
size of the vocabulary and a seed, and yields snapshots.
"""

import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from ergodax.learn.topics import Document
from experiments.topics.train import Settings, Snapshot

NEEDED = {"scikit-learn": "sklearn", "gensim": "gensim", "tomotopy": "tomotopy"}


def missing(peer: str) -> str | None:
    """The package that a peer lacks, or None."""
    needed = NEEDED.get(peer)
    return None if needed is None or importlib.util.find_spec(needed) else needed


def scikit_learn(
    settings: Settings,
    documents: Iterator[Document],
    *,
    num_documents: int,
    vocabulary_size: int,
    seed: int,
) -> Iterator[Snapshot]:
    """Online variational Bayes of scikit-learn, `partial_fit` on each batch."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        settings.num_topics,
        doc_topic_prior=settings.alpha,
        topic_word_prior=settings.beta,
        learning_method="online",
        learning_offset=settings.offset,
        learning_decay=settings.power,
        batch_size=settings.batch_size,
        total_samples=num_documents,
        random_state=seed,
    )

    def learn(batch: list[Document]) -> None:
        starts = np.cumsum([0, *(len(document.words) for document in batch)])
        words = np.concatenate([document.words for document in batch])
        counts = np.concatenate([document.counts for document in batch]).astype(float)
        model.partial_fit(csr_matrix((counts, words, starts), (len(batch), vocabulary_size)))

    return _stream(settings, documents, learn, lambda: model.components_)


def gensim(
    settings: Settings,
    documents: Iterator[Document],
    *,
    num_documents: int,
    vocabulary_size: int,
    seed: int,
) -> Iterator[Snapshot]:
    """Online variational Bayes of gensim, `update` on each batch."""
    from gensim.models import LdaModel  # pyright: ignore[reportMissingImports]

    model = LdaModel(
        id2word={number: str(number) for number in range(vocabulary_size)},
        num_topics=settings.num_topics,
        alpha=np.full(settings.num_topics, settings.alpha),
        eta=settings.beta,
        chunksize=settings.batch_size,
        offset=settings.offset,
        decay=settings.power,
        eval_every=None,
        random_state=seed,
    )

    def learn(batch: list[Document]) -> None:
        # An update adds its documents to those seen and scales itself to the sum: here the corpus.
        model.state.numdocs = num_documents - len(batch)
        model.update(
            [list(zip(*map(np.ndarray.tolist, document), strict=True)) for document in batch]
        )

    return _stream(settings, documents, learn, lambda: model.state.get_lambda())


def tomotopy(
    settings: Settings,
    documents: Iterator[Document],
    *,
    num_documents: int,
    vocabulary_size: int,
    seed: int,
) -> Iterator[Snapshot]:
    """Collapsed Gibbs sampling of tomotopy over the documents of one pass together.

    It is no online method: one snapshot, after the documents are held and swept 200 times. More
    than one pass would count documents twice.
    """
    from tomotopy import LDAModel  # pyright: ignore[reportMissingImports]

    began, worked, number = time.perf_counter(), time.process_time(), 0
    model = LDAModel(
        k=settings.num_topics, alpha=settings.alpha, eta=settings.beta, seed=seed, rm_top=0
    )
    for document in itertools.islice(documents, num_documents):
        tokens = np.repeat(document.words, document.counts)
        if len(tokens):
            model.add_doc([str(word) for word in tokens])
        number += 1
    model.train(200, workers=1)
    counts = np.full((settings.num_topics, vocabulary_size), 1e-12)
    columns = [int(word) for word in model.used_vocabs]
    for topic in range(settings.num_topics):
        counts[topic, columns] = model.get_topic_word_dist(topic)
    pace = 100.0 * (time.process_time() - worked) / number
    yield _snapshot(number, counts, time.perf_counter() - began, [pace])


PEERS: dict[str, Callable[..., Iterator[Snapshot]]] = {
    "scikit-learn": scikit_learn,
    "gensim": gensim,
    "tomotopy": tomotopy,
}


def _stream(
    settings: Settings,
    documents: Iterator[Document],
    learn: Callable[[list[Document]], Any],
    weights: Callable[[], np.ndarray],
) -> Iterator[Snapshot]:
    """Learn batch by batch; the seconds are those of learning alone."""
    done, given, seconds, paces = 0, 0, 0.0, []
    while len(batch := list(itertools.islice(documents, settings.batch_size))) == (
        settings.batch_size
    ):
        began, worked = time.perf_counter(), time.process_time()
        learn(batch)
        seconds += time.perf_counter() - began
        paces.append(100.0 * (time.process_time() - worked) / len(batch))
        done += len(batch)
        if done - given >= settings.snapshot_every:
            yield _snapshot(done, weights(), seconds, paces)
            given, paces = done, []
    if done > given:
        yield _snapshot(done, weights(), seconds, paces)


def _snapshot(documents: int, weights: np.ndarray, seconds: float, paces: list[float]) -> Snapshot:
    phi = jnp.asarray(weights / weights.sum(axis=1, keepdims=True), jnp.float32)
    return Snapshot(documents, phi, seconds, statistics.median(paces))
