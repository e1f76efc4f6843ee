"""Perplexity against its formula, topics and coherence by hand."""

import itertools
import json
from math import log

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.learn.topics.corpus import Document, Vocabulary
from ergodax.learn.topics.evaluation import (
    Averaged,
    describe,
    infer_proportions,
    npmi,
    perplexity,
    split,
    top_words,
    topic_proportions,
    word_probabilities,
)

PHI = np.array([[1 / 6, 2 / 6, 3 / 6], [2 / 4, 1 / 4, 1 / 4]])


def documents(number, words, seed=0):
    generator = np.random.default_rng(seed)
    tokens = [generator.integers(words, size=generator.integers(1, 60)) for _ in range(number)]
    pairs = [np.unique(each, return_counts=True) for each in tokens]
    return [Document(w.astype(np.int32), c.astype(np.int32)) for w, c in pairs]


def test_the_toy_perplexity():
    eta = np.array([[0.5848663, 0.4151337]])
    found = word_probabilities(eta, PHI, np.array([0, 0]), np.array([0, 1]))
    assert perplexity(found, np.array([1, 1])) == pytest.approx(3.3126267, abs=1e-7)
    swapped = word_probabilities(eta[:, ::-1], PHI, np.array([0, 0]), np.array([0, 1]))
    assert abs(perplexity(swapped, np.array([1, 1])) - 3.3126267) > 0.01


def test_probabilities_are_averaged_before_the_logarithm():
    draws = np.array([[0.1, 0.4], [0.3, 0.2]])
    counts = np.array([3, 1])
    expected = np.exp(-(3 * log(0.2) + log(0.3)) / 4)
    assert perplexity(draws, counts) == pytest.approx(expected, rel=1e-14)
    after = np.exp(-(counts * np.log(draws).mean(0)).sum() / 4)
    assert perplexity(draws, counts) < after - 0.1, "Jensen: the other order is worse"
    assert perplexity(np.array([0.0, 1.0]), counts) == np.inf


def test_only_the_later_half_of_the_snapshots_is_averaged():
    average = Averaged(np.array([1]))
    values = [0.1, 0.2, 0.4, 0.8, 0.6]
    kept = [[0.1], [0.2], [0.2, 0.4], [0.4, 0.8], [0.4, 0.8, 0.6]]
    for value, mean in zip(values, kept, strict=True):
        assert average.add(np.array([value])) == pytest.approx(1 / np.mean(mean), rel=1e-6)


def test_proportions_are_those_of_the_formula():
    counts = jnp.array([[3.0, 1.0], [0.0, 0.0]])
    found = topic_proportions(counts, 0.5)
    np.testing.assert_allclose(found, [[3.5 / 5, 1.5 / 5], [0.5, 0.5]], rtol=1e-6)


