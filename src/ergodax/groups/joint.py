"""Shared parameters and latents together, in numbers that are about standard normal."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.groups.conditional import Conditional, Normal, solved
from ergodax.groups.layout import Layout
from ergodax.groups.whitened import Whitened, whitened_at
from ergodax.target.base import AbstractTarget
from ergodax.target.constrained import Constrain
from ergodax.target.posterior import Posterior


class WithLatents(eqx.Module):
    """From unconstrained numbers and z to shared parameters and latents as the user has them.

    Args:
        whitened: the map to the latents.
        structure: of the shared parameters as samplers hold them.
        shape: of a latent.
        rounding: c and R, where a position has u, and the unconstrained numbers are c + R u.
    """

    whitened: Whitened
    structure: Any = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    rounding: tuple[Float[Array, " p"], Float[Array, "p p"]] | None = None

    def held(self, numbers: PyTree) -> PyTree:
        """The shared parameters as samplers hold them."""
        flat, unravel = tree.ravel(tree.freeze(numbers))
        if self.rounding is not None:
            centre, root = (x.astype(flat.dtype) for x in self.rounding)
            flat = centre + root @ flat
        return self.structure.unflatten(jax.tree.leaves(unravel(flat)))

    def __call__(self, position: PyTree) -> PyTree:
        """One position."""
        shared = tree.thaw(self.held(position["shared"]))
        b = jax.vmap(Normal.at)(self.whitened.laws(shared), position["z"])
        return {"shared": shared, "latent": b.reshape(len(b), *self.shape)}

    def inverse(self, values: PyTree) -> PyTree:
        """The numbers of values, which may have leading axes, as draws have."""
        numbers = Constrain(self.structure).inverse(values["shared"])
        b = jnp.asarray(values["latent"])
        b = b.reshape(*b.shape[: b.ndim - len(self.shape)], -1)

        def one(numbers: PyTree, b: Array) -> PyTree:
            flat, unravel = tree.ravel(tree.freeze(numbers))
            shared = tree.thaw(self.structure.unflatten(jax.tree.leaves(unravel(flat))))
            laws = self.whitened.laws(shared)
            if self.rounding is not None:
                centre, root = (x.astype(flat.dtype) for x in self.rounding)
                flat = jnp.linalg.solve(root, flat - centre)
            return {"shared": unravel(flat), "z": jax.vmap(solved)(laws.root, b - laws.mean)}

        for _ in range(b.ndim - 2):
            one = jax.vmap(one)
        return tree.thaw(one(numbers, b))


class JointTarget(AbstractTarget):
    """The posterior of shared parameters and latents, as a function of unconstrained numbers and z.

    Attributes:
        outer: the prior of the shared parameters.
        layout: the rows.
        group_of_row: of each distinct one.
        constrain: from a position to {"shared": ..., "latent": ...}, latents of shape
            (groups, ...).
        start: a position, with z = 0.
    """

    outer: Posterior
    layout: Layout
    group_of_row: Int[Array, " distinct"]
    constrain: WithLatents
    start: PyTree
    constraints: None = eqx.field(static=True, default=None)

    @property
    def evaluations(self) -> int:
        """The number of rows, those that are the same counted once."""
        return self.layout.distinct

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U, the Jacobians included."""
        held = self.constrain.held(position["shared"])
        shared, density = tree.thaw(held), self.constrain.whitened.density
        laws = self.constrain.whitened.laws(shared)
        b = jax.vmap(Normal.at)(laws, position["z"])
        total = self.outer.prior(held) + jnp.sum(jax.vmap(lambda law: law.log_root)(laws))
        total += jnp.sum(jax.vmap(lambda b: density.prior(shared, b))(b))
        # Not by blocks: a latent is copied to its rows, and rows need no padding.
        one = jax.vmap(lambda b, row: density.log_likelihood(shared, density.latent_of(b), row))
        each = one(b[self.group_of_row], self.layout.rows).astype(b.dtype)
        if self.layout.times is not None:
            each = self.layout.times.astype(b.dtype) * each
        return -total - jnp.sum(each)

    def rounded(self, centre: Float[Array, " p"], root: Float[Array, "p p"]) -> "JointTarget":
        """The same with numbers u of the shared parameters, whose own are c + R u."""
        constrain = dataclasses.replace(self.constrain, rounding=(centre, root))
        zeros = jax.tree.map(jnp.zeros_like, self.start)
        return dataclasses.replace(self, constrain=constrain, start=zeros)


def joint_target(
    outer: Posterior, density: Conditional, layout: Layout, shared: PyTree
) -> JointTarget:
    """The joint posterior, whitened by what the rows say at `shared`, a position as held."""
    numbers, structure = tree.bare(shared), jax.tree.structure(shared)
    zeros = jnp.zeros((layout.num_groups, density.dimension), tree.result_dtype(shared))
    whitened = whitened_at(density, layout, tree.thaw(shared))
    constrain = WithLatents(whitened, structure, density.shape)
    groups = jnp.asarray(layout.group_of_row, jnp.int32)
    return JointTarget(outer, layout, groups, constrain, {"shared": tree.thaw(numbers), "z": zeros})
