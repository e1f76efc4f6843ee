"""Expected topic counts of documents given the topics, by collapsed Gibbs sampling."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ergodax.driver.cpu_fusion import HINTS, understood
from ergodax.learn.topics.batches import Batch

LANES = 8  # documents side by side: one vector register of single precision
CHUNK = 128  # rows whose random numbers are drawn at once


class Tokens(eqx.Module):
    """The tokens of n documents in groups of `LANES` documents of similar length.

    The documents are sorted by length, so that the rows of a group, as many as its longest
    document has tokens, hold little padding. Groups follow each other; rows after the last are
    padding, so that batches of different length share one compiled program.

    Attributes:
        words: the word of each token; column j of a group's rows is its document j.
        present: where there is a token.
        starts: the first row of each group, and the row after the last.
        places: for each document, group * LANES + column.
    """

    words: Int[Array, "rows lanes"]
    present: Bool[Array, "rows lanes"]
    starts: Int[Array, " groups_and_one"]
    places: Int[Array, " n"]


def rows_needed(batch: Batch) -> int:
    """How many rows the tokens of a batch fill.

    Args:
        batch: on the host or the device, but not traced.
    """
    lengths = -np.sort(-_lengths(batch))
    return int(lengths[::LANES].sum())


def round_up(rows: int) -> int:
    """The next of 64, 96, 128, 192, 256, ...: few shapes, and at most half of the rows wasted."""
    size = 64
    while size < rows:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size


def expand(batch: Batch, rows: int | None = None) -> Tokens:
    """Lay out a batch token by token.

    Args:
        batch: on the host or the device, but not traced: the shapes depend on the counts.
        rows: how many to make, at least `rows_needed(batch)`; by default that, rounded up.

    Raises:
        ValueError: fewer rows than the batch needs.
    """
    words, counts, lengths = np.asarray(batch.words), np.asarray(batch.counts), _lengths(batch)
    needed = rows_needed(batch)
    rows = round_up(needed) if rows is None else rows
    if rows < needed:
        raise ValueError(f"rows must be at least {needed}, which the batch needs, not {rows}.")
    order = np.argsort(-lengths, kind="stable")
    heights = lengths[order][::LANES]
    starts = np.concatenate([[0], np.cumsum(heights)])
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    table, present = np.zeros((rows, LANES), np.int32), np.zeros((rows, LANES), bool)
    for place, document in enumerate(order):
        start, lane = starts[place // LANES], place % LANES
        rest = slice(start, start + lengths[document])
        table[rest, lane] = np.repeat(words[document], counts[document].astype(int))
        present[rest, lane] = True
    starts = starts.astype(np.int32)
    return Tokens(*(jnp.asarray(x) for x in (table, present, starts, places)))


def stack(batches: list[Batch]) -> Tokens:
    """The tokens of several batches of equal size, with a leading axis, in one shape."""
    rows = round_up(max(rows_needed(batch) for batch in batches))
    return jax.tree.map(lambda *x: jnp.stack(x), *[expand(batch, rows) for batch in batches])


def _lengths(batch: Batch) -> np.ndarray:
    return np.asarray(batch.counts).sum(1).astype(int)


def expected_counts(
    key: PRNGKeyArray,
    batch: Batch | Tokens,
    phi: Float[Array, "K W"],
    alpha: Any,
    sweeps: int = 50,
    burn_in: int = 25,
) -> tuple[Float[Array, "n K"], Float[Array, "K W"]]:
    """E[n_dk | words, phi] for each document, and E[n_kw | words, phi] of all of them together.

    The document weights, Dirichlet(alpha), are integrated out. A sweep draws the topic of each
    token in turn from
        p(z_i = k | the other z) proportional to (alpha + n_dk without i) phi[k, w_i],
    and the counts are averaged over the sweeps after the burn-in. The first sweep finds no topics
    and conditions on those that it has drawn.

    Args:
        key: of the uniform numbers; the result does not depend on how the batch is padded.
        batch: the documents. A Batch must not be traced; its `Tokens` may be.
        phi: the word probabilities of each topic; rows need not be normalised.
        alpha: of the document weights' prior, positive.
        sweeps: over each document.
        burn_in: how many of them are left out of the average.

    Raises:
        ValueError: no sweep is left after the burn-in.
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

    def sweep(number: Int[Array, ""], carry: tuple) -> tuple:
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
    sweep_group = _fused(jax.jit(_sweep_rows))

    def group(g: Int[Array, ""], carry: tuple) -> tuple:
        counts, topics = carry
        first, last = _at(tokens.starts, g), _at(tokens.starts, g + 1)
        count, topics = sweep_group(
            _at(counts, g), topics, phi, uniform, tokens.present, first, last, alpha
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

    def row(i: Int[Array, ""], carry: tuple) -> tuple:
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


def _fused(function: Any) -> Any:
    if not understood():
        return function

    def hinted(*arguments: Any) -> Any:
        with set_xla_metadata(**HINTS):  # the whole loop in one piece
            return function(*arguments)

    return hinted
