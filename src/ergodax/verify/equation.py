"""A stochastic differential equation and a density, as functions of one flat vector.

dz = f dt + sqrt(2 T D) dW leaves exp(-H / T) invariant if and only if the residual
    R = div g - g . grad H / T,        g = f - T div D + D grad H,
is zero everywhere: exp(-H / T) g is the probability current and R its divergence, both over the
density. The dynamics is reversible if and only if g itself is zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, " d"]
Drift = Callable[[Vector], Vector]
Product = Callable[[Vector, Vector], Vector]  # (z, v) -> A(z) v

# Derivatives of derivatives make large programs for a few points: compiling is most of the time.
IN_HASTE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
LARGEST = 256  # variables; the residual costs d^2 products with D


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


def compiled(function: Callable) -> Callable:
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


def flow_out(equation: Equation, field: Drift, z: Vector) -> Float[Array, ""]:
    """div(pi field) / pi = div field - field . grad H / T: what adding `field` to f adds to R."""

    def along(direction: Vector) -> tuple[Vector, Float[Array, ""]]:
        value, slope = jax.jvp(field, (z,), (direction,))
        return value, jnp.vdot(direction, slope)

    value, slopes = jax.vmap(along, out_axes=(None, 0))(jnp.eye(z.size, dtype=z.dtype))
    return jnp.sum(slopes) - jnp.vdot(value, equation.force(z)) / equation.temperature


class Residual(NamedTuple):
    """What is found at a point, or with a leading axis at many.

    Attributes:
        value: R.
        scale: the size of the terms that cancel where R is zero.
        current: the norm of g.
        flow: the size of the terms that cancel where g is zero.
    """

    value: Float[Array, "*n"]
    scale: Float[Array, "*n"]
    current: Float[Array, "*n"]
    flow: Float[Array, "*n"]


def residual_at(equation: Equation, z: Vector) -> Residual:
    """R at one point, with the sizes to judge it by."""
    t, force = equation.temperature, equation.force(z)

    def terms(y: Vector) -> Float[Array, "3 d"]:
        pull = equation.diffusion(y, equation.force(y))
        return jnp.stack([equation.drift(y), -t * divergence(equation.diffusion, y), pull])

    def along(direction: Vector) -> tuple[Float[Array, "3 d"], Float[Array, " 3"]]:
        values, slopes = jax.jvp(terms, (z,), (direction,))
        return values, slopes @ direction

    basis = jnp.eye(z.size, dtype=z.dtype)
    values, slopes = jax.vmap(along, out_axes=(None, 0))(basis)
    parts = jnp.stack([slopes.T, -values * force[None] / t])
    return Residual(
        value=jnp.sum(parts),
        scale=jnp.sum(jnp.abs(parts)),
        current=jnp.linalg.norm(jnp.sum(values, axis=0)),
        flow=jnp.linalg.norm(values[0]) + jnp.linalg.norm(values[2]),
    )


def residuals(equation: Equation, points: Float[Array, "n d"]) -> Residual:
    """The residual at each point."""
    return compiled(lambda p: jax.lax.map(lambda z: residual_at(equation, z), p))(points)


def matrices(product: Product, points: Float[Array, "n d"]) -> Float[Array, "n d d"]:
    """A(z) at each point."""
    basis = jnp.eye(points.shape[1], dtype=points.dtype)
    columns = jax.vmap(product, in_axes=(None, 0), out_axes=1)
    return compiled(lambda p: jax.lax.map(lambda z: columns(z, basis), p))(points)
