"""Has the position the law exp(-U / T) under exp(-H / T)? By the integral over the others.

Of log of the integral of exp(-g / T) over the other variables r, the slope in the position x is
-E[dg/dx] / T, in the law exp(-g / T) of r at x. Where `auxiliary` does not draw from that law,
importance sampling does, about its mode: half a Gaussian, half Student's t, so that the weights
are those of the better of the two.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.graph import depends_on
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.verify.auxiliary import Verdict
from ergodax.verify.equation import Vector, compiled, first_of

LENGTHS = (0.0, *(2.0**-k for k in range(12)))  # of a step of Newton's method that are tried
STEPS = 40  # of Newton's method
FREEDOM = 5  # degrees of freedom of Student's t
EFFECTIVE = 0.05  # draws of each that are drawn, at least, or nothing is said
CONSTANT = 1e-6  # change of g / T over one sd of the position that is rounding


def alone(recipe: Recipe, positions: PyTree, temperature: float) -> Verdict | None:
    """Of a recipe without other variables: its energy has to be constant.

    Args:
        recipe: what has the energy.
        positions: with a leading axis.
        temperature: T.
    """
    energy = lambda x: recipe.energy({"position": x}) / temperature  # noqa: E731
    if not depends_on(energy, first_of(positions)):
        return None
    slopes = compiled(lambda x: jax.lax.map(jax.grad(energy), x))(positions)
    sizes = jax.tree.map(lambda s, x: np.max(np.abs(s)) * (np.std(x) or 1.0), slopes, positions)
    if max(map(float, jax.tree.leaves(sizes))) <= CONSTANT:
        return None
    t = "" if temperature == 1.0 else "/T"
    return Verdict(
        False,
        "there is none, and the energy depends on the position: the position does NOT follow "
        f"exp(-U{t}), but exp(-(U + energy){t}). What belongs to the position belongs in U",
    )


def weighted_pulls(
    recipe: Recipe,
    positions: PyTree,
    first: Variables,
    temperature: float,
    key: PRNGKeyArray,
    count: int,
) -> Float[np.ndarray, "n m q"] | None:
    """Terms whose mean is E[dg/dx] at each position, but for a factor; None where they fail.

    Args:
        recipe: what has the energy g.
        positions: with a leading axis.
        first: where to begin to look for the modes, with a leading axis.
        temperature: T.
        key: for the draws.
        count: how many at each position.
    """
    unravel_x, unravel_r = (tree.ravel(first_of(z))[1] for z in (positions, first))
    x, r = (jax.vmap(lambda z: tree.ravel(z)[0])(z) for z in (positions, first))

    def energy(x: Vector, r: Vector) -> Float[Array, ""]:
        return recipe.energy({"position": unravel_x(x), **unravel_r(r)}) / temperature

    def at(key: PRNGKeyArray, x: Vector, r: Vector) -> tuple[Array, Array]:
        mode, root = _fitted(lambda r: energy(x, r), r)
        drawn, log_density = _drawn(key, count, r)
        values = jax.vmap(lambda e: energy(x, mode + root @ e))(drawn)
        weight = jnp.exp(energy(x, mode) - values - log_density)
        weight = jnp.where(values == jnp.inf, 0.0, weight)  # beyond the ends of the domain
        pull = jax.vmap(lambda e: jax.grad(energy)(x, mode + root @ e))(drawn)
        return weight, jnp.where(weight[:, None] > 0, pull, 0.0)

    keys = jax.random.split(key, len(x))
    weight, pull = map(np.asarray, compiled(jax.vmap(at))(keys, x, r))
    with np.errstate(all="ignore"):
        effective = weight.mean(axis=1) ** 2 / (weight**2).mean(axis=1)
    found = np.all(effective >= EFFECTIVE) and np.all(np.isfinite(pull))
    return weight[..., None] * pull if found else None


def _fitted(
    energy: Callable[[Vector], Float[Array, ""]], start: Vector
) -> tuple[Vector, Float[Array, "p p"]]:
    """A minimum, by Newton's method, and a root of the inverse of the curvature there."""

    def curved(r: Vector) -> tuple[Vector, Float[Array, "p p"]]:
        values, vectors = jnp.linalg.eigh(jax.hessian(energy)(r))
        size = jnp.abs(values)
        return jnp.maximum(size, 1e-8 * jnp.max(size) + 1e-300), vectors

    def step(r: Vector, _: None) -> tuple[Vector, None]:
        size, vectors = curved(r)
        move = vectors @ ((vectors.T @ jax.grad(energy)(r)) / size)
        tried = r[None] - jnp.array(LENGTHS)[:, None] * move[None]
        values = jax.vmap(energy)(tried)
        return tried[jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values))], None

    mode = jax.lax.scan(step, start, None, length=STEPS)[0]
    size, vectors = curved(mode)
    return mode, vectors / jnp.sqrt(size)[None]


def _drawn(
    key: PRNGKeyArray, count: int, like: Vector
) -> tuple[Float[Array, "m p"], Float[Array, " m"]]:
    """Half N(0, I), half Student's t, and the log density over that of N(0, I) at 0."""
    key_normal, key_scale = jax.random.split(key)
    d, heavy = like.size, jnp.arange(count) % 2 == 1
    normal = jax.random.normal(key_normal, (count, d), like.dtype)
    square = jnp.mean(jax.random.normal(key_scale, (count, FREEDOM), like.dtype) ** 2, axis=1)
    drawn = normal / jnp.where(heavy, jnp.sqrt(square), 1.0)[:, None]
    square = jnp.sum(drawn**2, axis=1)
    top = gammaln(0.5 * (FREEDOM + d)) - gammaln(0.5 * FREEDOM) + 0.5 * d * jnp.log(2.0 / FREEDOM)
    student = top - 0.5 * (FREEDOM + d) * jnp.log1p(square / FREEDOM)
    return drawn, jnp.logaddexp(-0.5 * square, student) - jnp.log(2.0)
