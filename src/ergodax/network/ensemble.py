"""Deep ensembles: networks optimised from several starts at once, with early stopping."""

import contextlib
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number, whole_number
from ergodax.kernel import check_key
from ergodax.network.epochs import (
    Iterate,
    epoch,
    epoch_keys,
    rows_in_memory,
    rows_of,
    start_members,
)
from ergodax.network.posterior import NetworkPosterior

RATE = 0.01  # of Adam, at first


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """Optimised networks.

    Attributes:
        positions: of the posterior, leading axis members; the best of each by its held-out rows.
        losses: minus the mean log density of the held-out rows, shape (epochs, members).
        held_out: the numbers of these rows.
    """

    positions: PyTree
    losses: np.ndarray
    held_out: np.ndarray


class _Member(eqx.Module):
    """Where the optimiser is, and the best so far."""

    at: Iterate
    best: PyTree
    loss: Float[Array, "*members"]


def deep_ensemble(
    posterior: Any,
    positions: PyTree,
    *,
    key: PRNGKeyArray,
    optimiser: Any = None,
    batch_size: Any = 128,
    epochs: Any = 1000,
    patience: Any = 100,
    held_out: Any = 0.1,
    progress: bool = True,
) -> Ensemble:
    """Search the mode from several starts: the baseline, and where chains may begin.

    Each member takes steps of the optimiser along the gradient of U / N, estimated from batches of
    the rows that are not held out; an epoch goes through all of them in a new order. A member is
    kept as it was at the epoch that was best for the rows held out. The search ends when no member
    has become better for `patience` epochs.

    Args:
        posterior: of the network, from `network.posterior`, with its data in memory.
        positions: starts, such as `posterior.position(module)`; leading axis members. One without
            this axis is one member.
        key: of batches and of the rows held out.
        optimiser: of optax; by default Adam, whose rate falls from 0.01 to 0 along a half cosine
            over all epochs, with gradients clipped to norm 1.
        batch_size: rows of a batch.
        epochs: at most so many.
        patience: epochs without anyone's progress.
        held_out: the share of rows that decide when to stop, in (0, 1).
        progress: show a bar.

    Returns:
        An Ensemble.

    Raises:
        TypeError: no posterior of a network, no optimiser, or rows that are not in memory.
        ValueError: a number out of range, or positions that are not the posterior's.
        FloatingPointError: a member had no finite loss after any epoch.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp
        >>> import ergodax.network as network
        >>> x = jnp.linspace(-1.0, 1.0, 100)[:, None]
        >>> new = lambda key: eqx.nn.MLP(1, 1, 8, 1, key=key)
        >>> posterior = network.posterior(
        ...     new(jax.random.key(0)), (x, x[:, 0] ** 2), network.likelihoods.Gaussian())
        >>> members = [posterior.position(new(jax.random.key(k))) for k in range(3)]
        >>> starts = jax.tree.map(lambda *w: jnp.stack(w), *members)
        >>> found = network.deep_ensemble(posterior, starts, key=jax.random.key(9), progress=False)
        >>> network.predict(posterior, found.positions, x).mean.shape
        (100,)

    Reference:
        Lakshminarayanan, Pritzel and Blundell, Simple and scalable predictive uncertainty
        estimation using deep ensembles, 2017.
    """
    count = rows_in_memory(posterior, "deep_ensemble")
    share = real_number("held_out", held_out, above=0.0)
    epochs, patience = whole_number("epochs", epochs), whole_number("patience", patience)
    held = round(share * count)
    if not 0 < held < count:
        raise ValueError(f"held_out={held_out!r} of {count} rows leaves none on one side. Try 0.1.")
    size = min(whole_number("batch_size", batch_size), count - held)
    if optimiser is None:
        optimiser = _Adam(epochs * ((count - held) // size))
    key_rows, key_batches = jax.random.split(check_key(key))
    order = jax.random.permutation(key_rows, count)
    at = start_members(posterior, positions, optimiser)
    members = len(jax.tree.leaves(at.position)[0])
    now = _Member(at, at.position, jnp.full(members, jnp.inf, jnp.float32))
    losses: list[np.ndarray] = []
    with contextlib.closing(epoch_keys(epochs, key_batches, show=progress)) as some:
        for keys in some:
            now, found = _epochs(posterior, optimiser, now, order[:held], order[held:], size, keys)
            losses += list(np.asarray(found))
            if _since_best(losses) >= patience:
                break
    lost = np.flatnonzero(~np.isfinite(now.loss))
    if lost.size:
        which = "every member's loss" if lost.size == members else f"the loss of members {lost}"
        raise FloatingPointError(
            f"{which} was NaN or infinite after each epoch. Try a smaller learning rate, "
            "standardised inputs and targets, and other starts for these members."
        )
    return Ensemble(tree.thaw(now.best), np.stack(losses), np.asarray(order[:held]))


class _Adam(eqx.Module):
    """Adam, whose rate falls along a half cosine; over how many steps is the program's argument."""

    steps: Float[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, float))

    def init(self, position: PyTree) -> PyTree:
        return self._made().init(position)

    def update(self, slope: PyTree, state: PyTree, position: PyTree) -> tuple[PyTree, PyTree]:
        return self._made().update(slope, state, position)

    def _made(self) -> Any:
        def rate(count: Any) -> Array:
            done = jnp.minimum(count, self.steps) / self.steps
            return 0.5 * RATE * (1.0 + jnp.cos(jnp.pi * done))

        return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def _since_best(losses: list[np.ndarray]) -> float:
    """Epochs since any member was at its best."""
    table = np.where(np.isfinite(losses), losses, np.inf)
    return float(len(losses) - 1 - table.argmin(axis=0).max())


@eqx.filter_jit
def _epochs(
    posterior: NetworkPosterior,
    optimiser: Any,
    now: _Member,
    held: Array,
    left: Array,
    size: int,
    keys: Array,
) -> tuple[_Member, Float[Array, "epochs members"]]:
    """Some epochs of all members, and their losses after each."""

    def loss(position: PyTree) -> Array:
        batch = rows_of(posterior, held)
        return -jnp.mean(posterior.program.log_likelihoods(tree.thaw(position), batch))

    def judged(member: _Member) -> tuple[_Member, Array]:
        found = loss(member.at.position)
        better = found < member.loss  # not where it is NaN
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), member.at.position, member.best)
        return _Member(member.at, best, jnp.where(better, found, member.loss)), found

    def one(now: _Member, key: Array) -> tuple[_Member, Array]:
        at = epoch(posterior, optimiser, now.at, left, size, key)
        return jax.vmap(judged)(_Member(at, now.best, now.loss))

    return lax.scan(one, now, keys)
