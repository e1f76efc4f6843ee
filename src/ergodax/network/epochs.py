"""Epochs of an optimiser over the rows of a network's posterior, all members at once."""

import time
from collections.abc import Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import instance
from ergodax.data.arrays import num_rows
from ergodax.data.source import Source
from ergodax.driver.progress import progress_bar
from ergodax.network.posterior import NetworkPosterior, with_leading

EPOCHS_AT_ONCE = 10  # in one program, between two looks from outside


class Iterate(eqx.Module):
    """Where the optimiser is; leading axis members."""

    position: PyTree
    state: PyTree  # of the optimiser


def rows_in_memory(posterior: Any, who: str) -> int:
    """How many rows a network's posterior has.

    Raises:
        TypeError: no posterior of a network, or rows that are not in memory.
    """
    instance("posterior", posterior, NetworkPosterior, "one of ex.network.posterior")
    if isinstance(posterior.data, Source):
        raise TypeError(f"{who} needs the rows in memory, as arrays, not a source.")
    return num_rows(posterior.data)


def start_members(posterior: NetworkPosterior, positions: PyTree, optimiser: Any) -> Iterate:
    """Members at their starts; one position is one member.

    Raises:
        TypeError: no optimiser, or positions that are not floating point.
        ValueError: another structure or other shapes than the posterior's.
    """
    if not (hasattr(optimiser, "init") and hasattr(optimiser, "update")):
        raise TypeError(f"optimiser must be one of optax, as optax.sgd(0.1), not {optimiser!r}.")
    positions, lead = with_leading(posterior, positions)
    if lead == ():
        positions = jax.tree.map(lambda x: x[None], positions)
    elif lead is None or len(lead) > 1:
        raise ValueError(
            "positions must be as the posterior's `start`, or several with a leading axis of "
            "members on every array. Try jax.tree.map(lambda *w: jnp.stack(w), *list_of_positions)."
        )
    return Iterate(positions, jax.vmap(optimiser.init)(positions))


def epoch_keys(
    epochs: int, key: PRNGKeyArray, *, show: bool
) -> Generator[PRNGKeyArray, None, None]:
    """The keys of EPOCHS_AT_ONCE epochs, again and again until all are done, with a bar."""
    done, began = 0, time.perf_counter()
    with progress_bar(epochs, show=show, what="optimising", unit="epochs") as report:
        while done < epochs:
            todo = min(EPOCHS_AT_ONCE, epochs - done)
            yield jax.random.split(jax.random.fold_in(key, done), todo)
            done += todo
            report(done, done / (time.perf_counter() - began))


def epoch(
    posterior: NetworkPosterior,
    optimiser: Any,
    now: Iterate,
    used: Int[Array, " n"],
    size: int,
    key: PRNGKeyArray,
) -> Iterate:
    """Once through the rows `used` in a new order, the same for all members.

    Each batch of `size` rows is a step along the gradient of U / N; rows that fill no batch wait
    for the next order.
    """
    total, batches = num_rows(posterior.data), len(used) // size

    def objective(position: PyTree, batch: PyTree) -> Array:
        position = tree.thaw(position)
        mean = jnp.mean(posterior.program.log_likelihoods(position, batch))
        return -mean - posterior.program.log_prior(position) / total

    def step(member: Iterate, batch: PyTree) -> Iterate:
        slope = jax.grad(objective)(member.position, batch)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            change, state = optimiser.update(slope, member.state, member.position)
            return Iterate(optax.apply_updates(member.position, change), state)

    def one(now: Iterate, which: Array) -> tuple[Iterate, None]:
        batch = rows_of(posterior, which)
        return jax.vmap(step, in_axes=(0, None))(now, batch), None

    order = jax.random.permutation(key, used)[: batches * size].reshape(batches, size)
    return lax.scan(one, now, order)[0]


def rows_of(posterior: NetworkPosterior, which: Int[Array, " n"]) -> PyTree:
    """Inputs and targets of these rows."""
    return jax.tree.map(lambda x: jnp.asarray(x)[which], posterior.data)
