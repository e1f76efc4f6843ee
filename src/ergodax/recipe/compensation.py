"""Noise compensation, Eq. (9) of Ma, Chen and Fox: inject what the gradient has not brought.

A gradient with noise covariance V feeds the noise h^2 P V P^T into a block whose entry in
the position's column of D + Q is P. Injecting N(0, h (2 T D - h P V P^T)) instead of
N(0, 2 h T D) leaves the step's law as it would be with an exact gradient. It can be done
only where 2 T D - h P V P^T is positive semidefinite.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ergodax import tree
from ergodax.recipe.operators import Diagonal, Operator, Scalar


def compensated_noise(
    diffusion: Operator,
    column: Operator,
    covariance: Operator,
    step_size: Float[Array, ""],
    temperature: Float[Array, ""],
    normal: PyTree,
) -> tuple[PyTree, Bool[Array, ""]]:
    """Draw N(0, h (2 T D - h P V P^T)) by its structure.

    Scalars and diagonals stay so; a low-rank or dense V with scalar D and P goes through its
    eigenvalues; any other combination is made a matrix, which is for small blocks.

    Args:
        diffusion: D of this block.
        column: P, the entry of D + Q in this block's row and the position's column.
        covariance: V, of the gradient estimate.
        step_size: h.
        temperature: T.
        normal: standard normal numbers like the block.

    Returns:
        The noise, with negative variances clipped at zero, and whether none was negative.
    """
    h, t = step_size, temperature
    verdicts = []

    def root(variance: Array, full: Array) -> Array:
        verdicts.append(jnp.all(variance >= -1e-5 * jnp.abs(full)))
        return jnp.sqrt(jnp.clip(variance, 0.0))

    if isinstance(diffusion, Scalar) and isinstance(column, Scalar):
        d, p = diffusion.value, column.value
        full = 2.0 * h * t * d
        noise = covariance.spectral(lambda v: root(full - (h * p) ** 2 * v, full), normal)
    elif all(isinstance(block, Scalar | Diagonal) for block in (diffusion, column, covariance)):
        ones = jax.tree.map(jnp.ones_like, normal)
        full = tree.scale(2.0 * h * t, diffusion.mv(ones))
        brought = tree.scale(h**2, column.mv(column.mv(covariance.mv(ones))))
        noise = jax.tree.map(lambda f, b, x: root(f - b, f) * x, full, brought, normal)
    else:
        flat, unravel = tree.ravel(normal)

        def matrix(operator: Operator) -> Array:
            basis = jnp.eye(flat.size, dtype=flat.dtype)
            return jax.vmap(lambda e: tree.ravel(operator.mv(unravel(e)))[0], out_axes=1)(basis)

        d, p, v = matrix(diffusion), matrix(column), matrix(covariance)
        values, vectors = jnp.linalg.eigh(2.0 * h * t * d - h**2 * p @ v @ p.T)
        scale = 2.0 * h * t * jnp.max(jnp.abs(d))
        noise = unravel(vectors @ (root(values, scale) * flat))
    return noise, jnp.all(jnp.stack(verdicts))
