"""The modules of an ensemble's members, and what each draw of their weights predicts."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import ergodax as ex
from ergodax import network, tree
from ergodax.learn.regression import rows_of_program
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


def each_draw(posterior: network.NetworkPosterior, positions: PyTree, rows: Any) -> Outlook:
    """What each draw predicts, leading axis draws."""
    return _each_draw(posterior.program, positions, rows)


@eqx.filter_jit  # without the data, or more rows of them would be another program
def _each_draw(program: Any, positions: PyTree, rows: Any) -> Outlook:
    def one(position: PyTree) -> Outlook:
        position = tree.thaw(position)
        return program.likelihood.outlook(position, program.network(position["network"], rows))

    return lax.map(one, tree.freeze(positions))


def of_one_row(posterior: network.NetworkPosterior) -> network.NetworkPosterior:
    """The same with its first row alone: predictions with more rows would be other programs."""
    data = jax.tree.map(lambda x: np.asarray(x)[:1], posterior.data)
    return network.NetworkPosterior(posterior.program, data, posterior.start)


class Weighted(eqx.Module):
    """The log-likelihoods of a network's rows, each times its weight, which stands last."""

    program: Any

    def __call__(self, position: PyTree, batch: tuple[Any, ...]) -> Float[Array, " n"]:
        """Of each row of a batch."""
        *data, weight = batch
        values = self.program.log_likelihoods(position, tuple(data))
        return weight.astype(values.dtype) * values


def filled(posterior: network.NetworkPosterior, batch_size: int) -> ex.Posterior:
    """The same law with rows of weight 0 up to the next power of two, see `regression.padded`.

    They are others again, which any module takes. It stays as it is where its gradients are of
    batches, which would be of fewer rows that count.
    """
    rows = posterior.num_data
    count = rows_of_program(rows)
    if count > batch_size:
        return posterior
    data = jax.tree.map(lambda x: np.resize(x, (count, *x.shape[1:])), posterior.data)
    weight = (np.arange(count) < rows).astype(np.float32)
    program = posterior.program
    return ex.Posterior(program.log_prior, Weighted(program), (*data, weight), batched=True)
