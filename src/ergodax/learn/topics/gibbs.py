"""Topics of the words of documents given the topics' distributions, by collapsed Gibbs sampling."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.sparse import csr_array

from ergodax.driver.cpu_fusion import HINTS, understood
from ergodax.learn.topics.layout import LANES, Tokens, lay_out, shape_of
from ergodax.tree import Number

TINY = 1e-30  # the least probability of a word, so that some topic can have it
AT_ONCE = 2_000  # documents whose weights are found at a time

Counts = Int[Array, "K W"] | Float[Array, "K W"]
Assigned = Int[Array, "rows lanes"]  # the topic of each token; K, the number of topics, for none


def nothing_assigned(tokens: Tokens, num_topics: int) -> Int[Array, "*blocks rows lanes"]:
    """No topic for any token, which a first sweep begins from.

    Args:
        tokens: in blocks or not.
        num_topics: K.

    Example:
        >>> import numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> tokens, _ = topics.lay_out(scipy.sparse.csr_array(np.array([[2, 1, 0], [0, 0, 3]])))
        >>> bool((topics.nothing_assigned(tokens, 5) == 5).all())  # topics 0 to 4, and 5 for none
        True
    """
    return jnp.full(tokens.words.shape, num_topics, jnp.int32)


def sweep(
    key: PRNGKeyArray,
    tokens: Tokens,
    assigned: Assigned,
    phi: Float[Array, "K W"],
    alpha: Float[Array, " K"],
) -> tuple[Assigned, Float[Array, "groups K lanes"]]:
    """Draw the topic of every token of a block once, and count the topics of each document.

    The weights of each document, Dirichlet(alpha), are integrated out: in turn each token's topic
    is drawn from
        p(z_i = k | the other z, words, phi) proportional to (alpha_k + n_dk without i) phi[k, w_i].
    A token that has no topic yet is drawn given those before it.

    Args:
        key: a fresh key.
        tokens: of one block.
        assigned: the topic of each token before.
        phi: each topic's distribution over words; its rows need not be normalised.
        alpha: of the documents' weights.

    Returns:
        The topic of each token after, and n_dk, how many tokens of each document are of topic k.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> tokens, _ = topics.lay_out(scipy.sparse.csr_array(np.array([[2, 1, 0], [0, 0, 3]])))
        >>> phi = jnp.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])  # topics that share no word
        >>> none = topics.nothing_assigned(tokens, 2)
        >>> _, counts = topics.sweep(jax.random.key(0), tokens, none, phi, jnp.ones(2))
        >>> counts[0, :, :2].T.tolist()  # of both documents, tokens of topic 0 and of topic 1
        [[3.0, 0.0], [0.0, 3.0]]
    """
    num_topics = phi.shape[0]
    if num_topics == 1:
        assigned = jnp.where(tokens.words >= 0, 0, 1).astype(assigned.dtype)
        return assigned, count_topics(tokens, assigned, 1, phi.dtype)
    of_words = jnp.maximum(phi.T, TINY)
    uniform = jax.random.uniform(key, assigned.shape, phi.dtype)
    counts = count_topics(tokens, assigned, num_topics, phi.dtype)
    return _sweep_groups(counts, assigned, tokens.words, tokens.starts, uniform, of_words, alpha)


@jax.custom_batching.sequential_vmap  # several chains in turn: one fused loop has one chain
def _sweep_groups(
    counts: Float[Array, "groups K lanes"],
    assigned: Assigned,
    words: Int[Array, "rows lanes"],
    starts: Int[Array, " groups_and_one"],
    uniform: Float[Array, "rows lanes"],
    of_words: Float[Array, "W K"],
    alpha: Float[Array, " K"],
) -> tuple[Assigned, Float[Array, "groups K lanes"]]:
    sweep_group = jax.jit(_sweep_rows)

    def group(g: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        counts, assigned = carry
        bounds = _at(starts, g), _at(starts, g + 1)
        with set_xla_metadata(**HINTS) if understood() else nullcontext():  # one fused loop
            count, assigned = sweep_group(
                _at(counts, g), assigned, words, uniform, of_words, alpha, *bounds
            )
        return _put(counts, count, g), assigned

    counts, assigned = jax.lax.fori_loop(0, counts.shape[0], group, (counts, assigned))
    return assigned, counts


def count_topics(
    tokens: Tokens, assigned: Assigned, num_topics: int, dtype: Any = jnp.float32
) -> Float[Array, "groups K lanes"]:
    """n_dk, how many tokens of each document are of each topic."""
    rows = jnp.arange(assigned.shape[0], dtype=jnp.int32)
    group = jnp.searchsorted(tokens.starts, rows, side="right").astype(jnp.int32) - 1
    counts = jnp.zeros((tokens.starts.shape[0] - 1, num_topics, LANES), dtype)
    places = group[:, None], assigned, jnp.arange(LANES)[None, :]
    return counts.at[places].add((tokens.words >= 0).astype(dtype), mode="drop")


def add_words(counts: Counts, tokens: Tokens, assigned: Assigned, weight: Number) -> Counts:
    """n_kw with more for each token of topic k that is the word w.

    Args:
        counts: n_kw, whole (floats would stand still at 2^24) or weighted.
        tokens: of one block.
        assigned: the topic of each token.
        weight: what each counts for.

    Example:
        >>> import jax.numpy as jnp, numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> tokens, _ = topics.lay_out(scipy.sparse.csr_array(np.array([[2, 1, 0], [0, 1, 3]])))
        >>> assigned = jnp.where(tokens.words < 2, 0, 1)  # the last word to topic 1
        >>> topics.add_words(jnp.zeros((2, 3), jnp.int32), tokens, assigned, 1).tolist()
        [[2, 2, 0], [0, 0, 3]]
    """
    one = (tokens.words >= 0).astype(counts.dtype) * jnp.asarray(weight, counts.dtype)
    return counts.at[assigned, jnp.maximum(tokens.words, 0)].add(one, mode="drop")


@partial(jax.jit, static_argnames=("burn_in", "sweeps"))
def expected_topics(
    key: PRNGKeyArray,
    tokens: Tokens,
    phis: Float[Array, "draws K W"],
    alpha: Float[Array, " K"],
    *,
    burn_in: int = 20,
    sweeps: int = 10,
) -> Float[Array, "draws columns K"]:
    """E[weights of a document | its words, phi] for each draw of phi, column by column.

    They are (alpha_k + n_dk) / (sum of alpha + n_d), averaged over `sweeps` sweeps. The topics of
    the tokens are carried on from one phi to the next, and `burn_in` sweeps precede the first.
    """
    num_topics, groups = phis.shape[1], tokens.starts.shape[0] - 1
    none = jnp.zeros((groups, num_topics, LANES), phis.dtype)

    def swept(number: int, key: PRNGKeyArray, phi: Array, assigned: Array) -> tuple[Array, Array]:
        def one(i: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
            assigned, sums = carry
            assigned, counts = sweep(jax.random.fold_in(key, i), tokens, assigned, phi, alpha)
            return assigned, sums + counts

        return jax.lax.fori_loop(0, number, one, (assigned, none))

    def draw(assigned: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        key, phi = given
        assigned, sums = swept(sweeps, key, phi, assigned)
        weights = alpha[None, :, None] + sums / sweeps
        return assigned, weights / jnp.sum(weights, axis=1, keepdims=True)

    key_burn_in, key_draws = jax.random.split(key)
    assigned, _ = swept(burn_in, key_burn_in, phis[0], nothing_assigned(tokens, num_topics))
    _, found = jax.lax.scan(draw, assigned, (jax.random.split(key_draws, phis.shape[0]), phis))
    return jnp.swapaxes(found, 2, 3).reshape(phis.shape[0], groups * LANES, num_topics)


def document_weights(
    key: PRNGKeyArray,
    bags: csr_array,
    phis: Float[np.ndarray, "draws K W"],
    alpha: Float[np.ndarray, " K"],
    *,
    burn_in: int = 20,
    sweeps: int = 10,
) -> Float[np.ndarray, "draws documents K"]:
    """The expected weights of documents given their words and each draw of phi.

    They are found by Gibbs sampling, see `sweep`, as the mean of (alpha_k + n_dk) / (sum of alpha
    + n_d) over sweeps.

    Args:
        key: a fresh key.
        bags: counts of words, shape (documents, words).
        phis: draws of each topic's distribution over words.
        alpha: of the documents' weights.
        burn_in: sweeps before the first draw of phi.
        sweeps: with each draw of phi.

    Example:
        >>> import jax, numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> bags = scipy.sparse.csr_array(np.array([[2, 1, 0], [0, 0, 3]]))
        >>> phi = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], np.float32)
        >>> found = topics.document_weights(jax.random.key(0), bags, phi[None], np.full(2, 0.1))
        >>> (100 * found[0]).round().tolist()  # per cent of each document
        [[97.0, 3.0], [3.0, 97.0]]
    """
    parts, draws = [], jnp.asarray(phis)
    weights = jnp.asarray(alpha, draws.dtype)
    for number, start in enumerate(range(0, shape_of(bags)[0], AT_ONCE)):
        tokens, places = lay_out(bags[start : start + AT_ONCE])
        part = jax.random.fold_in(key, number)
        found = expected_topics(part, tokens, draws, weights, burn_in=burn_in, sweeps=sweeps)
        parts.append(np.asarray(found)[:, places])
    return np.concatenate(parts, axis=1)


def _sweep_rows(
    count: Float[Array, "K lanes"],
    assigned: Assigned,
    words: Int[Array, "rows lanes"],
    uniform: Float[Array, "rows lanes"],
    of_words: Float[Array, "W K"],
    alpha: Float[Array, " K"],
    first: Int[Array, ""],
    last: Int[Array, ""],
) -> tuple[Float[Array, "K lanes"], Assigned]:
    """Draw the topics of the rows of one group in turn."""
    num_topics = count.shape[0]
    numbers = jnp.arange(num_topics, dtype=jnp.int32)[:, None]

    def row(i: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        count, assigned = carry
        old, word = _at(assigned, i), _at(words, i)
        # Looked up here and not for all rows at once, which would write and read them in memory.
        columns = [_at(of_words, jnp.maximum(word[j], 0)) for j in range(LANES)]
        new = _draw(count, old, jnp.stack(columns, axis=1), _at(uniform, i), alpha)
        new = jnp.where(word >= 0, new, num_topics)
        gained = (new[None] == numbers).astype(count.dtype)
        lost = (old[None] == numbers).astype(count.dtype)
        return count + gained - lost, _put(assigned, new, i)

    return jax.lax.fori_loop(first, last, row, (count, assigned))


def _draw(
    count: Float[Array, "K lanes"],
    old: Int[Array, " lanes"],
    phi: Float[Array, "K lanes"],
    uniform: Float[Array, " lanes"],
    alpha: Float[Array, " K"],
) -> Int[Array, " lanes"]:
    """A topic for each lane: how many cumulative sums lie at or below uniform * total.

    Written out topic by topic, so that it becomes one loop over lanes without arrays between.
    """
    total, sums = jnp.zeros_like(uniform), []
    for k in range(phi.shape[0]):
        without = count[k] - (old == k).astype(count.dtype)
        total = total + (alpha[k] + without) * phi[k]
        sums.append(total)
    threshold = uniform * total
    new = jnp.zeros_like(old)
    for below in sums[:-1]:
        new = new + (below <= threshold).astype(jnp.int32)
    return new


def _at(x: Array, i: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_index_in_dim(x, i, 0, keepdims=False)


def _put(x: Array, value: Array, i: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_update_index_in_dim(x, value, i, 0)
