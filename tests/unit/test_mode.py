"""The mode: where it is, and what it cost."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ergodax as ex
from ergodax.target.mode import find_mode


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_evaluations_are_those_that_were_made(scale):
    """Counted as the program runs; the second potential needs line searches of many steps."""
    count = [0]

    def add(_):
        count[0] += 1

    def potential(x):
        jax.debug.callback(add, x[0])
        return jnp.sum(jnp.cosh(x * jnp.array([1.0, 2.0, 0.5]))) + scale * (x[1] - x[0] ** 2) ** 2

    mode = ex.find_mode(ex.Target(potential), jnp.array([1.5, -1.0, 0.5]))
    jax.effects_barrier()
    assert bool(mode.converged)
    assert int(mode.evaluations) == count[0]
    assert count[0] > int(mode.iterations) + 1 or scale == 1.0
    np.testing.assert_allclose(mode.position, np.zeros(3), atol=1e-2)


# --- By an optimiser of optax, on batches -------------------------------------------------


def regression():
    rows = np.random.default_rng(3).normal(size=(500, 3)).astype(np.float32)
    labels = (rows @ np.array([1.0, -1.0, 0.5]) > 0.0).astype(np.float32)

    def log_likelihood(w, example):
        x, y = example
        return y * (x @ w) - jax.nn.softplus(x @ w)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (rows, labels))


@pytest.mark.slow
@pytest.mark.parametrize("make", [optax.adam, optax.sgd])
@pytest.mark.parametrize("estimator", [ex.Minibatch, lambda p, n: ex.SVRG(p, n, 50)])
def test_an_optimiser_on_batches_finds_the_mode(make, estimator, key):
    posterior, start = regression(), jnp.zeros(3)
    exact = ex.find_mode(posterior, start)
    rate = optax.cosine_decay_schedule(0.1 if make is optax.adam else 2.0, 1_000)
    gradient = estimator(posterior, 50)
    found = ex.find_mode(
        posterior, start, optimiser=make(rate), gradient=gradient, steps=1_000, key=key
    )
    np.testing.assert_allclose(found.position, exact.position, atol=0.1)
    assert int(found.iterations) == 1_000
    np.testing.assert_allclose(found.potential, posterior.potential(found.position), rtol=1e-5)
    if estimator is ex.Minibatch:
        assert int(found.evaluations) == 101, "a hundred passes in batches, and one at the end"
    few = ex.find_mode(posterior, start, optimiser=make(rate), gradient=gradient, steps=2, key=key)
    assert not bool(few.converged) and float(few.potential) > float(found.potential)


def _with(options: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**options, name: value}


def test_a_search_by_batches_says_what_is_missing(key):
    posterior, start = regression(), jnp.zeros(3)
    options: dict[str, Any] = {"optimiser": optax.adam(0.1), "key": key}
    options["gradient"] = ex.Minibatch(posterior, 10)
    for name in ("optimiser", "gradient", "key"):
        with pytest.raises(ValueError, match=f"needs {name} as well"):
            ex.find_mode(posterior, start, **_with(options, name, None))
    with pytest.raises(TypeError, match="optimiser must be one of optax"):
        ex.find_mode(posterior, start, **_with(options, "optimiser", 3))
    with pytest.raises(TypeError, match="gradient must be an estimator"):
        ex.find_mode(posterior, start, **_with(options, "gradient", posterior))
    with pytest.raises(TypeError, match="steps must be an integer"):
        ex.find_mode(posterior, start, steps=0.5, **options)


def linear_model(size=400, dimension=4, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, dimension)) @ np.diag([1.0, 3.0, 0.3, 1.0])
    y = x @ rng.normal(size=dimension) + rng.normal(size=size)

    def log_likelihood(w, row):
        return -0.5 * (row[1] - row[0] @ w) ** 2

    posterior = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))
    precision = x.T @ x + np.eye(dimension)
    return posterior, np.linalg.solve(precision, x.T @ y)


def test_mode_of_a_linear_model(x64):
    posterior, mean = linear_model()
    mode = find_mode(posterior, jnp.zeros(4), tolerance=1e-9)
    assert bool(mode.converged)
    np.testing.assert_allclose(mode.position, mean, rtol=1e-7)
    np.testing.assert_allclose(mode.potential, posterior.potential(mode.position))


def test_mode_keeps_the_position_s_structure():
    target = ex.Target(lambda z: jnp.sum((z["a"] - 1.0) ** 2) + jnp.sum((z["b"] + 2.0) ** 4))
    mode = find_mode(target, {"a": jnp.zeros(2), "b": jnp.zeros(())})
    np.testing.assert_allclose(mode.position["a"], 1.0, atol=1e-3)
    np.testing.assert_allclose(mode.position["b"], -2.0, atol=0.05)


def test_an_unbounded_potential_does_not_converge():
    mode = find_mode(ex.Target(lambda x: -jnp.sum(x**2)), jnp.ones(2), max_iterations=20)
    assert not bool(mode.converged)
