"""The law of topics given documents, by the sum over all assignments."""

import itertools
from math import lgamma

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array

from ergodax.learn.topics import lay_out
from ergodax.learn.topics.kernel import TopicGibbs

COUNTS = np.array([[2, 1, 0], [0, 1, 2]])
ALPHA, BETA = np.array([0.3, 2.0]), 0.7
CHAINS, STEPS, BURN_IN = 300, 200, 40
SIGMAS = 5.5  # two-sided 4e-8, and less than 40 comparisons


def exact(alpha=ALPHA, beta=BETA, counts=COUNTS):
    """E phi and E phi^2, topic by topic: alpha tells the topics apart."""
    tokens = [np.repeat(np.arange(3), row) for row in counts]
    total, sums = 0.0, 0.0
    for z in itertools.product(range(2), repeat=sum(map(len, tokens))):
        topics = np.split(np.array(z), np.cumsum([len(row) for row in tokens])[:-1])
        n, log = np.zeros((2, 3)), 0.0
        for words, of in zip(tokens, topics, strict=True):
            np.add.at(n, (of, words), 1.0)
            log += sum(lgamma(a + (of == k).sum()) for k, a in enumerate(alpha))
        a, s = beta + n, 3 * beta + n.sum(1, keepdims=True)
        log += sum(lgamma(x) for x in a.ravel()) - sum(lgamma(x) for x in s.ravel())
        mean, square = a / s, a * (a + 1) / (s * (s + 1))
        total += np.exp(log)
        sums += np.exp(log) * np.concatenate([mean.ravel(), square.ravel()])
    return sums / total


def means(key, *, blocks=2, draw_every=1, searching=False):
    """The means over time of phi and phi^2: a row for each chain."""
    tokens, _ = lay_out(csr_array(COUNTS), np.array_split(np.arange(2), blocks))
    kernel = TopicGibbs(
        tokens, jnp.asarray(ALPHA, jnp.float32), jnp.float32(BETA),
        draw_every, searching,
    )  # fmt: skip

    @jax.jit
    def run(key):
        key_start, key_run = jax.random.split(key)
        start = jax.random.dirichlet(key_start, jnp.ones(3), (2,))
        state = kernel.init(key_start, start)

        def step(state, number):
            state, _ = kernel.step(jax.random.fold_in(key_run, number), state)
            phi = state.position.ravel()
            return state, jnp.concatenate([phi, phi**2])

        return jnp.mean(jax.lax.scan(step, state, jnp.arange(STEPS))[1][BURN_IN:], axis=0)

    return np.asarray(jax.lax.map(run, jax.random.split(key, CHAINS)), float)


def agree(found, truth):
    error = found.std(0, ddof=1) / len(found) ** 0.5
    return (np.abs(found.mean(0) - truth) < SIGMAS * error).all()


@pytest.mark.parametrize(("blocks", "draw_every"), [(2, 1), (2, 3), (1, 1)])
def test_the_posterior_is_the_stationary_law(blocks, draw_every, key):
    found = means(key, blocks=blocks, draw_every=draw_every)
    assert agree(found, exact())
    for wrong in (exact(alpha=ALPHA[::-1]), exact(beta=1.4), exact(counts=2 * COUNTS)):
        assert not agree(found, wrong)


def test_expectations_in_place_of_draws_have_another_law(key):
    assert not agree(means(key, searching=True), exact())
