"""How to integrate latents out, by measurement: is the joint quadratic, are the nodes enough?"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.groups.conditional import Conditional, constant, second_order
from ergodax.groups.layout import Block, Layout
from ergodax.groups.quadrature import (
    CLOSED_FORM,
    FINEST,
    ORDERS,
    Account,
    LogMarginal,
    rule,
)
from ergodax.groups.whitened import ALIKE, Whitened, dtype_of, whitened_at
from ergodax.target.posterior import Posterior

CELLS = 5_000_000  # rows x nodes of the groups that are looked at, about
FEWEST, MOST = 8, 512  # groups that are looked at
FAR = 1.0, 2.0, 5.0  # sds from the mode, at which the density is compared with a parabola
KINK = 0.05  # of the slope of a normal law, or of its logarithm: more than its rounding
VALUE = 8.0  # units of roundoff, that a sum over rows may be off by
ROUNDED = 1e3  # times the unit roundoff: relative, what rounding leaves of scores that cancel
UNMEASURED = Account(0, 0.0, 0)


class TooCoarse(ValueError):  # noqa: N818 (caught where there is something else to do)
    """No rule integrates the latents out well enough; the message says why."""


@eqx.filter_jit
def modes(
    density: Conditional, layout: Layout, shared: PyTree, starts: Float[Array, "groups d"]
) -> Float[Array, "groups d"]:
    """The mode of each group's latent."""

    def of(block: Block) -> Array:
        find = lambda rows, mask, b: density.mode(shared, rows, mask, b).mean  # noqa: E731
        return block.over(find, starts[block.groups])

    return jnp.concatenate([of(block) for block in layout.blocks])[layout.place]


