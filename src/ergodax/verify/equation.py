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

LARGEST = 256  # variables; the residual costs d^2 products with D


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


def diagonal_of_derivative(field: Callable[[Vector], Vector], z: Vector) -> Vector:
    """d field_i / d z_i for each i, exactly; their sum is the divergence of the field."""

    def entry(direction: Vector) -> Float[Array, ""]:
        return jnp.vdot(direction, jax.jvp(field, (z,), (direction,))[1])

    return jax.vmap(entry)(jnp.eye(z.size, dtype=z.dtype))


def flow_out(equation: Equation, field: Callable[[Vector], Vector], z: Vector) -> Array:
    """div(pi field) / pi = div field - field . grad H / T: what adding `field` to f adds to R."""
    spread = jnp.sum(diagonal_of_derivative(field, z))
    return spread - jnp.vdot(field(z), equation.force(z)) / equation.temperature


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
    drift, pull = equation.drift(z), equation.diffusion(z, force)
    spread = divergence(equation.diffusion, z)
    current = drift - t * spread + pull
    parts = [
        diagonal_of_derivative(equation.drift, z),
        t * diagonal_of_derivative(lambda y: divergence(equation.diffusion, y), z),
        diagonal_of_derivative(lambda y: equation.diffusion(y, equation.force(y)), z),
        drift * force / t,
        spread * force,
        pull * force / t,
    ]
    signs = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]
    value = sum((s * jnp.sum(p) for s, p in zip(signs, parts, strict=True)), start=jnp.zeros(()))
    scale = sum((jnp.sum(jnp.abs(p)) for p in parts), start=jnp.zeros(()))
    flow = jnp.linalg.norm(drift) + jnp.linalg.norm(pull)
    return Residual(value, scale, jnp.linalg.norm(current), flow)


def residuals(equation: Equation, points: Float[Array, "n d"]) -> Residual:
    """The residual at each point."""
    return jax.jit(lambda p: jax.lax.map(lambda z: residual_at(equation, z), p))(points)


def matrices(product: Product, points: Float[Array, "n d"]) -> Float[Array, "n d d"]:
    """A(z) at each point."""
    basis = jnp.eye(points.shape[1], dtype=points.dtype)
    columns = jax.vmap(product, in_axes=(None, 0), out_axes=1)
    return jax.jit(lambda p: jax.lax.map(lambda z: columns(z, basis), p))(points)
