"""Batches of groups, whose latents are sampled beside the shared parameters.

By Fisher's identity the score of a group is the mean, over its latent's law given its rows, of the
score of both together,

    grad log p(y_g | phi) = E grad_phi [f(T(z; phi); phi) + log |T'|],    f = log p(b, y_g | phi),

for any map b = T(z; phi) from numbers z that stand still while phi is differentiated. With T the
identity that is the usual form. Here T(z; phi) = c + P^-1 f'(c) + L z, with c the present mode,
P = - f''(c; phi) and L L^T = P^-1: where the law of the latent moves with phi, its draw moves with
it. That takes the draw's noise away, all of it where f is quadratic, however the model is written.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import flag, instance, whole_number
from ergodax.data.batching import Batching, WithoutReplacement
from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.groups.conditional import (
    Conditional,
    Mask,
    Normal,
    quadratic_law,
    solved,
)
from ergodax.groups.latents import FIRST, Draw, metropolis
from ergodax.groups.layout import Block, Layout
from ergodax.groups.marginal import is_quadratic
from ergodax.groups.posterior import GroupedPosterior
from ergodax.groups.whitened import dtype_of
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior


class SharedTarget(AbstractTarget):
    """The shared parameters' posterior, known by its gradients alone."""

    outer: Posterior

    @property
    def constraints(self) -> Any:
        """Of the shared parameters."""
        return self.outer.constraints

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """Not to be had.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "GroupMinibatch estimates gradients, and not the density of the shared parameters. "
            "Where the latents can be integrated out, posterior.marginal(shared) has it."
        )

    def _potential_as_checked(self, position: PyTree) -> Float[Array, ""]:
        return -self.outer.prior(position)


class GroupMinibatchState(eqx.Module):
    """The state of `GroupMinibatch`: of its batches, and every group's latent."""

    batching: PyTree
    latents: Float[Array, "groups d"]


class Still(NamedTuple):
    """A latent as its map has it, and the place that the map is expanded at."""

    z: Float[Array, " d"]
    mode: Float[Array, " d"]


