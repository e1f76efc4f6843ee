"""The draws of a run as one table, and what their correlation leaves of them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from ergodax import tree
from ergodax.driver.samples import Samples


class Columns(NamedTuple):
    """Draws of d components in all.

    Attributes:
        values: float64.
        names: such as "w[3]", as in `Samples.summary`.
    """

    values: Float[np.ndarray, "chains draws d"]
    names: tuple[str, ...]


def positions_of(draws: Any, name: str = "draws") -> PyTree:
    """The tree of draws in a Samples, or the tree itself; every array has (chains, draws, ...).

    Args:
        draws: a Samples, or any tree of arrays.
        name: what to call the argument in an error.

    Raises:
        TypeError: no array in it.
        ValueError: arrays that do not share the axes chains and draws.
    """
    positions = draws.position if isinstance(draws, Samples) else draws
    arrays = [leaf for leaf in jax.tree.leaves(positions) if eqx.is_array_like(leaf)]
    shapes = {np.shape(leaf)[:2] for leaf in arrays}
    if not arrays:
        raise TypeError(f"{name} must be a Samples or a tree of arrays, not {draws!r}.")
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise ValueError(
            f"{name} must have the axes (chains, draws, ...) in common, not shapes "
            f"{[np.shape(leaf) for leaf in arrays]}. For a single chain try x[None]."
        )
    return positions


def columns(draws: Any, name: str = "draws") -> Columns:
    """Draws as one array (chains, draws, d), the components in the order of `tree.ravel`.

    Args:
        draws: a Samples, or any tree of arrays (chains, draws, ...).
        name: what to call the argument in an error.
    """
    parts, labels = [], []
    positions = positions_of(draws, name)
    for path, leaf in jax.tree_util.tree_leaves_with_path(positions):
        if not eqx.is_array_like(leaf):
            continue
        array, label = np.asarray(leaf), tree.path_name(path) or "position"
        parts.append(array.reshape(*array.shape[:2], -1).astype(np.float64))
        labels += [_component(label, index) for index in np.ndindex(array.shape[2:])]
    return Columns(np.concatenate(parts, axis=-1), tuple(labels))


def effective_size(x: Float[np.ndarray, "chains draws *d"]) -> Any:
    """The effective sample size for the mean, by ArviZ; NaN of a constant.

    Args:
        x: series.
    """
    from arviz_stats.base.array import array_stats

    with np.errstate(invalid="ignore", divide="ignore"):
        return array_stats.ess(x, method="mean", chain_axis=0, draw_axis=1)


def standard_error(x: Float[np.ndarray, "chains draws *d"]) -> Any:
    """The Monte Carlo standard error of the mean: sd / sqrt(effective size).

    Args:
        x: series.
    """
    from arviz_stats.base.array import array_stats

    with np.errstate(invalid="ignore", divide="ignore"):
        return array_stats.mcse(x, method="mean", chain_axis=0, draw_axis=1)


def _component(label: str, index: tuple[int, ...]) -> str:
    return f"{label}[{', '.join(map(str, index))}]" if index else label
