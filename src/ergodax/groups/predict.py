"""What draws of shared parameters and latents say of rows: log-likelihoods, and predictions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.groups.conditional import Conditional
from ergodax.groups.latents import CELLS, KEPT, Draw
from ergodax.groups.latents import latents as draw_latents
from ergodax.groups.layout import Layout


@eqx.filter_jit
def _piece(function: Callable[..., PyTree], draws: PyTree, batch: int) -> PyTree:
    return lax.map(lambda each: function(*each), draws, batch_size=batch)


def over_draws(function: Callable[..., PyTree], draws: PyTree, rows: int) -> PyTree:
    """A function of each draw, for trees with axes of chains and draws; in pieces, as NumPy arrays.

    Args:
        function: of one draw of each tree, as a tuple; a pytree itself where it holds arrays.
        draws: a tuple of trees.
        rows: that a call works on, by which the pieces are sized.
    """
    chains, each = jax.tree.leaves(draws)[0].shape[:2]
    count = chains * each
    flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), draws)
    size, parts = max(1, min(count, KEPT // max(rows, 1))), []
    for begin in range(0, count, size):
        numbers = np.minimum(np.arange(begin, begin + size), count - 1)
        piece = jax.tree.map(lambda x, n=numbers: jnp.asarray(x[n]), flat)
        found = _piece(function, piece, max(1, min(size, CELLS // max(rows, 1))))
        parts.append(jax.tree.map(lambda x, b=begin: np.asarray(x)[: count - b], found))
    whole = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    return jax.tree.map(lambda x: x.reshape(chains, each, *x.shape[1:]), whole)


class EachRow(eqx.Module):
    """(shared, latents) -> log p(row | shared, latent of its group), in the user's order."""

    density: Conditional
    layout: Layout
    group_of_row: Int[Array, " distinct"]

    def __call__(self, shared: PyTree, latents: Array) -> Float[Array, " rows"]:
        """Of one draw."""
        values = tree.thaw(shared)
        of = lambda b, row: self.density.log_likelihood(values, b, row)  # noqa: E731
        return jax.vmap(of)(latents[self.group_of_row], self.layout.rows)[self.layout.order]


def each_row(density: Conditional, layout: Layout) -> EachRow:
    """The function of the log-likelihoods of all rows."""
    return EachRow(density, layout, jnp.asarray(layout.group_of_row, jnp.int32))


class Predicting(eqx.Module):
    """(shared, latents, key) -> what a user's function makes of each row."""

    function: Callable[..., Any]
    rows: PyTree
    groups: Int[Array, " rows"]

    def __call__(self, shared: PyTree, latents: Array, key: PRNGKeyArray) -> PyTree:
        """Of one draw."""
        values, keys = tree.thaw(shared), jax.random.split(key, self.groups.size)
        of = lambda b, row, key: self.function(values, b, row, key)  # noqa: E731
        return jax.vmap(of)(latents[self.groups], self.rows, keys)


def of_new_groups(
    density: Conditional, layout: Layout, count: int, shared: PyTree, key: PRNGKeyArray
) -> np.ndarray:
    """Latents of groups without rows, by their prior; shape (chains, draws, count, ...)."""
    groups = np.arange(count, dtype=np.int32)
    new = Layout(jax.tree.map(lambda x: jnp.repeat(x[:1], count, axis=0), layout.rows), groups)
    empty = tuple(block._replace(mask=jnp.zeros_like(block.mask)) for block in new.blocks)
    new = eqx.tree_at(lambda x: x.blocks, new, empty)
    return draw_latents(Draw(density, new, False), shared, key, density.shape)
