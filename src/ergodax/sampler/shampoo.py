"""Langevin dynamics with a metric for each layer: Shampoo's product of two matrices."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.control_flow import when
from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.stepper import Moved
from ergodax.kernel import State, named
from ergodax.sampler.preconditioned import (
    AdaptedLangevin,
    adaptation,
    estimate_along,
    num_data,
    weight_of_new,
)
from ergodax.schedule import as_schedule


class Factors(eqx.Module):
    """Of one array as an m x n matrix: a matrix for each side that is small enough, else squares.

    Attributes:
        left: (m, m), or None.
        right: (n, n), or None.
        square: like the array, where both are None.
    """

    left: Float[Array, "m m"] | None
    right: Float[Array, "n n"] | None
    square: Array | None


class ShampooLangevin(AdaptedLangevin):
    """The kernel that `shampoo_sgld` returns."""

    refresh: int = eqx.field(static=True)
    largest: int = eqx.field(static=True)

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """Zeros, which the first step replaces."""
        zeros = jax.tree.map(lambda x: _moments(x, self.largest), tree.zeros_like(position))
        return {"second_moment": zeros, "root": zeros}, key

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """Move the moments, from time to time the metric, then x by it."""
        key_gradient, key_probe, key_noise = jax.random.split(key, 3)
        weight = weight_of_new(self, state.step)
        weight_in_metric = jnp.where(state.step % self.refresh == 0, weight, 0.0)
        probe = tree.rademacher_like(key_probe, state.position)
        estimate, gradient, change = estimate_along(
            self, key_gradient, state, probe, weight_in_metric
        )
        per_example = 1.0 / num_data(self.gradient)
        mean, slope = (tree.scale(per_example, x) for x in (estimate.gradient, change))

        def moments(mean: PyTree) -> PyTree:
            new = jax.tree.map(lambda x: _moments(x, self.largest), mean)
            return jax.tree.map(
                lambda v, m: tree.cast(1.0 - weight, v) * v + tree.cast(weight, v) * m,
                state.auxiliary["second_moment"],
                new,
            )

        def renewed() -> tuple[PyTree, PyTree]:
            def diffused(mean: PyTree) -> tuple[PyTree, PyTree]:
                root = self._root(state.position, moments(mean), weight)
                return _times(root, _times(root, probe)), root

            if not self.correction:
                return diffused(mean)[1], tree.zeros_like(mean)
            _, gamma, root = jax.jvp(diffused, (mean,), (slope,), has_aux=True)
            return root, gamma

        def kept() -> tuple[PyTree, PyTree]:
            return state.auxiliary["root"], tree.zeros_like(mean)

        root, gamma = when(weight_in_metric > 0.0, renewed, kept)
        normal = tree.normal_like(key_noise, state.position)
        force = tree.scale(jnp.sqrt(2.0 * h * temperature), normal)
        force = tree.add_scaled(force, -h, _times(root, estimate.gradient))
        moved = tree.add(state.position, _times(root, force))
        position = tree.add_scaled(moved, h * temperature, gamma)
        auxiliary = {"second_moment": moments(mean), "root": root}
        return Moved(position, auxiliary, estimate, gradient)

    def _root(self, position: PyTree, moments: PyTree, weight: Float[Array, ""]) -> PyTree:
        """A root of D for each array."""

        def leaf(x: Array, v: Factors) -> Factors:
            damping = tree.cast(self.damping, x) ** 2
            if v.square is not None:
                return Factors(None, None, (v.square + damping) ** -0.25)
            order = 4 if v.left is None or v.right is None else 8
            left, right = (
                None if m is None else inverse_root(_rounder(m, x.size, weight), damping, order)
                for m in (v.left, v.right)
            )
            return Factors(left, right, None)

        return jax.tree.map(leaf, position, moments)


def _rounder(matrix: Array, size: int, weight: Float[Array, ""]) -> Array:
    """A mean of few outer products, drawn to a multiple of I by as many as the matrix has rows.

    There are size / rows of them in each of the 1 / weight gradients that the mean is of. Without
    this, a direction in which no gradient has yet been seen would have a step of 1 / damping.
    """
    rows = len(matrix)
    share = tree.cast(rows * weight / (rows * weight + size / rows), matrix)
    mean = jnp.trace(matrix) / rows
    return (1.0 - share) * matrix + share * mean * jnp.eye(rows, dtype=matrix.dtype)


def _moments(x: Array, largest: int) -> Factors:
    """The second moments of one gradient."""
    if x.ndim > 1:
        matrix = x.reshape(-1, x.shape[-1])
        m, n = matrix.shape
        left = matrix @ matrix.T / n if m <= largest else None
        right = matrix.T @ matrix / m if n <= largest else None
        if left is not None or right is not None:
            return Factors(left, right, None)
    return Factors(None, None, x**2)


def _times(root: PyTree, x: PyTree) -> PyTree:
    """The root times a tree like the position."""

    def leaf(x: Array, f: Factors) -> Array:
        if f.square is not None:
            return f.square * x
        matrix = x.reshape(-1, x.shape[-1])
        matrix = matrix if f.left is None else f.left @ matrix
        return (matrix if f.right is None else matrix @ f.right).reshape(x.shape)

    return jax.tree.map(leaf, x, root)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def inverse_root(
    matrix: Float[Array, "n n"], damping: Float[Array, ""], order: int
) -> Float[Array, "n n"]:
    """(A + damping I)^(-1 / order), A symmetric and positive semidefinite."""
    return _rotated(*_roots(matrix, damping, order))


@inverse_root.defjvp
def _(order: int, primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> Any:
    """By divided differences, which repeated eigenvalues do not disturb; `damping` is constant."""
    vectors, roots = _roots(*primals, order)
    p, q = roots[:, None], roots[None, :]
    sums = sum(p**j * q ** (order - 1 - j) for j in range(order))
    differences = -(p**order) * q**order / sums
    turned = vectors.T @ tangents[0].astype(vectors.dtype) @ vectors
    change = vectors @ (differences * turned) @ vectors.T
    return _rotated(vectors, roots).astype(primals[0].dtype), change.astype(primals[0].dtype)


def _roots(matrix: Array, damping: Array, order: int) -> tuple[Array, Array]:
    """Eigenvectors, and the powers of the eigenvalues."""
    precise = matrix.dtype if matrix.dtype.itemsize > 2 else jnp.float32  # LAPACK has no half
    values, vectors = jnp.linalg.eigh(matrix.astype(precise))
    return vectors, (jnp.maximum(values, 0.0) + damping.astype(precise)) ** (-1.0 / order)


def _rotated(vectors: Array, roots: Array) -> Array:
    return (vectors * roots[None, :]) @ vectors.T


@named
def shampoo_sgld(
    gradient: GradientEstimator,
    step_size: Any,
    *,
    decay: Any = 0.99,
    damping: Any = 1e-3,
    temperature: Any = 1.0,
    correction: bool = True,
    adaptation_steps: int | np.integer | None = 1000,
    refresh: int | np.integer = 20,
    largest: int | np.integer = 1024,
) -> ShampooLangevin:
    """Stochastic-gradient Langevin dynamics with Shampoo's metric of each layer (Yu et al.).

    State: position x, and for each of its arrays, as an m x n matrix, running means L and R.
    H = U, D = L^(-1/4) (x) R^(-1/4) in each array, Q = 0. Update at step t = 1, 2, ..., with ghat
    an estimate of grad U, and m x n matrices G = ghat / N, the gradient per example, and xi of
    standard normal numbers:
        L  <- (1 - w) L + w G G^T / n,   R <- (1 - w) R + w G^T G / m
        L' = (1 - s) L + s (tr L / m) I + damping^2 I,   s = w m / (w m + n),   R' likewise
        D[Y] = L'^(-1/4) Y R'^(-1/4)
        x+ = x - h D[ghat] + h T Gamma + sqrt(2 h T) D^(1/2)[xi],   Gamma = div D
    with w as for `psgld`, whose diagonal this metric replaces; for vectors, and for arrays whose
    sides are both above `largest`, it is that diagonal, 1 / sqrt(V + damping^2), and for one with
    one side above, D has the other side alone, to the power -1/2. The metric is renewed at every
    `refresh`-th step, with Gamma along one random sign vector, L and R before the step held fixed;
    between, it is constant and Gamma zero.

    After `adaptation_steps` it is frozen, and the law that of `sgld` with this preconditioner:
    first order in h, and exact as h -> 0. Draw samples from then on. While it adapts there is the
    bias that `psgld` has. A step multiplies by an m x m and an n x n matrix twice for each array;
    a renewal costs their eigendecompositions.

    Args:
        gradient: an estimator of grad U that can be differentiated, such as ex.Minibatch.
        step_size: h, a positive number or a schedule.
        decay: of the memory of L and R, in [0, 1).
        damping: positive, on the scale of a gradient per example.
        temperature: T, a number or a schedule.
        correction: include Gamma.
        adaptation_steps: how many steps it adapts for; pass the `burn_in` of the run. None adapts
            for ever, with a bias.
        refresh: steps from one metric to the next.
        largest: the longest side that gets a matrix.

    Returns:
        A kernel whose states have "second_moment" and "root", of D, in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> scales = jnp.array([[1.0, 10.0], [10.0, 100.0]])
        >>> target = ex.FullGradient(ex.Target(lambda w: 0.5 * jnp.sum((scales * w) ** 2)))
        >>> kernel = ex.shampoo_sgld(target, 0.3, adaptation_steps=200)
        >>> samples = ex.sample(kernel, jnp.ones((2, 2)), 500, burn_in=200, key=jax.random.key(0),
        ...                     progress=False)
        >>> samples.position.shape
        (1, 500, 2, 2)

    Reference:
        Yu, Hartmann, Williams and Klami, Scalable stochastic gradient Riemannian Langevin dynamics
        in non-diagonal metrics, 2023; Gupta, Koren and Singer, Shampoo: preconditioned stochastic
        tensor optimization, 2018.
    """
    return ShampooLangevin(
        gradient,
        step_size,
        as_schedule(temperature, "temperature", allow_zero=True),
        *adaptation(decay, damping, adaptation_steps, correction),
        whole_number("refresh", refresh, hint="Try 20."),
        whole_number("largest", largest, hint="Try 1024."),
    )
