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
    """Refuse what would take too long.

    Raises:
        ValueError: more variables than LARGEST.
    """
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

    def terms(y: Vector) -> Float[Array, "3 d"]:
        pull = equation.diffusion(y, equation.force(y))
        spread = -equation.temperature * divergence(equation.diffusion, y)
        return jnp.stack([equation.drift(y), spread, pull])

    def along(direction: Vector) -> tuple[Float[Array, "3 d"], Float[Array, "3 d"]]:
        return jax.jvp(terms, (z,), (direction,))

    return jax.vmap(along, out_axes=(None, 0))(jnp.eye(z.size, dtype=z.dtype))


def _residual(values: Float[Array, "3 d"], slopes: Float[Array, "d 3 d"], pull: Vector) -> Residual:
    own = jnp.einsum("iki->ki", slopes)
    parts = jnp.stack([own, -values * pull[None]])
    return Residual(
        value=jnp.sum(parts),
        scale=jnp.sum(jnp.abs(parts)),
        current=jnp.linalg.norm(jnp.sum(values, axis=0)),
        flow=jnp.linalg.norm(values[0]) + jnp.linalg.norm(values[2]),
    )


class Look(NamedTuple):
    """What is seen at each point: the residual, and values with their slopes along a direction.

    Where they are not known, Q and the Gamma used are zero, and `root` is D itself.
    """

    residual: Residual
    energy: tuple[Float[Any, "*n"], Float[Any, "*n"]]
    diffusion: tuple[Float[Any, "*n d d"], Float[Any, "*n d d"]]
    curl: tuple[Float[Any, "*n d d"], Float[Any, "*n d d"]]
    field: tuple[Float[Any, "*n d"], Float[Any, "*n d"]]  # g
    root: Float[Any, "*n d d"]
    gamma: Float[Any, "*n 3 d"]  # T div D, T div Q and the T Gamma that is used


Lookout = Callable[[Float[Array, "n d"], Float[Array, "n d"]], Look]


def lookout(
    equation: Equation,
    curl: Product | None = None,
    root: Product | None = None,
    gamma: Drift | None = None,
) -> Lookout:
    """A compiled program that looks at points, along a direction each."""
    spread, t = equation.diffusion, equation.temperature
    turn: Product = curl or (lambda z, v: jnp.zeros_like(v))

    def at(pair: tuple[Vector, Vector]) -> Look:
        z, u = pair

        def along(function: Callable[[Vector], Array]) -> tuple[Array, Array]:
            return jax.jvp(function, (z,), (u,))

        values, slopes = _terms(equation, z)
        used = jnp.zeros_like(z) if gamma is None else gamma(z)
        corrections = [t * divergence(product, z) for product in (spread, turn)]
        return Look(
            residual=_residual(values, slopes, equation.force(z) / t),
            energy=along(equation.energy),
            diffusion=along(lambda y: matrix(spread, y)),
            curl=along(lambda y: matrix(turn, y)),
            field=(jnp.sum(values, axis=0), jnp.einsum("i,ikj->j", u, slopes)),
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
