"""Bayesian linear regression by SGLD: the variance that each way of drawing batches leaves.

The posterior mean is exact for every step and batch; the stationary variances were found by
enumerating all batches. Numbers compared: 12.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import sampled

pytestmark = pytest.mark.slow

X = np.array([1.0, 2.0, -1.0, 0.5, 1.5], np.float32)
Y = np.array([1.2, 1.7, -0.8, 0.1, 2.0], np.float32)
MEAN = 0.9657142857
SCHEMES = {  # gradient, stationary variance at h = 0.1
    "full": (ex.FullGradient, 0.2031746032),
    "without replacement": (lambda p: ex.Minibatch(p, 2), 0.2663412909),
    "with replacement": (lambda p: ex.Minibatch(p, 2, replace=True), 0.2933465931),
}
START = np.zeros((), np.float32)


def posterior(share=1.0):
    """`share` is 1; n / N forgets the factor N / n of the batch."""
    return ex.Posterior(
        lambda w: -(w**2) / 8.0, lambda w, e: -0.5 * share * (e[1] - w * e[0]) ** 2, (X, Y)
    )


def assert_law(target, scheme, key):
    gradient, variance = SCHEMES[scheme]
    w = sampled.run(ex.sgld(gradient(target), 0.1), START, 10_000, key)
    sampled.assert_mean(w, MEAN, 0.01)
    sampled.assert_mean((w - MEAN) ** 2, variance, 0.01)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_way_of_drawing_has_its_own_variance(scheme, key):
    assert_law(posterior(), scheme, key)


@pytest.mark.parametrize("scheme", ["without replacement", "with replacement"])
def test_a_forgotten_factor_is_rejected(scheme, key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_law(posterior(2.0 / 5.0), scheme, key)


def test_the_other_way_of_drawing_is_rejected(key):
    """With and without replacement differ by the finite-population factor of V."""
    gradient, _ = SCHEMES["with replacement"]
    w = sampled.run(ex.sgld(gradient(posterior()), 0.1), START, 10_000, key)
    with pytest.raises(AssertionError, match="the law differs"):
        sampled.assert_mean((w - MEAN) ** 2, SCHEMES["without replacement"][1], 0.01)


def test_two_dimensions(key):
    """Intercept and slope with a strong correlation; batches of 2 of 4 without replacement."""
    design = np.stack([np.ones(4), np.arange(4)], axis=1).astype(np.float32)
    response = np.array([0.1, 1.2, 1.9, 3.2], np.float32)
    target = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2),
        lambda w, e: -2.0 * (e[1] - e[0] @ w) ** 2,
        (design, response),
    )
    w = sampled.run(ex.sgld(ex.Minibatch(target, 2), 0.01), np.zeros(2, np.float32), 20_000, key)
    mean = np.array([0.14656489, 0.96284987])
    known = np.array([[0.1531009723, -0.0594257072], [-0.0594257072, 0.0558367578]])
    sampled.assert_mean(w, mean, 0.02)
    offset = w - mean
    sampled.assert_mean(offset[..., :, None] * offset[..., None, :], known, 0.01)
