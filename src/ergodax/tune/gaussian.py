"""The Gaussian whose precision is the Hessian of the potential averaged over it.

The curvature at the mode alone would not do: where a model fits its data well, it vanishes there
and nowhere else. N(c, H^-1) with H = E[Hessian of U] and E[grad U] = 0, both expectations over
itself, is the fixed point of Gaussian variational inference (Opper and Archambeau, 2009).

Putting E in place of H in each round need not come near it: for U = x^4 / 4, E = 3 / H, and two
rounds lead back to where they began. The geometric mean of H and E is the fixed point there, in
one round; where E does not depend on H a round halves what is left, on a logarithmic scale.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.target.posterior import Posterior
from ergodax.tune.coordinates import flattened, unflattened
from ergodax.tune.host import generator, split_key
from ergodax.tune.rows import some_rows

TOGETHER = 32  # columns of a Hessian: products of matrices are faster than of vectors


@dataclasses.dataclass(frozen=True)
class AveragedGaussian:
    """N(centre, H^-1).

    Attributes:
        centre: c, on the raveled position.
        hessian: H.
        points: positions that were drawn from it, for further averages.
        rows: of the data, over which all was averaged.
    """

    centre: Float[np.ndarray, " d"]
    hessian: Float[np.ndarray, "d d"]
    points: list[PyTree]
    rows: PyTree

    @property
    def basis(self) -> Float[np.ndarray, "d d"]:
        """An L with L^T H L = I."""
        return np.linalg.inv(_cholesky(self.hessian)).T


def averaged_gaussian(
    posterior: Posterior,
    mode: PyTree,
    *,
    key: PRNGKeyArray,
    num_pairs: int = 4,
    num_rounds: int = 4,
    max_rows: int = 10_000,
) -> AveragedGaussian:
    """Find it, by rounds of averaging that begin at the mode.

    Args:
        posterior: with data. Each draw of each round costs d gradients on `max_rows` rows.
        mode: where; the Hessian must be positive definite there.
        key: for the rows and the draws.
        num_pairs: antithetic pairs of draws that the averages are over, each coordinate of them
            scaled to mean square 1; for potentials up to the third power one pair is exact.
        num_rounds: how often the Gaussian is improved.
        max_rows: rows that stand for all, where there are more.

    Raises:
        ValueError: a Hessian is not positive definite: not a mode, or a flat direction.
    """
    key_rows, key_draws = split_key(key, 2)
    rows, rng = some_rows(posterior, key_rows, max_rows), generator(key_draws)

    def at(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = _derivatives(posterior, unflattened(frozen, flat), rows)
        gradient, hessian = (np.asarray(x, np.float64) for x in found)
        return gradient, 0.5 * (hessian + hessian.T)

    frozen = tree.freeze(mode)
    centre = flattened(frozen)
    flats = centre[None]
    # The rows are a sample, whose gradient at the mode is not zero as the whole data's is.
    offset, hessian = at(centre)
    for _ in range(num_rounds):
        normal = rng.standard_normal((num_pairs, centre.size))
        normal /= np.sqrt(np.mean(normal**2, axis=0))
        steps = scipy.linalg.solve_triangular(_cholesky(hessian).T, normal.T, lower=False).T
        flats = np.concatenate([centre + steps, centre - steps])
        gradient, averaged = (np.mean(x, axis=0) for x in zip(*map(at, flats), strict=True))
        centre = centre - _step(averaged, gradient - offset)
        hessian = _geometric_mean(hessian, averaged)
    return AveragedGaussian(centre, hessian, [unflattened(frozen, x) for x in flats], rows)


def _step(
    hessian: Float[np.ndarray, "d d"], gradient: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " d"]:
    """Newton's step, no longer than a typical draw of N(0, H^-1).

    Where few rows curve the potential, far draws see slopes without curvature, and the whole step
    would lead out of the posterior.
    """
    factor = _cholesky(hessian)
    inside = scipy.linalg.solve_triangular(factor, gradient, lower=True)  # in units of draws
    inside *= min(1.0, np.sqrt(len(gradient)) / max(float(np.linalg.norm(inside)), 1e-300))
    return scipy.linalg.solve_triangular(factor.T, inside, lower=False)


def _geometric_mean(
    a: Float[np.ndarray, "d d"], b: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, "d d"]:
    """A^(1/2) (A^(-1/2) B A^(-1/2))^(1/2) A^(1/2), of positive definite matrices."""
    values, vectors = scipy.linalg.eigh(b, a)  # vectors^T A vectors = I
    half = a @ vectors
    return (half * np.sqrt(values)) @ half.T


def _cholesky(hessian: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    try:
        return np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the Hessian at this position is not positive definite, so it is not a mode or the "
            "posterior is flat in some direction; find the mode first or tighten the prior."
        ) from error


@eqx.filter_jit
def _derivatives(
    posterior: Posterior, position: PyTree, rows: PyTree
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Gradient and Hessian of U on the raveled position, estimated from some rows."""
    flat, unravel = tree.ravel(position)
    gradient = jax.grad(lambda x: posterior.potential_on(unravel(x), rows))

    def column(direction: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.jvp(gradient, (flat,), (direction,))[1]

    columns = jnp.eye(flat.size, dtype=flat.dtype)
    if flat.size <= TOGETHER:
        return gradient(flat), jax.vmap(column)(columns)
    return gradient(flat), lax.map(column, columns, batch_size=TOGETHER)
