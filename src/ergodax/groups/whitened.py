"""The law of each group's latent as a function of the shared parameters, without a search.

    b_g = m_g + L_g z_g,   L_g L_g^T = (P + J_g)^-1,   m_g = L_g L_g^T (P m + h_g + H_g (x - x0)),

with P and m the precision and mean of log_latent, functions of the shared parameters x, and J_g and
h_g, constants, those of the normal law that stands for what the rows of a group say of its latent
at one place x0; H_g is how their score changes with the shared parameters. With J = 0 this is the
non-centred form; for J >> P, b is the rows' own estimate plus z of its errors, the centred
form but for its scale. Where all is normal, z is N(0, I) given any shared parameters, and to first
order it is so everywhere: what one factor's effects take from another's is in H.

Reference:
    Papaspiliopoulos, Roberts and Sköld, A general framework for the parametrization of hierarchical
    models, 2007.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ergodax.groups.conditional import Conditional, Normal, inverse_root, second_order
from ergodax.groups.layout import Layout

OFFSETS = -3.0, -1.0, 1.0, 3.0  # of the latent, at which its prior's curvature is compared
ALIKE = 1e-4  # relative, of curvatures that are the same but for rounding


class Information(eqx.Module):
    """What the rows of each group say of its latent at one place: J, h and H of a normal law."""

    precision: Float[Array, "groups d d"]  # J
    slope: Float[Array, "groups d"]  # h = J b + gradient
    turn: Float[Array, "groups d p"]  # H
    place: Float[Array, " p"]  # x0


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

    def laws(self, shared: PyTree, groups: Int[Array, " m"] | None = None) -> Normal:
        """m and L of each group, leading axis groups; by default of all of them."""
        numbers = raveled(shared)
        dtype, info = numbers.dtype, self.information
        each = (info.precision, info.slope, info.turn)
        if groups is not None:
            each = tuple(x[groups] for x in each)
        precision, slope, turn = (x.astype(dtype) for x in each)
        slope = slope + turn @ (numbers - info.place.astype(dtype))
        if self.normal:
            zero = jnp.zeros(self.density.dimension, dtype)
            _, at_zero, bend = second_order(lambda b: self.density.prior(shared, b), zero)
            precision, slope = precision + bend[None], slope + at_zero[None]
        root = jax.vmap(inverse_root)(precision)
        return Normal(jax.vmap(lambda r, h: r @ (r.T @ h))(root, slope), root)


def raveled(shared: PyTree) -> Float[Array, " p"]:
    """The shared parameters, as the user has them, as one vector."""
    leaves = [x for x in jax.tree.leaves(shared) if eqx.is_inexact_array(x)]
    dtype = dtype_of(leaves)
    return jnp.concatenate([jnp.ravel(x).astype(dtype) for x in leaves])


def whitened_at(density: Conditional, layout: Layout, shared: PyTree) -> Whitened:
    """The map by what the rows say at `shared`, as the user has it."""
    normal = is_normal(density, shared)
    return Whitened(density, _information(density, layout, shared, normal), normal)


@eqx.filter_jit
def _information(density: Conditional, layout: Layout, shared: PyTree, normal: bool) -> Information:
    """At the mode of each group's latent; of the whole density where the prior is not normal."""
    place, start = raveled(shared), jnp.zeros(density.dimension, dtype_of(shared))

    def slope_at(there: PyTree, b: Array, rows: PyTree, mask: Array) -> Array:
        return jax.grad(lambda b: density.likelihood(there, b, rows, mask))(b)

    def of(rows: PyTree, mask: Array) -> tuple[Array, Array, Array]:
        law = density.mode(shared, rows, mask, start)
        slope, back = jax.vjp(lambda there: slope_at(there, law.mean, rows, mask), shared)
        turn = jax.vmap(lambda e: raveled(back(e)[0]))(jnp.eye(len(start), dtype=start.dtype))
        if normal:
            bend = -jax.jacfwd(lambda b: slope_at(shared, b, rows, mask))(law.mean)
            eigenvalues, vectors = jnp.linalg.eigh(bend)
            least = jnp.maximum(eigenvalues, 0.0)  # rows may say nothing, but no less
            bend = vectors @ (least[:, None] * vectors.T)
        else:
            inverse = jnp.linalg.inv(law.root)
            slope, bend = jnp.zeros_like(law.mean), inverse.T @ inverse
        return bend, bend @ law.mean + slope, turn

    parts = [block.over(of) for block in layout.blocks]
    joined = (jnp.concatenate(each)[layout.place] for each in zip(*parts, strict=True))
    return Information(*joined, place=place)


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


def dtype_of(shared: PyTree) -> Any:
    """The widest floating dtype among the leaves."""
    return jnp.result_type(*(x for x in jax.tree.leaves(shared) if eqx.is_inexact_array(x)))
