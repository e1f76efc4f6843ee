"""The modules of an ensemble's members, and what each draw of their weights predicts."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import network, tree
from ergodax.network.likelihoods import Outlook

ACTIVATIONS = {"silu": jax.nn.silu, "tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": jax.nn.gelu}


class Perceptron(eqx.Module):
    """Linear layers with an activation between them; it takes a batch, shape (rows, inputs).

    Inside, units are the first axis and the batch is the last: a processor multiplies a layer's
    small matrix with a wide one faster than a tall one with the small.

    Args:
        sizes: inputs, units of each hidden layer, outputs.
        activation: its name.
        key: of the first weights.
    """

    layers: list[eqx.nn.Linear]
    activation: str = eqx.field(static=True)  # by name, since JAX's functions can't be pickled

    def __init__(self, sizes: tuple[int, ...], activation: str, key: PRNGKeyArray) -> None:
        self.layers = [
            eqx.nn.Linear(inputs, outputs, key=jax.random.fold_in(key, number))
            for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes))
        ]
        self.activation = activation

    def __call__(self, rows: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
        """The outputs of a batch."""
        *hidden, last = self.layers
        x = rows.T
        for layer in hidden:
            x = ACTIVATIONS[self.activation](_sums(layer, x))
        return _sums(last, x).T


def _sums(layer: eqx.nn.Linear, x: Float[Array, "inputs rows"]) -> Float[Array, "outputs rows"]:
    assert layer.bias is not None
    return layer.weight @ x + layer.bias[:, None]


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
