"""Where to evaluate a residual: points of the density, drawn without tuning."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.verify.equation import compiled

ROUNDS = 400


def first_of(points: PyTree) -> PyTree:
    """The first of points that have a leading axis.

    Raises:
        ValueError: they have none, or not the same in every leaf.
    """
    shapes = [x.shape for x in jax.tree.leaves(points)]
    if len({shape[:1] for shape in shapes}) != 1 or 0 in shapes[0][:1] or shapes[0] == ():
        raise ValueError(
            "points must have a leading axis over one point or more, the same in every leaf, not "
            f"the shapes {shapes}. For a single point x try x[None]."
        )
    return jax.tree.map(lambda x: x[0], points)


def draw_points(
    energy: Callable[[Float[Array, " d"]], Float[Array, ""]],
    start: Float[Array, " d"],
    num_points: int,
    key: PRNGKeyArray,
) -> Float[Array, "n d"]:
    """Points about where exp(-energy) has its mass.

    A population of walkers proposes differences of its own members, so that no scale has to be
    known. The points need not follow the density exactly: an identity is tested at each.

    Args:
        energy: of a flat vector.
        start: the walkers start around it, one unit wide.
        num_points: how many.
        key: for the walk.
    """
    d = start.size
    population = max(num_points, 2 * d + 8)
    value = jax.vmap(energy)
    key_start, key_walk = jax.random.split(key)
    z = start[None] + jax.random.normal(key_start, (population, d), start.dtype)

    def move(carry: tuple, key: PRNGKeyArray) -> tuple:
        z, now = carry
        key_shift, key_noise, key_size, key_accept = jax.random.split(key, 4)
        # Two other members each: the population turned by two different distances.
        a, b = jax.random.choice(key_shift, population - 1, (2,), replace=False) + 1
        size = jnp.where(jax.random.bernoulli(key_size, 0.1), 1.0, 2.38 / (2.0 * d) ** 0.5)
        noise = 1e-3 * jax.random.normal(key_noise, z.shape, z.dtype)
        difference = jnp.roll(z, a, axis=0) - jnp.roll(z, b, axis=0)
        new = z + (size.astype(z.dtype) + noise) * difference
        then = value(new)
        threshold = jax.random.exponential(key_accept, now.shape, now.dtype)
        accepted = then - now < threshold  # False for NaN
        return (
            jnp.where(accepted[:, None], new, z),
            jnp.where(accepted, then, now),
        ), None

    @compiled
    def walk(z: Array) -> Array:
        keys = jax.random.split(key_walk, ROUNDS)
        first = jnp.nan_to_num(value(z), nan=jnp.inf)
        return jax.lax.scan(move, (z, first), keys)[0][0]

    return walk(z)[:num_points]
