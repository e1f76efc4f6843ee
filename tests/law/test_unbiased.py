"""Unbiased multilevel estimates: the exact law of a coupled step, and z-tests of the estimates.

A coupled step on a Gaussian target is affine in the state and in the normal numbers that its keys
stand for, so the joint law of both chains solves a linear equation. Nothing is sampled there.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ergodax as ex
from ergodax import tree
from ergodax.replicas import multilevel

FALSE_ALARM = 5.0  # standard errors: 6e-7 a comparison
REPLICAS = 10_000
START = 4.0
# l: Var(x_f - x_c), Var(x_f^2 - x_c^2), E(x_f^2 - x_c^2), stationary, for h_0 = 1/2.
ORACLES = {
    1: (5.438241338e-4, 3.0800889942e-3, 3.100708377e-2),
    2: (3.328741847e-5, 1.9309503197e-4, 7.798220988e-3),
    3: (2.069816678e-6, 1.2077056662e-5, 1.952246265e-3),
}


def gaussian(**more):
    """N(0, 1) from a distant start, with a short burn-in."""
    target = ex.targets.gaussian(jnp.zeros(1), jnp.ones(1))
    options = {"friction": 2.0, "burn_in": 2, "num_draws": 1, "decay": 3.0} | more
    return ex.replicas.unbiased(ex.FullGradient(target), jnp.full(1, START), 1.0, **options)


def outcomes(estimator, keys):
    """Of keys sorted by level, in blocks: together all would take as long as the longest."""
    order = jnp.argsort(jax.jit(jax.vmap(estimator.level))(keys))
    blocks = keys[order].reshape(-1, 200)
    found = jax.jit(lambda blocks: jax.lax.map(jax.vmap(estimator), blocks))(blocks)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)


def coupled_law(h, *, shared=True):
    """The stationary covariance of (x_f, r_f, x_c, r_c) under coupled steps of h / 2 and h."""
    estimator = gaussian(friction=1.0)
    places: dict[object, int] = {}

    def step(numbers, normals):
        calls = iter(range(100))

        def dealt(key, like):
            # A key stands for one number; without sharing, every call of the generator for one.
            name = tuple(np.asarray(jax.random.key_data(key))) if shared else next(calls)
            return normals[places.setdefault(name, len(places))].reshape(like.shape)

        token = tree._source.set(dealt)
        try:
            x, r, y, s = (z[None] for z in numbers)
            nothing = jnp.zeros((), jnp.float32)
            pair = multilevel._Chain(x, r, None, nothing), multilevel._Chain(y, s, None, nothing)
            fine, coarse = estimator._coupled(jax.random.key(0), *pair, jnp.asarray(h))
        finally:
            tree._source.reset(token)
        return ravel_pytree((fine[:2], coarse[:2]))[0]

    matrix, noise = jax.jacfwd(step, (0, 1))(jnp.zeros(4), jnp.zeros(16))
    assert len(places) == (8 if shared else 16)
    matrix, noise = np.asarray(matrix), np.asarray(noise)
    system = np.eye(16) - np.kron(matrix, matrix)
    return np.linalg.solve(system, (noise @ noise.T).ravel()).reshape(4, 4)


def differences(covariance):
    fine, coarse, both = covariance[0, 0], covariance[2, 2], covariance[0, 2]
    squares = 2.0 * (fine**2 + coarse**2 - 2.0 * both**2)
    return fine + coarse - 2.0 * both, squares, fine - coarse


@pytest.mark.parametrize("level", ORACLES)
def test_the_law_of_a_coupled_pair(x64, level):
    found = differences(coupled_law(0.5**level))
    np.testing.assert_allclose(found, ORACLES[level], rtol=2e-9)


def test_uncoupled_chains_do_not_come_closer(x64):
    """The same law of each chain, and differences as large as those of independent ones."""
    apart = coupled_law(0.5, shared=False)
    assert differences(apart)[0] == pytest.approx(1.9481900151, rel=1e-9)
    np.testing.assert_allclose(np.diag(apart), np.diag(coupled_law(0.5)), rtol=1e-12)


def exact_means(estimator, levels, *, start, start_variance=1.0, twice=False):
    """E x and E x^2 of D_0, D_1, ... of one draw, by linear algebra: an array (levels + 1, 2).

    Args:
        estimator: whose burn-in, draws and step are taken.
        levels: the last level.
        start: x; the momentum has mean 0 and this variance.
        start_variance: of the momentum.
        twice: burn the fine chain in alone for twice as long: a fault.
    """
    target = ex.FullGradient(ex.targets.gaussian(jnp.zeros(1), jnp.ones(1)))
    h, burn_in, draw = float(estimator.step_size), estimator.burn_in, estimator.num_draws

    def moments(level, time):
        kernel = ex.langevin(target, h * 0.5**level, float(estimator.friction), scheme="UBU")
        step = ex.verify.affine_step(kernel, np.zeros(1))
        mean, covariance = np.array([start, 0.0]), np.diag([0.0, start_variance])
        for _ in range(2**level * time):
            mean = step.matrix @ mean
            covariance = step.matrix @ covariance @ step.matrix.T + step.covariance
        return np.array([mean[0], covariance[0, 0] + mean[0] ** 2])

    found = [moments(0, burn_in + draw)]
    for level in range(1, levels + 1):
        fine = moments(level, (level + 1 + twice) * burn_in + draw)
        found.append(fine - moments(level - 1, level * burn_in + draw))
    return np.array(found)


class Schedule:
    """That of the oracle: a burn-in of 4 in steps of 1/2, the draw at its end."""

    step_size, friction, burn_in, num_draws = 0.5, 1.0, 8, 0


def test_the_levels_telescope_from_a_distant_start():
    """The schedule of burn-in takes the start's bias away with that of the step."""
    found = exact_means(Schedule, 4, start=3.0, start_variance=0.0)[:, 1]
    oracle = [1.144770466635, -0.151854996079, 0.004528582292, 0.001905444078, 0.000487748262]
    np.testing.assert_allclose(found, oracle, atol=1e-11)
    wrong = exact_means(Schedule, 4, start=3.0, start_variance=0.0, twice=True)[:, 1]
    assert abs(wrong.sum() - 1.0) > 10 * abs(found.sum() - 1.0)


