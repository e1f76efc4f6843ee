"""Latents integrated out: log p(rows of a group | shared), by adaptive Gauss-Hermite quadrature.

    log p(y_g | phi) = log |L| + (d / 2) log 2 + log sum_j w_j exp(|t_j|^2 + f(b_j)),
    b_j = mode + sqrt(2) L t_j,

with Hermite nodes t_j of weights w_j, and the root L of the inverse curvature at the mode of f.
Modes and roots are constants to differentiation: what is differentiated is the integral of exp(f)
at fixed nodes, whose derivatives of all orders have the accuracy of the rule. At one node that
would be the gradient at the mode, which is wrong. Where f is quadratic in b, no rule is needed:
the latent's law given the rows is normal, of mean m and root L, and

    log p(y_g | phi) = sum_j f(m + L z_j) / (d + 1) + log |L| + (d / 2) log 2 pi e,

the mean of f, which the corners z_j of a regular simplex have exactly, and the law's entropy. Of
all normal laws this one makes the right side largest, so that its derivative is that of f alone, at
the same nodes.

Reference:
    Pinheiro and Bates, Approximations to the log-likelihood function in the nonlinear mixed-effects
    model, 1995.
"""

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, PyTree

from ergodax.checks import instance
from ergodax.groups.conditional import (
    Conditional,
    Normal,
    constant,
    inverse_root,
)
from ergodax.groups.layout import Block, Layout
from ergodax.groups.whitened import Whitened, dtype_of
from ergodax.target.posterior import Posterior

ORDERS = 3, 5, 7, 9, 13, 19, 27, 41  # nodes of a latent's number that are tried
FINEST = {1: 61, 2: 21, 3: 9, 4: 5}  # by dimension: what they are compared with


class Rule(eqx.Module):
    """Nodes and weights of a product rule, or none where the integral is known in closed form."""

    nodes: Float[Array, "nodes d"] | None  # sqrt(2) t
    log_weights: Float[Array, " nodes"] | None  # log w + |t|^2 + (d / 2) log 2

    def integrals(
        self,
        density: Conditional,
        shared: PyTree,
        block: Block,
        centres: Float[Array, "m d"] | Normal,
    ) -> Float[Array, " m"]:
        """log p(rows | shared) of each group.

        Args:
            density: of a latent.
            shared: as the user has them.
            block: the groups.
            centres: where the search for each mode begins; or the normal laws about which the nodes
                are, where these are known without a search.
        """
        if self.nodes is None or self.log_weights is None:
            assert not isinstance(centres, Normal)
            return _closed_form(shared, density, block, centres)
        laws = centres
        if not isinstance(laws, Normal):
            laws = block.over(functools.partial(density.mode, shared), laws)
        laws = jax.lax.stop_gradient(laws)
        nodes, log_weights = (x.astype(laws.mean.dtype) for x in (self.nodes, self.log_weights))
        log = _at_nodes(density, shared, block, laws, nodes)
        scale = jax.vmap(lambda law: law.log_root)(laws)
        return scale + logsumexp(log_weights[:, None] + log, axis=0)


def _at_nodes(
    density: Conditional,
    shared: PyTree,
    block: Block,
    laws: Normal,
    nodes: Float[Array, "nodes d"],
) -> Float[Array, "nodes m"]:
    """f of each group at the nodes of its law."""
    b = jax.vmap(lambda z: jax.vmap(lambda law: law.at(z))(laws))(nodes)
    return jax.vmap(functools.partial(_of_groups, density, shared, block))(b)


def _of_groups(
    density: Conditional, shared: PyTree, block: Block, b: Float[Array, "m d"]
) -> Float[Array, " m"]:
    """f of each group.

    The loop over groups is the inner one. Their rows are few, and loops over these, or over nodes,
    would be too short for a processor to do several at once.
    """

    def one(b: Array, row: PyTree) -> Array:
        return density.log_likelihood(shared, density.latent_of(b), row).astype(b.dtype)

    each = jax.vmap(jax.vmap(one), in_axes=(None, 0))(b, block.rows)
    counted = jnp.where(block.mask.astype(bool), block.mask.astype(b.dtype) * each, 0.0)
    return jax.vmap(functools.partial(density.prior, shared))(b) + jnp.sum(counted, axis=0)


@eqx.filter_custom_jvp
def _closed_form(
    shared: PyTree, density: Conditional, block: Block, centres: Float[Array, "m d"]
) -> Float[Array, " m"]:
    """log p(rows | shared) of groups whose joint density is quadratic in the latent."""
    return mean_and_entropy(shared, density, block, normal_laws(shared, density, block, centres))


@_closed_form.def_jvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """The law is a constant to the first derivative, and none to the second."""
    shared, density, block, centres = primals
    laws = normal_laws(shared, density, block, centres)
    of = lambda shared: mean_and_entropy(shared, density, block, laws)  # noqa: E731
    return eqx.filter_jvp(of, (shared,), tangents[:1])


