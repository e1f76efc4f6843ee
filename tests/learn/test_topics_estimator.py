"""LatentDirichletAllocation: topics that are known are found, and everybody's errors are named."""

import itertools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix
from scipy.special import digamma, gammaln
from sklearn.base import clone as untyped
from sklearn.pipeline import make_pipeline

import ergodax as ex
from ergodax.learn import LatentDirichletAllocation, NotConvergedWarning
from ergodax.learn.topics import hyperparameters, learning, merged
from ergodax.learn.topics.hyperparameters import Tables
from ergodax.learn.topics.stream import GROWTH, SHARE

clone: Any = untyped  # whose type is that of anything
TOPICS, WORDS = 4, 40


def simulated(number, seed=0, length=50, *, shape=(TOPICS, WORDS), beta=0.2, alpha=0.3):
    """Counts, weights of documents and topics."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(shape[1], beta), shape[0])
    theta = rng.dirichlet(np.full(shape[0], alpha), number)
    return np.stack([rng.multinomial(length, row @ phi) for row in theta]), theta, phi


@pytest.fixture(scope="module")
def fitted():
    counts, theta, phi = simulated(600)
    model = LatentDirichletAllocation(TOPICS, random_state=1, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return model.fit(counts), counts, theta, phi


def matched(model, phi):
    """For each true topic the one that was found, whose words are nearest."""
    found = model.draws_.mean(axis=0)
    distance = np.abs(found[:, None] - phi[None]).sum(-1)
    order = distance.argmin(axis=0)
    assert sorted(order) == list(range(TOPICS)), distance
    return order


def test_known_topics_and_weights_are_found(fitted):
    model, counts, theta, phi = fitted
    order = matched(model, phi)
    error = (model.draws_.mean(0)[order] - phi) / np.maximum(model.topic_sd_[order], 1e-4)
    # Posterior sds say how wrong: few of 160 words beyond 4 of them, with 20 dependent draws.
    assert np.abs(model.draws_.mean(0)[order] - phi).max() < 0.03
    assert (np.abs(error) > 4).mean() < 0.1
    weights = model.transform(counts)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
    # A document of 50 words has its weights to about .06 of the truth.
    assert np.abs(weights[:, order] - theta).mean() < 0.05
    assert model.doc_topic_prior_ == pytest.approx(np.full(TOPICS, 0.3), abs=0.12)
    assert model.topic_word_prior_ == pytest.approx(0.2, abs=0.08)
    np.testing.assert_allclose(model.components_.sum(), counts.sum() + model.topic_word_prior_
                               * TOPICS * WORDS, rtol=1e-4)  # fmt: skip


def test_hardly_ever_a_topic_is_missing():
    """With as many topics in the search as are wanted, most fits had two in one and two halves.

    Now 2 of 60 have; that 4 of 10 do is less likely than one in two thousand.
    """
    counts, _, phi = simulated(500, length=60, shape=(10, 200), beta=0.1, alpha=0.1)
    complete = 0
    for seed in range(10):
        model = LatentDirichletAllocation(10, random_state=seed, max_iter=100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            found = model.fit(counts).draws_.mean(axis=0)
        distance = 0.5 * np.abs(found[:, None] - phi[None]).sum(axis=-1)
        complete += distance[linear_sum_assignment(distance)].max() < 0.15  # .08, or .4 and more
    assert complete >= 7


def test_topics_merge_where_least_is_lost():
    """Against all ways to make two of four, by the law of the words with phi integrated out."""
    rng = np.random.default_rng(2)
    counts, beta = rng.poisson(rng.dirichlet(np.full(6, 0.5), 4) * 40), 0.3

    def log_likelihood(parts):
        pseudo = np.array([counts[list(part)].sum(axis=0) for part in parts]) + beta
        of_words = gammaln(pseudo).sum(axis=1) - gammaln(pseudo.sum(axis=1))
        return (of_words + gammaln(6 * beta) - 6 * gammaln(beta)).sum()

    def best(parts):
        pairs = itertools.combinations(parts, 2)
        ways = [[*(p for p in parts if p not in pair), pair[0] + pair[1]] for pair in pairs]
        return max(ways, key=log_likelihood)

    expected = {frozenset(part) for part in best(best([(0,), (1,), (2,), (3,)]))}
    becomes = merged(counts, 2, beta)
    assert {frozenset(np.flatnonzero(becomes == k).tolist()) for k in range(2)} == expected
    assert merged(counts, 4, beta).tolist() == [0, 1, 2, 3]
    assert merged(np.zeros((3, 2), int), 1, beta).tolist() == [0, 0, 0], "nothing is assigned yet"


def test_perplexity_is_nearly_that_of_the_true_topics(fitted):
    model, _, _, phi = fitted
    rng = np.random.default_rng(9)
    theta = rng.dirichlet(np.full(TOPICS, 0.3), 400)
    new = np.stack([rng.multinomial(50, row @ phi) for row in theta])
    truth = clone(model).set_params(max_iter=8)
    truth.__dict__.update(vars(model))
    truth._draws, truth.doc_topic_prior_ = phi[None].astype(np.float32), np.full(TOPICS, 0.3)
    assert model.perplexity(new) < 1.03 * truth.perplexity(new)
    assert model.score(new) == pytest.approx(-np.log(model.perplexity(new)))
    truth._draws = np.full((1, TOPICS, WORDS), 1 / WORDS, np.float32)
    assert truth.perplexity(new) == pytest.approx(WORDS, rel=1e-4)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_topics_whatever_the_form_of_the_counts():
    counts = simulated(60)[0]
    quick = LatentDirichletAllocation(2, random_state=3, max_iter=8)
    frame = pd.DataFrame(counts, columns=[f"w{k}" for k in range(WORDS)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        models = [
            clone(quick).fit(x) for x in (counts, csr_matrix(counts), counts.astype(float), frame)
        ]
        other = clone(quick).set_params(random_state=4).fit(counts)
    for model in models[1:]:
        np.testing.assert_array_equal(model.components_, models[0].components_)
    assert not np.array_equal(other.components_, models[0].components_)
    table = models[3].summary(top=3)
    assert table["share"].sum() == pytest.approx(1.0) and table["share"].is_monotonic_decreasing
    assert "w" in table["words"][0] and "+-" in table["words"][0]
    assert models[3].get_feature_names_out().tolist() == [
        "latentdirichletallocation0", "latentdirichletallocation1",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="2 names"):
        models[0].summary(["a", "b"])


@pytest.mark.slow
def test_texts_by_a_pipeline():
    from sklearn.feature_extraction.text import CountVectorizer

    texts = ["cat dog horse cat", "sun moon star moon"] * 30
    model = make_pipeline(CountVectorizer(), LatentDirichletAllocation(2, random_state=0))
    weights = model.fit_transform(texts)
    assert (weights[::2].argmax(1) != weights[1::2].argmax(1)).all()


@pytest.mark.parametrize("call", [2, 3, 4])  # in the search, before topics are merged, after
def test_a_fit_goes_on_where_it_was_cut(call, tmp_path, monkeypatch):
    counts = simulated(60)[0]
    whole = LatentDirichletAllocation(2, random_state=3, max_iter=40, tol=1e-9)
    with pytest.warns(NotConvergedWarning, match="raise|Raise max_iter"):
        whole.fit(counts)
    cut = clone(whole).set_params(checkpoint=ex.Checkpoint(tmp_path, resume=True))
    run, calls = learning.sample, []

    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return run(*args, **kwargs)

    monkeypatch.setattr(learning, "sample", dies)
    with pytest.raises(KeyboardInterrupt):
        cut.fit(counts)
    monkeypatch.setattr(learning, "sample", run)
    with pytest.warns(NotConvergedWarning):
        cut.fit(counts)
    np.testing.assert_array_equal(cut.draws_, whole.draws_)
    assert cut.trace_ == whole.trace_
    counts[0, 0] += 1
    with pytest.raises(ex.CheckpointError, match="other documents"):
        cut.fit(counts)
    cut.set_params(checkpoint=ex.Checkpoint(tmp_path))
    with pytest.raises(ex.CheckpointError, match="resume=True"):
        cut.fit(counts)


@pytest.mark.slow
def test_a_stream_finds_the_topics_too():
    counts, _, phi = simulated(3_000)
    model = LatentDirichletAllocation(TOPICS, random_state=0, max_iter=100)
    for start in range(0, 3_000, 500):
        model.partial_fit(counts[start : start + 500])
    order = matched(model, phi)
    assert np.abs(model.draws_.mean(0)[order] - phi).max() < 0.03
    assert model.components_.sum() > 0.7 * counts.sum()
    mean = model.components_ / model.components_.sum(axis=1, keepdims=True)
    error = (model.draws_.mean(axis=0) - mean) / np.maximum(model.topic_sd_, 1e-4)
    assert np.abs(error).max() < 5 / np.sqrt(len(model.draws_)) < 10 * np.abs(error).max()


def test_weights_of_a_stream_are_those_that_its_docstring_says():
    """Documents' weights after t equal batches are as 1, 2, ..., t, worth 3/4 of all."""
    weights = np.zeros(0)
    for t in range(1, 400):
        step = min(1.0, GROWTH / (t + 1))
        weights = np.append((1 - step) * weights, step)
    np.testing.assert_allclose(weights[1:] / weights[0], np.arange(2, 400), rtol=1e-9)
    worth = weights.sum() ** 2 / (weights**2).sum() / 399
    assert worth == pytest.approx(SHARE, rel=0.01)


