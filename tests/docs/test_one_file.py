"""ergodax_in_one_file.py draws the library's numbers, to the bit."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

PATH = Path(__file__).resolve().parents[2] / "ergodax_in_one_file.py"
ROWS = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
START = np.array([0.3, -0.2, 0.5], np.float32)


@pytest.fixture(scope="module")
def one():
    spec = importlib.util.spec_from_file_location("ergodax_in_one_file", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def log_prior(w):
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w, row):
    return -0.5 * (row @ w - 1.0) ** 2


def root_metric(x):
    return 1.0 + 0.5 * jnp.tanh(x)


def recipes(one):
    """Each recipe as the file has it, and the library's."""
    riemannian = ex.Recipe(
        diffusion=lambda z: {"momentum": 2.0},
        curl=lambda z: {("momentum", "position"): ex.Diagonal(root_metric(z["position"]))},
        energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
        auxiliary=lambda key, x: {"momentum": ex.normal_like(key, x)},
    )
    return {
        "sgld": (one.sgld(), ex.dynamics.langevin()),
        "sghmc": (one.sghmc(2.0), ex.dynamics.underdamped(2.0)),
        "sgrhmc": (one.sgrhmc(root_metric, 2.0), riemannian),
    }


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("sgld", "sghmc")]


@pytest.mark.parametrize("name", [*SLOW, "sgrhmc"])
def test_the_draws_are_the_library_s(name, one, key):
    ours, theirs = recipes(one)[name]
    batches = one.Minibatch(log_prior, log_likelihood, ROWS, 5)
    draws = one.sample(
        one.euler_maruyama(ours, batches, 0.01, 0.7), START, 100, key=key, num_chains=3
    )
    gradient = ex.Minibatch(ex.Posterior(log_prior, log_likelihood, ROWS), 5, replace=True)
    kernel = ex.euler_maruyama(theirs, gradient, 0.01, temperature=0.7)
    samples = ex.sample(kernel, START, 100, key=key, num_chains=3)
    # Before JAX 0.12, XLA fuses a product and a sum in one program and not in the other.
    rounding = 1e-4 if jax.__version_info__ < (0, 12) else 0.0
    np.testing.assert_allclose(draws, samples.position, rtol=rounding, atol=rounding / 100)
    assert np.ptp(draws) > 0.1


def test_another_correction_is_seen(one, key):
    """Without Gamma the numbers differ: the comparison sees what the recipe adds."""
    ours, _ = recipes(one)["sgrhmc"]
    batches = one.Minibatch(log_prior, log_likelihood, ROWS, 5)
    kernel = one.euler_maruyama(ours, batches, 0.01)
    draws = one.sample(kernel, START, 3, key=key, num_chains=1)
    object.__setattr__(ours, "gamma", lambda z: {})
    without = one.sample(one.euler_maruyama(ours, batches, 0.01), START, 3, key=key, num_chains=1)
    assert np.abs(draws - without).max() > 1e-4


def test_it_is_short():
    assert len(PATH.read_text(encoding="utf-8").splitlines()) < 300
