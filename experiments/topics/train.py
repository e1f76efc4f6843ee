"""Training on a stream of documents: a corpus divided and shuffled, its batches, and their scans.

Blocks of batches are scanned by one compiled program each.
"""

import dataclasses
import hashlib
import itertools
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

import ergodax as ex
from ergodax.learn.topics import Corpus, Document
from experiments.topics.samplers import (
    LEAST,
    SAMPLERS,
    Batch,
    Reflected,
    TopicGradient,
    stack,
    topic_sampler,
)

BUFFER = 5_000  # documents among which the order is random


def batches(documents: Iterable[Document], batch_size: int) -> Iterator[list[Document]]:
    """Batches of documents in their order; those that do not fill a last batch are left over.

    If the order is random, a batch is a uniform random subset, and |D| / n times a sum over it is
    unbiased.

    Args:
        documents: in random order.
        batch_size: documents a batch, n.

    Raises:
        ValueError: batch_size is not positive.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
    documents = iter(documents)
    parts = iter(lambda: list(itertools.islice(documents, batch_size)), [])
    return (part for part in parts if len(part) == batch_size)


@dataclasses.dataclass(frozen=True)
class Division:
    """A corpus divided into documents to train on, to choose on and to test on."""

    read: Callable[[], Iterator[Document]]  # starts a pass over the corpus
    left_out: frozenset[int]  # places of documents that are not trained on
    num_documents: int  # to train on
    test: list[Document]  # documents of the final figures
    validation: list[Document]  # documents that choose from a grid
    digest: str  # of the whole corpus: its words, its documents and the file's own test documents

    def stream(self, documents: int, seed: int, repeat: int) -> Iterator[Document]:
        """The documents of a run, in an order that every method meets in that repeat."""
        generator = np.random.default_rng([seed, 1, repeat])
        endlessly = endless(self.read, self.left_out)
        buffer = min(BUFFER, self.num_documents)
        return itertools.islice(shuffled(endlessly, buffer, generator), documents)


def divide(corpus: Corpus, test: int, validation: int, seed: int) -> Division:
    """Hold documents out at random, the file's own tests first. Raises: ValueError."""
    own = [] if corpus.read_test is None else list(itertools.islice(corpus.read_test(), test))
    wanted = validation + test - len(own)
    if wanted >= corpus.num_documents:
        raise ValueError(
            f"test={test} leaves no document of {corpus.num_documents} to train on; hold out fewer."
        )
    # Drawn apart, so that the test documents are the same with validation and without.
    tested, drawn = (
        np.random.default_rng([seed, 0, part]).choice(corpus.num_documents, size, replace=False)
        for part, size in enumerate((test - len(own), wanted))
    )
    chosen = [*tested, *drawn[~np.isin(drawn, tested)][:validation]]
    left_out = frozenset(int(place) for place in chosen)
    digest = hashlib.blake2b("\n".join(corpus.vocabulary.words).encode(), digest_size=16)
    found = {}
    for place, each in enumerate(corpus.read()):
        _add(digest, each)
        if place in left_out:
            found[place] = each
    for each in own:
        _add(digest, each)
    held = [found[int(place)] for place in chosen]
    return Division(
        corpus.read,
        left_out,
        corpus.num_documents - wanted,
        own + held[: len(tested)],
        held[len(tested) :],
        digest.hexdigest(),
    )


def _add(digest: "hashlib.blake2b", document: Document) -> None:
    """A document's distinct words, in their order, and how often each occurs."""
    digest.update(len(document.words).to_bytes(8, "little"))
    for numbers in (document.words, document.counts):
        digest.update(np.ascontiguousarray(numbers, "<i8").data)


def endless(
    read: Callable[[], Iterator[Document]], without: Collection[int] = ()
) -> Iterator[Document]:
    """Pass after pass over a corpus, without those at some places. Raises: ValueError."""
    left_out = frozenset(without)
    while True:
        empty = True
        for place, document in enumerate(read()):
            if place not in left_out:
                empty = False
                yield document
        if empty:
            raise ValueError("the corpus has no documents to train on; hold out fewer.")


