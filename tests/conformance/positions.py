"""One point in five dimensions as every kind of tree, and targets that accept them all."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import ergodax as ex

DIMENSION = 5
START = np.array([0.3, -0.2, 0.5, 0.1, -0.4])
DATA = np.linspace(-1.0, 2.0, 20)


class Layer(eqx.Module):
    """A module with a function among its leaves, as networks have."""

    weight: jax.Array
    bias: jax.Array
    activation: Any


class Network(eqx.Module):
    """Modules, containers and a function, nested."""

    layers: list
    extra: dict[str, jax.Array]
    name: str = eqx.field(static=True)


def flat(position: Any) -> jax.Array:
    """The arrays of any tree as one vector, as a user of networks would do."""
    return ravel_pytree(eqx.filter(position, eqx.is_array))[0]


def tree_positions(dtype: Any = "float32") -> dict[str, Any]:
    """The same five numbers, in the order of their leaves, in trees of every kind."""
    x = jnp.asarray(START, dtype)
    linear = eqx.nn.Linear(4, 1, dtype=dtype, key=jax.random.key(0))
    layer = Layer(x[:2].reshape(1, 2), x[2:3], jnp.tanh)
    return {
        "vector": x,
        "dict": {"a": x[:4].reshape(2, 2), "b": x[4]},
        "tuple": (x[:3], [x[3], x[4:]]),
        "module": eqx.tree_at(lambda m: (m.weight, m.bias), linear, (x[None, :4], x[4:])),
        "network": Network([layer, jnp.square], {"scale": x[3:]}, "small"),
        "constrained": {
            "a": ex.tree.Unconstrained(x[:4], ex.transform.ordered),
            "b": ex.tree.Unconstrained(x[4], ex.transform.positive),
        },
    }


def potential(position: Any) -> jax.Array:
    """A Gaussian with curvatures from 1 to 2."""
    x = flat(position)
    return 0.5 * jnp.sum(jnp.linspace(1.0, 2.0, DIMENSION, dtype=x.dtype) * x**2)


def log_prior(position: Any) -> jax.Array:
    return -potential(position)


def log_likelihood(position: Any, example: jax.Array) -> jax.Array:
    x = flat(position)
    return -0.5 * (example.astype(x.dtype) - jnp.sum(x)) ** 2


def full() -> ex.FullGradient:
    return ex.FullGradient(ex.Target(potential))


def minibatch(**options: Any) -> ex.Minibatch:
    return ex.Minibatch(ex.Posterior(log_prior, log_likelihood, DATA), batch_size=4, **options)
