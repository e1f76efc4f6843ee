"""The exact stationary law of a chain with a state of one or two numbers, on a grid.

The kernel's own step maps each point of a grid and each node of a Gauss-Hermite rule for its
normal numbers to a new point. Local polynomial interpolation there gives the transition
matrix P of functions on the grid; its left eigenvector of eigenvalue 1 is the stationary law.
The error is that of interpolation, about 1e-6; nothing is sampled.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import eigs

import ergodax as ex

from . import normals


class Axis(NamedTuple):
    """An even grid on [-edge, edge]."""

    edge: float
    points: int

    @property
    def places(self) -> np.ndarray:
        return np.linspace(-self.edge, self.edge, self.points)


class GridLaw(NamedTuple):
    """The stationary law as weights of grid points; columns of `points` are the state."""

    points: np.ndarray
    weights: np.ndarray

    def mean(self, function: Callable) -> float:
        """The expectation of a function of the coordinates."""
        return float(self.weights @ function(*self.points.T))


@eqx.filter_jit
def _images(kernel: ex.Kernel, points, nodes):
    """Where a step leads from each point with each node: shape (points, nodes, state)."""
    dimension = points.shape[1]

    def image(point, numbers):
        # The state is the position, or the position and a momentum of the same length.
        d = dimension // 2 if has_momentum(kernel) else dimension
        state = placed(kernel, point[:d], point[d:])
        with normals.dealt(numbers):
            new, _ = kernel.step(normals.key(), state)
        momentum = new.auxiliary.get("momentum", jnp.zeros(0))
        return jnp.concatenate([new.position, momentum])

    return jax.vmap(jax.vmap(image, (None, 0)), (0, None))(points, nodes)


def has_momentum(kernel: ex.Kernel) -> bool:
    """Whether the kernel's states have a momentum."""
    return "momentum" in jax.eval_shape(lambda x: normals.start(kernel, x), jnp.zeros(1)).auxiliary


def placed(kernel: ex.Kernel, position, momentum) -> ex.State:
    """The state at a position, with the gradient there if it is kept, and this momentum."""
    state = normals.start(kernel, position)
    if momentum.size == 0:
        return state
    return eqx.tree_at(lambda s: s.auxiliary["momentum"], state, momentum)


def _stencil(x: np.ndarray, axis: Axis, order: int) -> tuple[np.ndarray, np.ndarray]:
    """The first of the `order` grid points around each x, and their Lagrange weights."""
    width = 2.0 * axis.edge / (axis.points - 1)
    s = (np.clip(x, -axis.edge, axis.edge) + axis.edge) / width
    first = np.clip(np.floor(s).astype(int) - (order // 2 - 1), 0, axis.points - order)
    offset = s - first
    weights = np.ones((*x.shape, order))
    for j, m in product(range(order), repeat=2):
        if m != j:
            weights[..., j] *= (offset - m) / (j - m)
    return first, weights


def _transition(images: np.ndarray, nodes: np.ndarray, axes: Sequence[Axis], order: int):
    """The sparse matrix P with (P f)(z_i) = sum over nodes of weight f(image)."""
    count = images.shape[0]
    column = np.zeros((*images.shape[:2], 1), int)
    value = np.broadcast_to(nodes[None, :, None], column.shape)
    for i, axis in enumerate(axes):
        first, weights = _stencil(images[..., i], axis, order)
        along = first[..., None] + np.arange(order)
        column = (column[..., None] * axis.points + along[..., None, :]).reshape(*first.shape, -1)
        value = (value[..., None] * weights[..., None, :]).reshape(*first.shape, -1)
    each = column[0].size
    starts = np.arange(count + 1) * each
    matrix = csr_matrix((value.ravel(), column.ravel(), starts), shape=(count, count))
    matrix.sum_duplicates()
    return matrix


def stationary(
    kernel: ex.Kernel, axes: Sequence[Axis], *, num_nodes: int = 10, order: int = 8
) -> GridLaw:
    """The stationary law of the chain that the kernel makes.

    Args:
        kernel: its position and momentum together have as many numbers as there are axes.
        axes: the grids; the law's mass outside must be negligible.
        num_nodes: Gauss-Hermite nodes for each normal number of a step.
        order: points of an interpolation stencil.
    """
    points = np.stack(np.meshgrid(*(a.places for a in axes), indexing="ij"), axis=-1)
    points = points.reshape(-1, len(axes))
    d = len(axes) // 2 if has_momentum(kernel) else len(axes)
    draws = normals.count(kernel, normals.start(kernel, jnp.zeros(d)))
    x, w = np.polynomial.hermite_e.hermegauss(num_nodes)
    nodes = np.array(list(product(x, repeat=draws)))
    weights = np.prod(np.array(list(product(w / w.sum(), repeat=draws))), axis=1)
    images = np.asarray(_images(kernel, jnp.asarray(points), jnp.asarray(nodes)))
    matrix = _transition(images, weights, axes, order)
    law = _left_eigenvector(matrix, points)
    return GridLaw(points, law)


def _left_eigenvector(matrix: csr_matrix, points: np.ndarray) -> np.ndarray:
    guess = np.exp(-0.5 * np.sum(points**2, axis=1))
    options: dict = {"which": "LR", "v0": guess, "ncv": 40, "tol": 1e-12}
    _, vectors = eigs(matrix.T.tocsr(), k=1, **options)
    law = np.real(vectors[:, 0])
    return law / law.sum()
