"""Densities that stop: truncated, bounded, NaN beyond an edge, the mode at the wall."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array
from scipy import stats
from scipy.special import digamma, polygamma

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows
from benchmarks.strangers.reference import Reference, exact, of_two

EDGE = r"edge|wall|bound|support|truncat|outside|constrain"


def truncated_mean(num_rows: int, seed: int) -> Problem:
    """The mean of normal rows that must be positive; the data say that it is a little below 0."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(num_rows)
    x = rows(x - x.mean() - 1.0 / np.sqrt(num_rows))

    def log_prior(u: Array) -> Array:
        return jnp.where(u > 0.0, 0.0, -jnp.inf)

    def log_likelihood(u: Array, x: Array) -> Array:
        return -0.5 * (x - u) ** 2

    middle, sd = float(np.asarray(x, np.float64).mean()), num_rows**-0.5
    law = stats.truncnorm(-middle / sd, np.inf, middle, sd)
    answer = exact(np.array([law.mean()]), np.array([law.std()]))
    return Problem(ex.Posterior(log_prior, log_likelihood, x), jnp.ones(()), answer)


@case("wall", "a mean that must be positive, mode at the wall, 300 rows", causes=EDGE)
def wall() -> Problem:
    return truncated_mean(300, 1)


@case("wall-20000", "the same, 20,000 rows", causes=EDGE)
def wall_20000() -> Problem:
    return truncated_mean(20_000, 2)


@case("positive-weights", "regression with weights >= 0, one at the wall, 1,000 rows", causes=EDGE)
def positive_weights() -> Problem:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1_000, 3)) + rng.standard_normal((1_000, 1))
    y = x @ [0.0, 0.05, 0.5] + rng.standard_normal(1_000)
    x, y = rows(x, y)

    def log_prior(w: Array) -> Array:
        return jnp.where(jnp.all(w > 0.0), 0.0, -jnp.inf)

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, x @ w)

    def compute() -> Reference:
        return positive_normal(*(np.asarray(a, np.float64) for a in (x.T @ x, x.T @ y)))

    return Problem(
        ex.Posterior(log_prior, log_likelihood, (x, y)), jnp.full(3, 0.1), compute=compute
    )


def positive_normal(gram: np.ndarray, slope: np.ndarray) -> Reference:
    """Moments of exp(-w gram w / 2 + slope w) on w > 0, by Gauss-Legendre in three dimensions."""
    found = []
    centre, sd = np.linalg.solve(gram, slope), np.sqrt(np.diag(np.linalg.inv(gram)))
    for points in (80, 60):
        nodes, weights = np.polynomial.legendre.leggauss(points)
        low, high = np.maximum(0.0, centre - 9.0 * sd), np.maximum(9.0 * sd, centre + 9.0 * sd)
        axes = [a + (b - a) * (nodes + 1.0) / 2.0 for a, b in zip(low, high, strict=True)]
        w = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
        log = w @ slope - 0.5 * np.einsum("...i,ij,...j->...", w, gram, w)
        mass = np.exp(log - log.max()) * np.einsum("i,j,k->ijk", weights, weights, weights)
        mass /= mass.sum()
        mean = np.einsum("ijk,ijkl->l", mass, w)
        found.append((mean, np.sqrt(np.einsum("ijk,ijkl->l", mass, (w - mean) ** 2))))
    return of_two(found[0], found[1], "Gauss-Legendre, 80^3 points")


@case("uniform-theta", "rows of U(0, theta): the mode is the largest row", causes=EDGE)
def uniform_theta() -> Problem:
    rng = np.random.default_rng(4)
    x = rows(rng.uniform(0.0, 3.0, 50))

    def log_prior(theta: Array) -> Array:
        return jnp.where(theta > 0.0, -jnp.log(theta), -jnp.inf)

    def log_likelihood(theta: Array, x: Array) -> Array:
        return jnp.where(x < theta, -jnp.log(theta), -jnp.inf)

    # A Pareto distribution with exponent 50 from the largest row on.
    law = stats.pareto(50.0, scale=float(x.max()))
    answer = exact(np.array([law.mean()]), np.array([law.std()]))
    return Problem(ex.Posterior(log_prior, log_likelihood, x), jnp.asarray(5.0), answer)


@case("gammas", "independent gammas of shape 1.2 to 5: the logarithm is NaN below 0", causes=EDGE)
def gammas() -> Problem:
    shape = np.array([1.2, 2.0, 3.0, 5.0])
    target = ex.Target(lambda x: jnp.sum(x - (shape - 1.0) * jnp.log(x)))
    return Problem(target, jnp.ones(4), exact(shape, np.sqrt(shape)))


@case("beta-corner", "Beta(.7, 2): infinite density at 0, NaN beyond", causes=EDGE)
def beta_corner() -> Problem:
    law = stats.beta(0.7, 2.0)
    target = ex.Target(lambda x: 0.3 * jnp.log(x) - jnp.log1p(-x))
    answer = exact(np.array([law.mean()]), np.array([law.std()]))
    return Problem(target, jnp.asarray(0.5), answer)


