"""SGFS: exact at every step size where the precision is N times the covariance of the scores.

Where each batch's scores have the same covariance the step is affine, and its law solves a
Lyapunov equation. The estimators here have it by construction, with normal noise of the
covariance c S that a batch would bring. Numbers compared by sampling: 15.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.sampler.preconditioned import sgfs
from ergodax.verify import affine_step, stationary_law

from . import faults, normals, sampled, theory

N, BATCH = 1000, 50
WITH, WITHOUT = N * N / BATCH, N * (N - BATCH) / BATCH
CENTRE = np.array([0.3, -1.0, 2.0])
D0 = 1e-3 * np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.7]])


def flat(*arguments):
    """A density that is never looked at."""
    return jnp.zeros(())


class KnownScores(ex.GradientEstimator):
    """Scores with a covariance S that does not vary, and normal noise of covariance c S.

    The potential has the precision N S. `noise_factor` is what the estimator says that c is.
    """

    target: ex.Posterior
    root: jax.Array
    scores: jax.Array
    factor: jax.Array
    noise_factor: jax.Array
    batch_size: int = eqx.field(static=True)

    def __init__(self, information, factor, claimed):
        d = len(information)
        self.root = jnp.linalg.cholesky(jnp.asarray(information))
        plain = np.random.default_rng(0).normal(size=(BATCH, d))
        plain -= plain.mean(axis=0)
        white = np.linalg.solve(np.linalg.cholesky(np.cov(plain.T).reshape(d, d)), plain.T).T
        self.scores = jnp.asarray(white) @ self.root.T
        self.target = ex.Posterior(flat, flat, np.zeros(N))
        self.factor, self.noise_factor = jnp.asarray(factor), jnp.asarray(claimed)
        self.batch_size = BATCH

    def init(self, key, position):
        return None

    def estimate(self, key, state, position):
        exact = N * self.root @ self.root.T @ (position - CENTRE[: position.size])
        noise = jnp.sqrt(self.factor) * self.root @ ex.tree.normal_like(key, position)
        return ex.Estimate(exact + noise, jnp.zeros(())), state

    def estimate_with_scores(self, key, state, position):
        estimate, state = self.estimate(key, state, position)
        return estimate, self.scores - estimate.gradient[None] / N, state


def information(d):
    turn, _ = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))
    return turn @ np.diag(np.linspace(0.5, 3.0, d)) @ turn.T


def error(d, factor, h, *, claimed=None, t=1.0, fault=None, matrix=None, **options) -> float:
    """The largest entry of S Lambda / T - 1."""
    matrix = information(d) if matrix is None else matrix
    estimator = KnownScores(matrix, factor, factor if claimed is None else claimed)
    options.setdefault("preconditioner", D0[:d, :d])
    kernel = sgfs(estimator, h, temperature=t, **options)
    kernel = kernel if fault is None else faults.Planted(kernel, fault)
    step = affine_step(Forgetful(kernel), CENTRE[:d])
    covariance = stationary_law(step).covariance
    return float(np.abs(covariance @ (N * matrix) / t - np.eye(d)).max())


class Forgetful(ex.Kernel):
    """A kernel that begins each step as its first: the information is that of this batch."""

    kernel: ex.Kernel

    def init(self, key, position):
        state = self.kernel.init(key, position)
        return ex.State(state.position, {}, state.gradient, None, jnp.int32(0))

    def step(self, key, state):
        new, info = self.kernel.step(key, self.kernel.init(key, state.position))
        return ex.State(new.position, {}, new.gradient, None, jnp.int32(0)), info


STEPS = (0.01, 1.0, 100.0)  # with D0 of order 1 / N, SGLD is unstable from about 0.5 on


SETTINGS = [(WITH, 1.0), (WITHOUT, 1.0), (WITHOUT, 0.25), (WITH, 4.0), (0.0, 4.0)]  # c, T


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("factor, t", SETTINGS)
def test_the_law_is_exact_at_every_step_size(d, factor, t, x64):
    for h in STEPS:
        assert error(d, factor, h, t=t) < 1e-12


@pytest.mark.parametrize("preconditioner", [1e-3, np.array([2e-3, 1e-3, 5e-4])])
def test_the_preconditioner_is_free(preconditioner, x64):
    for h in STEPS:
        assert error(3, WITHOUT, h, preconditioner=preconditioner) < 1e-12


def test_a_diagonal_is_exact_for_uncorrelated_scores(x64):
    options = {"preconditioner": np.array([2e-3, 1e-3, 5e-4]), "structure": "diagonal"}
    for h in STEPS:
        matrix = np.diag([0.5, 1.0, 4.0])
        assert error(3, WITHOUT, h, matrix=matrix, **options) < 1e-12
    assert error(3, WITHOUT, 1e-3, **options) < 0.01, "correlated scores: only as h -> 0"
    assert error(3, WITHOUT, 1.0, **options) > 0.1


def test_the_other_way_of_drawing_is_rejected(x64):
    """gamma = (n + N) / n where rows are distinct, and N / n where they are not."""
    for factor, claimed in ((WITHOUT, WITH), (WITH, WITHOUT)):
        assert 0.03 < error(3, factor, 100.0, claimed=claimed) < 0.06


def test_gamma_of_a_widespread_port_is_rejected(x64):
    """(n + N) / N, as if the variance of a batch's noise were (N / n)^2 times as small."""
    for factor in (WITH, WITHOUT):
        assert error(3, factor, 1.0, claimed=float(BATCH)) > 1.0


