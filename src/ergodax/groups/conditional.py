"""The latent of one group given the shared parameters and its rows: density, mode, curvature."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ergodax import tree

NEAR = 0.03  # sds from the mode, where Newton's next step is the last
MOST_STEPS = 30  # of Newton's method
HARDER = 10.0  # the damping, after a step that led downwards
# Dimensions, up to which a Cholesky factor is written out: 12,000 of 5 x 5 take 1 ms, and 8 by
# LAPACK. In 8 dimensions neither is faster, and LAPACK compiles in a tenth of the time.
UNROLLED = 6


Mask = Bool[Array, " rows"] | Float[Array, " rows"]  # of padded rows: how often each counts


class Normal(NamedTuple):
    """A normal law of d numbers, about the mode of a density."""

    mean: Float[Array, " d"]
    root: Float[Array, "d d"]  # L, with L L^T the covariance

    @property
    def log_root(self) -> Float[Array, ""]:
        """log |L|."""
        return jnp.sum(jnp.log(jnp.diagonal(self.root)))

    def at(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """The place that is z, of unit scale, from the mean."""
        return self.mean + self.root @ z


class Conditional(eqx.Module):
    """f(b) = log p(b | shared) + the sum of log p(row | shared, b) over the rows of one group."""

    log_latent: Callable[[Any, PyTree], Any]
    log_likelihood: Callable[[PyTree, Any, PyTree], Any]
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def dimension(self) -> int:
        """d, the numbers of a latent."""
        return tree.size(jnp.zeros(self.shape))

    def latent_of(self, b: Float[Array, " d"]) -> Array:
        """As the user's functions take it."""
        return b.reshape(self.shape)

    def prior(self, shared: PyTree, b: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(b | shared)."""
        return jnp.asarray(self.log_latent(self.latent_of(b), shared), b.dtype)

    def each_row(
        self, shared: PyTree, b: Float[Array, " d"], rows: PyTree
    ) -> Float[Array, " rows"]:
        """log p(row | shared, b) of each."""
        latent = self.latent_of(b)
        values = jax.vmap(lambda row: self.log_likelihood(shared, latent, row))(rows)
        return values.astype(b.dtype)

    def likelihood(
        self, shared: PyTree, b: Float[Array, " d"], rows: PyTree, mask: Mask
    ) -> Float[Array, ""]:
        """The sum over the rows that the mask has, each as often as it says."""
        each = mask.astype(b.dtype) * self.each_row(shared, b, rows)
        return jnp.sum(jnp.where(mask.astype(bool), each, 0.0))

    def __call__(
        self, shared: PyTree, b: Float[Array, " d"], rows: PyTree, mask: Mask
    ) -> Float[Array, ""]:
        """f(b)."""
        return self.prior(shared, b) + self.likelihood(shared, b, rows, mask)

    def mode(
        self,
        shared: PyTree,
        rows: PyTree,
        mask: Mask,
        start: Float[Array, " d"],
    ) -> Normal:
        """The normal law with the mode of f and its curvature there; no gradient goes through.

        By Newton's method from `start`, with Levenberg's damping where a step leads downwards.
        """
        shared = constant(shared)
        return newton(lambda b: self(shared, b, rows, mask), lax.stop_gradient(start))


class _Place(NamedTuple):
    """Where Newton's method stands."""

    b: Float[Array, " d"]
    value: Float[Array, ""]
    slope: Float[Array, " d"]
    bend: Float[Array, "d d"]  # - f''
    damping: Float[Array, ""]
    steps: Any


def newton(f: Callable[[Array], Array], start: Float[Array, " d"]) -> Normal:
    """The mode of a function of few numbers, and the normal law that its curvature gives."""
    zero = jnp.zeros((), start.dtype)

    def damped(at: _Place) -> tuple[Array, Array]:
        """The root of the inverse of - f'', made positive, and Newton's step by it."""
        more = at.damping * (jnp.abs(jnp.diagonal(at.bend)) + jnp.finfo(start.dtype).tiny)
        root = inverse_root(at.bend + jnp.diag(more))
        return root, root @ (root.T @ at.slope)

    def far(at: _Place) -> Array:
        root, _ = damped(at)
        off = jnp.sum((root.T @ at.slope) ** 2)
        # Not a number where the curvature has no root, which damping mends.
        near = (off < NEAR**2) & (at.damping <= 1.0) & (at.steps > 0)
        return (at.steps < MOST_STEPS) & ~near

    def move(at: _Place) -> _Place:
        there = at.b + damped(at)[1]
        value, slope, bend = second_order(f, jnp.where(jnp.isfinite(there), there, at.b))
        up = jnp.all(jnp.isfinite(there)) & (value >= at.value - _rounding(at.value, at.steps))
        softer = jnp.where(at.damping < 0.1, zero, 0.1 * at.damping)
        harder = jnp.maximum(HARDER * at.damping, 1.0)
        new = _Place(there, value, slope, bend, softer, at.steps + 1)
        old = at._replace(damping=harder, steps=at.steps + 1)
        return jax.tree.map(lambda a, b: jnp.where(up, a, b), new, old)

    # The first step is none, to where the function is looked at: so that is compiled but once.
    unit = jnp.eye(len(start), dtype=start.dtype)
    lowest = jnp.full((), -jnp.inf, start.dtype)
    first = _Place(start, lowest, jnp.zeros_like(start), unit, zero, jnp.int32(0))
    last = lax.while_loop(far, move, first)
    root, step = damped(last)
    good = jnp.all(jnp.isfinite(root)) & jnp.all(jnp.isfinite(step))
    mean = last.b + jnp.where(good & (jnp.sum((root.T @ last.slope) ** 2) < 1.0), step, 0.0)
    return Normal(mean, jnp.where(good, root, unit))


def quadratic_law(f: Callable[[Array], Array], start: Float[Array, " d"]) -> Normal:
    """The normal law whose log density f is, up to a constant; gradients go through."""
    _, slope, bend = second_order(f, start)
    root = inverse_root(bend)
    return Normal(start + root @ (root.T @ slope), root)


def _rounding(value: Array, steps: Array) -> Array:
    """Of a sum of this size; none before the first, which is infinite."""
    return jnp.where(steps > 0, 8.0 * jnp.finfo(value.dtype).eps * jnp.abs(value), 0.0)


def second_order(
    f: Callable[[Array], Array], b: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"], Float[Array, "d d"]]:
    """f, its gradient and minus its Hessian."""

    def slope(b: Array) -> tuple[Array, tuple[Array, Array]]:
        value, gradient = jax.value_and_grad(f)(b)
        return gradient, (value, gradient)

    bend, (value, gradient) = jax.jacfwd(slope, has_aux=True)(b)
    return value, gradient, -bend


def constant(shared: PyTree) -> PyTree:
    """The same, of which nothing is differentiated."""
    return jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, shared)


def cholesky(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The lower factor, written out: mapped over groups, LAPACK would be called for each."""
    d = matrix.shape[0]
    if d > UNROLLED:
        return jnp.linalg.cholesky(matrix)
    zero = jnp.zeros((), matrix.dtype)
    lower = [[zero] * d for _ in range(d)]
    for i in range(d):
        for j in range(i + 1):
            rest = matrix[i, j] - sum((lower[i][k] * lower[j][k] for k in range(j)), start=zero)
            lower[i][j] = jnp.sqrt(rest) if i == j else rest / lower[j][j]
    return jnp.stack([jnp.stack(row) for row in lower])


def solved(lower: Float[Array, "d d"], b: Float[Array, " d"]) -> Float[Array, " d"]:
    """L^-1 b."""
    d = len(b)
    if d > UNROLLED:
        return jax.scipy.linalg.solve_triangular(lower, b, lower=True)
    found: list[Array] = []
    for i in range(d):
        rest = b[i] - sum((lower[i, k] * found[k] for k in range(i)), start=jnp.zeros((), b.dtype))
        found.append(rest / lower[i, i])
    return jnp.stack(found)


@jax.custom_jvp
def inverse_root(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """A lower triangular L with L L^T = matrix^-1; not finite where it is not positive definite.

    From the other end: with J the reversal, J A J = C C^T and L = J C^-T J. Its derivative along dA
    is - L half(L^T dA L), half the lower triangle with half of the diagonal.
    """
    turned = cholesky(matrix[::-1, ::-1])
    unit = jnp.eye(len(matrix), dtype=matrix.dtype)
    return jax.vmap(lambda e: solved(turned, e), in_axes=1, out_axes=0)(unit)[::-1, ::-1]


@inverse_root.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """By products, which compile in a fraction of the time that derivatives of its steps take."""
    root = inverse_root(primals[0])
    change = root.T @ tangents[0] @ root
    return root, -root @ (jnp.tril(change) - 0.5 * jnp.diag(jnp.diagonal(change)))
