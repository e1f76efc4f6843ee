"""Noise compensation with estimated covariances: the mean and covariance of the exact gradient.

On a linear regression a batch's gradient is affine in the position and its noise covariance a
quadratic, so the first two moments after a step are quadratics of the state, found exactly by
enumerating the batches. The stationary moments are their fixed point; nothing is sampled.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data import Batching
from ergodax.gradient.score_covariance import ScoreCovariance

from . import affine, batches, faults, normals
from .transfer import placed

pytestmark = pytest.mark.usefixtures("x64")


class Regression(NamedTuple):
    """A conjugate regression, with its known posterior and SGLD's variance there."""

    design: np.ndarray
    response: np.ndarray
    precision: float  # of the errors
    prior: float  # precision of the coefficients
    mean: np.ndarray
    covariance: np.ndarray
    step_size: float
    clean: np.ndarray  # of SGLD with exact gradients at this step size
    noisy: dict  # with batches of two, by replacement

    @property
    def posterior(self):
        return ex.Posterior(
            lambda w: -0.5 * self.prior * jnp.sum(w**2),
            lambda w, e: -0.5 * self.precision * (e[1] - e[0] @ w) ** 2,
            (self.design, self.response),
        )


LINE = Regression(
    np.array([[1.0], [2.0], [-1.0], [0.5], [1.5]]),
    np.array([1.2, 1.7, -0.8, 0.1, 2.0]),
    1.0,
    0.25,
    np.array([0.9657142857]),
    np.array([[0.1142857143]]),
    0.02,
    np.array([[0.1252446184]]),
    {False: np.array([[0.1302600701]]), True: np.array([[0.1319785658]])},
)
PLANE = Regression(
    np.stack([np.ones(4), np.arange(4.0)], axis=1),
    np.array([0.1, 1.2, 1.9, 3.2]),
    4.0,
    1.0,
    np.array([0.14656489, 0.96284987]),
    np.array([[0.1450381679, -0.0610687023], [-0.0610687023, 0.0432569975]]),
    0.01,
    np.array([[0.1506256333, -0.0601309459], [-0.0601309459, 0.0504073901]]),
    {False: np.array([[0.1531009723, -0.0594257072], [-0.0594257072, 0.0558367578]])},
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
        here = kernel(rows)
        state = placed(here, z[:d], z[d:])

        def step(numbers):
            with normals.dealt(numbers):
                new, _ = here.step(normals.key(), state)
            return jnp.concatenate([new.position, *new.auxiliary.values()])

        zero = jnp.zeros(normals.count(here, state))
        root = jax.jacfwd(step)(zero)
        return monomials(step(zero), root @ root.T)

    size = 2 * d if momentum else d
    points = jax.random.normal(jax.random.key(1), (40, size))
    points = points.at[:, :d].set(problem.mean[None] + 0.2 * points[:, :d])
    before = jax.vmap(lambda z: monomials(z, jnp.zeros((size, size))))(points)
    later = jax.vmap(lambda z: jax.vmap(after, (0, None))(every, z).mean(axis=0))
    return fixed_point(np.asarray(before), np.asarray(jax.jit(later)(points)), d)


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


CASES = [  # problem, structures that are exact there
    *((LINE, structure) for structure in ("low rank", "dense", "diagonal", "scalar")),
    *((PLANE, structure) for structure in ("low rank", "dense")),
]


@pytest.mark.parametrize("rows, replace", [("all", False), ("batch", False), ("batch", True)])
@pytest.mark.parametrize("problem, structure", CASES)
def test_compensated_sgld_has_the_moments_of_the_exact_gradient(problem, structure, rows, replace):
    mean, covariance = moments(sgld(problem, structure=structure, rows=rows), problem, replace)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, problem.clean, rtol=1e-8)


@pytest.mark.parametrize("problem, replace", [(LINE, False), (LINE, True), (PLANE, False)])
def test_uncompensated_sgld_has_not(problem, replace):
    mean, covariance = moments(sgld(problem, compensate=False), problem, replace)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, problem.noisy[replace], rtol=1e-8)
    assert np.abs(covariance - problem.clean).max() > 2e-3


FAULTS = {
    "N^2 / n for distinct rows": lambda self, n, b: n * n / b,
    "(N / n)^2": lambda self, n, b: (n / b) ** 2,
    "divisor n for n - 1": lambda self, n, b: 0.5 * n * (n - b) / b,
    "Cov of the mean gradient": lambda self, n, b: (n - b) / (n * b),
}


@pytest.mark.parametrize("rows", ["all", "batch"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_factor_is_rejected(name, rows):
    fault = faults.replacing(Batching, "noise_factor", FAULTS[name])
    right = sgld(LINE, structure="dense", rows=rows)
    _, covariance = moments(lambda g: faults.Planted(right(g), fault), LINE, False)
    assert abs(covariance[0, 0] / LINE.clean[0, 0] - 1.0) > 0.005


@pytest.mark.parametrize("structure", ["diagonal", "scalar"])
def test_what_a_structure_leaves_out_is_seen(structure):
    _, covariance = moments(sgld(PLANE, structure=structure, rows="all"), PLANE, False)
    assert np.abs(covariance - PLANE.clean).max() > 1e-4


SGHMC_CASES = [
    (LINE, "scalar", "all"),
    (LINE, "diagonal", "batch"),
    (PLANE, "low rank", "all"),
    (PLANE, "low rank", "batch"),
    (PLANE, "dense", "all"),
]


@pytest.mark.parametrize("problem, structure, rows", SGHMC_CASES)
def test_compensated_sghmc_has_the_moments_of_the_exact_gradient(problem, structure, rows):
    h = 0.3 * problem.step_size**0.5
    options = {"friction": 8.0, "mass": 1.5, "temperature": 0.7}
    exact = ex.sghmc(ex.FullGradient(problem.posterior), h, **options)
    clean = affine.stationary(exact, problem.mean).cov()

    def law(compensate):
        def kernel(gradient):
            estimator = ScoreCovariance(gradient, structure, rows=rows)
            return ex.sghmc(estimator, h, **options, compensate=compensate)

        return moments(kernel, problem, False, momentum=True)

    mean, covariance = law(True)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    affine.assert_covariance(covariance, clean, 1e-9)
    _, heated = law(False)
    assert np.abs(heated - clean).max() > 3e-3 * np.abs(clean).max()
