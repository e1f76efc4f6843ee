"""Riemannian HMC: its integrator is an involution that preserves volume, and its law is exact.

Numbers compared by sampling: 17.
"""

import functools
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ergodax as ex
from ergodax.integrator import hamiltonian as integrator
from ergodax.recipe.dynamics.riemannian import RiemannianEnergy
from ergodax.sampler.hamiltonian import rmhmc

from . import faults, normals, sampled
from .problems import problem
from .test_position_dependent import TILTED, tilted, well

START = np.array([0.4, -0.9])
PUSH = np.array([0.8, 0.5])


def number(p):
    return 1.2 + 0.5 * jnp.tanh(p[0] * p[1])


def diagonal(p):
    return 1.0 + 0.5 * jnp.tanh(jnp.roll(p, 1) + 0.3 * p)


def dense(p):
    off = 0.3 * jnp.cos(p[0] - p[1])
    top = jnp.stack([1.0 + 0.5 * jnp.tanh(p[1]), off])
    return jnp.stack([top, jnp.stack([off, 1.2 + 0.3 * jnp.sin(p[0])])])


def low_rank(p):
    return ex.LowRank(0.7 * jnp.sin(p + jnp.asarray(0.5, p.dtype))[None], 0.8)


METRICS = {"number": number, "diagonal": diagonal, "dense": dense, "low rank": low_rank}


def of_the_plane(metric, **options):
    target = TILTED
    return rmhmc(ex.FullGradient(target), 0.1, metric, **options)


@eqx.filter_jit
def carried(kernel, z, h, num_steps, t=1.0):
    """(x, r) and whether the way was reversible; no Metropolis test."""
    x, r = jnp.split(z, 2)
    evaluate = kernel.gradient.target.value_and_gradient
    flow = integrator.Flow(evaluate, kernel.kinetic, t, 1e-11, kernel.max_iterations)
    end = integrator.generalised_leapfrog(flow, x, r, evaluate(x), h, num_steps)
    return jnp.concatenate([end.position, end.momentum]), end.reversible


def energy(kernel, z, t=1.0):
    x, r = jnp.split(z, 2)
    return kernel.gradient.target.potential(x) + kernel.kinetic(x, r, t)


# --- The integrator ---------------------------------------------------------------------------

PHASE = np.concatenate([START, PUSH])
FLIP = np.array([1.0, 1.0, -1.0, -1.0])


@pytest.mark.parametrize("metric", METRICS)
def test_forward_flip_forward_returns(metric, x64):
    kernel = of_the_plane(METRICS[metric])
    there, reversible = carried(kernel, jnp.asarray(PHASE), 0.3, 7)
    back, again = carried(kernel, there * FLIP, 0.3, 7)
    assert reversible and again
    assert np.abs(there - PHASE).max() > 0.5
    np.testing.assert_allclose(back * FLIP, PHASE, atol=1e-9)


def assert_symplectic(kernel, num_steps):
    jacobian = jax.jacfwd(lambda z: carried(kernel, z, 0.3, num_steps)[0])(jnp.asarray(PHASE))
    form = np.kron([[0.0, 1.0], [-1.0, 0.0]], np.eye(2))
    np.testing.assert_allclose(jacobian.T @ form @ jacobian, form, atol=1e-8)
    np.testing.assert_allclose(np.linalg.det(jacobian), 1.0, atol=1e-8)


@pytest.mark.parametrize("metric", METRICS)
def test_volume_is_preserved(metric, x64):
    assert_symplectic(of_the_plane(METRICS[metric]), 5)


def test_too_few_iterations_do_not_preserve_volume(x64):
    with pytest.raises(AssertionError, match="Not equal"):
        assert_symplectic(of_the_plane(dense, max_iterations=2), 1)


@pytest.mark.parametrize("metric", METRICS)
def test_the_energy_error_is_of_second_order(metric, x64):
    t = 0.3
    kernel, z = of_the_plane(METRICS[metric]), jnp.asarray(PHASE)
    error = [
        float(energy(kernel, carried(kernel, z, 1.0 / n, n, t)[0], t) - energy(kernel, z, t))
        for n in (40, 80)
    ]
    np.testing.assert_allclose(error[0] / error[1], 4.0, rtol=0.03)