@case("exponential", "exp(-x) on x > 0, d = 5: the slope does not vanish at the mode", causes=EDGE)
def exponential() -> Problem:
    target = ex.Target(lambda x: jnp.where(jnp.all(x > 0.0), jnp.sum(x), jnp.inf))
    return Problem(target, jnp.ones(5), exact(np.ones(5), np.ones(5)))


@case("box", "uniform on the unit cube, d = 5: no gradient at all", causes=EDGE)
def box() -> Problem:
    inside = lambda x: jnp.all((x > 0.0) & (x < 1.0))  # noqa: E731
    target = ex.Target(lambda x: jnp.where(inside(x), 0.0 * jnp.sum(x), jnp.inf))
    return Problem(target, jnp.full(5, 0.5), exact(np.full(5, 0.5), np.full(5, 12.0**-0.5)))


@case("disc", "a normal cut to the unit disc around (1, 0)", causes=EDGE)
def disc() -> Problem:
    def potential(x: Array) -> Array:
        inside = jnp.sum((x - jnp.array([1.0, 0.0])) ** 2) < 1.0
        return jnp.where(inside, 0.5 * jnp.sum((x / 0.5) ** 2), jnp.inf)

    def compute() -> Reference:
        """In polar coordinates around the disc's centre, where the density is smooth."""
        nodes, weights = np.polynomial.legendre.leggauss(200)
        radius, weights = (nodes + 1.0) / 2.0, weights * (nodes + 1.0) / 2.0
        angle = 2.0 * np.pi * np.arange(400) / 400
        x = 1.0 + radius[:, None] * np.cos(angle)
        y = radius[:, None] * np.sin(angle)
        mass = weights[:, None] * np.exp(-2.0 * (x**2 + y**2))
        mass /= mass.sum()
        mean = np.array([(mass * x).sum(), 0.0])
        second = np.array([(mass * x**2).sum(), (mass * y**2).sum()])
        return Reference(mean, np.sqrt(second - mean**2), how="quadrature in polar coordinates")

    return Problem(ex.Target(potential), jnp.array([0.5, 0.0]), compute=compute)


@case("rate-log-nan", "waiting times with rate a + b x, NaN where it is negative", causes=EDGE)
def rate_log_nan() -> Problem:
    rng = np.random.default_rng(5)
    x = rng.uniform(0.0, 10.0, 400)
    t, x = rows(rng.exponential(1.0 / (0.02 + 0.3 * x)), x)

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["a"], 0.0, 1.0) + norm.logpdf(p["b"], 0.0, 1.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        t, x = row
        rate = p["a"] + p["b"] * x
        return jnp.log(rate) - rate * t

    target = ex.Posterior(log_prior, log_likelihood, (t, x))
    start = {"a": jnp.ones(()), "b": jnp.ones(())}
    # The edge a + b min(x) = 0 is crossed by a change of variables: a = exp(c) - b min(x).
    least = float(np.min(x))

    def potential(p: Any) -> Array:
        there = {"a": jnp.exp(p["a"]) - p["b"] * least, "b": p["b"]}
        return target.potential(there) - p["a"]

    def compute() -> Reference:
        return _rate_reference(potential, least)

    return Problem(target, start, compute=compute)


def _rate_reference(potential: Any, least: float) -> Reference:
    """Means and sds of a = exp(c) - b least and b, on a grid of c and b."""
    found = []
    for points in (401, 201):
        c, b = np.meshgrid(
            np.linspace(-25, 1, points), np.linspace(0.2, 0.45, points), indexing="ij"
        )
        flat = {"a": jnp.asarray(c.ravel()), "b": jnp.asarray(b.ravel())}
        energy = np.asarray(jax.jit(lambda p: jax.lax.map(potential, p))(flat))
        mass = np.exp(energy.min() - energy)
        mass /= mass.sum()
        values = np.stack([np.exp(c.ravel()) - b.ravel() * least, b.ravel()])
        mean = values @ mass
        found.append((mean, np.sqrt((values - mean[:, None]) ** 2 @ mass)))
    how = "quadrature on 401 x 401 points, the edge moved to infinity"
    return of_two(found[0], found[1], how)


@case("correlated-octant", "a normal with correlation .9 cut to x, y > 0", causes=EDGE)
def correlated_octant() -> Problem:
    precision = np.linalg.inv(np.array([[1.0, 0.9, 0.9], [0.9, 1.0, 0.9], [0.9, 0.9, 1.0]]))
    matrix = jnp.asarray(precision, dtype=float)

    def potential(x: Array) -> Array:
        return jnp.where(jnp.all(x > 0.0), 0.5 * x @ matrix @ x, jnp.inf)

    return Problem(
        ex.Target(potential),
        jnp.ones(3),
        compute=lambda: positive_normal(precision, np.zeros(3)),
    )


@case("logarithms", "the logarithms of gammas of shape 0.2 to 5: a stranger who did it right")
def logarithms() -> Problem:
    shape = np.array([0.2, 1.2, 2.0, 5.0])
    target = ex.Target(lambda x: jnp.sum(jnp.exp(x) - shape * x))
    answer = exact(digamma(shape), np.sqrt(polygamma(1, shape)))
    return Problem(target, jnp.zeros(4), answer)
