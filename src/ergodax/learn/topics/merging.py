"""Fewer topics: those whose words are most alike become one.

A search that has as many topics as are wanted often ends with two of the corpus's topics in one and
another in two halves, and no sweep leads out of that. A search with more finds each of them at
least once, and merging leads back to as many as are wanted.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

AT_ONCE = 2**22  # numbers that are looked up at a time


def merged(counts: Int[np.ndarray, "M W"], number: int, beta: float) -> Int[np.ndarray, " M"]:
    """Which of the topics left each topic becomes, when those go together whose words are alike.

    Two at a time, those of which the log likelihood of all words, given their topics,
        sum over k of log Gamma(W beta) / Gamma(W beta + n_k)
            + sum over w of log Gamma(beta + n_kw) / Gamma(beta)
    loses least by it. The documents in which they are do not count.

    Args:
        counts: n_kw, how many tokens of topic k are the word w.
        number: of the topics that are to be left.
        beta: of the prior of the topics' words.

    Returns:
        The new number of each topic, from 0 to `number` - 1.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import topics
        >>> counts = np.array([[9, 1, 0, 0], [0, 0, 5, 5], [1, 8, 0, 0]])
        >>> topics.merged(counts, 2, 0.1).tolist()
        [0, 1, 0]
    """
    counts = np.array(counts)  # a copy
    topics, size = counts.shape
    of_word = gammaln(np.arange(counts.sum(axis=0).max(initial=0) + 1) + beta) - gammaln(beta)

    def fit(counts: Int[np.ndarray, "topics W"]) -> Float[np.ndarray, " topics"]:
        """The log likelihood of the words of topics."""
        whole = gammaln(size * beta) - gammaln(size * beta + counts.sum(axis=-1))
        return whole + of_word[counts].sum(axis=-1)

    def losses_of(k: int, others: Int[np.ndarray, " others"]) -> Float[np.ndarray, " others"]:
        """What is lost when topic k and each of the others become one."""
        parts = np.array_split(others, -(-others.size * size // AT_ONCE))
        return own[k] + own[others] - np.concatenate([fit(counts[k] + counts[o]) for o in parts])

    own = fit(counts)
    losses = np.full((topics, topics), np.inf)
    for k in range(1, topics):
        losses[k, :k] = losses_of(k, np.arange(k))
    left, becomes = np.ones(topics, bool), np.arange(topics)
    for _ in range(topics - number):
        gone, stays = divmod(int(losses.argmin()), topics)
        counts[stays] += counts[gone]
        own[stays] = fit(counts[[stays]])[0]
        left[gone], becomes[becomes == gone] = False, stays
        losses[gone], losses[:, gone] = np.inf, np.inf
        others = np.flatnonzero(left & (np.arange(topics) != stays))
        if others.size:
            places = np.maximum(others, stays), np.minimum(others, stays)
            losses[places] = losses_of(stays, others)
    return np.searchsorted(np.flatnonzero(left), becomes)
