"""Stationary laws with control variates: less heat from batches, and what compensation leaves.

On a linear regression the noise about a centre c is a constant times x - c, so that its
covariance depends on the position. Batches are enumerated; nothing is sampled.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import Axis, stationary_law

from . import batches, normals
from .test_estimated_covariance import LINE, PLANE, moments

pytestmark = pytest.mark.usefixtures("x64")


def about(minibatch, centre, order=1):
    """The same batches about a centre."""
    return ex.ControlVariate(
        minibatch.target, 2, jnp.asarray(centre), order=order, batching=minibatch.batching
    )


def sgld(problem, *, order=1, **options):
    """Plain SGLD about the mode, or compensated with scores as in `options`."""

    def kernel(minibatch):
        gradient = about(minibatch, problem.mean, order)
        if not options:
            return ex.sgld(gradient, problem.step_size)
        scores = ex.ScoreCovariance(gradient, **options)
        return ex.sgld(scores, problem.step_size, compensate=True)

    return kernel


def known(problem, replace):
    """The variance s of x+ = x - h (L + xi) (x - mean) + sqrt(2 h) normal, by hand.

    With k_i the curvature of example i, xi has mean 0 and the variance of a batch's sum of k.
    """
    k = problem.error_precision * problem.design[:, 0] ** 2
    total, h, n = problem.prior_precision + k.sum(), problem.step_size, len(k)
    v = n**2 / 2 * k.var() if replace else n * (n - 2) / 2 * k.var(ddof=1)
    return 2.0 * h / (1.0 - (1.0 - h * total) ** 2 - h**2 * v)


ORACLE = {0.02: 0.1278491380, 0.1: 0.2433922799}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("step_size", ORACLE)
def test_sgld_about_the_mode(step_size, replace):
    problem = LINE._replace(step_size=step_size)
    mean, covariance = moments(sgld(problem), problem, replace)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, known(problem, replace), rtol=1e-8)
    if not replace:
        np.testing.assert_allclose(covariance, ORACLE[step_size], rtol=1e-9)
    _, plain = moments(lambda g: ex.sgld(g, step_size), problem, replace)
    assert abs(covariance - problem.clean)[0, 0] < 0.7 * abs(plain - problem.clean)[0, 0]


@pytest.mark.parametrize("problem", [LINE, PLANE])
def test_second_order_leaves_no_noise_on_a_gaussian(problem):
    mean, covariance = moments(sgld(problem, order=2), problem, False)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, problem.clean, rtol=1e-8)


@pytest.mark.parametrize(
    "problem, structure, rows", [(LINE, "dense", "batch"), (PLANE, "dense", "all")]
)
def test_compensated_sgld_has_the_moments_of_the_exact_gradient(problem, structure, rows):
    kernel = sgld(problem, structure=structure, rows=rows)
    mean, covariance = moments(kernel, problem, False)
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, problem.clean, rtol=1e-8)
    _, heated = moments(sgld(problem), problem, False)
    assert np.abs(heated - problem.clean).max() > 1e-5


# --- NOGIN ----------------------------------------------------------------------------------

# Curvatures that sum to 1 with the prior's: the posterior is N(0, 1).
CURVATURES, PRIOR, CENTRE = np.array([0.1, 0.2, 0.6]), 0.1, 0.5
AXES = [Axis(-6.5, 6.5, 105), Axis(-6.5, 6.5, 105)]


@functools.cache  # the same functions each time, so that no program is compiled twice
def standard_normal():
    return ex.Posterior(
        lambda w: -0.5 * PRIOR * jnp.sum(w**2), lambda w, k: -0.5 * k * jnp.sum(w**2), CURVATURES
    )


def noise_variance(x):
    """Of the gradient with two distinct examples about the centre."""
    return 1.5 * CURVATURES.var(ddof=1) * jnp.sum((x - CENTRE) ** 2)


def stationary(kernels):
    """The stationary law of a chain that takes one of the kernels at random in each step."""
    assert normals.count(kernels[0], normals.start(kernels[0], jnp.zeros(1))) == 1
    options = {"grid": AXES, "num_nodes": 8, "lost": 1.0}
    laws = [stationary_law(kernel, np.zeros(1), **options) for kernel in kernels]
    return stationary_law(lambda p: np.mean([law.step(p) for law in laws], axis=0), **options)


def of_batches(h, covariance):
    """NOGIN about the centre, one kernel for each batch of two."""
    return [
        ex.nogin(
            covariance(
                ex.ControlVariate(
                    standard_normal(), 2, jnp.array([CENTRE]), batching=batches.chosen(rows, False)
                )
            ),
            h,
        )
        for rows in batches.every(len(CURVATURES), 2, False)
    ]


def errors(kernels):
    """Of the second and fourth moment of the position."""
    law = stationary(kernels)
    second, fourth = (law.mean(lambda z, k=k: z[0] ** k) for k in (2, 4))
    return abs(second - 1.0), abs(fourth - 3.0)


def exact(gradient):
    return ex.ScoreCovariance(gradient, "dense", rows="all")


def test_nogin_is_exact_where_noise_of_this_covariance_is_normal():
    """Although it depends on the position."""
    kernel = ex.nogin(ex.NoisyGradient(standard_normal(), noise_variance), 0.5)
    law = stationary_law(kernel, np.zeros(1), grid=AXES, num_nodes=6)
    for power, moment in ((2, 1.0), (4, 3.0)):
        assert abs(law.mean(lambda z, k=power: z[0] ** k) - moment) < 2e-6


def test_nogin_with_batches_is_exact_up_to_third_order():
    """What is left comes from the batches' noise not being normal; here n = 2."""
    wide, narrow = (errors(of_batches(h, exact))[0] for h in (0.5, 0.25))
    assert wide < 1e-4 and 6.0 < wide / narrow < 9.0
    heated, _ = errors(of_batches(0.5, lambda g: ex.KnownCovariance(g, 1e-30)))
    assert heated > 0.03, "uncompensated"


def test_a_covariance_that_is_constant_is_wrong():
    """The mean of the covariance over the posterior, instead of that at the position."""
    mean = float(noise_variance(jnp.array([CENTRE + (1.0 + CENTRE**2) ** 0.5])))
    second, fourth = errors(of_batches(0.5, lambda g: ex.KnownCovariance(g, mean)))
    assert max(second, fourth) > 0.02