FAULTS = {"10 per cent too cold": 0.9**0.5, "h for sqrt(2 / h)": 2.0**-0.5}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_rejected(fault, x64):
    assert error(3, 0.0, 1.0, fault=normals.scaled_by(FAULTS[fault])) > 0.05


def test_the_temperature_is_not_only_that_of_the_noise(x64):
    """With gamma of T = 1 at T = 4, as if V were heated as well."""
    assert error(3, WITHOUT, 1.0, t=4.0, claimed=4.0 * WITHOUT) > 0.05


def test_for_small_steps_it_is_sgld(x64):
    """The same noise and the same gradients, to first order in h."""
    estimator, start, h = KnownScores(information(3), WITHOUT, WITHOUT), np.zeros(3), 1e-7
    ours = affine_step(Forgetful(sgfs(estimator, h, preconditioner=D0)), start)
    theirs = affine_step(ex.sgld(estimator, h, preconditioner=D0), start)
    theory.assert_covariance(ours.matrix - np.eye(3), theirs.matrix - np.eye(3), 1e-2)
    theory.assert_covariance(ours.covariance, theirs.covariance, 1e-2)


# --- A real model: the mean of a Gaussian of known covariance -------------------------------

COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])


def posterior() -> ex.Posterior:
    """A flat prior, and data whose sample covariance is that of the model."""
    plain = np.random.default_rng(1).normal(size=(N, 2))
    plain -= plain.mean(axis=0)
    white = plain @ np.linalg.inv(np.linalg.cholesky(np.cov(plain.T))).T
    data = (white @ np.linalg.cholesky(COVARIANCE).T).astype(np.float32)
    precision = jnp.asarray(np.linalg.inv(COVARIANCE), jnp.float32)
    return ex.Posterior(
        lambda m: 0.0 * jnp.sum(m), lambda m, x: -0.5 * (x - m) @ precision @ (x - m), data
    )


def assert_posterior(kernel, key, t=1.0):
    x = sampled.run(kernel, np.zeros(2, np.float32), 8_000, key, burn_in=2_000)
    white = x @ np.linalg.inv(np.linalg.cholesky(COVARIANCE * t / N)).T
    sampled.assert_mean(white, 0.0, 0.05)
    sampled.assert_mean(white**2, 1.0, 0.05)
    sampled.assert_mean(white[..., 0] * white[..., 1], 0.0, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("replace, t", [(True, 4.0), (False, 1.0)])
def test_draws_have_the_posterior_covariance_at_a_large_step(replace, t, key):
    gradient = ex.Minibatch(posterior(), BATCH, replace)
    kernel = sgfs(gradient, 5.0, preconditioner=1.0 / N, temperature=t)
    assert_posterior(kernel, key, t)


@pytest.mark.slow
def test_sgld_is_rejected_at_a_step_a_hundred_times_smaller(key):
    gradient = ex.Minibatch(posterior(), BATCH)
    kernel = ex.sgld(gradient, 0.05, preconditioner=COVARIANCE / N)
    with pytest.raises(AssertionError, match="the law differs"):
        assert_posterior(kernel, key)