def assert_involution():
    """Far beyond the steps at which the iterations contract, what is accepted can be taken back."""
    kernel, h = of_the_plane(diagonal), 1.6
    starts = 1.5 * jax.random.normal(jax.random.key(1), (4000, 4))
    step = jax.vmap(lambda z: carried.__wrapped__(kernel, z, h, 1))
    ends, accepted = step(starts)
    backs, again = step(ends * FLIP[None])
    assert 0.1 < np.mean(accepted) < 0.9
    np.testing.assert_array_equal(again[accepted], True)
    np.testing.assert_allclose((backs * FLIP[None])[accepted], starts[accepted], atol=1e-6)


def test_what_is_accepted_can_be_taken_back(x64):
    assert_involution()


def test_without_the_way_back_some_of_it_cannot(x64, monkeypatch):
    monkeypatch.setattr(integrator, "SLACK", np.inf)
    with pytest.raises(AssertionError, match="Not equal"):
        assert_involution()


# --- The momentum -----------------------------------------------------------------------------


def momentum_covariance(kernel, t):
    """The momentum is linear in its normal numbers: R R^T."""

    def draw(numbers):
        with normals.dealt(numbers):
            return kernel.kinetic.draw(normals.key(), jnp.asarray(START), t)

    root = jax.jacfwd(draw)(jnp.zeros(2))
    return root @ root.T


def inverse_metric(metric):
    operator = ex.Metric(metric)(jnp.asarray(START))
    return jax.vmap(operator.mv, out_axes=1)(jnp.eye(2))


@pytest.mark.parametrize("metric", METRICS)
def test_momenta_have_covariance_t_g(metric, x64):
    kernel, t = of_the_plane(METRICS[metric]), 0.7
    expected = t * np.linalg.inv(inverse_metric(METRICS[metric]))
    np.testing.assert_allclose(momentum_covariance(kernel, t), expected, rtol=1e-12)


# --- The law, exactly: E[f(x+) - f(x)] = 0 from the target, by quadrature ---------------------

LINE = np.linspace(-3.6, 3.6, 181)
TESTS = [lambda x: x**2, lambda x: x**4, lambda x: np.exp(-(x**2))]


def softening(x):
    return 1.0 / (1.0 + x**2)


def in_the_well(t, h=0.3, **options):
    gradient = ex.FullGradient(ex.targets.double_well(0.25))
    return rmhmc(gradient, h, softening, num_leapfrog_steps=3, temperature=t, **options)


@eqx.filter_jit
def proposals(kernel, points, nodes):
    """Where a step leads if it accepts, and the probability that it does."""

    def one(x, xi):
        with normals.dealt(xi[None]):
            state = kernel.init(normals.key(), x[None])
            new, info = kernel.step(normals.key(), state)
        return new.position[0], info.acceptance

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(points, nodes)


def drifts(kernel, t):
    """The change of each expectation in one step from the target, relative to the expectation."""
    x, xi = LINE, np.linspace(-6.5, 6.5, 261)
    density = np.exp(-well(x) / t)
    weights = density[:, None] * np.exp(-0.5 * xi**2)[None]
    always = mock.patch.object(jax.random, "uniform", lambda key, dtype: jnp.zeros((), dtype))
    with always:
        new, acceptance = map(np.asarray, proposals(kernel, jnp.asarray(x), jnp.asarray(xi)))
    change = [np.sum(weights * acceptance * (f(new) - f(x)[:, None])) for f in TESTS]
    return np.array(change) / np.sum(weights) / [density @ f(x) / density.sum() for f in TESTS]


@pytest.mark.parametrize("t", [0.5, 1.0, 2.0])
def test_the_target_is_invariant(t, x64):
    np.testing.assert_allclose(drifts(in_the_well(t), t), 0.0, atol=1e-5)