def test_the_fitted_priors_are_the_maxima():
    rng = np.random.default_rng(2)
    documents = np.stack([rng.multinomial(30, w) for w in rng.dirichlet([0.2, 0.5, 1.5], 4_000)])
    histogram = np.stack([np.bincount(column, minlength=31) for column in documents.T])
    words = rng.poisson(rng.gamma(0.3, 10, (3, 500)))
    values, numbers = np.unique(words, return_counts=True)
    found = Tables(
        histogram.astype(float), np.bincount(documents.sum(1), minlength=31).astype(float),
        values.astype(float), numbers.astype(float), words.sum(1).astype(float), 500,
    )  # fmt: skip
    alpha = hyperparameters.fit_alpha(found, np.full(3, 1.0))
    assert alpha == pytest.approx([0.2, 0.5, 1.5], rel=0.15)
    beta = hyperparameters.fit_beta(found, 1.0)
    best = hyperparameters.log_likelihood(found, alpha, beta)
    for k, factor in ((0, 1.1), (1, 0.9), (2, 1.1)):
        other = alpha.copy()
        other[k] *= factor
        assert hyperparameters.log_likelihood(found, other, beta) < best
    for factor in (0.95, 1.05):
        assert hyperparameters.log_likelihood(found, alpha, beta * factor) < best
    gain = (digamma(words + beta) - digamma(beta)).sum()
    loss = 500 * (digamma(words.sum(1) + 500 * beta) - digamma(500 * beta)).sum()
    assert gain == pytest.approx(loss, rel=1e-3), "the derivative is zero"


