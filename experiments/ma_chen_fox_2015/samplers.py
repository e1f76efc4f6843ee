"""What the figures have in common: the metric, the samplers, colours."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

import ergodax as ex

SCALE = 1.5  # D of the paper's metric
NOISE = 4.0  # variance of the noisy gradients, that of Chen, Fox and Guestrin (2014)

# Colours that are told apart by the colour-blind (Okabe and Ito), and a marker for each.
STYLES = {
    "SGLD": ("#0072B2", "o"),
    "SGHMC": ("#009E73", "s"),
    "naive SGRHMC": ("#D55E00", "X"),
    "gSGRHMC": ("#AA4499", "D"),
}
HEADS = {0.0: "exact gradients", NOISE: f"noisy gradients, variance {NOISE:g}"}

Sampler = Callable[[float], ex.Kernel]  # of the step size


class Quartic(eqx.Module):
    """U = quadratic x^2 + quartic x^4, in one dimension."""

    quadratic: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    quartic: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, position: Float[Array, " 1"]) -> Float[Array, ""]:
        """The polynomial."""
        x, dtype = position[0], position.dtype
        return self.quadratic.astype(dtype) * x**2 + self.quartic.astype(dtype) * x**4


class RootOfPotential(eqx.Module):
    """G^-1 = scale sqrt|U + offset|, as a function of U: the metric of Ma, Chen and Fox."""

    scale: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    offset: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, potential: Float[Array, ""]) -> Float[Array, ""]:
        """G^-1 at this potential."""
        dtype = potential.dtype
        return self.scale.astype(dtype) * jnp.sqrt(jnp.abs(potential + self.offset.astype(dtype)))


def metric(offset: float) -> ex.PotentialMetric:
    """The paper's metric with C = offset, from the potential that each step estimates anyway."""
    return ex.PotentialMetric(RootOfPotential(SCALE, offset))


def noisy(target: Any, variance: float) -> ex.NoisyGradient:
    """grad U + N(0, variance I); U itself, which the metric reads, is exact."""
    return ex.NoisyGradient(target, variance)


def samplers(gradient: ex.GradientEstimator, offset: float) -> dict[str, Sampler]:
    """The paper's samplers by name, with friction 1 and the noise not compensated (B = 0)."""
    inverse = metric(offset)
    return {
        "SGLD": lambda h: ex.sgld(gradient, h),
        "SGHMC": lambda h: ex.sghmc(gradient, h),
        "naive SGRHMC": lambda h: ex.counterexamples.naive_sgrhmc(gradient, h, inverse),
        "gSGRHMC": lambda h: ex.sgrhmc(gradient, h, inverse),
    }