def test_it_is_invariant_where_many_iterations_fail(x64):
    """A third of the proposals are refused; the edge of that region limits the quadrature."""
    np.testing.assert_allclose(drifts(in_the_well(1.0, 2.0), 1.0), 0.0, atol=1e-3)


def wrong_energy(t):
    right = RiemannianEnergy.__call__
    return faults.replacing(RiemannianEnergy, "__call__", lambda k, x, r, _: right(k, x, r, t))


def flat_momentum(self, key, position, temperature=1.0):
    return ex.tree.scale(jnp.sqrt(temperature), ex.tree.normal_like(key, position))


FAULTS = {
    "no determinant": wrong_energy(0.0),
    "no T before the determinant": wrong_energy(1.0),
    "momenta from N(0, T I)": faults.replacing(RiemannianEnergy, "draw", flat_momentum),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_rejected(fault, x64):
    kernel = faults.Planted(in_the_well(0.5), FAULTS[fault])
    assert np.abs(drifts(kernel, 0.5)).max() > 2e-3


# --- The law, by sampling ---------------------------------------------------------------------

P = problem(3, "matrix")
run = functools.partial(sampled.run, num_chains=256, burn_in=50)


def turning(x):
    """Dense in three dimensions; every entry depends on several coordinates."""
    a = jnp.stack([jnp.sin(0.5 * x), jnp.cos(0.5 * jnp.roll(x, 1))])
    return ex.Dense(jnp.eye(3, dtype=x.dtype) * 0.5 + 0.4 * a.T @ a)


def of_the_modes(t):
    gradient = ex.FullGradient(P.target)
    return rmhmc(gradient, 0.8, turning, num_leapfrog_steps=3, temperature=t, max_iterations=40)


def assert_variances(kernel, t, key):
    x = run(kernel, P.centre.astype(np.float32), 300, key)
    modes = (x - P.centre) @ np.linalg.inv(P.modes.shapes).T
    sampled.assert_mean(modes**2 * P.modes.k / t, 1.0, 0.12)


@pytest.mark.slow
def test_a_gaussian_with_a_dense_metric(key):
    assert_variances(of_the_modes(3.0), 3.0, key)


@pytest.mark.slow
def test_without_the_metropolis_test_it_is_rejected(key):
    always = faults.replacing(jax.random, "uniform", lambda key, dtype=None: jnp.zeros((), dtype))
    with pytest.raises(AssertionError, match="the law differs"):
        assert_variances(faults.Planted(of_the_modes(3.0), always), 3.0, key)


def fisher(p):
    """Long along the banana: y follows x^2 / 4, with the slope x / 2."""
    x = p[0]
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)
    lower = jnp.stack([jnp.stack([one, zero]), jnp.stack([0.5 * x, 0.3 * one])])
    return ex.Dense(lower @ lower.T)


@pytest.mark.slow
def test_banana(key):
    kernel = rmhmc(ex.FullGradient(ex.targets.banana()), 0.4, fisher, num_leapfrog_steps=5)
    draws = run(kernel, np.array([0.0, -1.2], np.float32), 300, key)
    x, y = draws[..., 0], draws[..., 1]
    sampled.assert_mean(x, 0.0, 0.1)
    sampled.assert_mean(x**2, 1.06881544366236, 0.1)
    sampled.assert_mean(y, -0.932796139084411, 0.05)
    sampled.assert_mean(x**2 * y, 0.33940838684721 - 1.06881544366236 * 0.932796139084411, 0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "inside"), [(1.0, 0.675113616623204), (3.0, 0.622315543471449)])