def mean_and_entropy(
    shared: PyTree, density: Conditional, block: Block, laws: Normal
) -> Float[Array, " m"]:
    """The mean of f under normal laws and their entropies."""
    d = laws.mean.shape[1]
    nodes = math.sqrt(d + 1) * scipy.linalg.helmert(d + 1).T  # of mean 0 and covariance I
    log = _at_nodes(density, shared, block, laws, jnp.asarray(nodes, laws.mean.dtype))
    scale = jax.vmap(lambda law: law.log_root)(laws)
    return jnp.mean(log, axis=0) + scale + 0.5 * d * (1.0 + math.log(2.0 * math.pi))


def normal_laws(
    shared: PyTree, density: Conditional, block: Block, centres: Float[Array, "m d"]
) -> Normal:
    """Of latents given their rows, by f's derivatives where they are quadratic in the latent."""

    def slope(b: Array) -> Array:
        return jax.grad(lambda b: jnp.sum(_of_groups(density, shared, block, b)))(b)

    def bend(e: Array) -> Array:
        along = jnp.broadcast_to(e, centres.shape)
        return -jax.jvp(slope, (centres,), (along,))[1]

    unit = jnp.eye(centres.shape[1], dtype=centres.dtype)
    roots = jax.vmap(inverse_root, in_axes=1)(jax.vmap(bend)(unit))
    step = jax.vmap(lambda root, slope: root @ (root.T @ slope))
    # Twice: from afar the first step is as wrong as rounding makes the slope there.
    near = jax.lax.stop_gradient(centres + step(roots, slope(centres)))
    return Normal(near + step(roots, slope(near)), roots)


def rule(dimension: int, order: int, size: int | None = None) -> Rule:
    """The product of Gauss-Hermite rules of `order` nodes, filled up to `size` without weight."""
    t, w = np.polynomial.hermite.hermgauss(order)
    grid = np.stack(np.meshgrid(*[t] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    log_w = np.stack(np.meshgrid(*[np.log(w)] * dimension, indexing="ij"), axis=-1)
    weights = log_w.reshape(-1, dimension).sum(axis=1) + (grid**2).sum(axis=1)
    weights = weights + 0.5 * dimension * math.log(2.0)
    missing = 0 if size is None else size - len(grid)
    nodes = np.concatenate([math.sqrt(2.0) * grid, np.zeros((missing, dimension))])
    return Rule(jnp.asarray(nodes), jnp.asarray(np.append(weights, np.full(missing, -np.inf))))


CLOSED_FORM = Rule(None, None)


class LogMarginal(eqx.Module):
    """(shared, numbers of groups) -> log p(their rows | shared): the likelihood of the marginal.

    Attributes:
        density: of a group's latent.
        layout: the rows.
        centres: where the search for each group's mode begins; or the map from shared parameters
            to the normal law about which the nodes are.
        rule: how the latents are integrated out.
        account: how the rule was chosen.
    """

    density: Conditional
    layout: Layout
    centres: Float[Array, "groups d"] | Whitened
    rule: Rule
    account: "Account" = eqx.field(static=True)

    def __call__(self, shared: PyTree, groups: Int[Array, " n"]) -> Float[Array, " n"]:
        """Of each of n groups, by whichever layout has less padding."""
        layout = self.layout
        if groups.size * layout.most >= layout.cells:
            parts = [self._of_block(shared, block) for block in layout.blocks]
            return jnp.concatenate(parts)[layout.place[groups]]
        return self._of_block(shared, layout.block(groups))

    def _of_block(self, shared: PyTree, block: Block) -> Float[Array, " m"]:
        if isinstance(self.centres, Whitened):
            centres = self.centres.laws(constant(shared), block.groups)
        else:
            centres = self.centres[block.groups].astype(dtype_of(shared))
        return self.rule.integrals(self.density, shared, block, centres)


class AllGroups(eqx.Module):
    """shared -> U of a marginal posterior: of all groups, as one target without data."""

    marginal: Posterior

    def __call__(self, shared: PyTree) -> Float[Array, ""]:
        """U at shared parameters as the user has them, the Jacobians of constraints apart."""
        each = self.marginal.log_likelihood(shared, self.marginal.data)
        prior = jnp.asarray(self.marginal.log_prior(shared), each.dtype)
        return -prior - jnp.sum(each)


@dataclasses.dataclass(frozen=True)
class Account:
    """How the latents are integrated out, and what was measured of it.

    Attributes:
        order: Gauss-Hermite nodes of each number of a latent; 1: the closed form.
        bias: the largest effect of the rule's error on a posterior mean, in posterior sds, as
            measured against `finest` nodes.
        finest: of the rule that it was compared with; 0 where nothing was compared.
    """

    order: int
    bias: float
    finest: int

    def __str__(self) -> str:
        """One sentence."""
        if self.order == 1:
            return "in closed form: the joint density is quadratic in the latent"
        if not self.finest:
            return f"by {self.order} Gauss-Hermite nodes a number, as you chose"
        return (
            f"by {self.order} Gauss-Hermite nodes a number, which moves no mean by more than "
            f"{self.bias:.1g} posterior sd, as {self.finest} nodes say"
        )


def log_marginal_of(marginal: Posterior) -> LogMarginal:
    """The likelihood of a marginal posterior."""
    return instance("marginal", marginal.log_likelihood, LogMarginal, "a LogMarginal")


def account_of(marginal: Posterior) -> Account:
    """How the latents of a marginal posterior are integrated out."""
    return log_marginal_of(marginal).account
