"""Metropolis steps from one known mode to another, by which chains visit all of them."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax.target.base import AbstractTarget
from ergodax.tune.curvature import curvature_coordinates
from ergodax.tune.host import on_device
from ergodax.tune.whitening import Coordinates

SCALED, TURNED, MIRRORED = KINDS = 0, 1, 2
ROWS = 1_024  # at a time, whose nearest modes are told
FEW_DRAWS = 10  # of a chain for each dimension: fewer do not tell a covariance


class Jumps(eqx.Module):
    """From u near mode i to u' = c_j + M (u - c_i) near a mode j that is chosen by chance.

    M is one of three, by chance too: S_j S_i^-1, with S S^T the inverse of the curvature at a mode,
    which takes one normal law to another; -1, which turns both modes about their middle; and the
    reflection, in the units of the position, that exchanges the two. The last two leave a posterior
    as it is where signs or labels can be exchanged, of whatever shape its modes are. M of (j, i) is
    the inverse of M of (i, j), so that Metropolis' rule with the ratio exp(U(u) - U(u')) |det M|
    leaves exp(-U) invariant. Which mode u is near to says its distance in the curvature's units;
    a u' that is near to another one than j is rejected.

    Args:
        centres: u of the modes.
        roots: S of each.
        inverses: S^-1 of each.
        log_volumes: log |det S| of each.
        gram: B^T B, for position = centre + B u.

    Reference:
        Tjelmeland and Hegstad, Mode jumping proposals in MCMC, 2001.
    """

    centres: Float[Array, "modes d"]
    roots: Float[Array, "modes d d"]
    inverses: Float[Array, "modes d d"]
    log_volumes: Float[Array, " modes"]
    gram: Float[Array, "d d"]

    def nearest(self, u: Float[Array, " d"]) -> Int[Array, ""]:
        """The mode to whose normal law u belongs most."""
        offsets = jnp.einsum("mij,mj->mi", self.inverses, u[None] - self.centres)
        return jnp.argmin(0.5 * jnp.sum(offsets**2, axis=1) + self.log_volumes)

    def of_chains(self, u: Float[np.ndarray, "chains draws d"]) -> Int[np.ndarray, "chains draws"]:
        """The nearest mode of each draw."""
        flat = on_device(u.reshape(-1, u.shape[-1]), self.centres.dtype)
        return np.asarray(_nearest(self, flat)).reshape(u.shape[:2])

    def there(
        self, u: Float[Array, " d"], kind: Int[Array, ""], i: Int[Array, ""], j: Int[Array, ""]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """u' and log |det M|."""
        offset, between = u - self.centres[i], self.centres[j] - self.centres[i]
        normal = self.gram @ between
        moved = jnp.stack(
            [
                self.roots[j] @ (self.inverses[i] @ offset),
                -offset,
                offset - 2.0 * between * (normal @ offset) / (normal @ between),
            ]
        )
        volume = jnp.where(kind == SCALED, self.log_volumes[j] - self.log_volumes[i], 0.0)
        return self.centres[j] + moved[kind], volume

    def propose(
        self, key: PRNGKeyArray, u: Float[Array, " d"]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """u', and the logarithm of its acceptance but for U(u) - U(u')."""
        key_mode, key_kind = jax.random.split(key)
        modes, i = len(self.centres), self.nearest(u)
        j = (i + jax.random.randint(key_mode, (), 1, modes)) % modes
        there, volume = self.there(u, jax.random.randint(key_kind, (), 0, len(KINDS)), i, j)
        return there, jnp.where(self.nearest(there) == j, volume, -jnp.inf)

    def step(
        self, key: PRNGKeyArray, state: Any, state_at: Callable[[Array], Any]
    ) -> tuple[Any, Bool[Array, ""]]:
        """The state then, and whether it has jumped; both have `position` and `logdensity`."""
        key_there, key_accept = jax.random.split(key)
        place, ratio = self.propose(key_there, state.position)
        there = state_at(place)
        ratio = ratio + there.logdensity - state.logdensity
        jumped = jnp.log(jax.random.uniform(key_accept, dtype=place.dtype)) < ratio  # NaN: no
        return jax.tree.map(lambda x, y: jnp.where(jumped, x, y), there, state), jumped


@eqx.filter_jit
def _nearest(jumps: Jumps, rows: Float[Array, "n d"]) -> Int[Array, " n"]:
    return jax.lax.map(jumps.nearest, rows, batch_size=ROWS)


def jumps_between(
    target: AbstractTarget, coordinates: Coordinates, modes: Sequence[PyTree], key: PRNGKeyArray
) -> Jumps | None:
    """By the curvature at each mode; None where there is one, or the dimension is too high for it.

    Args:
        target: of the position.
        coordinates: whitened.
        modes: positions of all of them.
        key: for the rows that tell the curvature.
    """
    if coordinates.basis.ndim == 1:
        return None
    basis = np.asarray(coordinates.basis, np.float64)
    local = [curvature_coordinates(target, mode, key=key).basis for mode in modes]
    parts = [np.linalg.solve(basis, np.asarray(x, np.float64)) for x in local]
    centres = [np.asarray(coordinates.of(mode), np.float64) for mode in modes]
    return _jumps(coordinates, centres, [part @ part.T for part in parts])


def jumps_of_chains(
    coordinates: Coordinates, draws: Float[np.ndarray, "chains draws d"]
) -> Jumps | None:
    """By the draws of chains that stay apart; None where they do not, or are too few to tell.

    Chains are of one mode if all their means are within one sd of the draws of a chain.
    """
    _, count, d = draws.shape
    if coordinates.basis.ndim == 1 or count < FEW_DRAWS * d:
        return None
    means, sd = draws.mean(axis=1), np.sqrt(draws.var(axis=1).mean(axis=0))
    alike = (np.abs(means[:, None] - means) < sd).all(axis=-1)
    first = alike.argmax(axis=1)  # of the chains that are like it
    groups = [draws[first == k].reshape(-1, d) for k in np.unique(first)]
    return _jumps(
        coordinates,
        [group.mean(axis=0) for group in groups],
        [np.atleast_2d(np.cov(group, rowvar=False)) for group in groups],
    )


def _jumps(
    coordinates: Coordinates,
    centres: Sequence[Float[np.ndarray, " d"]],
    covariances: Sequence[Float[np.ndarray, "d d"]],
) -> Jumps | None:
    """Between u of the modes, with the covariances of u at each."""
    if len(centres) < 2 or not np.isfinite(covariances).all():
        return None
    values, vectors = np.linalg.eigh(covariances)
    if not values.min() > 0.0:
        return None
    sds, basis = np.sqrt(values), np.asarray(coordinates.basis, np.float64)
    root, inverse = (
        np.einsum("mij,mj,mkj->mik", vectors, scale, vectors) for scale in (sds, 1.0 / sds)
    )
    arrays = np.stack(centres), root, inverse, np.log(sds).sum(axis=1), basis.T @ basis
    return Jumps(*(on_device(array, coordinates.basis.dtype) for array in arrays))