def z_values(values, truth):
    """Of the mean of values along a leading axis."""
    values = np.asarray(values, np.float64).reshape(len(values), -1)
    return (values.mean(axis=0) - truth) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def both(values):
    return np.concatenate([values["mean"], values["second_moment"]], axis=1)


@pytest.fixture(scope="module")
def keys():
    return jax.random.split(jax.random.key(1), REPLICAS)


def test_the_averages_of_the_levels_are_the_exact_ones(keys):
    estimator = gaussian()
    expected = exact_means(estimator, 2, start=START)
    values, _ = jax.jit(jax.vmap(estimator.coarsest))(keys)
    assert np.all(np.abs(z_values(both(values), expected[0])) < FALSE_ALARM)
    run = jax.jit(jax.vmap(estimator.difference, (0, None)))
    for level in (1, 2):
        z = z_values(both(run(keys, jnp.int32(level))[0]), expected[level])
        assert np.all(np.abs(z) < FALSE_ALARM), level
    wrong = exact_means(estimator, 1, start=START, twice=True)
    assert np.any(np.abs(z_values(both(run(keys, jnp.int32(1))[0]), wrong[1])) > 2 * FALSE_ALARM)


@pytest.mark.slow
def test_the_estimate_is_unbiased_and_a_truncated_one_is_not(keys):
    """Though a chain of h_0 is off by half a standard deviation, from its step and its start."""
    values = both(outcomes(gaussian(), keys).value)
    assert np.all(np.abs(z_values(values, [0.0, 1.0])) < FALSE_ALARM)
    cut = both(outcomes(gaussian(num_levels=1), keys).value)
    assert np.any(np.abs(z_values(cut, [0.0, 1.0])) > 2 * FALSE_ALARM)


def well(burn_in, start, **more):
    """(x^2 - 1)^2 / 4, where E x^2 = 1.0417973; a friction that brings coupled chains together."""
    target = ex.FullGradient(ex.targets.double_well(height=0.25))
    options = {"burn_in": burn_in, "num_draws": 1} | more
    return ex.replicas.unbiased(target, jnp.full(1, start), 0.25, 2.0, **options)


@pytest.mark.slow
def test_unbiased_on_the_double_well(keys):
    truth = [0.0, 1.0417973]
    values = both(outcomes(well(40, 1.5), keys).value)
    assert np.all(np.abs(z_values(values, truth)) < FALSE_ALARM)
    cut = both(outcomes(well(16, 2.0, num_levels=0), keys).value)
    assert np.any(np.abs(z_values(cut, truth)) > 2 * FALSE_ALARM)


def test_the_plan_says_what_a_replica_costs_and_when_chains_do_not_meet():
    good = gaussian()
    plan = good.plan(jax.random.key(0), num=200, levels=2)
    # The fine chain takes two steps in h_0, for two times of burn-in.
    np.testing.assert_allclose(plan.costs[:2], [2 + 1, 2 * (2 * 2 + 1) + 2 + 1], rtol=1e-5)
    assert plan.fall > good.decay and "bias: none" in str(plan)
    bad = dataclasses.replace(plan, squares=[0.1, 0.05])
    assert bad.fall == pytest.approx(1.0) and "a longer burn_in" in str(bad)
    assert bad.variance > 100 * plan.variance and 0 < plan.rate < bad.rate <= 1.0


@pytest.mark.slow
def test_noise_that_falls_with_the_step(x64):
    """The variance of differences: h^3 with SVRG, h with batches that do not know the step."""
    rows = np.linspace(-2.0, 2.0, 40)[:, None]
    posterior = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2),
        lambda w, y: -0.05 * jnp.sum((y - w) ** 2) + 0.2 * jnp.sum(jnp.cos(w - y)),
        rows,
    )
    orders = []
    for gradient in (ex.SVRG(posterior, 4, period=5), ex.Minibatch(posterior, 4)):
        options = {"burn_in": 12, "num_draws": 4, "num_levels": 4, "decay": 1.5}
        estimator = ex.replicas.unbiased(gradient, jnp.zeros(1), 0.2, 3.0, **options)
        squares = estimator.plan(jax.random.key(3), num=400, levels=3).squares
        orders.append(np.log2(np.array(squares[:-1]) / squares[1:]))
    assert np.all(np.abs(orders[0] - 3.0) < 0.5) and np.all(np.abs(orders[1] - 1.0) < 0.5)
