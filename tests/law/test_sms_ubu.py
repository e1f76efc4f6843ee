"""Symmetric minibatch splitting: the exact law over whole sweeps, every order enumerated.

On four Gaussian terms the steps that one order leads to are affine together, and read off the
kernel itself. What is left is a mean over the 24 orders; nothing is sampled.
"""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data import Batching, ShuffledEpochs
from ergodax.data.permutation import Permutation
from ergodax.verify.stationary_law import affine_step

from . import batches

pytestmark = pytest.mark.usefixtures("x64")

CURVATURES, CENTRES = np.array([0.1, 0.2, 0.3, 0.4]), np.array([2.0, -1.0, 0.5, -0.3])
ROWS = len(CURVATURES)
TRUTH = (0.03, 1.0)  # mean and variance


@functools.cache  # the same functions each time, so that no program is compiled twice
def posterior():
    return ex.Posterior(
        lambda w: 0.0 * jnp.sum(w),
        lambda w, row: -0.5 * row[0] * jnp.sum((w - row[1]) ** 2),
        (CURVATURES, CENTRES),
    )


class Several(ex.Kernel):
    """Several steps of a kernel as one, from a given state of the batching at the start."""

    kernel: ex.Kernel
    batching: tuple
    steps: int = eqx.field(static=True)

    def init(self, key, position):
        state = self.kernel.init(key, position)
        return eqx.tree_at(lambda s: s.gradient, state, self.batching)

    def step(self, key, state):
        for one in jax.random.split(key, self.steps):
            state, info = self.kernel.step(one, state)
        return state, info


def words_of_orders():
    """Each of the 24 orders, and the words of a permutation that is it."""
    permutation = Permutation(ROWS)
    words = jax.vmap(permutation.draw)(jax.random.split(jax.random.key(0), 400))
    orders = np.asarray(jax.vmap(permutation, (0, None))(words, jnp.arange(ROWS)))
    found = {tuple(order): word for order, word in zip(orders, words, strict=True)}
    assert set(found) == set(itertools.permutations(range(ROWS)))
    return found


def law(steps):
    """Mean and covariance of a chain that takes one of these affine steps at random each time.

    With z = (x, r, 1) and z+ = A z + N(0, S), E z z^T solves E[A C A^T + S] = C.
    """
    affine = []
    for step in steps:
        a, s = np.zeros((3, 3)), np.zeros((3, 3))
        a[:2, :2], a[:2, 2], a[2, 2], s[:2, :2] = step.matrix, step.shift, 1.0, step.covariance
        affine.append((a, s))
    both = np.mean([np.kron(a, a) for a, _ in affine], axis=0)
    noise = np.mean([s for _, s in affine], axis=0).ravel()
    system, right = np.vstack([np.eye(9) - both, np.eye(9)[8]]), np.append(noise, 1.0)
    second = np.linalg.lstsq(system, right)[0].reshape(3, 3)
    mean = second[:2, 2]
    return mean, second[:2, :2] - np.outer(mean, mean)


def of_sweeps(kernel, steps, orders):
    at = [(words, jnp.int32(0)) for words in orders]
    return law([affine_step(Several(kernel, each, steps), np.zeros(1)) for each in at])


def symmetric(h, orders):
    return of_sweeps(ex.sms_ubu(ex.Minibatch(posterior(), 1), h), 2 * ROWS, orders)


def forward_only(h, orders):
    gradient = ex.Minibatch(posterior(), 1, batching=ShuffledEpochs())
    return of_sweeps(ex.langevin(gradient, h, scheme="UBU"), ROWS, orders)


def independent(h):
    gradients = [
        ex.Minibatch(posterior(), 1, batching=batches.chosen(row, True))
        for row in batches.every(ROWS, 1, True)
    ]
    return law([affine_step(ex.langevin(g, h, scheme="UBU"), np.zeros(1)) for g in gradients])


@pytest.fixture(scope="module")
def words():
    with jax.enable_x64(True):
        return words_of_orders()


def test_the_law_over_all_orders(words):
    mean, covariance = symmetric(0.1, words.values())
    np.testing.assert_allclose(mean[0], 0.028930024939, atol=1e-11)
    np.testing.assert_allclose(np.diag(covariance), [0.997033226298, 1.001156794026], atol=1e-11)


def errors(found):
    (x, _), covariance = found
    return np.abs(np.array([x - TRUTH[0], covariance[0, 0] - TRUTH[1]]))


def test_second_order_in_mean_and_variance(words):
    """With one and the same order; with a fresh one each time all errors are smaller."""
    order = [words[0, 1, 2, 3]]
    mean, covariance = symmetric(0.1, order)
    np.testing.assert_allclose(mean[0], 0.021085556022, atol=1e-11)
    np.testing.assert_allclose(np.diag(covariance), [0.974447023292, 1.020256416589], atol=1e-11)
    coarse, fine = (errors(symmetric(h, order)) for h in (0.05, 0.025))
    np.testing.assert_allclose(np.log2(coarse / fine), 2.0, atol=0.1)


def test_independent_batches_are_first_order():
    """The heat of their noise; the mean is exact, since the target is Gaussian."""
    mean, covariance = independent(0.1)
    np.testing.assert_allclose(mean[0], TRUTH[0], atol=1e-12)
    np.testing.assert_allclose(np.diag(covariance), [1.032393573533, 1.034922143698], atol=1e-11)
    coarse, fine = (errors(independent(h))[1] for h in (0.05, 0.025))
    assert np.log2(coarse / fine) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_a_sweep_that_does_not_turn_is_first_order_in_the_cross_covariance(words):
    """In that of x with r alone: passes in one order are second order in x too."""
    order = [words[0, 1, 2, 3]]
    coarse, fine = (forward_only(h, order)[1][0, 1] for h in (0.05, 0.025))
    assert np.log2(coarse / fine) == pytest.approx(1.0, abs=0.1)
    turned = [symmetric(h, order)[1][0, 1] for h in (0.05, 0.025)]
    assert np.log2(turned[0] / turned[1]) == pytest.approx(2.0, abs=0.1)


def test_the_batches_of_the_estimator_are_replaced():
    kernel = ex.sms_ubu(ex.Minibatch(posterior(), 2, replace=True), 0.1)
    batching: Batching = kernel.gradient.batching  # pyright: ignore[reportAttributeAccessIssue]
    assert batching == ShuffledEpochs(symmetric=True)
    with pytest.raises(TypeError, match="gradient must draw its batches.*not FullGradient"):
        ex.sms_ubu(ex.FullGradient(posterior()), 0.1)