def test_funnel(scale, inside, key):
    """Neal's funnel, whose neck no sampler of constant mass reaches; P(|x| < 1) and more."""

    def local(p):
        curvature = 1.0 / scale**2 + 0.5 * (p.size - 1)
        return jnp.concatenate(
            [jnp.full(1, 1.0 / curvature, p.dtype), jnp.exp(p[:1]), jnp.exp(p[:1])]
        )

    target = ex.targets.funnel(3, scale)
    kernel = rmhmc(ex.FullGradient(target), 0.5, local, num_leapfrog_steps=6)
    draws = run(kernel, np.zeros(3, np.float32), 400, key)
    v, x = draws[..., 0] / scale, draws[..., 1:]
    sampled.assert_mean(v, 0.0, 0.1)
    sampled.assert_mean(v**2, 1.0, 0.1)
    sampled.assert_mean(v < -1.0, 0.158655253931457, 0.05)
    sampled.assert_mean(np.abs(x) < 1.0, inside, 0.05)


# --- The kernel -------------------------------------------------------------------------------


def test_with_a_constant_metric_it_is_hmc(key, x64):
    inverse = np.array([0.5, 2.0])
    gradient = ex.FullGradient(TILTED)
    kernels = [
        rmhmc(gradient, 0.4, lambda p: jnp.asarray(inverse), temperature=0.7),
        ex.hmc(gradient, 0.4, mass=1.0 / inverse, temperature=0.7),
    ]
    ours, theirs = (ex.sample(k, START, 30, key=key, progress=False) for k in kernels)
    np.testing.assert_allclose(ours.position, theirs.position, atol=1e-9)
    np.testing.assert_allclose(ours.info.acceptance, theirs.info.acceptance, atol=1e-9)
    np.testing.assert_array_equal(ours.info.evaluations, theirs.info.evaluations)


def test_an_iteration_that_does_not_converge_is_rejected(key):
    samples = ex.sample(
        of_the_plane(dense, max_iterations=1),
        jnp.asarray(START, jnp.float32),
        20,
        key=key,
        progress=False,
    )
    np.testing.assert_array_equal(samples.info.acceptance, 0.0)
    np.testing.assert_array_equal(samples.position[0], np.tile(START.astype(np.float32), (20, 1)))
    np.testing.assert_array_equal(samples.info.evaluations, 1)


def test_where_the_metric_is_not_positive_it_does_not_go(key):
    """G^-1 = x on a normal target: from x > 0 the sampler stays there, finite."""
    gradient = ex.FullGradient(ex.targets.gaussian(np.zeros(1), np.ones(1)))
    kernel = rmhmc(gradient, 0.5, lambda x: x, num_leapfrog_steps=3)
    samples = ex.sample(kernel, jnp.ones(1), 200, key=key, num_chains=4, progress=False)
    assert np.all(samples.position > 0)
    assert 0.1 < np.mean(samples.info.accepted) < 1.0


def test_a_nested_position_moves_as_a_flat_one(key, x64):
    nested = {"a": jnp.asarray(START[:1]), "b": (jnp.asarray(START[1:]),)}
    flat = of_the_plane(diagonal)
    target = ex.Target(lambda p: tilted(*ravel_pytree(p)[0]))
    other = rmhmc(ex.FullGradient(target), 0.1, lambda p: diagonal(ravel_pytree(p)[0]))
    ours = ex.sample(other, nested, 20, key=key, progress=False).position
    theirs = ex.sample(flat, START, 20, key=key, progress=False).position
    np.testing.assert_allclose(ours["a"][..., 0], theirs[..., 0], atol=1e-12)
    np.testing.assert_allclose(ours["b"][0][..., 0], theirs[..., 1], atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_single_precision_stays_single(metric, x64, key):
    kernel = of_the_plane(METRICS[metric])
    state = kernel.init(key, jnp.asarray(START, jnp.float32))
    new, info = eqx.filter_eval_shape(kernel.step, key, state)
    assert new.position.dtype == info.acceptance.dtype == jnp.float32


@pytest.mark.parametrize(
    "tolerance, right", [(1e-6, True), (0.99, True), (1.0, False), (0.0, False)]
)
def test_a_tolerance_is_between_0_and_1(tolerance, right):
    def make():
        return ex.rmhmc(ex.targets.banana(), 0.1, lambda x: 1.0 + x**2, tolerance=tolerance)

    if right:
        assert make().tolerance == tolerance
    else:
        with pytest.raises(ValueError, match="tolerance"):
            make()
