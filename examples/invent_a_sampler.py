"""A sampler of your own: refuted without its correction, proved with it, and run.

The position follows its momentum at a speed s(x): fast in the valleys of a double well, slow on
its slopes. As an equation with a wrong drift the verifier refutes it; as a curl Q(z) the library
adds the missing Gamma = div(D + Q) by itself.

Example: python examples/invent_a_sampler.py
"""

import jax
import jax.numpy as jnp

import ergodax as ex

target = ex.targets.double_well(dimension=2)


def speed(x):
    """s(x), slow where the well is steep."""
    return 1.0 / jnp.sqrt(1.0 + x**2)


def energy(z):
    """H(x, r) = U(x) + r.r / 2."""
    return target.potential(z["x"]) + 0.5 * jnp.sum(z["r"] ** 2)


def drift(z):
    """What one writes down at first: the force acts at the rate at which the position moves."""
    s = speed(z["x"])
    return {"x": s * z["r"], "r": -s * jax.grad(target.potential)(z["x"]) - z["r"]}


def diffusion(z):
    """Noise on the momentum alone."""
    return {"x": jnp.zeros(2), "r": jnp.ones(2)}


def state(key):
    """A point at which the equation is tested."""
    key_x, key_r = jax.random.split(key)
    return {"x": 1.5 * jax.random.normal(key_x, (2,)), "r": jax.random.normal(key_r, (2,))}


refuted = ex.verify.sde(drift, diffusion, energy, state=state(jax.random.key(0)))
print(refuted, "\n")
assert not refuted.invariant

recipe = ex.Recipe(
    diffusion=lambda z: {"momentum": 1.0},
    curl=lambda z: {("momentum", "position"): ex.Diagonal(speed(z["position"]))},
    energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
    auxiliary=lambda key, x: {"momentum": ex.normal_like(key, x)},
)
proved = ex.verify.recipe(recipe, target)
print(proved, "\n")
assert proved.ok

kernel = ex.euler_maruyama(recipe, ex.FullGradient(target), 0.05, semi_implicit=True)
samples = ex.sample(
    kernel, jnp.zeros(2), 40_000, num_chains=4, thin=5, burn_in=1_000, key=jax.random.key(1)
)
print(samples.summary())
assert abs((samples.position**2).mean() - target.covariance[0, 0]) < 0.05
