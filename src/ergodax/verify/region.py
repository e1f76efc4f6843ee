"""Where an equation is looked at: draws, and points where the density is low but not negligible."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, PRNGKeyArray

from ergodax.checks import legible
from ergodax.verify.equation import Vector, compiled

Points = Float[Array, "n d"]
Rays = Float[Array, "rays d"]

NUM_DRAWN = 40
NUM_TAILS = 24  # at least, and two for each coordinate and eight more
MASSES = (1e-4, 1e-3)  # of a Gaussian, beyond the levels that rays go to
REACH = 64.0  # sd, where a density that does not fall is given up
NAMED = 6  # coordinates whose range is told


def num_tails(dimension: int) -> int:
    """How many points lie in the tails."""
    return max(NUM_TAILS, 2 * dimension + 8)


def fall(dimension: int) -> float:
    """How far log pi is below its peak where a Gaussian has but MASSES[0] of its mass beyond."""
    return float(0.5 * scipy.stats.chi2.isf(MASSES[0], dimension))


def tails(energy: Callable[[Vector], Array], drawn: Points, key: PRNGKeyArray) -> Rays:
    """Points on rays from the points drawn, along the axes and at random, out to given levels.

    Args:
        energy: -log pi, but for a constant.
        drawn: points about where pi has its mass.
        key: for the directions that are random.
    """
    n, d = drawn.shape
    count = num_tails(d)
    spread = jnp.std(drawn, axis=0)
    spread = jnp.where(spread > 0, spread, 1.0)
    start = drawn[jnp.arange(count) % n]
    turn = np.arange(count) % (2 * d + 8)  # up and down every axis, then eight at random
    axes = np.eye(d)[turn // 2 % d] * np.where(turn % 2, -1.0, 1.0)[:, None]
    loose = jax.random.normal(key, (count, d), drawn.dtype)
    directions = spread[None] * jnp.where((turn < 2 * d)[:, None], axes, loose)
    drop = 0.5 * scipy.stats.chi2.isf(np.resize(MASSES, count), d)

    @compiled
    def walk(drawn: Points, start: Rays, directions: Rays) -> Rays:
        energies = jax.vmap(energy)(drawn)
        # Of a Gaussian the mean of -log pi lies d / 2 above its least value.
        peak = jnp.minimum(jnp.min(energies), jnp.median(energies) - 0.5 * d)
        level = jnp.maximum(peak + drop, jax.vmap(energy)(start) + 1.0)

        def inside(radius: Array) -> Array:
            return jax.vmap(energy)(start + radius[:, None] * directions) < level

        def double(_: Any, carry: Any) -> Any:
            radius, growing = carry
            growing = growing & inside(2.0 * radius) & (radius < REACH)
            return jnp.where(growing, 2.0 * radius, radius), growing

        def bisect(_: Any, bounds: Any) -> Any:
            low, high = bounds
            middle = 0.5 * (low + high)
            within = inside(middle)
            return jnp.where(within, middle, low), jnp.where(within, high, middle)

        first = jnp.full(count, 2.0**-10, drawn.dtype)
        low, growing = jax.lax.fori_loop(0, 17, double, (first, jnp.full(count, True)))
        low, _ = jax.lax.fori_loop(0, 12, bisect, (low, 2.0 * low))
        return start + jnp.where(growing, 4.0, low)[:, None] * directions

    return walk(drawn, start, directions)


def in_words(points: np.ndarray, names: list[str], num_drawn: int | None) -> str:
    """Which region the points cover.

    Args:
        points: all of them, shape (n, d).
        names: of the coordinates.
        num_drawn: how many were drawn, the rest being tails; None where all were given.
    """
    ranges = [
        f"{legible(name)} in [{low:.3g}, {high:.3g}]"
        for name, low, high in zip(names, points.min(axis=0), points.max(axis=0), strict=True)
    ]
    more = ", ..." if len(ranges) > NAMED else ""
    where = ", ".join(ranges[:NAMED]) + more
    n, d = points.shape
    if num_drawn is None:
        return f"the {n} points given, and nothing beyond them: {where}"
    return (
        f"{num_drawn} points drawn and {n - num_drawn} on rays, out to where the density is "
        f"e^-{fall(d):.3g} of its peak (a Gaussian has {MASSES[0]:g} of its mass beyond): {where}"
    )
