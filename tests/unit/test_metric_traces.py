"""A step calls the user's metric at most three times while it is traced, however it uses it."""

import jax
import jax.numpy as jnp
import pytest

import ergodax as ex


class Counted:
    """A function of the position that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, x):
        self.calls += 1
        return self.function(x)


METRICS = {
    "number": lambda x: 1.0 + jnp.sum(x**2),
    "diagonal": lambda x: 1.0 + x**2,
    "dense": lambda x: jnp.eye(2) + x[:, None] * x[None, :],
    "low rank": lambda x: ex.LowRank(0.1 * jnp.stack([jnp.sin(x), x]), 1.0),
}


def full():
    return ex.FullGradient(ex.targets.gaussian(jnp.zeros(2), jnp.eye(2)))


def user_recipe(metric):
    return ex.Recipe(
        auxiliary=lambda key, x: {"momentum": ex.normal_like(key, x)},
        energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
        diffusion=lambda z: {"momentum": metric(z["position"])},
        curl=lambda z: {("momentum", "position"): metric(z["position"])},
    )


KERNELS = {
    "sgrld": lambda m: ex.sgrld(full(), 0.01, m),
    "sgrhmc": lambda m: ex.sgrhmc(full(), 0.01, m),
    "sgrhmc, resampled": lambda m: ex.sgrhmc(full(), 0.01, m, resample_every=2),
    "sgrhmc, compensated": lambda m: ex.sgrhmc(
        ex.KnownCovariance(full(), 0.1), 0.01, m, compensate=True
    ),
    "rmhmc": lambda m: ex.rmhmc(full(), 0.01, m, num_leapfrog_steps=2),
    "recipe": lambda m: ex.euler_maruyama(user_recipe(m), full(), 0.01, semi_implicit=True),
    "riemannian hamiltonian": lambda m: ex.euler_maruyama(
        ex.dynamics.riemannian_hamiltonian(m, 1.0), full(), 0.01, semi_implicit=True
    ),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_metric_is_traced_at_most_three_times(name, metric, key):
    counted = Counted(METRICS[metric])
    kernel = KERNELS[name](counted)
    state = jax.eval_shape(kernel.init, key, jnp.array([0.3, -0.2]))
    counted.calls = 0
    jax.eval_shape(kernel.step, key, state)
    assert 1 <= counted.calls <= 3, counted.calls


def test_a_metric_with_its_divergence(key):
    metric, divergence = Counted(lambda x: 1.0 + x**2), Counted(lambda x: 2.0 * x)
    kernel = ex.sgrhmc(full(), 0.01, ex.Metric(metric, divergence))
    state = jax.eval_shape(kernel.init, key, jnp.array([0.3, -0.2]))
    metric.calls = 0
    jax.eval_shape(kernel.step, key, state)
    assert metric.calls <= 3 and divergence.calls == 1
