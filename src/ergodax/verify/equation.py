"""A stochastic differential equation and a density, as functions of one flat vector.

dz = f dt + sqrt(2 T D) dW leaves exp(-H / T) invariant if and only if the residual
    R = div g - g . grad H / T,        g = f - T div D + D grad H,
is zero everywhere: exp(-H / T) g is the probability current and R its divergence, both over the
density. The dynamics is reversible if and only if g itself is zero.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

Vector = Float[Array, " d"]
Drift = Callable[[Vector], Vector]
Product = Callable[[Vector, Vector], Vector]  # (z, v) -> A(z) v

# Derivatives of derivatives make large programs for a few points: compiling is most of the time.
IN_HASTE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
LARGEST = 256  # variables; the residual costs d^2 products with D
ROUNDS = 400


def check_size(size: int) -> None:
    """Refuse what would take too long, and what is nothing.

    Raises:
        ValueError: more variables than LARGEST, or none.
    """
    if size < 1:
        raise ValueError("the state has no numbers, so that there is nothing to verify.")
    if size > LARGEST:
        raise ValueError(
            f"the state has {size} numbers, and the residual is exact only up to {LARGEST}. The "
            "recipe is the same in fewer dimensions: verify it there."
        )


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that will be called once, without what makes it fast to run."""
    return jax.jit(function, compiler_options=IN_HASTE)


class Equation(NamedTuple):
    """Drift f, diffusion D as products D(z) v, energy H and temperature T."""

    drift: Drift
    diffusion: Product
    energy: Callable[[Vector], Float[Array, ""]]
    temperature: float = 1.0

    def force(self, z: Vector) -> Vector:
        """grad H."""
        return jax.grad(self.energy)(z)


def divergence(product: Product, z: Vector) -> Vector:
    """sum over j of d A_ij / d z_j, exactly."""

    def column(direction: Vector) -> Vector:
        return jax.jvp(lambda y: product(y, direction), (z,), (direction,))[1]

    return jnp.sum(jax.vmap(column)(jnp.eye(z.size, dtype=z.dtype)), axis=0)


class Residual(NamedTuple):
    """R and the norm of g at a point or many, and the sizes of the terms that cancel in them.

    Arrays of JAX inside a program, of NumPy outside.
    """

    value: Float[Any, "*n"]
    scale: Float[Any, "*n"]
    current: Float[Any, "*n"]
    flow: Float[Any, "*n"]


def residual_at(equation: Equation, z: Vector) -> Residual:
    """R at one point, with the sizes to judge it by."""
    return _residual(*_terms(equation, z), equation.force(z) / equation.temperature)


def _terms(equation: Equation, z: Vector) -> tuple[Float[Array, "3 d"], Float[Array, "d 3 d"]]:
    """The three terms of g, and their slopes along each coordinate."""

    def along(direction: Vector) -> tuple[Float[Array, "3 d"], Float[Array, "3 d"]]:
        return jax.jvp(lambda y: _parts(equation, y), (z,), (direction,))

    return jax.vmap(along, out_axes=(None, 0))(jnp.eye(z.size, dtype=z.dtype))


def _parts(equation: Equation, z: Vector) -> Float[Array, "3 d"]:
    pull = equation.diffusion(z, equation.force(z))
    spread = -equation.temperature * divergence(equation.diffusion, z)
    return jnp.stack([equation.drift(z), spread, pull])


def _residual(values: Float[Array, "3 d"], slopes: Float[Array, "d 3 d"], pull: Vector) -> Residual:
    own = jnp.einsum("iki->ki", slopes)
    parts = jnp.stack([own, -values * pull[None]])
    return Residual(
        value=jnp.sum(parts),
        scale=jnp.sum(jnp.abs(parts)),
        current=jnp.linalg.norm(jnp.sum(values, axis=0)),
        flow=jnp.linalg.norm(values[0]) + jnp.linalg.norm(values[2]),
    )


