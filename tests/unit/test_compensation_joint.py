"""Noise compensation of whole recipes: the law of a noisy chain is the law of a clean one.

On a Gaussian target the stationary law of the code's own step solves a Lyapunov equation, so
the comparison is exact.
"""

import importlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.recipe.compensation import compensated_noise
from ergodax.verify import stationary_law
from law import faults

integrator = importlib.import_module("ergodax.integrator.euler_maruyama")

D = np.array([[1.0, 0.2], [0.2, 0.6]])
Q = np.array([[0.0, -0.5], [0.5, 0.0]])
V = np.array([[3.0, 1.0], [1.0, 2.0]])
TARGET = ex.Target(lambda x: 0.5 * (x[0] ** 2 + 4.0 * x[1] ** 2))
START = jnp.zeros(2)


def noisy(covariance: Any = V, told: Any = None):
    gradient = ex.NoisyGradient(TARGET, covariance)
    return gradient if told is None else ex.KnownCovariance(gradient, told)


def law(recipe, gradient, h=0.02, fault=None, **options):
    right = ex.euler_maruyama(recipe, gradient, h, **options)
    kernel = right if fault is None else faults.Planted(right, fault)
    return stationary_law(kernel, np.zeros(2))


# --- Irreversible Langevin dynamics: through D + Q into the position ------------------------------

CLEAN = [[1.0137365781, -0.0001022687], [-0.0001022687, 0.2582972426]]
HEATED = [[1.0503524144, 0.0086546865], [0.0086546865, 0.2688179832]]


def irreversible(gradient, **options):
    return law(ex.dynamics.irreversible_langevin(Q, D), gradient, **options).cov()


@pytest.mark.slow
def test_irreversible_langevin(x64):
    np.testing.assert_allclose(irreversible(ex.FullGradient(TARGET)), CLEAN, atol=1e-10)
    np.testing.assert_allclose(irreversible(noisy(), compensate=True), CLEAN, atol=1e-10)
    np.testing.assert_allclose(irreversible(noisy()), HEATED, atol=1e-10)


def transposed(columns):
    """P^T for P: the sign of Q turned."""
    return {name: [(sign, a.transpose()) for sign, a in parts] for name, parts in columns.items()}


WRONG_COLUMNS = {
    "P^T for P": transposed,
    "D for D + Q": lambda columns: {"position": columns["position"][:1]},
    "V for P V P^T": lambda columns: {"position": [(1.0, ex.Scalar(1.0))]},
}


@pytest.mark.parametrize("wrong", WRONG_COLUMNS)
def test_other_columns_leave_another_law(wrong, x64):
    right = integrator._gradient_columns
    columns = lambda *args: WRONG_COLUMNS[wrong](right(*args))  # noqa: E731
    fault = faults.replacing(integrator, "_gradient_columns", columns)
    assert np.abs(irreversible(noisy(), compensate=True, fault=fault) - CLEAN).max() > 1e-5


# --- Through two variables at once ----------------------------------------------------------------


def both(position, momentum, exchange):
    """Underdamped dynamics with diffusion in the position as well; Q[r, x] = exchange."""
    return ex.Recipe(
        diffusion=lambda z: {"position": position, "momentum": momentum},
        curl=lambda z: {("momentum", "position"): exchange},
        energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
        auxiliary=lambda key, x: {"momentum": ex.normal_like(key, x)},
    )


TURNED = ex.Dense(jnp.array([[1.0, 0.7], [-0.2, 0.8]]))
RECIPES = {
    "numbers": both(0.6, 1.5, 1.0),
    "vectors": both(jnp.array([0.5, 0.8]), jnp.array([1.0, 2.0]), jnp.array([0.7, 1.1])),
    "matrices": both(D, 2.0 * D, TURNED),
}
NOISES = {
    "number": 2.0,
    "vector": np.array([3.0, 1.0]),
    "matrix": V,
    "low rank": ex.LowRank(jnp.array([[1.2, -0.5]]), 0.4),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "noise"),
    [("numbers", "number"), ("numbers", "matrix"), ("vectors", "low rank"), ("matrices", "vector")],
)
def test_position_and_momentum(recipe, noise, x64):
    gradient = noisy(NOISES[noise])
    clean, compensated, heated = (
        law(RECIPES[recipe], g, h=0.1, temperature=0.5, compensate=lowered).covariance
        for g, lowered in [(ex.FullGradient(TARGET), False), (gradient, True), (gradient, False)]
    )
    np.testing.assert_allclose(compensated, clean, atol=1e-12)
    assert np.abs(heated - clean).max() > 1e-2