def looked_at(layout: Layout, nodes: int) -> Int[Array, " m"]:
    """Some groups, of all sizes."""
    count = int(np.clip(CELLS // (layout.most * nodes), FEWEST, MOST))
    by_size = np.argsort(np.asarray(layout.counts), kind="stable")
    places = np.linspace(0, layout.num_groups - 1, min(count, layout.num_groups))
    return jnp.asarray(by_size[np.unique(places.round().astype(int))], jnp.int32)


@eqx.filter_jit
def departures(
    density: Conditional, shared: PyTree, block: Block, centres: Float[Array, "m d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """How far the density is from a parabola within a few sds of the modes, at most.

    Returns:
        The relative change of the curvature; and what the parabola at the mode leaves of the slopes
        and of the values, in those of a normal law: a kink or a step has no curvature.
    """
    shared, d = constant(shared), centres.shape[1]
    signs = np.stack([np.ones(d), -np.ones(d), (-1.0) ** np.arange(d)])

    def of(rows: PyTree, mask: Array, centre: Array) -> tuple[Array, Array]:
        normal = density.mode(shared, rows, mask, centre)
        z = jnp.asarray(np.concatenate([np.zeros((1, d)), *(far * signs for far in FAR)]), dtype)
        places = jax.vmap(normal.at)(z)
        values, slopes, bends = jax.vmap(
            lambda b: second_order(lambda b: density(shared, b, rows, mask), b)
        )(places)
        change = jnp.max(jnp.abs(bends - bends[:1])) / jnp.max(jnp.abs(bends[0]))
        offsets = places - places[:1]
        fall = offsets @ bends[0]  # of the slope, by the parabola
        slope = jnp.linalg.norm((slopes - slopes[:1] + fall) @ normal.root, axis=1)
        depth = 0.5 * jnp.sum(fall * offsets, axis=1)
        value = jnp.abs(values - values[0] - offsets @ slopes[0] + depth)
        value -= VALUE * jnp.finfo(dtype).eps * jnp.abs(values[0])
        left = jnp.max(jnp.maximum(slope / (1.0 + jnp.sqrt(depth)), value / (1.0 + depth)))
        return _or_infinite(change), _or_infinite(left)

    dtype = centres.dtype
    change, left = block.over(of, centres)
    return jnp.max(change), jnp.max(left)


def _or_infinite(x: Array) -> Array:
    return jnp.where(jnp.isfinite(x), x, jnp.inf)


def bend_change(density: Conditional, layout: Layout, shared: Sequence[PyTree]) -> float:
    """The largest change of the curvature, of some groups at several places; of a kink infinite."""
    block = layout.block(looked_at(layout, len(FAR) * 3))
    starts = jnp.zeros((len(block.groups), density.dimension), dtype_of(shared[0]))
    found = [departures(density, each, block, starts) for each in shared]
    change, left = np.max(np.asarray(found, np.float64), axis=0)
    return float(change) if left < KINK else np.inf


def is_quadratic(density: Conditional, layout: Layout, shared: Sequence[PyTree]) -> bool:
    """Whether the joint density is quadratic in the latent, as far as some places tell."""
    return bend_change(density, layout, shared) < ALIKE


@eqx.filter_jit
def scores(posterior: Posterior, position: PyTree, groups: Int[Array, " m"]) -> Array:
    """The gradients of log p(rows | shared) of some groups, shape (m, parameters)."""
    each = posterior.per_example_gradients(position, groups)
    return jax.vmap(lambda x: tree.ravel(x)[0])(each)


def _bias(
    rough: Float[np.ndarray, "m p"], fine: Float[np.ndarray, "m p"], groups: int, rounding: float
) -> float:
    """What an error of the scores does to a posterior mean, in posterior sds.

    With e the error of the sum of all groups' scores and F the sum of their squares, which is
    the information, no mean moves by more than sqrt(e^T F^-1 e) sds. The groups that were looked at
    stand for all. Where there are too few of them to tell F, each parameter counts on its own.
    Of directions in which scores, each parameter's of unit size, are below `rounding` the groups
    say nothing, as of the level of crossed effects: there the prior alone decides.
    """
    size = np.sqrt((fine**2).mean(axis=0))
    told = size > 0
    scores, errors = fine[:, told] / size[told], (rough - fine)[:, told] / size[told]
    moved = np.sqrt(groups) * errors.mean(axis=0)
    if len(fine) < 4 * fine.shape[1]:
        return float(np.max(np.abs(moved), initial=0.0))
    _, roots, directions = np.linalg.svd(scores / np.sqrt(len(scores)), full_matrices=False)
    kept = roots > rounding * np.max(roots, initial=0.0)
    return float(np.linalg.norm((directions @ moved)[kept] / roots[kept]))


def log_marginal(
    build: Callable[[LogMarginal], Posterior],
    density: Conditional,
    layout: Layout,
    positions: Sequence[PyTree],
    *,
    order: int | None,
    accuracy: float,
    search: bool,
) -> LogMarginal:
    """The log-likelihood of groups without their latents, by a rule that is good enough.

    Args:
        build: makes the posterior of the shared parameters.
        density: of a group's latent.
        layout: the rows.
        positions: frozen ones, at which errors are measured.
        order: nodes that the user wants; None to choose.
        accuracy: in posterior sds, of the effect on a mean.
        search: whether modes are searched for at each place, or predicted from the first position.

    Raises:
        TooCoarse: no rule is good enough.
    """
    shared = [tree.thaw(position) for position in positions]
    dtype, d = dtype_of(shared[0]), density.dimension
    zeros = jnp.zeros((layout.num_groups, d), dtype)
    change = np.inf if order is not None and order > 1 else bend_change(density, layout, shared)
    if change < ALIKE:
        return LogMarginal(density, layout, zeros, CLOSED_FORM, Account(1, 0.0, 0))
    if order == 1:
        raise TooCoarse(
            f"the joint density is not quadratic in the latent: its curvature changes by "
            f"{change:.1%} within {FAR[-1]:g} sds of the mode, and one node would be biased"
        )
    if order is None and d not in FINEST:
        raise TooCoarse(f"latents of {d} numbers are too many for quadrature, and {_NOT}")
    if search:
        centres = modes(density, layout, shared[0], zeros)
        centres = jnp.where(jnp.isfinite(centres), centres, 0.0)
    else:
        centres = whitened_at(density, layout, shared[0])
    if order is not None:
        return LogMarginal(density, layout, centres, rule(d, order), Account(order, 0.0, 0))
    return _measured(build, density, layout, centres, positions, accuracy)


_NOT = "the joint density is not quadratic in them"


def _measured(
    build: Callable[[LogMarginal], Posterior],
    density: Conditional,
    layout: Layout,
    centres: Float[Array, "groups d"] | Whitened,
    positions: Sequence[PyTree],
    accuracy: float,
) -> LogMarginal:
    """The coarsest rule that is good enough, by the finest."""
    d = density.dimension
    finest = FINEST[d]
    size, groups = finest**d, looked_at(layout, finest**d)

    rounding = ROUNDED * float(jnp.finfo(dtype_of(tree.thaw(positions[0]))).eps)

    def by(order: int) -> list[np.ndarray]:
        # One program for all rules, whose numbers are arguments of one shape.
        there = build(LogMarginal(density, layout, centres, rule(d, order, size), UNMEASURED))
        return [np.asarray(scores(there, x, groups), np.float64) for x in positions]

    fine, found = by(finest), np.inf
    for order in (order for order in ORDERS if order < finest):
        pairs = zip(by(order), fine, strict=True)
        found = max(_bias(rough, best, layout.num_groups, rounding) for rough, best in pairs)
        if found < accuracy:
            account = Account(order, found, finest)
            return LogMarginal(density, layout, centres, rule(d, order), account)
    raise TooCoarse(
        f"no rule of up to {finest - 2} nodes a number agrees with one of {finest}: a mean would "
        f"move by {found:.2g} posterior sds, and {_NOT}"
    )