class Glance(NamedTuple):
    """Values at each point, with their slopes along a direction; Q is zero where it isn't known."""

    energy: tuple[Float[Any, "*n"], Float[Any, "*n"]]
    diffusion: tuple[Float[Any, "*n d d"], Float[Any, "*n d d"]]
    curl: tuple[Float[Any, "*n d d"], Float[Any, "*n d d"]]
    field: tuple[Float[Any, "*n d"], Float[Any, "*n d"]]  # g
    flow: Float[Any, "*n"]  # the size of g's terms


class Look(NamedTuple):
    """What is seen at each point: the residual, and values with their slopes along a direction.

    Where they are not known, the Gamma used is zero, and `root` is D itself.
    """

    residual: Residual
    glance: Glance
    root: Float[Any, "*n d d"]
    gamma: Float[Any, "*n 3 d"]  # T div D, T div Q and the T Gamma that is used


Glancing = Callable[[Float[Array, "n d"], Float[Array, "n d"]], Glance]
Lookout = Callable[[Float[Array, "n d"], Float[Array, "n d"]], Look]


def _no_curl(z: Vector, v: Vector) -> Vector:
    return jnp.zeros_like(v)


def _glance(
    equation: Equation,
    turn: Product,
    pair: tuple[Vector, Vector],
    values: Float[Array, "3 d"],
    slopes: Float[Array, "3 d"],
) -> Glance:
    """At one point, where the terms of g and their slopes along the direction are known."""
    z, u = pair

    def along(function: Callable[[Vector], Array]) -> tuple[Array, Array]:
        return jax.jvp(function, (z,), (u,))

    return Glance(
        energy=along(equation.energy),
        diffusion=along(lambda y: matrix(equation.diffusion, y)),
        curl=along(lambda y: matrix(turn, y)),
        field=(jnp.sum(values, axis=0), jnp.sum(slopes, axis=0)),
        flow=jnp.linalg.norm(values[0]) + jnp.linalg.norm(values[2]),
    )


def glancing(equation: Equation, curl: Product | None = None) -> Glancing:
    """A compiled program for values and slopes alone: d times as fast as a whole look."""

    def at(pair: tuple[Vector, Vector]) -> Glance:
        z, u = pair
        values, slopes = jax.jvp(lambda y: _parts(equation, y), (z,), (u,))
        return _glance(equation, curl or _no_curl, pair, values, slopes)

    return compiled(lambda points, directions: jax.lax.map(at, (points, directions)))


def lookout(
    equation: Equation,
    curl: Product | None = None,
    root: Product | None = None,
    gamma: Drift | None = None,
) -> Lookout:
    """A compiled program that looks at points, along a direction each."""
    spread, t, turn = equation.diffusion, equation.temperature, curl or _no_curl

    def at(pair: tuple[Vector, Vector]) -> Look:
        z, u = pair
        values, slopes = _terms(equation, z)
        used = jnp.zeros_like(z) if gamma is None else gamma(z)
        corrections = [t * divergence(product, z) for product in (spread, turn)]
        return Look(
            residual=_residual(values, slopes, equation.force(z) / t),
            glance=_glance(equation, turn, pair, values, jnp.einsum("i,ikj->kj", u, slopes)),
            root=matrix(root or spread, z),
            gamma=jnp.stack([*corrections, used]),
        )

    return compiled(lambda points, directions: jax.lax.map(at, (points, directions)))


def double(z: PyTree) -> PyTree:
    """The same tree in double precision, where that is enabled."""
    return jax.tree.map(lambda x: jnp.asarray(x, float), z)


def matrix(product: Product, z: Vector) -> Float[Array, "d d"]:
    """A(z)."""
    columns = jax.vmap(product, in_axes=(None, 0), out_axes=1)
    return columns(z, jnp.eye(z.size, dtype=z.dtype))


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
    """Points about where exp(-energy) has its mass; they need not follow it exactly.

    A population of walkers, which start one unit about `start`, proposes differences of its own
    members, so that no scale has to be known.
    """
    d = start.size
    population = max(num_points, 2 * d + 8)
    value = jax.vmap(energy)
    key_start, key_walk = jax.random.split(key)
    z = start[None] + jax.random.normal(key_start, (population, d), start.dtype)

    def move(carry: tuple[Any, ...], key: PRNGKeyArray) -> tuple[Any, ...]:
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