class GroupMinibatch(GradientEstimator):
    """-grad log_prior - (G/m) sum over a batch of m groups of grad log p(rows, latent | shared).

    A batch has all rows of its groups. Before each estimate the latents of these groups are moved
    on, from where they were last left, by `inner_steps` of an independence Metropolis chain with
    proposals about the mode; where the joint density is quadratic in the latent they are drawn
    anew. Given the shared parameters the estimate is unbiased for latents of that law. Those that
    were left at older parameters lag behind, which costs mixing, and bias of the order of the
    step size, as that of SGLD itself is.

    The estimate's `potential` is that of the joint density at these latents. For latents that can
    be integrated out, `ex.Minibatch(posterior.marginal(shared), batch_size)` has less noise and
    needs no state.

    Args:
        posterior: a GroupedPosterior.
        batch_size: m, groups in a batch.
        shared: shared parameters near the posterior, at which is measured whether the joint
            density is quadratic in the latent.
        inner_steps: proposals for each latent of a batch.
        reparametrise: whether draws of latents move along with their law where the shared
            parameters are differentiated; without it the model's own form, centred or not, decides
            about the noise.
        batching: a scheme of `ergodax.data` that draws the groups; by default m distinct ones.

    Raises:
        TypeError: not a GroupedPosterior, a number that must be an integer and is not, or not a
            scheme.
        ValueError: a batch size outside [1, G], no inner step, or shared parameters that do not
            fit.

    Reference:
        Dempster, Laird and Rubin, Maximum likelihood from incomplete data via the EM algorithm,
        1977 (the identity).

    Example:
        >>> import ergodax as ex, jax, numpy as np
        >>> normal = jax.scipy.stats.norm.logpdf
        >>> posterior = ex.groups.GroupedPosterior(
        ...     lambda s: normal(s, 0.0, 10.0), lambda b, s: normal(b, s, 1.0),
        ...     lambda s, b, y: normal(y, b, 0.5), np.array([0.1, 0.4, 1.2]), np.array([0, 0, 1]),
        ... )
        >>> gradient = ex.groups.GroupMinibatch(posterior, 1, 0.0)
        >>> samples = ex.sample(
        ...     ex.sgld(gradient, 0.1), 0.0, 100, key=jax.random.key(0), progress=False
        ... )
    """

    target: AbstractTarget
    outer: Posterior
    density: Conditional
    layout: Layout
    batch_size: int = eqx.field(static=True)
    inner_steps: int = eqx.field(static=True)
    quadratic: bool = eqx.field(static=True)
    reparametrise: bool = eqx.field(static=True)
    batching: Batching

    def __init__(
        self,
        posterior: GroupedPosterior,
        batch_size: int | np.integer,
        shared: PyTree,
        *,
        inner_steps: int | np.integer = 4,
        reparametrise: bool = True,
        batching: Batching | None = None,
    ) -> None:
        instance("posterior", posterior, GroupedPosterior, "an ex.groups.GroupedPosterior")
        if batching is not None:
            instance("batching", batching, Batching, "a scheme such as ex.data.ShuffledEpochs()")
        self.batching = batching or WithoutReplacement()
        self.batching.check(posterior.num_groups, batch_size)
        self.batch_size = int(batch_size)
        self.inner_steps = whole_number("inner_steps", inner_steps)
        values = tree.thaw(posterior.freeze(shared))
        self.outer = posterior.outer
        self.target = SharedTarget(self.outer)
        self.density, self.layout = posterior.density, posterior.layout
        self.quadratic = is_quadratic(self.density, self.layout, [values])
        self.reparametrise = flag("reparametrise", reparametrise)

    def init(self, key: PRNGKeyArray, position: PyTree) -> GroupMinibatchState:
        """Draw all latents at `position`."""
        self.target.check(position)
        key_batches, key_latents = jax.random.split(key)
        draw = Draw(self.density, self.layout, self.quadratic)
        latents, _ = draw(key_latents, tree.thaw(position), FIRST)
        batching = self.batching.init(key_batches, self.layout.num_groups)
        return GroupMinibatchState(batching, latents)

    def estimate(
        self, key: PRNGKeyArray, state: GroupMinibatchState, position: PyTree
    ) -> tuple[Estimate, GroupMinibatchState]:
        """The gradient by a batch, after its latents have moved."""
        key_batch, key_latents = jax.random.split(key)
        count = self.layout.num_groups
        groups, batching = self.batching.draw(key_batch, state.batching, count, self.batch_size)
        block = self.layout.block(groups)
        shared = tree.thaw(position)
        laws = block.over(functools.partial(self._law, shared))
        latents = self._moved(key_latents, shared, block, laws, state.latents[groups])
        still = block.over(functools.partial(self._still, shared), laws.mean, latents)

        def potential(position: PyTree) -> Float[Array, ""]:
            each = block.over(functools.partial(self._log_joint, tree.thaw(position)), still)
            prior = self.outer.prior(position)
            return -prior - (count / self.batch_size) * jnp.sum(each)

        value, gradient = jax.value_and_grad(potential)(position)
        rows = jnp.sum(self.layout.counts[groups])
        estimate = Estimate(gradient, value, evaluations=(1 + self.inner_steps) * rows)
        return estimate, GroupMinibatchState(batching, state.latents.at[groups].set(latents))

    def _law(self, shared: PyTree, rows: PyTree, mask: Mask) -> Normal:
        """The normal law about the mode of a latent."""
        start = jnp.zeros(self.density.dimension, dtype_of(shared))
        if self.quadratic:
            return quadratic_law(lambda b: self.density(shared, b, rows, mask), start)
        return self.density.mode(shared, rows, mask, start)

    def _moved(
        self,
        key: PRNGKeyArray,
        shared: PyTree,
        block: Block,
        laws: Normal,
        latents: Float[Array, "m d"],
    ) -> Float[Array, "m d"]:
        """The latents of a batch, some steps on, by a kernel that leaves their law as it is."""
        if self.quadratic:
            return jax.vmap(Normal.at)(laws, tree.normal_like(key, latents))

        def one(rows: PyTree, mask: Array, key: PRNGKeyArray, law: Normal, b: Array) -> Array:
            f = lambda b: self.density(shared, b, rows, mask)  # noqa: E731
            return metropolis(key, f, law, self.inner_steps, b).b

        keys = jax.random.split(key, self.batch_size)
        return block.over(one, keys, laws, latents)

    def _still(
        self,
        shared: PyTree,
        rows: PyTree,
        mask: Mask,
        mode: Float[Array, " d"],
        b: Float[Array, " d"],
    ) -> Still:
        """What stands still while the shared parameters are differentiated."""
        if not self.reparametrise:
            return Still(b, mode)
        law = quadratic_law(lambda b: self.density(shared, b, rows, mask), mode)
        return Still(solved(law.root, b - law.mean), mode)

    def _log_joint(
        self, shared: PyTree, rows: PyTree, mask: Mask, still: Still
    ) -> Float[Array, ""]:
        """Of a group's rows and latent T(z), and log |T'|."""
        f = lambda b: self.density(shared, b, rows, mask)  # noqa: E731
        if not self.reparametrise:
            return f(still.z)
        law = quadratic_law(f, still.mode)
        return f(law.at(still.z)) + law.log_root
