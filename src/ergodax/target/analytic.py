"""Targets whose moments are known exactly and that can be sampled exactly.

Tests, documentation and benchmarks measure the samplers against these. A position is a
vector of shape (d,); `sample(key, n)` returns independent exact draws of shape (n, d).
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.checks import Numbers, real_array, real_number, whole_number
from ergodax.target.base import AbstractTarget

MOST_DIMENSIONS = 2**14  # whose covariance, a matrix, is kept: 1 GiB in single precision


class AnalyticTarget(AbstractTarget):
    """A target with exact `mean`, `covariance` and `sample(key, n)`."""

    mean: eqx.AbstractVar[Float[Array, " d"]]
    covariance: eqx.AbstractVar[Float[Array, "d d"]]

    def like(self, position: Float[Array, "..."]) -> Any:
        """The same target with its numbers in the position's dtype."""
        return jax.tree.map(lambda x: x.astype(position.dtype), self)

    def check(self, position: PyTree) -> None:
        """Fail where the position is not one array, or the potential can't be evaluated there.

        Raises:
            TypeError: it is a dict, a tuple or another tree.
            ValueError: it is of another shape.
        """
        if not hasattr(position, "dtype"):
            raise TypeError(
                f"a position of {type(self).__name__} must be one array of shape "
                f"{self.mean.shape}, not a {type(position).__name__}. Try jnp.zeros"
                f"({self.mean.size})."
            )
        super().check(position)

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n independent exact draws."""

    @abc.abstractmethod
    def tempered(self, temperature: float) -> "AnalyticTarget":
        """The target with potential U / temperature; ValueError where its family has none."""


def _untempered(self: AnalyticTarget, temperature: float) -> AnalyticTarget:
    if _checked(temperature) != 1.0:
        raise ValueError(f"temperature must be 1 for {type(self).__name__}, not {temperature}.")
    return self


def _checked(temperature: float) -> float:
    if not 0.0 < temperature < np.inf:
        raise ValueError(f"temperature must be positive and finite, not {temperature}.")
    return float(temperature)


class Gaussian(AnalyticTarget):
    """N(mean, covariance)."""

    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    precision: Float[Array, "d d"]
    root: Float[Array, "d d"]

    def potential(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """Half the squared Mahalanobis distance from the mean."""
        own = self.like(position)
        offset = jnp.atleast_1d(position) - own.mean
        return 0.5 * offset @ own.precision @ offset

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """mean + L xi with L L^T = covariance."""
        noise = jax.random.normal(key, (n, self.mean.size), self.mean.dtype)
        return self.mean[None] + noise @ self.root.T

    def tempered(self, temperature: float) -> "Gaussian":
        """N(mean, T covariance)."""
        return gaussian(self.mean, _checked(temperature) * np.asarray(self.covariance, float))


class DoubleWell(AnalyticTarget):
    """U = sum over i of height ((x_i / minimum)^2 - 1)^2."""

    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    height: Float[Array, ""]
    minimum: Float[Array, ""]

    def potential(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """Two wells at +-minimum, a barrier of `height` at 0, in each coordinate."""
        own = self.like(position)
        return jnp.sum(own.height * ((position / own.minimum) ** 2 - 1.0) ** 2)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """Rejection from a half normal at the well: (x^2 - 1)^2 >= (|x| - 1)^2."""
        shape = (n, self.mean.size)

        def propose(key: PRNGKeyArray) -> tuple[Array, Array]:
            key_normal, key_sign, key_test = jax.random.split(key, 3)
            width = jnp.sqrt(0.5 / self.height)
            x = 1.0 + width * jax.random.normal(key_normal, shape, self.mean.dtype)
            gap = self.height * ((x**2 - 1.0) ** 2 - (x - 1.0) ** 2)
            keep = (x >= 0) & (jax.random.exponential(key_test, shape, x.dtype) >= gap)
            return x * jax.random.rademacher(key_sign, shape, x.dtype), keep

        def again(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            key, x, done = carry
            key, key_now = jax.random.split(key)
            fresh, keep = propose(key_now)
            return key, jnp.where(done, x, fresh), done | keep

        start = (key, jnp.zeros(shape, self.mean.dtype), jnp.zeros(shape, bool))
        return self.minimum * lax.while_loop(lambda c: ~jnp.all(c[2]), again, start)[1]

    def tempered(self, temperature: float) -> "DoubleWell":
        """The barrier is height / T."""
        barrier = float(self.height) / _checked(temperature)
        return double_well(barrier, float(self.minimum), self.mean.size)


class Banana(AnalyticTarget):
    """U = x1^4 / 10 + (4 (x2 + 1.2) - x1^2)^2 / 2, the correlated target of Ma et al. (2015)."""

    mean: Float[Array, " 2"]
    covariance: Float[Array, "2 2"]

    def potential(self, position: Float[Array, " 2"]) -> Float[Array, ""]:
        """A quartic in x1 and a narrow curved valley in x2."""
        x, y = position[0], position[1]
        return x**4 / 10.0 + 0.5 * (4.0 * (y + 1.2) - x**2) ** 2

    tempered = _untempered

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n 2"]:
        """x1^4 / 10 ~ Gamma(1/4) with a random sign; x2 given x1 is N(x1^2/4 - 1.2, 1/16)."""
        key_size, key_sign, key_y = jax.random.split(key, 3)
        dtype = self.mean.dtype
        size = (10.0 * jax.random.gamma(key_size, 0.25, (n,), dtype)) ** 0.25
        x = size * jax.random.rademacher(key_sign, (n,), dtype)
        y = x**2 / 4.0 - 1.2 + jax.random.normal(key_y, (n,), dtype) / 4.0
        return jnp.stack([x, y], axis=1)


class Funnel(AnalyticTarget):
    """v ~ N(0, scale^2) first, then x_i | v ~ N(0, e^v): Neal's funnel."""

    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    scale: Float[Array, ""]

    def potential(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """v^2 / (2 scale^2) + e^-v |x|^2 / 2 + (d - 1) v / 2."""
        v, x = position[0], position[1:]
        scale = self.like(position).scale
        return 0.5 * (v / scale) ** 2 + 0.5 * jnp.exp(-v) * jnp.sum(x**2) + 0.5 * x.shape[0] * v

    tempered = _untempered

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """v, then x given v."""
        noise = jax.random.normal(key, (n, self.mean.size), self.mean.dtype)
        v = self.scale * noise[:, :1]
        return jnp.concatenate([v, jnp.exp(0.5 * v) * noise[:, 1:]], axis=1)


class Mixture(AnalyticTarget):
    """A mixture of Gaussians."""

    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    weights: Float[Array, " k"]
    means: Float[Array, "k d"]
    precisions: Float[Array, "k d d"]
    roots: Float[Array, "k d d"]

    def potential(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """Minus the log of the weighted sum of densities, up to a constant."""
        own = self.like(position)
        offset = jnp.atleast_1d(position)[None] - own.means
        distance = jnp.einsum("ki,kij,kj->k", offset, own.precisions, offset)
        diagonals = jnp.diagonal(own.roots, axis1=1, axis2=2)
        log_scale = jnp.sum(jnp.log(jnp.abs(diagonals)), axis=1)
        return -jax.nn.logsumexp(jnp.log(own.weights) - 0.5 * distance - log_scale)

    tempered = _untempered

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """A component, then a draw from it."""
        key_component, key_noise = jax.random.split(key)
        k = jax.random.categorical(key_component, jnp.log(self.weights), shape=(n,))
        noise = jax.random.normal(key_noise, (n, self.mean.size), self.mean.dtype)
        return self.means[k] + jnp.einsum("nij,nj->ni", self.roots[k], noise)


def _square(covariance: Numbers, d: int, name: str = "covariance") -> np.ndarray:
    c = real_array(name, covariance, ndim=(0, 1, 2))
    if c.ndim < 2:
        c = np.diag(np.full(d, c) if c.size == 1 else c)
    if c.shape != (d, d):
        raise ValueError(f"{name} must have shape ({d}, {d}) to match mean, not {c.shape}.")
    values = np.linalg.eigvalsh(c) if np.allclose(c, c.T) else np.array([-1.0])
    if values[0] <= values[-1] * np.finfo(float).eps:
        raise ValueError(f"{name} must be symmetric and positive definite.")
    return c


def gaussian(mean: Numbers, covariance: Numbers) -> Gaussian:
    """N(mean, covariance).

    Args:
        mean: shape (d,), or a number.
        covariance: shape (d, d); a vector is taken as a diagonal, a number as a multiple of I.

    Raises:
        ValueError: shapes that disagree, or a covariance that is not positive definite.
    """
    centre = np.atleast_1d(real_array("mean", mean, ndim=(0, 1)))
    c = _square(covariance, centre.size)
    arrays = (centre, c, np.linalg.inv(c), np.linalg.cholesky(c))
    return Gaussian(*(jnp.asarray(a) for a in arrays))


def double_well(height: float = 1.0, minimum: float = 1.0, dimension: int = 1) -> DoubleWell:
    """Independent double wells: U = sum of height ((x / minimum)^2 - 1)^2.

    The defaults give x^4 - 2 x^2 up to a constant; height=0.25 gives (x^2 - 1)^2 / 4.

    Args:
        height: of the barrier at 0, positive.
        minimum: the wells lie at +-minimum, positive.
        dimension: d.

    Raises:
        ValueError: a number that is not positive.
    """
    height = real_number("height", height, at_least=1e-9, below=1e9)
    minimum = real_number("minimum", minimum, at_least=1e-9, below=1e9)
    dimension = whole_number("dimension", dimension, below=MOST_DIMENSIONS)
    density: Callable[[float], float] = lambda x: np.exp(-height * (x * x - 1.0) ** 2)  # noqa: E731
    edge = np.sqrt(1.0 + np.sqrt(60.0 / height))
    mass = scipy.integrate.quad(density, 0, edge, epsabs=0, epsrel=1e-12)[0]
    second = scipy.integrate.quad(lambda x: x * x * density(x), 0, edge, epsabs=0, epsrel=1e-12)[0]
    variance = minimum**2 * second / mass
    return DoubleWell(
        jnp.zeros(dimension),
        jnp.asarray(variance * np.eye(dimension)),
        jnp.asarray(float(height)),
        jnp.asarray(float(minimum)),
    )


def banana() -> Banana:
    """The correlated two-dimensional target of Ma, Chen and Fox (2015), Figure 3."""
    second = np.sqrt(10.0) * scipy.special.gamma(0.75) / scipy.special.gamma(0.25)  # E x1^2
    variance = 1.0 / 16.0 + (2.5 - second**2) / 16.0  # E x1^4 = 5/2
    return Banana(jnp.asarray([0.0, second / 4.0 - 1.2]), jnp.diag(jnp.asarray([second, variance])))


def funnel(dimension: int = 2, scale: float = 3.0) -> Funnel:
    """Neal's funnel: v ~ N(0, scale^2), the other d - 1 coordinates N(0, e^v).

    Args:
        dimension: d, at least 2; the position is (v, x_1, ..., x_{d-1}).
        scale: standard deviation of v.

    Raises:
        ValueError: d below 2, or a scale that is not positive.
    """
    dimension = whole_number("dimension", dimension, at_least=2, below=MOST_DIMENSIONS)
    scale = real_number("scale", scale, above=0.0, below=10.0, hint="Neal's is 3.")
    variances = np.concatenate([[scale**2], np.full(dimension - 1, np.exp(scale**2 / 2.0))])
    return Funnel(jnp.zeros(dimension), jnp.diag(jnp.asarray(variances)), jnp.asarray(float(scale)))


def mixture(means: Numbers, covariances: Numbers, weights: Numbers | None = None) -> Mixture:
    """A mixture of k Gaussians.

    Args:
        means: shape (k, d).
        covariances: shape (k, d, d); a number is taken as that multiple of I for all.
        weights: shape (k,), positive; equal by default; normalised here.

    Raises:
        ValueError: shapes that disagree, weights or covariances that are not positive.
    """
    m = np.atleast_2d(real_array("means", means, ndim=(0, 1, 2)))
    k, d = m.shape
    given = real_array("covariances", covariances, ndim=(0, 1, 2, 3))
    each = list(given) if given.ndim == 3 else [given] * k
    if len(each) != k:
        raise ValueError(f"covariances must have {k} entries to match means, not {len(each)}.")
    c = np.stack([_square(one, d, "each of covariances") for one in each])
    w = np.full(k, 1.0 / k) if weights is None else real_array("weights", weights)
    if w.shape != (k,) or (w <= 0).any():
        raise ValueError(f"weights must be {k} positive numbers.")
    w = w / w.sum()
    mean = w @ m
    total = np.einsum("k,kij->ij", w, c) + np.einsum("k,ki,kj->ij", w, m - mean, m - mean)
    arrays = (mean, total, w, m, np.linalg.inv(c), np.linalg.cholesky(c))
    return Mixture(*map(jnp.asarray, arrays))
