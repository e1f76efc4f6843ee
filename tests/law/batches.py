"""Batches chosen by the test, so that all of them can be enumerated."""

import itertools

import jax
import jax.numpy as jnp

from ergodax.data import Batching


class Chosen(Batching):
    """Always these rows."""

    rows: jax.Array

    def init(self, key, num_rows):
        return None

    def draw(self, key, state, num_rows, batch_size):
        return self.rows, state


class ChosenWithReplacement(Chosen):
    """The same, as one of the batches that rows drawn with replacement may be."""

    distinct = False


def every(num_rows: int, size: int, replace: bool) -> jax.Array:
    """Every batch, each as likely as the others: shape (batches, size)."""
    rows = range(num_rows)
    ways = itertools.product(rows, repeat=size) if replace else itertools.combinations(rows, size)
    return jnp.array(list(ways), jnp.int32)


def chosen(rows: jax.Array, replace: bool) -> Chosen:
    """The scheme that draws these rows."""
    return (ChosenWithReplacement if replace else Chosen)(rows)
