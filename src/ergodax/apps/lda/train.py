"""Training on a stream of documents: blocks of batches, each scanned by one compiled program."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ergodax.apps.lda.batch import Batch
from ergodax.apps.lda.gradient import TopicGradient
from ergodax.apps.lda.kernels import SAMPLERS, Reflected, topic_sampler
from ergodax.apps.lda.tokens import Tokens, stack
from ergodax.errors import DivergenceError
from ergodax.kernel import State
from ergodax.schedule import Polynomial


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
        """Refuse what no run could use.

        Raises:
            ValueError: an unknown sampler, or a number that is not positive.
        """
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
        theta: the position, float32.
        phi: the word probabilities of each topic, its rows normalised.
        seconds: spent in the compiled program so far, its compilation included.
    """

    documents: int
    theta: Float[Array, "K W"]
    phi: Float[Array, "K W"]
    seconds: float


def topic_kernel(settings: Settings, num_documents: int) -> Reflected:
    """The kernel that `train` runs; feed its estimator a batch before each step.

    Args:
        settings: of the run.
        num_documents: D, documents in the corpus.
    """
    sweeps = settings.gibbs_sweeps
    gradient = TopicGradient(
        settings.beta, settings.alpha, num_documents, sweeps=sweeps, burn_in=sweeps // 2
    )
    steps = Polynomial(settings.step_size, settings.offset, settings.power)
    return topic_sampler(settings.sampler, gradient, steps, settings.friction)


def train(
    settings: Settings,
    batches: Iterator[Batch],
    *,
    num_documents: int,
    vocabulary_size: int,
    key: PRNGKeyArray,
    report: Callable[[int, float], Any] | None = None,
    checkpoint: Callable[[Snapshot], Any] | None = None,
) -> Iterator[Snapshot]:
    """Draw topics from their posterior while documents stream by.

    theta starts from Gamma(1, 1), the exponential law. Memory does not depend on the length of
    the stream.

    Args:
        settings: of the run.
        batches: of `settings.batch_size` documents each; the run ends with them.
        num_documents: D, documents in the corpus, by which a batch's gradient is scaled.
        vocabulary_size: W.
        key: of everything random here; not of the order of the documents.
        report: called with the documents seen and the seconds after each block.
        checkpoint: called with each snapshot before it is given out.

    Returns:
        A snapshot each time that `snapshot_every` more documents have been seen, and at the end.

    Raises:
        ValueError: a batch of another size.
        DivergenceError: theta is no longer finite.
    """
    key_theta, key_init, key_run = jax.random.split(key, 3)
    shape = (settings.num_topics, vocabulary_size)
    theta = jax.random.exponential(key_theta, shape, jnp.float32)
    kernel = topic_kernel(settings, num_documents)
    state = kernel.init(key_init, jnp.maximum(theta, 1e-10))
    seen, seconds, given = 0, 0.0, 0
    while block := list(itertools.islice(batches, _until_snapshot(settings, seen - given))):
        _check(block, settings)
        began = time.perf_counter()
        before = state
        state, finite = _advance(kernel, key_run, state, stack(block))
        if not bool(finite):
            raise _divergence(settings, before, seen)
        seconds += time.perf_counter() - began
        seen += len(block) * settings.batch_size
        if report is not None:
            report(seen, seconds)
        if seen - given >= settings.snapshot_every:
            given = seen
            yield _snapshot(state, seen, seconds, checkpoint)
    if seen > given:
        yield _snapshot(state, seen, seconds, checkpoint)


def _divergence(settings: Settings, state: State, documents: int) -> DivergenceError:
    step = documents // settings.batch_size
    return DivergenceError(
        f"theta is no longer finite in the block after {documents} documents. Try a step_size "
        f"below {settings.step_size}, or the sampler sgrld.",
        step=step,
        chain=0,
        state=jax.tree.map(lambda x: x[None], state),
    )


@eqx.filter_jit
def _advance(
    kernel: Reflected, key: PRNGKeyArray, state: State, blocks: Tokens
) -> tuple[State, Bool[Array, ""]]:
    """One step for each batch; step t has the key fold_in(key, t), wherever blocks begin."""

    def step(state: State, tokens: Tokens) -> tuple[State, Bool[Array, ""]]:
        fed = dataclasses.replace(state, gradient=tokens)
        state, info = kernel.step(jax.random.fold_in(key, state.step), fed)
        return dataclasses.replace(state, gradient=None), info.finite

    state, finite = jax.lax.scan(step, state, blocks)
    return state, jnp.all(finite)


def _until_snapshot(settings: Settings, documents: int) -> int:
    """Batches to take now: a block of them, or fewer if a snapshot is due before."""
    left = -(-(settings.snapshot_every - documents) // settings.batch_size)
    return max(1, min(settings.block, left))


def _check(block: list[Batch], settings: Settings) -> None:
    sizes = {batch.words.shape[0] for batch in block}
    if sizes != {settings.batch_size}:
        raise ValueError(
            f"batches must have batch_size = {settings.batch_size} documents each, not "
            f"{sorted(sizes)}."
        )


def _snapshot(
    state: State, documents: int, seconds: float, checkpoint: Callable[[Snapshot], Any] | None
) -> Snapshot:
    theta = state.position
    phi = theta / jnp.sum(theta, axis=1, keepdims=True)
    snapshot = Snapshot(documents, theta, phi, seconds)
    if checkpoint is not None:
        checkpoint(snapshot)
    return snapshot
