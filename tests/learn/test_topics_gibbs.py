"""Tokens laid out, and their topics given phi, by enumeration."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array

from ergodax.learn.topics import add_words, document_weights, lay_out, nothing_assigned, sweep
from ergodax.learn.topics.gibbs import count_topics
from ergodax.learn.topics.kernel import TopicGibbs
from ergodax.learn.topics.layout import LANES, _round_up

ALPHA = np.array([0.3, 0.9])
PHI = np.array([[1 / 6, 2 / 6, 3 / 6], [2 / 4, 1 / 4, 1 / 4]], np.float32)


def given(counts):
    return lay_out(csr_array(np.asarray(counts)))


def enumerated(tokens, phi, alpha):
    """E n_k and E n_kw by the sum over all topics of the tokens."""
    total, topics, words = 0.0, np.zeros(len(phi)), np.zeros(phi.shape)
    for z in itertools.product(range(len(phi)), repeat=len(tokens)):
        n, weight = np.zeros(len(phi)), 1.0
        for k, w in zip(z, tokens, strict=True):
            weight *= (alpha[k] + n[k]) * phi[k, w]
            n[k] += 1
        total += weight
        topics += weight * n
        np.add.at(words, (list(z), list(tokens)), weight)
    return topics / total, words / total


def swept(key, counts, sweeps):
    """n_kw after so many sweeps."""
    tokens, _ = given(counts)

    @jax.jit
    def run(key):
        assigned = nothing_assigned(tokens, 2)
        for number in range(sweeps):
            assigned, documents = sweep(
                jax.random.fold_in(key, number),
                tokens,
                assigned,
                jnp.asarray(PHI),
                jnp.asarray(ALPHA, jnp.float32),
            )
        return add_words(jnp.zeros((2, 3), jnp.int32), tokens, assigned, 1), documents

    return run(key)


@pytest.mark.parametrize("counts", [(1, 1, 2), (2, 0, 3)])
def test_topics_are_those_of_the_enumeration(counts, key):
    exact = enumerated(np.repeat(np.arange(3), counts), PHI, ALPHA)[1]
    copies, runs = 1_500, []
    for number in range(12):
        words, _ = swept(jax.random.fold_in(key, number), [counts] * copies, 15)
        runs.append(np.asarray(words, float) / copies)
    mean, error = np.mean(runs, 0), np.std(runs, 0, ddof=1) / len(runs) ** 0.5
    # Student's t with 11 degrees of freedom: 10 errors are as rare as 5 of a normal law.
    assert np.all(np.abs(mean - exact) < 10 * error + 1e-5)
    wrong = enumerated(np.repeat(np.arange(3), counts), PHI, ALPHA[::-1])[1]
    assert np.any(np.abs(mean - wrong) > 10 * error + 1e-5)


def test_document_and_word_counts_agree(key):
    counts = np.random.default_rng(1).integers(0, 5, (11, 3))
    words, documents = swept(key, counts, 3)
    np.testing.assert_array_equal(np.asarray(words).sum(0), counts.sum(0))
    np.testing.assert_array_equal(np.asarray(words).sum(1), np.asarray(documents).sum((0, 2)))
    tokens, places = given(counts)
    lengths = np.asarray(documents).sum(1).ravel()[places]
    np.testing.assert_array_equal(lengths, counts.sum(1))
    counted = count_topics(tokens, nothing_assigned(tokens, 2), 2)
    assert not counted.any(), "no topic yet"


def test_weights_are_those_of_the_enumeration(key):
    counts = [[1, 1, 2]] * 400 + [[10, 0, 0]]
    phis = np.stack([PHI, PHI[::-1]])
    found = document_weights(key, csr_array(np.array(counts)), phis, ALPHA, sweeps=60)
    np.testing.assert_allclose(found.sum(axis=2), 1.0, rtol=1e-5)
    for phi, weights in zip(phis, found[:, :400], strict=True):
        topics, _ = enumerated((0, 1, 2, 2), phi, ALPHA)
        exact = (ALPHA + topics) / (ALPHA.sum() + 4)
        error = weights.std(axis=0, ddof=1) / 20  # 400 independent documents: 2e-9 in all
        assert (np.abs(weights.mean(axis=0) - exact) < 6 * error).all()
        assert (np.abs(weights.mean(axis=0) - exact[::-1]) > 6 * error).all()


def test_documents_stay_in_their_places(key):
    # Topics with a word each: the topic of a token is known, and so are each document's weights.
    counts = np.array([[1, 0, 2], [4, 1, 0], [0, 0, 9], [0, 0, 0]] * 5)
    phi = np.eye(3, dtype=np.float32)[None]
    found = document_weights(key, csr_array(counts), phi, np.full(3, 0.5), sweeps=2)[0]
    expected = (0.5 + counts) / (1.5 + counts.sum(1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_blocks_have_every_token_once():
    counts = np.random.default_rng(0).integers(0, 4, (50, 6))
    order = np.random.default_rng(1).permutation(50)
    tokens, places = lay_out(csr_array(counts), np.array_split(order, 3))
    assert tokens.words.shape[0] == 3 and len(set(places)) == 50
    tokens = jax.tree.map(np.asarray, tokens)
    words = tokens.words[tokens.words >= 0]
    np.testing.assert_array_equal(np.bincount(words, minlength=6), counts.sum(0))
    groups = tokens.starts.shape[1] - 1
    for document, place in enumerate(places):
        block, column = divmod(place, groups * LANES)
        group, lane = divmod(column, LANES)
        first, last = tokens.starts[block, group : group + 2]
        column = tokens.words[block, first:last, lane]
        found = np.bincount(column[column >= 0], minlength=6)
        np.testing.assert_array_equal(found, counts[document])
    assert [_round_up(n) for n in (1, 64, 65, 97, 129, 200)] == [64, 64, 96, 128, 192, 256]


@pytest.mark.parametrize("barrier", [True, False])
def test_a_step_copies_none_of_what_is_known_of_the_other_blocks(barrier, key, monkeypatch):
    if not barrier:  # the control
        monkeypatch.setattr(jax.lax, "optimization_barrier", lambda x: x)
    bags = csr_array(np.random.default_rng(0).integers(0, 3, size=(512, 20)))
    tokens, _ = lay_out(bags, np.array_split(np.arange(512), 32))
    kernel = TopicGibbs(tokens, jnp.full(3, 0.1), jnp.float32(0.1))
    state = kernel.init(key, jnp.full((3, 20), 0.05))

    def steps(state):
        return jax.lax.fori_loop(
            0, 64, lambda i, s: kernel.step(jax.random.fold_in(key, i), s)[0], state
        )

    jax.config.update("jax_disable_most_optimizations", False)
    program = jax.jit(steps).lower(state).compile().as_text()
    assert program is not None
    shape = ",".join(map(str, tokens.words.shape))
    inside = program.split("ENTRY")[0]  # what is outside of the loop is done once
    copies = re.findall(rf"s32\[{shape}\]\S* copy\(", inside)
    assert bool(copies) != barrier
