"""The draws of a run: as a tree, and with all components in one table."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from ergodax import tree
from ergodax.checks import leaves, numbers


@runtime_checkable
class Run(Protocol):
    """What `ex.sample` returns, as far as statistics know it."""

    position: PyTree
    info: PyTree
    final_state: PyTree


def check_unweighted(info: Any, user: str) -> None:
    """Refuse draws with weights, where all would be taken to count alike. Raises: ValueError."""
    if getattr(info, "weight", None) is not None:
        raise ValueError(
            f"{user} takes all draws to count alike, and these have weights, info.weight. Try "
            "samples.summary(), or samples.equally_weighted() in place of the samples."
        )


class Columns(NamedTuple):
    """Draws of d components in all."""

    values: Float[np.ndarray, "chains draws d"]  # float64
    names: tuple[str, ...]  # such as "w[3]", as in `Samples.summary`


def positions_of(draws: PyTree, name: str = "draws") -> PyTree:
    """The tree of draws in a Samples, or the tree itself; every array has (chains, draws, ...).

    Raises: TypeError without an array; ValueError for arrays that do not share the axes chains and
    draws, or draws with weights.
    """
    if isinstance(draws, Run):
        check_unweighted(draws.info, "this statistic")
    positions = draws.position if isinstance(draws, Run) else draws
    arrays = [leaf for leaf in leaves(name, positions) if eqx.is_array_like(leaf)]
    shapes = {np.shape(leaf)[:2] for leaf in arrays}
    if not arrays:
        raise TypeError(f"{name} must be a Samples or a tree of arrays, not {draws!r}.")
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise ValueError(
            f"{name} must have the axes (chains, draws, ...) in common, not shapes "
            f"{[np.shape(leaf) for leaf in arrays]}. For a single chain try x[None]."
        )
    sizes = [np.size(numbers(name, leaf)) for leaf in arrays]
    if not any(sizes):  # a leaf without components may stand beside others
        raise ValueError(f"{name} has no draws: an array of shape {np.shape(arrays[0])}.")
    return positions


def columns(draws: PyTree, name: str = "draws") -> Columns:
    """Draws as one array (chains, draws, d), the components in the order of `tree.ravel`."""
    parts, labels = [], []
    positions = positions_of(draws, name)
    for path, leaf in jax.tree_util.tree_leaves_with_path(positions):
        if eqx.is_array_like(leaf):
            array = np.asarray(leaf)
            parts.append(flat_components(array))
            labels += component_names(tree.path_name(path) or "position", array)
    return Columns(np.concatenate(parts, axis=-1), tuple(labels))


def flat_components(array: np.ndarray) -> Float[np.ndarray, "chains draws d"]:
    """An array (chains, draws, ...) with its further axes as one, in float64."""
    return array.reshape(*array.shape[:2], -1).astype(np.float64)


def component_names(name: str, array: np.ndarray) -> list[str]:
    """The names of the components of an array (chains, draws, ...), such as "w[3]"."""
    indices = np.ndindex(array.shape[2:])
    return [f"{name}[{', '.join(map(str, index))}]" if index else name for index in indices]
