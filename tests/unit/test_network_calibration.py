"""Calibration by hand."""

import numpy as np
import pytest
from scipy import special

from ergodax import network


def test_a_table_by_hand():
    # Confidences 0.9 (right), 0.8 (wrong), 0.6 (right), 0.55 (right): bins (0.8, 1], (0.6, 0.8],
    # (0.4, 0.6] of five: |1 - 0.9| 1/4 + |0 - 0.8| 1/4 + |1 - 0.575| 2/4.
    table = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.55, 0.45]])
    found = network.calibration(table, np.array([0, 0, 1, 0]), bins=5)
    assert found.error == pytest.approx(0.1 / 4 + 0.8 / 4 + 0.425 / 2)
    np.testing.assert_allclose(found.confidence, [0.575, 0.8, 0.9])
    np.testing.assert_allclose(found.accuracy, [1, 0, 1])
    np.testing.assert_array_equal(found.count, [2, 1, 1])


def test_one_probability_is_of_class_one():
    labels = np.array([0, 0, 1, 0])
    table = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.55, 0.45]])
    one = network.calibration(table[:, 1], labels, bins=5)
    assert one.error == pytest.approx(network.calibration(table, labels, bins=5).error)


def test_the_upper_edge_belongs_to_a_bin():
    found = network.calibration(np.array([[1.0, 0.0], [0.75, 0.25]]), np.array([0, 0]), bins=4)
    np.testing.assert_allclose(found.confidence, [0.75, 1.0])


def test_right_probabilities_have_a_small_error_and_wrong_ones_a_large():
    """Of 200,000 rows in 15 bins the error is sqrt(2 a (1 - a) 15 / (pi N)) < 0.004 a bin."""
    rng = np.random.default_rng(5)
    logits = 2.0 * rng.normal(size=(200_000, 3))
    table = special.softmax(logits, axis=1)
    labels = (table.cumsum(axis=1) < rng.random((200_000, 1))).sum(axis=1)
    assert network.calibration(table, labels).error < 0.006
    sharper = special.softmax(2.0 * logits, axis=1)
    assert network.calibration(sharper, labels).error > 0.05


def test_coverage_by_hand():
    # |2 p - 1|: 0, 0.5, 0.9; levels 1/4, 2/4, 3/4 hold 1, 2, 2 of 3.
    found = network.coverage(np.array([0.5, 0.25, 0.95]), levels=4)
    np.testing.assert_allclose(found.accuracy, [1 / 3, 2 / 3, 2 / 3])
    assert found.error == pytest.approx((1 / 12 + 1 / 6 + 1 / 12) / 3)


def test_coverage_of_uniform_and_of_overconfident_predictions():
    grid = (np.arange(10_000) + 0.5) / 10_000
    assert network.coverage(grid).error < 1e-3
    assert network.coverage(special.ndtr(3 * special.ndtri(grid))).error > 0.2


def test_entropy():
    np.testing.assert_allclose(network.entropy([[0.25] * 4, [1, 0, 0, 0]]), [np.log(4), 0])
    np.testing.assert_allclose(network.entropy([0.5, 1.0]), [np.log(2), 0])


def test_refusals():
    with pytest.raises(ValueError, match="labels must have shape"):
        network.calibration(np.ones((3, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="bins must be at least 1"):
        network.calibration(np.ones(3), np.zeros(3), bins=0)
    with pytest.raises(ValueError, match="levels must be at least 2"):
        network.coverage(np.ones(3), levels=1)
    with pytest.raises(ValueError, match="below must be probabilities"):
        network.coverage(np.array([1.5]))


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.9], [0.2]], [1, 0], r"has one column. Of class 1, try probabilities\[:, 0\]"),
        ([[0.9, 0.1]] * 2, [1, 2], "integers from 0 to 1, not"),
        ([[0.9, 0.1]] * 2, [0, -1], "integers from 0 to 1, not"),
        ([0.9, 0.1], [2, 1], "integers from 0 to 1, not"),
        ([[0.9, 0.1]] * 2, [0, 0.5], "integers from 0 to 1, not"),
        ([[0.9, 0.1], [0.9, 0.9]], [0, 0], "must sum to 1, but row 1 sums to 1.8"),
        ([[1.2, -0.2]], [0], r"must lie in \[0, 1\]"),
    ],
)
def test_what_are_no_probabilities_or_labels(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        network.calibration(probabilities, labels)
    if "integers" not in message:
        with pytest.raises(ValueError, match=message):
            network.entropy(probabilities)


def test_probabilities_may_be_rounded():
    table = special.softmax(np.random.default_rng(0).normal(size=(50, 100)), axis=1)
    for dtype in (np.float32, np.float16):
        found = network.calibration(table.astype(dtype), np.zeros(50, int))
        assert found.count.sum() == 50
    assert network.calibration([1.0 + 1e-7, 0.0], [1, 0]).error == 0
    assert (network.entropy([[1.0 + 1e-7, -1e-7]]) == 0).all()
