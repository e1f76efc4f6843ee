"""Latents integrated out: log p(rows of a group | shared), by adaptive Gauss-Hermite quadrature.

    log p(y_g | phi) = log |L| + (d / 2) log 2 + log sum_j w_j exp(|t_j|^2 + f(b_j)),
    b_j = mode + sqrt(2) L t_j,

with Hermite nodes t_j of weights w_j, and the root L of the inverse curvature at the mode of f.
Modes and roots are constants to differentiation: what is differentiated is the integral of exp(f)
at fixed nodes, whose derivatives of all orders have the accuracy of the rule. At one node that
would be the gradient at the mode, which is wrong. So one node is taken only where f is quadratic in
b, and then not by its mode but by

    log p(y_g | phi) = f(c) + f'(c)^T P^-1 f'(c) / 2 - log |P| / 2 + (d / 2) log 2 pi,  P = - f'',

which is exact at any c, derivatives included; c is the mode, where no digits are lost.

Reference:
    Pinheiro and Bates, Approximations to the log-likelihood function in the nonlinear mixed-effects
    model, 1995.
"""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, PyTree

from ergodax.checks import instance
from ergodax.groups.conditional import (
    Conditional,
    Mask,
    Normal,
    constant,
    inverse_root,
    quadratic_law,
    second_order,
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
            return block.over(functools.partial(_closed_form, density, shared), centres)
        laws = centres
        if not isinstance(laws, Normal):
            laws = block.over(functools.partial(density.mode, shared), laws)
        laws = jax.lax.stop_gradient(laws)
        nodes, log_weights = (x.astype(laws.mean.dtype) for x in (self.nodes, self.log_weights))
        b = jax.vmap(lambda z: jax.vmap(lambda law: law.at(z))(laws))(nodes)
        log = jax.vmap(jax.vmap(functools.partial(density.prior, shared)))(b)
        log += _log_likelihoods(density, shared, block, b)
        scale = jax.vmap(lambda law: law.log_root)(laws)
        return scale + logsumexp(log_weights[:, None] + log, axis=0)


def _log_likelihoods(
    density: Conditional, shared: PyTree, block: Block, b: Float[Array, "nodes m d"]
) -> Float[Array, "nodes m"]:
    """Of the rows of each group, at each node.

    The loop over groups is the inner one. Their rows are few, and loops over these, or over nodes,
    would be too short for a processor to do several at once.
    """

    def one(b: Array, row: PyTree) -> Array:
        return density.log_likelihood(shared, density.latent_of(b), row).astype(b.dtype)

    of_rows = jax.vmap(jax.vmap(one), in_axes=(None, 0))
    each = jax.vmap(of_rows, in_axes=(0, None))(b, block.rows)
    mask = block.mask[None]
    return jnp.sum(jnp.where(mask.astype(bool), mask.astype(b.dtype) * each, 0.0), axis=1)


def _closed_form(
    density: Conditional, shared: PyTree, rows: PyTree, mask: Mask, centre: Float[Array, " d"]
) -> Float[Array, ""]:
    """log p(rows | shared) of a group whose joint density is quadratic in the latent."""
    there = constant(shared)
    near = quadratic_law(lambda b: density(there, b, rows, mask), centre).mean
    f = lambda b: density(shared, b, rows, mask)  # noqa: E731
    value, slope, bend = second_order(f, jax.lax.stop_gradient(near))
    root = inverse_root(bend)
    half = root.T @ slope
    volume = jnp.sum(jnp.log(jnp.diagonal(root)))
    volume += 0.5 * len(centre) * math.log(2.0 * math.pi)
    # At the mode it is 0, and needed for its derivatives. Where rounding moves the mode by
    # more than an sd, as for a variance of 1e-14, it must not make up for what f loses.
    square = jnp.sum(half * half)
    excess = jax.lax.stop_gradient(jnp.maximum(square - 1.0, 0.0))
    return value + 0.5 * (square - excess) + volume


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
