"""Shared parameters and latents together, in numbers that are about standard normal.

    b_g = m_g + L_g z_g,   L_g L_g^T = (P + J_g)^-1,   m_g = L_g L_g^T (P m + h_g),

with P and m the precision and mean of log_latent, functions of the shared parameters, and J_g and
h_g, constants, those of the normal law that stands for what the rows of a group say of its latent
at one place. With J = 0 this is the non-centred form; for J >> P, b is the rows' own estimate plus
z of its errors, the centred form but for its scale. Where all is normal, z is N(0, I) given any
shared parameters.

Reference:
    Papaspiliopoulos, Roberts and Sköld, A general framework for the parametrization of hierarchical
    models, 2007.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.groups.conditional import Conditional, Normal, inverse_root, second_order, solved
from ergodax.groups.layout import Block, Layout
from ergodax.groups.marginal import ALIKE
from ergodax.groups.quadrature import dtype_of
from ergodax.target.base import AbstractTarget
from ergodax.target.constrained import Constrain
from ergodax.target.posterior import Posterior

OFFSETS = (
    -3.0,
    -1.0,
    1.0,
    3.0,
)  # of the latent, at which its prior's curvature is compared


class Information(eqx.Module):
    """What the rows of each group say of its latent at one place: J b and h of a normal law."""

    precision: Float[Array, "groups d d"]  # J
    slope: Float[Array, "groups d"]  # h = J b + gradient


class Whitened(eqx.Module):
    """The map from z to the latents, given the shared parameters.

    Args:
        density: of a group's latent.
        information: of the rows of each group.
        normal: whether log_latent is quadratic in b; where it is not, the map does not depend on
            the shared parameters.
    """

    density: Conditional
    information: Information
    normal: bool = eqx.field(static=True)

    def laws(self, shared: PyTree) -> Normal:
        """m and L of each group, leading axis groups."""
        dtype = dtype_of(shared)
        precision = self.information.precision.astype(dtype)
        slope = self.information.slope.astype(dtype)
        if self.normal:
            zero = jnp.zeros(self.density.dimension, dtype)
            _, at_zero, bend = second_order(lambda b: self.density.prior(shared, b), zero)
            precision, slope = precision + bend[None], slope + at_zero[None]
        root = jax.vmap(inverse_root)(precision)
        return Normal(jax.vmap(lambda r, h: r @ (r.T @ h))(root, slope), root)

    def __call__(self, shared: PyTree, z: Float[Array, "groups d"]) -> Float[Array, "groups d"]:
        """b of all groups."""
        return jax.vmap(Normal.at)(self.laws(shared), z)


class WithLatents(eqx.Module):
    """From unconstrained numbers and z to shared parameters and latents as the user has them."""

    whitened: Whitened
    structure: Any = eqx.field(static=True)  # of the shared parameters as samplers hold them
    shape: tuple[int, ...] = eqx.field(static=True)

    def held(self, numbers: PyTree) -> PyTree:
        """The shared parameters as samplers hold them."""
        return self.structure.unflatten(jax.tree.leaves(tree.freeze(numbers)))

    def __call__(self, position: PyTree) -> PyTree:
        """One position."""
        shared = tree.thaw(self.held(position["shared"]))
        b = self.whitened(shared, position["z"])
        return {"shared": shared, "latent": b.reshape(len(b), *self.shape)}

    def inverse(self, values: PyTree) -> PyTree:
        """The numbers of values, which may have leading axes, as draws have."""
        numbers = Constrain(self.structure).inverse(values["shared"])
        b = jnp.asarray(values["latent"])
        b = b.reshape(*b.shape[: b.ndim - len(self.shape)], -1)

        def one(numbers: PyTree, b: Array) -> Array:
            laws = self.whitened.laws(tree.thaw(self.held(numbers)))
            return jax.vmap(solved)(laws.root, b - laws.mean)

        for _ in range(b.ndim - 2):
            one = jax.vmap(one)
        return {"shared": tree.thaw(numbers), "z": one(numbers, b)}


class JointTarget(AbstractTarget):
    """The posterior of shared parameters and latents, as a function of unconstrained numbers and z.

    Attributes:
        outer: the prior of the shared parameters.
        layout: the rows.
        constrain: from a position to {"shared": ..., "latent": ...}, latents of shape
            (groups, ...).
        start: a position, with z = 0.
    """

    outer: Posterior
    layout: Layout
    constrain: WithLatents
    start: PyTree
    constraints: None = eqx.field(static=True, default=None)

    @property
    def evaluations(self) -> int:
        """The number of rows."""
        return self.layout.num_rows

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U, the Jacobians included."""
        held = self.constrain.held(position["shared"])
        shared, whitened = tree.thaw(held), self.constrain.whitened
        laws = whitened.laws(shared)
        b = jax.vmap(Normal.at)(laws, position["z"])
        total = self.outer.prior(held) + jnp.sum(jax.vmap(lambda law: law.log_root)(laws))
        each = jax.vmap(whitened.density, in_axes=(None, 0, 0, 0))
        for block in self.layout.blocks:
            total += jnp.sum(each(shared, b[block.groups], block.rows, block.mask))
        return -total


