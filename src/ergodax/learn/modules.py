"""The modules of an ensemble's members, and what each draw of their weights predicts."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from ergodax import network, tree
from ergodax.network.likelihoods import Outlook

ACTIVATIONS = {"silu": jax.nn.silu, "tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": jax.nn.gelu}


class _Activation(eqx.Module):
    """By name, since JAX's functions can't be pickled."""

    name: str = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        return ACTIVATIONS[self.name](x)


def perceptron(sizes: tuple[int, ...], activation: str, key: Any) -> eqx.nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[Any] = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        layers += [eqx.nn.Linear(inputs, outputs, key=jax.random.fold_in(key, number))]
        layers += [_Activation(activation)]
    return eqx.nn.Sequential(layers[:-1])


def drawn_anew(position: PyTree, key: Any) -> PyTree:
    """Matrices of normal numbers with the same means and sds; vectors as they are."""

    def one(x: Array, noise: Array) -> Array:
        return x if x.ndim < 2 else jnp.mean(x) + jnp.std(x) * noise

    return jax.tree.map(one, position, tree.normal_like(key, position))


@eqx.filter_jit
def each_draw(posterior: network.NetworkPosterior, positions: PyTree, rows: Any) -> Outlook:
    """What each draw predicts, leading axis draws."""
    program = posterior.program

    def one(position: PyTree) -> Outlook:
        position = tree.thaw(position)
        return program.likelihood.outlook(position, program.network(position["network"], rows))

    return lax.map(one, tree.freeze(positions))