def apart(diffusion, columns, covariance, h, t, normal):
    """Each row's noise lowered by what enters that row."""
    noise, verdicts = {}, []
    for name in columns:
        one = {name: diffusion[name]}, {name: columns[name]}, covariance, h, t
        part, verdict = compensated_noise(*one, {name: normal[name]})
        noise.update(part)
        verdicts.append(verdict)
    return noise, jnp.all(jnp.stack(verdicts))


def test_rows_compensated_one_by_one_are_not_enough(x64):
    """The gradient's noise correlates the rows; what is injected must correlate them back."""
    fault = faults.replacing(integrator, "compensated_noise", apart)
    clean = law(RECIPES["numbers"], ex.FullGradient(TARGET), h=0.1)
    wrong = law(RECIPES["numbers"], noisy(), h=0.1, compensate=True, fault=fault)
    assert np.abs(wrong.covariance - clean.covariance).max() > 1e-3


@pytest.mark.slow
def test_a_diagonal_with_noise_of_low_rank(x64):
    preconditioner, noise = np.array([0.5, 1.4]), NOISES["low rank"]
    recipe = ex.dynamics.langevin(preconditioner)
    clean = law(recipe, ex.FullGradient(TARGET), h=0.1).cov()
    ours = law(recipe, noisy(noise), h=0.1, compensate=True).cov()
    np.testing.assert_allclose(ours, clean, atol=1e-12)
    matrix = noise.factor.T @ noise.factor
    without_base = law(recipe, noisy(noise, told=matrix), h=0.1, compensate=True).cov()
    assert np.abs(without_base - clean).max() > 1e-3


# --- Where it can't be done -----------------------------------------------------------------------

MASS = np.array([[2.0, 0.3], [0.3, 1.0]])
IMPOSSIBLE = {
    "sgld": lambda noise, **o: ex.sgld(noise, 0.1, compensate=True, **o),
    "sghmc, dense mass": lambda noise, **o: ex.sghmc(noise, 0.1, mass=MASS, compensate=True, **o),
    "sgrhmc": lambda noise, **o: ex.sgrhmc(
        noise, 0.1, lambda x: 1.0 / (1.0 + x**2), compensate=True, **o
    ),
    "joint": lambda noise, **o: ex.euler_maruyama(
        both(0.6, 1.5, 1.0), noise, 0.1, compensate=True, **o
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", IMPOSSIBLE)
def test_infeasible_stops_the_run_and_no_position_is_nan(sampler, key):
    kernel = IMPOSSIBLE[sampler](noisy(100.0))
    with pytest.raises(ex.DivergenceError, match=r"negative variance.*clip=True") as caught:
        ex.sample(kernel, START, 8, key=key, num_chains=3, progress=False)
    assert np.isfinite(caught.value.state.position).all()
    new, info = kernel.step(key, kernel.init(key, START))
    assert np.isfinite(new.position).all() and not bool(info.feasible)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", IMPOSSIBLE)
def test_clipped_it_runs_and_says_so(sampler, key):
    for noise, verdict in ((100.0, True), (0.01, False)):
        kernel = IMPOSSIBLE[sampler](noisy(noise), clip=True)
        samples = ex.sample(kernel, START, 8, key=key, num_chains=3, progress=False)
        assert np.isfinite(samples.position).all()
        np.testing.assert_array_equal(samples.info.clipped, verdict)
        assert samples.info.feasible is None


@pytest.mark.parametrize("where", ["momentum", "position"])
def test_a_variable_without_diffusion_is_refused(where, key):
    recipe = {
        "momentum": ex.dynamics.hamiltonian(),
        "position": ex.Recipe(
            diffusion=lambda z: {}, curl=lambda z: {("position", "position"): jnp.asarray(Q)}
        ),
    }[where]
    kernel = ex.euler_maruyama(recipe, noisy(), 0.1, compensate=True)
    with pytest.raises(ValueError, match=rf"compensate=True can't be done.*{where}"):
        ex.sample(kernel, START, 4, key=key, progress=False)