def joint_target(
    outer: Posterior, density: Conditional, layout: Layout, shared: PyTree
) -> JointTarget:
    """The joint posterior, whitened by what the rows say at `shared`, a position as held."""
    values, numbers = tree.thaw(shared), tree.thaw(tree.bare(shared))
    zeros = jnp.zeros((layout.num_groups, density.dimension), tree.result_dtype(shared))
    normal = is_normal(density, values)
    whitened = Whitened(density, _information(density, layout, values, zeros, normal), normal)
    constrain = WithLatents(whitened, jax.tree.structure(shared), density.shape)
    return JointTarget(outer, layout, constrain, {"shared": numbers, "z": zeros})


@eqx.filter_jit
def _information(
    density: Conditional,
    layout: Layout,
    shared: PyTree,
    starts: Float[Array, "groups d"],
    normal: bool,
) -> Information:
    """At the mode of each group's latent; of the whole density where the prior is not normal."""

    def of(rows: PyTree, mask: Array, start: Array) -> tuple[Array, Array]:
        law = density.mode(shared, rows, mask, start)
        if normal:
            likelihood = lambda b: density.likelihood(shared, b, rows, mask)  # noqa: E731
            _, slope, bend = second_order(likelihood, law.mean)
            values, vectors = jnp.linalg.eigh(bend)
            bend = vectors @ jnp.diag(jnp.maximum(values, 0.0)) @ vectors.T  # no less than none
        else:
            inverse = jnp.linalg.inv(law.root)
            slope, bend = jnp.zeros_like(law.mean), inverse.T @ inverse
        return bend, bend @ law.mean + slope

    def block(part: Block) -> tuple[Array, Array]:
        return jax.vmap(of)(part.rows, part.mask, starts[part.groups])

    parts = [block(part) for part in layout.blocks]
    joined = (jnp.concatenate(each)[layout.place] for each in zip(*parts, strict=True))
    return Information(*joined)


def is_normal(density: Conditional, shared: PyTree) -> bool:
    """Whether log_latent has the same curvature everywhere, and a normal law's."""
    d, dtype = density.dimension, dtype_of(shared)
    places = np.concatenate([np.zeros((1, d)), *(x * np.eye(d) for x in OFFSETS), np.ones((1, d))])
    bends = jax.vmap(lambda b: second_order(lambda b: density.prior(shared, b), b)[2])
    found = np.asarray(bends(jnp.asarray(places, dtype)), np.float64)
    if not np.isfinite(found).all():
        return False
    same = np.abs(found - found[0]).max() <= ALIKE * np.abs(found[0]).max()
    return bool(same and np.linalg.eigvalsh(found[0]).min() > 0.0)
