"""Variational and collapsed-Gibbs LDA of other packages, on the same stream of documents."""

import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from ergodax.apps.lda.corpus import Document
from ergodax.apps.lda.train import Settings, Snapshot

NEEDED = {"scikit-learn": "sklearn", "gensim": "gensim", "tomotopy": "tomotopy"}
OFFSET, DECAY = 10.0, 0.7  # scikit-learn's defaults of the learning rate


def missing(peer: str) -> str | None:
    """The package that a peer lacks, or None.

    Args:
        peer: a key of PEERS.
    """
    return None if importlib.util.find_spec(NEEDED[peer]) else NEEDED[peer]


def scikit_learn(
    settings: Settings,
    documents: Iterator[Document],
    *,
    num_documents: int,
    vocabulary_size: int,
    seed: int,
) -> Iterator[Snapshot]:
    """Online variational Bayes of scikit-learn, `partial_fit` on each batch.

    Args:
        settings: number of topics, priors, batch size and snapshots.
        documents: the stream.
        num_documents: of the corpus.
        vocabulary_size: W.
        seed: of the start.
    """
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        settings.num_topics,
        doc_topic_prior=settings.alpha,
        topic_word_prior=settings.beta,
        learning_method="online",
        learning_offset=OFFSET,
        learning_decay=DECAY,
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
    """Online variational Bayes of gensim, `update` on each batch.

    Args:
        settings: number of topics, priors, batch size and snapshots.
        documents: the stream.
        num_documents: of the corpus.
        vocabulary_size: W.
        seed: of the start.
    """
    from gensim.models import LdaModel  # pyright: ignore[reportMissingImports]

    model = LdaModel(
        id2word={number: str(number) for number in range(vocabulary_size)},
        num_topics=settings.num_topics,
        alpha=np.full(settings.num_topics, settings.alpha),
        eta=settings.beta,
        chunksize=settings.batch_size,
        offset=OFFSET,
        decay=DECAY,
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

    Args:
        settings: number of topics and priors.
        documents: the stream, which must end.
        num_documents: of the corpus, so of a pass.
        vocabulary_size: W.
        seed: of the chain.
    """
    from tomotopy import LDAModel  # pyright: ignore[reportMissingImports]

    start, number = time.perf_counter(), 0
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
    yield _snapshot(number, counts, time.perf_counter() - start)


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
    done, given, seconds = 0, 0, 0.0
    while len(batch := list(itertools.islice(documents, settings.batch_size))) == (
        settings.batch_size
    ):
        start = time.perf_counter()
        learn(batch)
        seconds += time.perf_counter() - start
        done += len(batch)
        if done - given >= settings.snapshot_every:
            given = done
            yield _snapshot(done, weights(), seconds)
    if done > given:
        yield _snapshot(done, weights(), seconds)


def _snapshot(documents: int, weights: np.ndarray, seconds: float) -> Snapshot:
    phi = weights / weights.sum(axis=1, keepdims=True)
    return Snapshot(
        documents, jnp.asarray(weights, jnp.float32), jnp.asarray(phi, jnp.float32), seconds
    )
