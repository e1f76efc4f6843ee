"""Perplexity against its formula, topics and coherence by hand."""

import json
from math import log

import numpy as np
import pytest
from scipy.sparse import csr_array

from ergodax.learn.topics import Vocabulary, document_weights
from ergodax.learn.topics.evaluation import (
    Completion,
    describe,
    hold_back,
    npmi,
    perplexity,
    top_words,
)

PHI = np.array([[1 / 6, 2 / 6, 3 / 6], [2 / 4, 1 / 4, 1 / 4]])


def documents(number, words, seed=0):
    generator = np.random.default_rng(seed)
    tokens = [generator.integers(words, size=generator.integers(1, 60)) for _ in range(number)]
    return csr_array(np.stack([np.bincount(each, minlength=words) for each in tokens]))


def test_the_toy_perplexity():
    """Weights that are known: the words of a long document have one topic in the first share."""
    held = Completion(csr_array((1, 3)), np.array([0, 0]), np.array([0, 1]), np.array([1, 1]))
    eta = np.array([[0.5848663, 0.4151337]])
    found = held._of_draw(eta, PHI)
    assert perplexity(found, held.counts) == pytest.approx(3.3126267, abs=1e-7)
    assert abs(perplexity(held._of_draw(eta[:, ::-1], PHI), held.counts) - 3.3126267) > 0.01


def test_probabilities_are_averaged_before_the_logarithm():
    draws = np.array([[0.1, 0.4], [0.3, 0.2]])
    counts = np.array([3, 1])
    expected = np.exp(-(3 * log(0.2) + log(0.3)) / 4)
    assert perplexity(draws, counts) == pytest.approx(expected, rel=1e-14)
    after = np.exp(-(counts * np.log(draws).mean(0)).sum() / 4)
    assert perplexity(draws, counts) < after - 0.1, "Jensen: the other order is worse"
    assert perplexity(np.array([0.0, 1.0]), counts) == np.inf


@pytest.mark.parametrize(("held_back", "every"), [("tenth", 10), ("half", 2)])
def test_every_tenth_or_second_token_is_held_back(held_back, every):
    given = documents(30, 7)
    parts = hold_back(given, np.random.default_rng(0), held_back)
    lengths = given.toarray().sum(1)
    back = np.zeros((30, 7), int)
    back[parts.documents, parts.words] = parts.counts
    assert (back.sum(1) == lengths // every).all()
    np.testing.assert_array_equal(back + parts.seen.toarray(), given.toarray())
    other = hold_back(given, np.random.default_rng(1), held_back)
    assert other.words.tolist() != parts.words.tolist(), "the order is random"


def test_the_held_back_words_belong_to_the_rows_of_the_weights(key):
    """Documents of one word each: seen and held-back words agree document by document."""
    parts = hold_back(csr_array(np.diag(20 + np.arange(9))), np.random.default_rng(0))
    phi = np.asarray(0.999 * np.eye(9) + 0.001 / 9, np.float32)
    found = parts.probabilities(key, phi[None], np.full(9, 0.01))
    assert found.min() > 0.9
    shifted = parts.probabilities(key, np.roll(phi, 1, 1)[None], np.full(9, 0.01))
    np.testing.assert_allclose(shifted, found, rtol=1e-2, err_msg="topics have no order")
    weights = document_weights(key, parts.seen, phi[None], np.full(9, 0.01))[0]
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
    assert parts._of_draw(np.roll(weights, 1, 0), phi).max() < 0.1


def test_a_model_that_knows_nothing_has_as_many_words_as_the_vocabulary(key):
    parts = hold_back(documents(20, 50), np.random.default_rng(0))
    phi = np.full((1, 3, 50), 1 / 50, np.float32)
    found = parts.probabilities(key, phi, np.full(3, 0.1), burn_in=2, sweeps=2)
    assert perplexity(found, parts.counts) == pytest.approx(50, rel=1e-5)


def test_top_words_are_the_likeliest():
    assert top_words(PHI, 2).tolist() == [[2, 1], [0, 1]]
    with pytest.raises(ValueError, match="in 1 to 3"):
        top_words(PHI, 4)


def bags(*documents, size=4):
    return csr_array(np.stack([np.bincount(each, minlength=size) for each in documents]))


def test_coherence_by_hand():
    corpus = bags([0, 1], [0, 1, 2], [0, 2], [3])
    # p(0) = 3/4, p(1) = p(2) = 1/2, p(3) = 1/4; together (0, 1) 1/2, (1, 2) 1/4, (0, 3) never.
    pair = log(0.5 / (0.75 * 0.5)) / -log(0.5)
    rare = log(0.25 / 0.25) / -log(0.25)
    found = npmi(np.array([[0, 1], [2, 1], [0, 3]]), corpus)
    np.testing.assert_allclose(found, [pair, rare, -1.0], rtol=1e-12, atol=1e-12)
    three = npmi(np.array([[0, 1, 2]]), corpus)
    np.testing.assert_allclose(three, [(2 * pair + rare) / 3], rtol=1e-12)
    assert npmi(np.array([[0, 1]]), bags([0, 1], [2])) == pytest.approx(1.0)
    assert npmi(np.array([[0, 1]]), bags([0, 1])) == 1.0, "always both: the limit"
    with pytest.raises(ValueError, match="no documents"):
        npmi(np.array([[0, 1]]), csr_array((0, 4), dtype=int))
    with pytest.raises(ValueError, match="at least two words"):
        npmi(np.array([[0]]), corpus)


def test_topics_are_written_largest_first(tmp_path):
    names = Vocabulary(["cat", "dog", "sun"])
    topics = describe(PHI, np.array([0.3, 0.7]), names, bags([0, 1], [2], size=3), top=2)
    assert topics.words == [["cat", "dog"], ["sun", "dog"]]
    np.testing.assert_allclose(topics.coherence, [1.0, -1.0])
    paths = topics.write(tmp_path)
    assert paths["topics"].read_text().splitlines()[1] == "0,0.7,1.0,cat dog"
    read = json.loads(paths["topics_json"].read_text())
    assert read[1] == {"topic": 1, "share": 0.3, "npmi": -1.0, "words": {"sun": 0.5, "dog": 1 / 3}}
    with pytest.raises(ValueError, match="3 words, the vocabulary 2"):
        describe(PHI, np.array([0.3, 0.7]), Vocabulary(["a", "b"]), bags([0]))


def test_documents_too_short_to_hold_back():
    with pytest.raises(ValueError, match="no document has 10 tokens"):
        hold_back(bags([0, 1]), np.random.default_rng(0))