def test_words_that_no_document_had_are_weighed_by_their_expected_probabilities():
    """Sixteen such tokens: the expected weights by the sum over how many belong to each topic."""
    counts = np.hstack([np.kron(np.eye(2, dtype=int), np.full((40, 4), 6)), np.zeros((80, 2), int)])
    model = LatentDirichletAllocation(
        2, doc_topic_prior=1.0, topic_word_prior=1e-3, random_state=0, max_iter=16
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model.fit(counts)
    new = np.tile(np.arange(10) >= 8, (400, 1)).astype(int) * 8
    assert (model.draws_[..., 8:] == 0).mean() > 0.5, "by most draws they have no probability"
    pseudo = model.components_.sum(axis=1, keepdims=True)  # depends on where so short a fit ended
    model.components_ *= [[1280], [640]] / pseudo
    expected = model.topic_word_prior_ / model.components_.sum(axis=1)
    assert 1 / expected.max() < model.perplexity(new) < 1 / expected.min()
    first = np.arange(17)
    log_chance = first * np.log(expected[0]) + (16 - first) * np.log(expected[1])
    chance = np.exp(log_chance - log_chance.max())  # by alpha = (1, 1) each number is as likely
    exact = chance @ ((1 + first) / 18) / chance.sum()
    weights = model.transform(new)[:, 0]
    error = weights.std() / np.sqrt(len(new))
    assert abs(weights.mean() - exact) < max(6 * error, 0.005)
    assert abs(0.5 - exact) > 12 * error, "the test tells them from words that say nothing"


def test_a_disk_that_is_full_and_a_store_alone_are_named(tmp_path, monkeypatch):
    counts = simulated(20)[0]
    model = LatentDirichletAllocation(2, checkpoint=ex.Checkpoint(tmp_path / "fit"), max_iter=8)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(learning.checkpoint, "save", full)
    with pytest.raises(ex.StorageError, match="No space left"):
        model.fit(counts)
    with pytest.raises(ValueError, match="give it a folder"):
        model.set_params(checkpoint=ex.Checkpoint(store=tmp_path / "draws")).fit(counts)


@pytest.mark.parametrize(
    ("change", "data", "message"),
    [
        ({}, [[1.5, 2.0]], "whole numbers; it has 1.5"),
        ({}, [[-1, 2]], "Negative values"),
        ({}, [[0, 0], [0, 0]], "no words at all"),
        ({}, [[np.nan, 1.0]], "NaN"),
        ({"n_components": 0}, [[1, 2]], "n_components must be at least 1"),
        ({"doc_topic_prior": -1.0}, [[1, 2]], "doc_topic_prior must be"),
        ({"topic_word_prior": 0.0}, [[1, 2]], "topic_word_prior must be"),
        ({"tol": 0.0}, [[1, 2]], "tol must be"),
        ({"max_iter": 0}, [[1, 2]], "max_iter must be at least 1"),
    ],
)
def test_what_cannot_be_fitted_is_named(change, data, message):
    with pytest.raises(ValueError, match=message):
        LatentDirichletAllocation(2).set_params(**change).fit(np.array(data))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topics", "counts"),
    [
        (1, simulated(40)[0]),
        (3, simulated(1)[0]),
        (2, np.full((9, 1), 3)),
        (1, np.array([[1]])),
        (4, np.vstack([np.full((1, 30), 40), np.eye(30, dtype=int)])),
    ],
)
def test_shapes_that_are_hardly_a_corpus(topics, counts):
    model = LatentDirichletAllocation(topics, random_state=0, max_iter=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        weights = model.fit_transform(counts)
    assert weights.shape == (len(counts), topics) and np.isfinite(model.components_).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(model.draws_.sum(axis=2), 1.0, rtol=1e-4)


def test_the_time_is_kept():
    counts = simulated(2_000)[0]
    model = LatentDirichletAllocation(TOPICS, random_state=0, max_seconds=1e-3)
    with pytest.warns(NotConvergedWarning, match="too few"):
        model.fit(counts)
    assert model.n_iter_ < 40 and len(model.draws_) == 1


def test_odd_documents():
    """An empty document, a single word, more topics than words: they are fitted as they are."""
    counts = np.array([[0, 0], [1, 0], [3, 2], [0, 9]] * 5)
    model = LatentDirichletAllocation(3, random_state=0, max_iter=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        weights = model.fit_transform(counts)
    prior = model.doc_topic_prior_ / model.doc_topic_prior_.sum()
    np.testing.assert_allclose(weights[0], prior, rtol=1e-4)
    with pytest.raises(ValueError, match="no document has 2 tokens"):
        model.perplexity(np.array([[1, 0]]))
    with pytest.raises(ValueError, match="features"):
        model.transform(np.ones((2, 3), int))