@pytest.mark.parametrize(("held_back", "every"), [("tenth", 10), ("half", 2)])
def test_every_tenth_or_second_token_is_held_back(held_back, every):
    given = documents(30, 7)
    parts = split(given, np.random.default_rng(0), held_back, batch_size=8)
    lengths = sorted(document.num_tokens for document in given)
    seen = np.concatenate([np.asarray(t.present).sum() for t in parts.seen], axis=None).sum()
    assert parts.counts.sum() == sum(n // every for n in lengths)
    assert seen + parts.counts.sum() == sum(lengths)
    assert sum(len(t.places) for t in parts.seen) == 30
    total = sum(np.bincount(d.words, d.counts, 7) for d in given)
    back = np.bincount(parts.words, parts.counts, 7)
    for tokens in parts.seen:
        back += np.bincount(np.asarray(tokens.words)[np.asarray(tokens.present)], minlength=7)
    np.testing.assert_array_equal(back, total)


@pytest.mark.slow
def test_the_held_back_words_belong_to_the_rows_of_the_proportions():
    """Documents of one word each: seen and held-back words agree document by document."""
    given = [Document(np.array([w], np.int32), np.array([20 + w], np.int32)) for w in range(9)]
    parts = split(given, np.random.default_rng(0), batch_size=4)
    phi = jnp.asarray(0.999 * np.eye(9) + 0.001 / 9, jnp.float32)
    eta = infer_proportions(jax.random.key(0), parts, phi, alpha=0.01, sweeps=10, burn_in=5)
    np.testing.assert_allclose(eta.sum(axis=1), 1.0, rtol=1e-5)
    found = word_probabilities(eta, np.asarray(phi), parts.documents, parts.words)
    assert found.min() > 0.9
    shifted = word_probabilities(np.roll(eta, 1, 0), np.asarray(phi), parts.documents, parts.words)
    assert shifted.max() < 0.1


def test_a_model_that_knows_nothing_has_as_many_words_as_the_vocabulary():
    parts = split(documents(20, 50), np.random.default_rng(0))
    phi = jnp.full((3, 50), 1 / 50)
    eta = infer_proportions(jax.random.key(0), parts, phi, alpha=0.1, sweeps=4, burn_in=2)
    found = word_probabilities(eta, np.asarray(phi), parts.documents, parts.words)
    assert perplexity(found, parts.counts) == pytest.approx(50, rel=1e-5)


def test_gibbs_finds_the_proportions_of_the_toy_document():
    """E n_k of the document (0, 2, 2, 1) is summed over all 16 assignments."""
    words, alpha = [0, 2, 2, 1], 0.3
    weights, counts = [], []
    for topics in itertools.product(range(2), repeat=4):
        seen, weight = np.zeros(2), 1.0
        for word, k in zip(words, topics, strict=True):
            weight *= (alpha + seen[k]) * PHI[k, word]
            seen[k] += 1
        weights.append(weight)
        counts.append(seen)
    exact = np.average(counts, axis=0, weights=weights)
    expected = (alpha + exact) / (2 * alpha + 4)
    given = [Document(np.array([0, 1, 2]), np.array([1, 1, 2]))] * 200
    parts = split([*given, Document(np.array([0]), np.array([10]))], np.random.default_rng(0))
    eta = infer_proportions(
        jax.random.key(1), parts, jnp.asarray(PHI, jnp.float32), alpha=alpha, sweeps=60, burn_in=10
    )
    short = eta[1:]  # the longest comes first
    # 200 independent documents: six standard errors are a false alarm of 2e-9.
    error = short.std(axis=0, ddof=1) / 200**0.5
    assert (np.abs(short.mean(axis=0) - expected) < 6 * error).all()
    assert (np.abs(short.mean(axis=0) - expected[::-1]) > 6 * error).all()


def test_top_words_are_the_likeliest():
    assert top_words(PHI, 2).tolist() == [[2, 1], [0, 1]]
    with pytest.raises(ValueError, match="in 1 to 3"):
        top_words(PHI, 4)


def bag(*words):
    return Document(np.array(words, np.int32), np.ones(len(words), np.int32))


def test_coherence_by_hand():
    corpus = [bag(0, 1), bag(0, 1, 2), bag(0, 2), bag(3)]
    # p(0) = 3/4, p(1) = p(2) = 1/2, p(3) = 1/4; together (0, 1) 1/2, (1, 2) 1/4, (0, 3) never.
    pair = log(0.5 / (0.75 * 0.5)) / -log(0.5)
    rare = log(0.25 / 0.25) / -log(0.25)
    found = npmi(np.array([[0, 1], [2, 1], [0, 3]]), corpus)
    np.testing.assert_allclose(found, [pair, rare, -1.0], rtol=1e-12, atol=1e-12)
    three = npmi(np.array([[0, 1, 2]]), corpus)
    np.testing.assert_allclose(three, [(2 * pair + rare) / 3], rtol=1e-12)
    assert npmi(np.array([[0, 1]]), [bag(0, 1), bag(2)]) == pytest.approx(1.0)
    assert npmi(np.array([[0, 1]]), [bag(0, 1)]) == 1.0, "always both: the limit"
    with pytest.raises(ValueError, match="documents is empty"):
        npmi(np.array([[0, 1]]), [])
    with pytest.raises(ValueError, match="at least two words"):
        npmi(np.array([[0]]), corpus)


def test_topics_are_written_largest_first(tmp_path):
    names = Vocabulary(["cat", "dog", "sun"])
    topics = describe(PHI, np.array([0.3, 0.7]), names, [bag(0, 1), bag(2)], top=2)
    assert topics.words == [["cat", "dog"], ["sun", "dog"]]
    np.testing.assert_allclose(topics.coherence, [1.0, -1.0])
    paths = topics.write(tmp_path)
    assert paths["topics"].read_text().splitlines()[1] == "0,0.7,1.0,cat dog"
    read = json.loads(paths["topics_json"].read_text())
    assert read[1] == {"topic": 1, "share": 0.3, "npmi": -1.0, "words": {"sun": 0.5, "dog": 1 / 3}}
    with pytest.raises(ValueError, match="3 words, the vocabulary 2"):
        describe(PHI, np.array([0.3, 0.7]), Vocabulary(["a", "b"]), [bag(0)])


def test_documents_too_short_to_hold_back():
    with pytest.raises(ValueError, match="no document has 10 tokens"):
        split([bag(0, 1)], np.random.default_rng(0))
