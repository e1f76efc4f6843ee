"""Expected topic counts of documents given the topics, by collapsed Gibbs sampling."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ergodax.driver.cpu_fusion import HINTS, understood
from ergodax.learn.topics.corpus import Document
from ergodax.tree import Number

LANES = 8  # documents side by side: one vector register of single precision
CHUNK = 128  # rows whose random numbers are drawn at once


class Tokens(eqx.Module):
    """The tokens of n documents in groups of `LANES` documents of similar length.

    The documents are sorted by length, so that the rows of a group, as many as its longest
    document has tokens, hold little padding. Groups follow each other; rows after the last are
    padding, so that batches of different length share one compiled program.
    """

    # the word of each token; column j of a group's rows is its document j
    words: Int[Array, "rows lanes"]
    present: Bool[Array, "rows lanes"]  # where there is a token
    starts: Int[Array, " groups_and_one"]  # the first row of each group, and the row after the last
    places: Int[Array, " n"]  # for each document, group * LANES + column


def rows_needed(batch: Sequence[Document]) -> int:
    """How many rows the tokens of a batch fill."""
    return sum(sorted((document.num_tokens for document in batch), reverse=True)[::LANES])


def round_up(rows: int) -> int:
    """The next of 64, 96, 128, 192, 256, ...: few shapes, and at most half of the rows wasted."""
    size = 64
    while size < rows:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size


def expand(batch: Sequence[Document], rows: int | None = None) -> Tokens:
    """Lay out a batch token by token: in the rows that it needs, rounded up. Raises: ValueError."""
    needed = rows_needed(batch)
    rows = round_up(needed) if rows is None else rows
    if rows < needed:
        raise ValueError(f"rows must be at least {needed}, which the batch needs, not {rows}.")
    order = sorted(
        range(len(batch)), key=lambda place: (-batch[place].num_tokens, -len(batch[place].words))
    )
    heights = [batch[document].num_tokens for document in order[::LANES]]
    starts = np.concatenate([[0], np.cumsum(heights)]).astype(np.int32)
    places = np.argsort(order).astype(np.int32)
    words, present = np.zeros((rows, LANES), np.int32), np.zeros((rows, LANES), bool)
    for place, document in enumerate(order):
        tokens = np.repeat(batch[document].words, batch[document].counts)
        start, lane = starts[place // LANES], place % LANES
        words[start : start + len(tokens), lane] = tokens
        present[start : start + len(tokens), lane] = True
    return Tokens(*(jnp.asarray(x) for x in (words, present, starts, places)))


def stack(batches: Sequence[Sequence[Document]]) -> Tokens:
    """The tokens of several batches of equal size, with a leading axis, in one shape."""
    rows = round_up(max(rows_needed(batch) for batch in batches))
    return jax.tree.map(lambda *x: jnp.stack(x), *[expand(batch, rows) for batch in batches])


def expected_counts(
    key: PRNGKeyArray,
    batch: Sequence[Document] | Tokens,
    phi: Float[Array, "K W"],
    alpha: Number,
    sweeps: int = 50,
    burn_in: int = 25,
) -> tuple[Float[Array, "n K"], Float[Array, "K W"]]:
    """E[n_dk | words, phi] for each document, and E[n_kw | words, phi] of all of them together.

    The document weights, Dirichlet(alpha), are integrated out. A sweep draws the topic of each
    token in turn from
        p(z_i = k | the other z) proportional to (alpha + n_dk without i) phi[k, w_i],
    and the counts are averaged over the sweeps after the burn-in. The first sweep finds no topics
    and conditions on those that it has drawn. Rows of phi need not be normalised, tokens may be
    traced, and the result does not depend on how many rows they fill.

    Raises: ValueError where no sweep is left after the burn-in.
    """
    if not 0 <= burn_in < sweeps:
        raise ValueError(
            f"burn_in must lie in [0, {sweeps}), so that one of the {sweeps} sweeps is left, not "
            f"{burn_in}."
        )
    tokens = batch if isinstance(batch, Tokens) else expand(batch)
    return _average(key, tokens, phi, jnp.asarray(alpha, phi.dtype), sweeps, burn_in)


@partial(jax.jit, static_argnums=(4, 5))
def _average(
    key: PRNGKeyArray,
    tokens: Tokens,
    phi: Float[Array, "K W"],
    alpha: Float[Array, ""],
    sweeps: int,
    burn_in: int,
) -> tuple[Float[Array, "n K"], Float[Array, "K W"]]:
    num_topics, groups = phi.shape[0], tokens.starts.shape[0] - 1
    of_tokens = jnp.swapaxes(phi.T[tokens.words], 1, 2)
    one = tokens.present.astype(phi.dtype)

    def sweep(number: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        counts, topics, document_sums, word_sums = carry
        uniform = _uniform(jax.random.fold_in(key, number), tokens, phi.dtype)
        counts, topics = _sweep(counts, topics, of_tokens, uniform, tokens, alpha)
        kept = (number >= burn_in).astype(phi.dtype)
        word_sums = word_sums.at[topics, tokens.words].add(kept * one, mode="drop")
        return counts, topics, document_sums + kept * counts, word_sums

    counts = jnp.zeros((groups, num_topics, LANES), phi.dtype)
    nothing = jnp.full(one.shape, num_topics, jnp.int32)
    carry = (counts, nothing, counts, jnp.zeros_like(phi))
    _, _, document_sums, word_sums = jax.lax.fori_loop(0, sweeps, sweep, carry)
    in_place = jnp.swapaxes(document_sums, 1, 2).reshape(-1, num_topics)[tokens.places]
    return in_place / (sweeps - burn_in), word_sums / (sweeps - burn_in)


def _uniform(key: PRNGKeyArray, tokens: Tokens, dtype: Any) -> Float[Array, "rows lanes"]:
    """A number for each token, chunk by chunk of rows; those of padding rows stay 0."""
    rows = tokens.words.shape[0]

    def chunk(number: Int[Array, ""], table: Array) -> Array:
        some = jax.random.uniform(jax.random.fold_in(key, number), (CHUNK, LANES), dtype)
        return jax.lax.dynamic_update_slice_in_dim(table, some, number * CHUNK, 0)

    table = jnp.zeros((-(-rows // CHUNK) * CHUNK, LANES), dtype)
    return jax.lax.fori_loop(0, (tokens.starts[-1] + CHUNK - 1) // CHUNK, chunk, table)[:rows]


def _sweep(
    counts: Float[Array, "groups K lanes"],
    topics: Int[Array, "rows lanes"],
    phi: Float[Array, "rows K lanes"],
    uniform: Float[Array, "rows lanes"],
    tokens: Tokens,
    alpha: Float[Array, ""],
) -> tuple[Float[Array, "groups K lanes"], Int[Array, "rows lanes"]]:
    """Draw the topic of every token, group by group; the topic K stands for none."""
    sweep_group = jax.jit(_sweep_rows)

    def group(g: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        counts, topics = carry
        first, last = _at(tokens.starts, g), _at(tokens.starts, g + 1)
        count = _at(counts, g)
        with set_xla_metadata(**HINTS) if understood() else nullcontext():  # one fused loop
            count, topics = sweep_group(
                count, topics, phi, uniform, tokens.present, first, last, alpha
            )
        return _put(counts, count, g), topics

    return jax.lax.fori_loop(0, counts.shape[0], group, (counts, topics))


def _sweep_rows(
    count: Float[Array, "K lanes"],
    topics: Int[Array, "rows lanes"],
    phi: Float[Array, "rows K lanes"],
    uniform: Float[Array, "rows lanes"],
    present: Bool[Array, "rows lanes"],
    first: Int[Array, ""],
    last: Int[Array, ""],
    alpha: Float[Array, ""],
) -> tuple[Float[Array, "K lanes"], Int[Array, "rows lanes"]]:
    num_topics = count.shape[0]
    numbers = jnp.arange(num_topics, dtype=jnp.int32)[:, None]

    def row(i: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        count, topics = carry
        old = _at(topics, i)
        new = _draw(count, old, _at(phi, i), _at(uniform, i), alpha)
        new = jnp.where(_at(present, i), new, num_topics)
        gained = (new[None] == numbers).astype(count.dtype)
        lost = (old[None] == numbers).astype(count.dtype)
        return count + gained - lost, _put(topics, new, i)

    return jax.lax.fori_loop(first, last, row, (count, topics))


def _at(x: Array, i: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_index_in_dim(x, i, 0, keepdims=False)


def _put(x: Array, value: Array, i: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_update_index_in_dim(x, value, i, 0)


def _draw(
    count: Float[Array, "K lanes"],
    old: Int[Array, " lanes"],
    phi: Float[Array, "K lanes"],
    uniform: Float[Array, " lanes"],
    alpha: Float[Array, ""],
) -> Int[Array, " lanes"]:
    """A topic for each lane: how many cumulative sums lie at or below uniform * total.

    Written out topic by topic, so that it becomes one loop over lanes without arrays between.
    """
    total, sums = jnp.zeros_like(uniform), []
    for k in range(phi.shape[0]):
        without = count[k] - (old == k).astype(count.dtype)
        total = total + (alpha + without) * phi[k]
        sums.append(total)
    threshold = uniform * total
    new = jnp.zeros_like(old)
    for below in sums[:-1]:
        new = new + (below <= threshold).astype(jnp.int32)
    return new
