"""Susceptibilities and Bayesian influence: covariances of losses under the local law."""

import dataclasses
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax.checks import file_path, real_number, whole_number
from ergodax.data.arrays import num_rows
from ergodax.kernel import check_key
from ergodax.local.coefficient import chains_of, checked_law, estimated
from ergodax.local.law import LocalLaw
from ergodax.local.result import WIDTH, LearningCoefficient
from ergodax.tune.budget import Deadline

BATCHES = 40  # of draws, whose covariances tell the error
SHARE = 0.5  # of the time, until the law is known


@dataclasses.dataclass(frozen=True)
class Influence:
    """Responses of expectations under the local law to the weights of examples.

    Attributes:
        values: one for each example, or for each example (rows) and query (columns).
        mc_error: their Monte Carlo standard errors, from means over batches of draws.
        num_draws: of all chains.
        coefficient: the learning coefficient of the same law, with its verdict.
        losses: loss of each example less that at w*, axes draws, examples; on disk where asked.
    """

    values: Float[np.ndarray, " n *q"]
    mc_error: Float[np.ndarray, " n *q"]
    num_draws: int
    coefficient: LearningCoefficient
    losses: Float[np.ndarray, "draws n"] = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the chains have converged."""
        return self.coefficient.verdict in ("KNOWN", "IMPRECISE")

    def __str__(self) -> str:
        """How far the values can be told from 0, and the verdict about the law."""
        clear = float(np.mean(np.abs(self.values) > 2.0 * self.mc_error))
        size = float(np.sqrt(np.mean(self.values**2)))
        error = float(np.sqrt(np.mean(self.mc_error**2)))
        head = "CONVERGED" if self.ok else f"{self.coefficient.verdict}: not to be used"
        text = (
            f"{head}. {self.values.size:,} values of root mean square {size:.3g}, Monte Carlo "
            f"error {error:.2g}, from {self.num_draws:,} draws; {clear:.0%} differ from 0 by two "
            "errors."
        )
        return "\n".join([*textwrap.wrap(text, WIDTH), str(self.coefficient)])


def influence(
    loss_of_one_example: Callable[[PyTree, PyTree], Any],
    weights: PyTree,
    data: PyTree,
    queries: PyTree,
    *,
    key: Any,
    temperature: float | str = "log n",
    localization: float = 1.0,
    trainable: Any = None,
    num_draws: int = 1000,
    accuracy: float = 0.1,
    max_seconds: float = 600.0,
    batch_size: int | None = None,
    num_chains: int | None = None,
    losses: str | Path | None = None,
) -> Influence:
    """Bayesian influence: how the loss of each query answers to the weight of each example.

    Let example i count 1 + e times in the law of `learning_coefficient`. Then
        values[i, q] = d E[loss(w, query_q)] / d e = -beta Cov(loss(w, example_i), loss(w, query_q))
    at e = 0, with beta = 1 / temperature. Near a regular minimum, for gamma small beside t k, it is
    the classical influence function -grad loss_q^T (n Hessian)^-1 grad loss_i; the local law gives
    it where there is no such inverse.

    Args:
        loss_of_one_example: as in `learning_coefficient`.
        weights: w*.
        data: the examples of L_n.
        queries: examples likewise, of which the losses are looked at.
        key: a key of `jax.random.key`.
        temperature: 1 / beta, or "log n".
        localization: gamma.
        trainable: which weights move.
        num_draws: of all chains together, once they have converged.
        accuracy: of the learning coefficient, which is estimated first.
        max_seconds: for both.
        batch_size: rows that are worked on at a time.
        num_chains: by default 4.
        losses: a new file (.npy) for the losses of all draws, which are 4 num_draws (n + q) bytes;
            by default they are kept in memory.

    Returns:
        An Influence with values of shape (examples, queries).

    Raises:
        TypeError: as `learning_coefficient`.
        ValueError: likewise, or fewer than 40 draws.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> y = jax.random.normal(jax.random.key(0), (200,))
        >>> loss = lambda w, y: 0.5 * (y - w) ** 2
        >>> found = ex.local.influence(loss, y.mean(), y, y[:3], key=jax.random.key(1))
        >>> found.values.shape
        (200, 3)

    Reference:
        Kreer et al., Bayesian influence functions for Hessian-free data attribution, 2025.
    """
    settings = (temperature, localization, trainable, batch_size)
    law = checked_law(loss_of_one_example, weights, data, *settings)
    settings = (law.temperature, *settings[1:])
    asked = checked_law(loss_of_one_example, weights, queries, *settings, name="queries")
    run = _draws(law, asked, key, num_draws, accuracy, max_seconds, num_chains, losses)
    seen, n = run.losses, law.num_data
    beta = 1.0 / law.temperature
    values, errors = _covariances(seen[:, :n], seen[:, n:], run.num_chains)
    return Influence(-beta * values, beta * errors, len(seen), run.coefficient, seen[:, :n])


def susceptibilities(
    loss_of_one_example: Callable[[PyTree, PyTree], Any],
    weights: PyTree,
    data: PyTree,
    *,
    key: Any,
    temperature: float | str = "log n",
    localization: float = 1.0,
    trainable: Any = None,
    num_draws: int = 1000,
    accuracy: float = 0.1,
    max_seconds: float = 600.0,
    batch_size: int | None = None,
    num_chains: int | None = None,
    losses: str | Path | None = None,
) -> Influence:
    """Susceptibilities: how the loss of a part of the network answers to more of each example.

    Let the data's distribution be (1 - h) times the empirical one plus h times example i. Then
        values[i] = d E[L_n(w)] / dh = -t Cov(L_n(w), loss(w, example_i) - L_n(w))
    at h = 0, t = n / temperature, under the law of `learning_coefficient` in which what `trainable`
    names moves alone: a layer, a head. They sum to 0 over the examples.

    Args:
        loss_of_one_example: as in `learning_coefficient`.
        weights: w*.
        data: the examples.
        key: a key of `jax.random.key`.
        temperature: 1 / beta, or "log n".
        localization: gamma.
        trainable: the part of the network whose susceptibilities these are.
        num_draws: as in `influence`.
        accuracy: likewise.
        max_seconds: likewise.
        batch_size: likewise.
        num_chains: likewise.
        losses: likewise.

    Returns:
        An Influence with a value for each example.

    Raises:
        TypeError: as `learning_coefficient`.
        ValueError: likewise, or fewer than 40 draws.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> y = jax.random.normal(jax.random.key(0), (200,))
        >>> loss = lambda w, y: 0.5 * (y - w) ** 2
        >>> found = ex.local.susceptibilities(loss, y.mean(), y, key=jax.random.key(1))
        >>> found.values.shape
        (200,)

    Reference:
        Baker, Wang, Hoogland and Murfet, Structural inference: interpreting small language models
        with susceptibilities, 2025.
    """
    law = checked_law(
        loss_of_one_example, weights, data, temperature, localization, trainable, batch_size
    )
    run = _draws(law, None, key, num_draws, accuracy, max_seconds, num_chains, losses)
    mean = run.losses.mean(axis=1, dtype=np.float64)
    scale = law.num_data / law.temperature
    values, errors = _covariances(run.losses, mean[:, None], run.num_chains, centre=mean)
    values, errors = -scale * values[:, 0], scale * errors[:, 0]
    return Influence(values, errors, len(mean), run.coefficient, run.losses)


@dataclasses.dataclass
class _Draws:
    """Losses of all draws, those of a chain together."""

    losses: Float[np.ndarray, "draws rows"]
    num_chains: int
    coefficient: LearningCoefficient


class _Losses(eqx.Module):
    """The losses of all examples and queries at a position, less those at w*."""

    laws: tuple[LocalLaw, ...]

    def __call__(self, position: PyTree) -> Float[Array, " rows"]:
        return jnp.concatenate([law.excess_losses(position) for law in self.laws])


def _draws(
    law: LocalLaw,
    asked: LocalLaw | None,
    key: Any,
    num_draws: int,
    accuracy: float,
    max_seconds: float,
    num_chains: int | None,
    file: Any,
) -> _Draws:
    """Estimate the coefficient, and go on from there with the losses of each draw."""
    key_first, key_more = jax.random.split(check_key(key))
    num_draws = whole_number("num_draws", num_draws, at_least=BATCHES)
    accuracy = real_number("accuracy", accuracy, above=0.0)
    deadline = Deadline.after(real_number("max_seconds", max_seconds, above=0.0))
    count = chains_of(law, num_chains)
    coefficient, run = estimated(law, key_first, count, accuracy, deadline.share(SHARE))
    chains, each = run.chains, -(-num_draws // count)
    rows = law.num_data + (0 if asked is None else num_rows(asked.posterior.data))
    if file is None:
        kept = np.zeros((count, each, rows), np.float32)
    else:
        path = file_path("losses", file)
        shape = (count, each, rows)
        kept = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    done = 0
    piece = max(1, 2**22 // rows // count)  # draws at a time, so that memory does not grow
    chains.deadline = Deadline.never()
    while done < each and not (deadline.over and done * count >= BATCHES):
        key_piece = jax.random.fold_in(key_more, done)
        losses = _Losses((law,) if asked is None else (law, asked))
        seen = chains.drawn(min(piece, each - done), key_piece, losses).collected
        kept[:, done : done + seen.shape[1]] = np.asarray(seen)
        done += seen.shape[1]
    return _Draws(kept[:, :done].reshape(count * done, rows), count, coefficient)


def _covariances(
    x: Float[np.ndarray, "draws n"],
    y: Float[np.ndarray, "draws q"],
    num_chains: int,
    centre: Float[np.ndarray, " draws"] | None = None,
) -> tuple[Float[np.ndarray, "n q"], Float[np.ndarray, "n q"]]:
    """Cov(x - centre, y) and its standard error, from batches of neighbouring draws."""
    middle = x.mean(axis=0, dtype=np.float64), y.mean(axis=0, dtype=np.float64)
    batches = max(1, BATCHES // num_chains) * num_chains
    edges = np.linspace(0, len(x), batches + 1).astype(int)
    total, squares = 0.0, 0.0
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        left = x[start:end] - middle[0]
        if centre is not None:
            left -= (centre[start:end] - centre.mean())[:, None]
        part = left.T @ (y[start:end] - middle[1]) / (end - start)
        total, squares = total + part, squares + part**2
    mean = np.asarray(total) / batches
    spread = np.maximum(np.asarray(squares) / batches - mean**2, 0.0)
    draws = len(x) / (len(x) - 1.0)
    return draws * mean, np.sqrt(spread / (batches - 1.0))
