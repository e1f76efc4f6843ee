"""Functions of a draw and its gradient whose mean is 0, and how much of each to subtract."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

NEGLIGIBLE = 1e-10  # an eigenvalue of the features' correlation matrix


class Data(NamedTuple):
    """What coefficients are fitted on, a row for each draw.

    Attributes:
        x: the draws.
        slope: grad U / T there, exact or unbiased.
        values: of the functionals.
        batch: the number of the stretch of a chain that the row is in, ascending.
    """

    x: Float[np.ndarray, "n d"]
    slope: Float[np.ndarray, "n d"]
    values: Float[np.ndarray, "n k"]
    batch: Int[np.ndarray, " n"]

    def rows(self, keep: np.ndarray) -> "Data":
        """Some of the rows."""
        return Data(*(each[keep] for each in self))


class Basis(NamedTuple):
    """The control variates, made with the mean and covariance of draws.

    With z = x - centre and p = Sigma grad U / T they are p_i and, of the second order,
    Sigma_ij - (z_i p_j + z_j p_i) / 2: T div v - v . grad U, of mean 0 under exp(-U / T), for the
    fields v = Sigma_i / T and z_i Sigma_j / T, up to the sign. On a Gaussian p = z.

    Attributes:
        centre: the mean.
        covariance: Sigma, (d, d) or its diagonal (d,).
        order: 1 or 2.
        cross: whether there are pairs i < j.
    """

    centre: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "..."]
    order: int
    cross: bool

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], order: int, *, cross: bool, diagonal: bool) -> "Basis":
        """From the moments of draws."""
        spread = x.var(axis=0) if diagonal else np.cov(x, rowvar=False, ddof=0)
        return cls(x.mean(axis=0), spread if diagonal else np.atleast_2d(spread), order, cross)

    def controls(self, data: Data) -> Float[np.ndarray, "n m"]:
        """The control variates at the draws."""
        spread = self.covariance
        p = data.slope * spread if spread.ndim == 1 else data.slope @ spread
        return self._polynomials(data.x - self.centre, p)

    def surrogates(self, data: Data) -> Float[np.ndarray, "n m"]:
        """What they would be on a Gaussian with this mean and covariance: no gradient, no noise."""
        z = data.x - self.centre
        return self._polynomials(z, z)

    def _polynomials(
        self, z: Float[np.ndarray, "n d"], p: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n m"]:
        if self.order == 1:
            return p
        d, spread = z.shape[1], self.covariance
        i, j = np.triu_indices(d) if self.cross else (np.arange(d), np.arange(d))
        entries = np.where(i == j, spread[i], 0.0) if spread.ndim == 1 else spread[i, j]
        return np.concatenate([p, entries - 0.5 * (z[:, i] * p[:, j] + z[:, j] * p[:, i])], axis=1)


def fit(data: Data, basis: Basis) -> Float[np.ndarray, "m k"]:
    """How much of each control variate to subtract from each functional.

    Two candidates. The regression on the control variates is the best of exact gradients; gradient
    noise attenuates it. The regression on the surrogates has no noise in it and is exact on a
    Gaussian; it is shrunk by a factor in [0, 1]. For each functional the one is taken, and the
    factor, that leaves the least variance in the means of stretches of a chain: noise is fresh at
    each draw, so it counts for less in these than in a single draw.

    Args:
        data: not the draws that are to be corrected.
        basis: the control variates.
    """
    controls = basis.controls(data)
    sums = _batch_sums(data.values, data.batch)
    direct = _least_squares(controls, data.values)
    clean = _least_squares(basis.surrogates(data), data.values)
    moved = _batch_sums(controls @ clean, data.batch)
    size = np.sum(moved**2, axis=0)
    share = np.clip(np.sum(moved * sums, axis=0) / np.where(size > 0, size, 1.0), 0.0, 1.0)
    left = np.sum((sums - share * moved) ** 2, axis=0)
    left_direct = np.sum((sums - _batch_sums(controls @ direct, data.batch)) ** 2, axis=0)
    return np.where(left < left_direct, share * clean, direct)


def _least_squares(
    features: Float[np.ndarray, "n m"], values: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "m k"]:
    """The regression of the values, directions without variance left out."""
    scale = features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    features = (features - features.mean(axis=0)) / scale
    size, vectors = np.linalg.eigh(features.T @ features)
    kept = size > NEGLIGIBLE * size.max()
    inverse = np.where(kept, 1.0 / np.where(kept, size, 1.0), 0.0)
    moments = features.T @ (values - values.mean(axis=0))
    return (vectors * inverse) @ (vectors.T @ moments) / scale[:, None]


def _batch_sums(
    values: Float[np.ndarray, "n k"], batch: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "b k"]:
    """Sums of the deviations from the mean over each stretch."""
    starts = np.flatnonzero(np.diff(batch, prepend=-1))
    return np.add.reduceat(values - values.mean(axis=0), starts, axis=0)
