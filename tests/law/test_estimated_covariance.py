"""Noise compensation with estimated covariances: the mean and covariance of the exact gradient.

On a linear regression a batch's gradient is affine in the position and its noise covariance a
quadratic, so the first two moments after a step are quadratics of the state, wherever the
compensation is feasible, and found exactly by enumerating the batches. The stationary moments are
their fixed point; nothing is sampled.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data import Batching
from ergodax.gradient.covariance import ScoreCovariance
from ergodax.verify import stationary_law
from ergodax.verify.stationary_law import DealtStep

from . import batches, faults, normals, theory

pytestmark = pytest.mark.usefixtures("x64")


class Regression(NamedTuple):
    """A conjugate regression, its posterior, and a step at which compensation is feasible."""

    design: np.ndarray
    response: np.ndarray
    error_precision: float
    prior_precision: float
    mean: np.ndarray
    step_size: float

    @property
    def posterior(self):
        return ex.Posterior(
            lambda w: -0.5 * self.prior_precision * jnp.sum(w**2),
            lambda w, e: -0.5 * self.error_precision * (e[1] - e[0] @ w) ** 2,
            (self.design, self.response),
        )

    @property
    def clean(self):
        """The stationary covariance of SGLD with exact gradients."""
        eye = np.eye(self.mean.size)
        precision = self.error_precision * self.design.T @ self.design + self.prior_precision * eye
        return np.linalg.inv(precision @ (eye - 0.5 * self.step_size * precision))


LINE = Regression(
    design=np.array([[1.0], [2.0], [-1.0], [0.5], [1.5]]),
    response=np.array([1.2, 1.7, -0.8, 0.1, 2.0]),
    error_precision=1.0,
    prior_precision=0.25,
    mean=np.array([0.9657142857]),
    step_size=0.02,
)
PLANE = Regression(
    design=np.stack([np.ones(4), np.arange(4.0)], axis=1),
    response=np.array([0.1, 1.2, 1.9, 3.2]),
    error_precision=4.0,
    prior_precision=1.0,
    mean=np.array([0.14656489, 0.96284987]),
    step_size=0.001,
)


def monomials(mean, covariance):
    """The expectations of 1, z_i and z_i z_j."""
    second = covariance + mean[:, None] * mean[None, :]
    return jnp.concatenate([jnp.ones(1), mean, second[jnp.triu_indices(mean.size)]])


def moments(kernel_on, problem, replace, *, momentum=False):
    """Stationary mean and covariance of the position, over all batches of two.

    Args:
        kernel_on: the kernel, from a gradient estimator.
        problem: a Regression.
        replace: how batches are drawn.
        momentum: whether the kernel has one.
    """
    every = batches.every(len(problem.response), 2, replace)
    d = problem.mean.size

    def kernel(rows):
        scheme = batches.chosen(rows, replace)
        return kernel_on(ex.Minibatch(problem.posterior, 2, batching=scheme))

    def after(rows, z):
        dealt = DealtStep(kernel(rows), z[:d], kept=False)
        step, zero = lambda xi: dealt(normals.key(), z, xi), jnp.zeros(dealt.count)
        root = jax.jacfwd(step)(zero)
        return monomials(step(zero), root @ root.T)

    size = 2 * d if momentum else d
    points = jax.random.normal(jax.random.key(1), (40, size))
    points = points.at[:, :d].set(problem.mean[None] + 0.05 * points[:, :d])

    @jax.jit
    @jax.vmap
    def both(z):
        before = monomials(z, jnp.zeros((size, size)))
        return before, jax.vmap(after, (0, None))(every, z).mean(axis=0)

    before, later = both(points)
    return fixed_point(np.asarray(before), np.asarray(later), d)


def fixed_point(before, later, d):
    """The moments that a step leaves unchanged, as mean and covariance of the first d."""
    step = np.linalg.lstsq(before, later, rcond=None)[0].T
    np.testing.assert_allclose(before @ step.T, later, atol=1e-9, err_msg="not quadratic")
    shift, matrix = step[1:, 0], step[1:, 1:]
    assert np.abs(np.linalg.eigvals(matrix)).max() < 1.0, "unstable"
    fixed = np.linalg.solve(np.eye(len(shift)) - matrix, shift)
    size = next(k for k in range(9) if k + k * (k + 1) // 2 == len(fixed))
    mean, second = fixed[:size], np.zeros((size, size))
    second[np.triu_indices(size)] = fixed[size:]
    second = second + np.triu(second, 1).T
    return mean[:d], (second - np.outer(mean, mean))[:d, :d]


def sgld(problem, *, compensate=True, **options):
    return lambda gradient: ex.sgld(
        ScoreCovariance(gradient, **options), problem.step_size, compensate=compensate
    )


CASES = [  # a problem, a structure that is exact there, rows, replace
    (LINE, "scalar", "all", False),
    (LINE, "diagonal", "batch", False),
    (LINE, "dense", "all", True),
    (PLANE, "low rank", "all", False),
    (PLANE, "low rank", "batch", False),
    (PLANE, "low rank", "batch", True),
    (PLANE, "dense", "all", False),
    (PLANE, "dense", "batch", False),
]


@pytest.mark.parametrize("problem, structure, rows, replace", CASES)
def test_compensated_sgld_has_the_moments_of_the_exact_gradient(problem, structure, rows, replace):
    mean, covariance = moments(sgld(problem, structure=structure, rows=rows), problem, replace)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, problem.clean, rtol=1e-8)


KNOWN = [  # uncompensated: the problem with its step size, replace, the variances left
    (LINE, False, [[0.1302600701]]),
    (LINE, True, [[0.1319785658]]),
    (LINE._replace(step_size=0.1), False, [[0.2663412909]]),
    (
        PLANE._replace(step_size=0.01),
        False,
        [[0.1531009723, -0.0594257072], [-0.0594257072, 0.0558367578]],
    ),
]


@pytest.mark.parametrize("problem, replace, known", KNOWN)
def test_uncompensated_sgld_has_not(problem, replace, known):
    mean, covariance = moments(sgld(problem, compensate=False), problem, replace)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, known, rtol=1e-8)
    assert np.abs(covariance - problem.clean).max() > 2e-3


def test_the_clean_variance_is_the_known_one():
    np.testing.assert_allclose(LINE.clean, [[0.1252446184]], rtol=1e-9)


FAULTS = {
    "N^2 / n for distinct rows": lambda self, n, b: n * n / b,
    "(N / n)^2": lambda self, n, b: (n / b) ** 2,
    "divisor n for n - 1": lambda self, n, b: 0.5 * n * (n - b) / b,
    "Cov of the mean gradient": lambda self, n, b: (n - b) / (n * b),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_factor_is_rejected(name):
    fault = faults.replacing(Batching, "noise_factor", FAULTS[name])
    right = sgld(LINE, structure="dense")
    _, covariance = moments(lambda g: faults.Planted(right(g), fault), LINE, False)
    assert abs(covariance[0, 0] / LINE.clean[0, 0] - 1.0) > 0.005


@pytest.mark.parametrize("structure", ["diagonal", "scalar"])
def test_what_a_structure_leaves_out_is_seen(structure):
    _, covariance = moments(sgld(PLANE, structure=structure, rows="all"), PLANE, False)
    theory.assert_covariance(covariance, PLANE.clean, 0.1)
    assert np.abs(covariance / PLANE.clean - 1.0).max() > 1e-4


SGHMC_CASES = [
    (LINE, "scalar", "all"),
    (PLANE, "dense", "all"),
    (PLANE, "low rank", "batch"),
]


@pytest.mark.parametrize("problem, structure, rows", SGHMC_CASES)
def test_compensated_sghmc_has_the_moments_of_the_exact_gradient(problem, structure, rows):
    h = 0.3 * problem.step_size**0.5
    options: dict[str, Any] = {"friction": 8.0, "mass": 1.5, "temperature": 0.7}
    exact = ex.sghmc(ex.FullGradient(problem.posterior), h, **options)
    clean = stationary_law(exact, problem.mean).cov()

    def law(compensate):
        def kernel(gradient):
            estimator = ScoreCovariance(gradient, structure, rows=rows)
            return ex.sghmc(estimator, h, **options, compensate=compensate)

        return moments(kernel, problem, False, momentum=True)

    mean, covariance = law(True)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    theory.assert_covariance(covariance, clean, 1e-9)
    _, heated = law(False)
    assert np.abs(heated - clean).max() > 1e-3 * np.abs(clean).max()