def shuffled(
    documents: Iterable[Document], buffer: int, generator: np.random.Generator
) -> Iterator[Document]:
    """The documents in an order that is random within a buffer. Raises: ValueError."""
    if buffer < 1:
        raise ValueError(f"buffer must be at least 1, not {buffer}.")
    documents = iter(documents)
    held = list(itertools.islice(documents, buffer))
    generator.shuffle(held)
    for document in documents:
        place = int(generator.integers(len(held)))
        held[place], document = document, held[place]
        yield document
    yield from held


# Found on English Wikipedia with 50 topics and the other settings at their defaults; the peers'
# learning rate is scikit-learn's default.
SUGGESTED: dict[str, dict[str, Any]] = {
    "sgrld": {"step_size": 0.01, "offset": 30.0},
    "sgrhmc": {"step_size": 0.14, "friction": 10.0},
    "sgld": {"step_size": 0.3, "offset": 30.0},
    "sghmc": {"step_size": 0.7, "friction": 10.0, "offset": 30.0, "power": 0.275},
    "scikit-learn": {"offset": 10.0, "power": 0.7},
    "gensim": {"offset": 10.0, "power": 0.7},
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train; the defaults are those of Patterson and Teh's published code.

    Attributes:
        sampler: "sgrld", "sgrhmc", "sgld" or "sghmc".
        num_topics: K.
        alpha: of the prior of a document's weights, Dirichlet(alpha).
        beta: of the prior of a topic's words, Dirichlet(beta).
        step_size: a of the step h_t = a (1 + t / b)^-c.
        offset: b, in batches.
        power: c.
        friction: of the samplers with a momentum.
        gibbs_sweeps: over each document; the first half is left out of the average.
        batch_size: documents in a batch.
        snapshot_every: documents from one snapshot to the next, at least.
        block: batches that one call of the compiled program takes.
    """

    sampler: str = "sgrld"
    num_topics: int = 50
    alpha: float = 0.01
    beta: float = 0.0001
    step_size: float = 0.01
    offset: float = 1000.0
    power: float = 0.55
    friction: float = 1.0
    gibbs_sweeps: int = 50
    batch_size: int = 50
    snapshot_every: int = 5_000
    block: int = 10

    def __post_init__(self) -> None:
        """Refuse what no run could use."""
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler must be one of {SAMPLERS}, not {self.sampler!r}.")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "sampler" and not value > 0:
                raise ValueError(f"{field.name} must be positive, not {value}.")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The topics after some documents.

    Attributes:
        documents: seen so far.
        phi: the word probabilities of each topic, its rows normalised.
        seconds: spent on learning in this call, compilation included.
        pace: processor seconds, of all cores together, per 100 documents: the median of the blocks
            since the last snapshot, which neither compilations nor other programs move.
    """

    documents: int
    phi: Float[Array, "K W"]
    seconds: float
    pace: float


def topic_kernel(settings: Settings, num_documents: int) -> Reflected:
    """The kernel that `train` runs; feed its estimator a batch before each step."""
    sweeps = settings.gibbs_sweeps
    gradient = TopicGradient(
        settings.beta, settings.alpha, num_documents, sweeps=sweeps, burn_in=sweeps // 2
    )
    steps = ex.schedule.Polynomial(settings.step_size, settings.offset, settings.power)
    return topic_sampler(settings.sampler, gradient, steps, settings.friction)


def first_state(
    settings: Settings, num_documents: int, vocabulary_size: int, key: PRNGKeyArray
) -> ex.State:
    """The state before the first batch: theta from Gamma(1, 1), the exponential law."""
    key_theta, key_init, _ = jax.random.split(key, 3)
    shape = (settings.num_topics, vocabulary_size)
    theta = jax.random.exponential(key_theta, shape, jnp.float32)
    return topic_kernel(settings, num_documents).init(key_init, jnp.maximum(theta, LEAST))


def word_distributions(theta: Float[Array, "K W"]) -> Float[Array, "K W"]:
    """Each topic's distribution over words, phi_kw = theta_kw / sum_w theta_kw."""
    return theta / jnp.sum(theta, axis=1, keepdims=True)


def train(
    settings: Settings,
    batches: Iterator[list[Document]],
    *,
    num_documents: int,
    vocabulary_size: int,
    key: PRNGKeyArray,
    report: Callable[[int, float], Any] | None = None,
) -> Iterator[Snapshot]:
    """Draw topics from their posterior while documents stream by.

    Memory does not depend on the length of the stream. Step t has its own key, wherever blocks
    begin.

    Args:
        settings: of the run.
        batches: of `settings.batch_size` documents each; the run ends with them.
        num_documents: D, documents in the corpus, by which a batch's gradient is scaled.
        vocabulary_size: W.
        key: of everything random here; not of the order of the documents.
        report: called with the documents seen and the seconds after each block.

    Returns:
        A snapshot each time that `snapshot_every` more documents have been seen, and at the end.

    Raises:
        ValueError: a batch of another size.
        ex.DivergenceError: theta is no longer finite.
    """
    kernel, key_run = topic_kernel(settings, num_documents), jax.random.split(key, 3)[2]
    state = first_state(settings, num_documents, vocabulary_size, key)
    seen = given = 0
    seconds, paces = 0.0, []
    while block := list(itertools.islice(batches, _until_snapshot(settings, seen - given))):
        if (sizes := {len(batch) for batch in block}) != {settings.batch_size}:
            raise ValueError(
                f"batches must have batch_size = {settings.batch_size} documents each, not "
                f"{sorted(sizes)}."
            )
        before, began, worked = state, time.perf_counter(), time.process_time()
        state, finite = _advance(kernel, key_run, state, stack(block, vocabulary_size))
        if not bool(finite):
            raise ex.DivergenceError(
                f"theta is no longer finite in the block after {seen} documents. Try a step_size "
                f"below {settings.step_size}, or the sampler sgrld.",
                step=seen // settings.batch_size,
                chain=0,
                state=jax.tree.map(lambda x: x[None], before),
            )
        seconds += time.perf_counter() - began
        documents = len(block) * settings.batch_size
        paces.append(100.0 * (time.process_time() - worked) / documents)
        seen += documents
        if report is not None:
            report(seen, seconds)
        if seen - given >= settings.snapshot_every:
            yield _snapshot(state, seen, seconds, paces)
            given, paces = seen, []
    if seen > given:
        yield _snapshot(state, seen, seconds, paces)


@eqx.filter_jit
def _advance(
    kernel: Reflected, key: PRNGKeyArray, state: ex.State, blocks: Batch
) -> tuple[ex.State, Bool[Array, ""]]:
    """One step for each batch; step t has the key fold_in(key, t), wherever blocks begin."""

    def step(state: ex.State, batch: Batch) -> tuple[ex.State, Bool[Array, ""]]:
        fed = dataclasses.replace(state, gradient=batch)
        state, info = kernel.step(jax.random.fold_in(key, state.step), fed)
        return dataclasses.replace(state, gradient=None), info.finite

    state, finite = jax.lax.scan(step, state, blocks)
    return state, jnp.all(finite)


def _until_snapshot(settings: Settings, documents: int) -> int:
    """Batches to take now: a block of them, or fewer if a snapshot is due before."""
    left = -(-(settings.snapshot_every - documents) // settings.batch_size)
    return max(1, min(settings.block, left))


def _snapshot(state: ex.State, documents: int, seconds: float, paces: list[float]) -> Snapshot:
    phi = word_distributions(state.position)
    return Snapshot(documents, phi, seconds, statistics.median(paces))
