"""Where the chains start, and how many they are."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.cluster.meshes import chains_of_all
from ergodax.driver.traced import one_of


class Start(NamedTuple):
    """Where all chains begin.

    Attributes:
        positions: with a leading chain axis.
        states: that they go on from, likewise; None where the kernel is to make the first ones.
        num_chains: of all processes.
        step: the number of the first step, which its key follows from.
    """

    positions: PyTree
    states: Any
    num_chains: int
    step: int


def start_of_chains(
    kernel: Any,
    key: Any,
    position: PyTree,
    positions: PyTree,
    state: Any,
    num_chains: int | None,
    mesh: Any,
) -> Start:
    """Where all chains begin, from the arguments of `sample` of these names.

    Raises:
        TypeError: not a position or a state.
        ValueError: none of them or several, or another number of chains than num_chains.
    """
    if state is None:
        starts = positions_of_chains(position, positions, num_chains)
        return Start(starts, None, jax.tree.leaves(starts)[0].shape[0], 0)
    if position is not None or positions is not None:
        raise ValueError("state has a position of its own: pass no position or positions with it.")
    states = states_of_chains(kernel, key, state)
    found = chains_of_all(mesh, jax.tree.leaves(states.position)[0].shape[0])
    if num_chains not in (None, found):
        raise ValueError(
            f"num_chains={num_chains}, but state has {found} chains. Leave num_chains out."
        )
    return Start(states.position, states, found, first_step(states))


def positions_of_chains(position: PyTree, positions: PyTree, num_chains: int | None) -> PyTree:
    """The first positions of all chains, with a leading chain axis.

    Args:
        position: one position for all chains, or None.
        positions: one position each, with a leading chain axis, or None.
        num_chains: how many; None for as many as there are positions, or one.

    Raises:
        ValueError: both or neither of position and positions, or a wrong leading axis.
    """
    if (position is None) == (positions is None):
        raise ValueError(
            "pass either position, the start of every chain, or positions, with a leading "
            "chain axis, or state, the final state of another run."
        )
    if positions is None:
        one, count = tree.freeze(position), 1 if num_chains is None else num_chains
        # By NumPy, which compiles nothing.
        rows = lambda x: np.broadcast_to(np.asarray(x), (count, *x.shape))  # noqa: E731
        frozen = jax.tree.map(lambda x: jax.device_put(rows(x)), one)
    else:
        frozen = tree.freeze(positions, "positions")
        count_chains(frozen, "positions", num_chains)
    if not tree.known_finite(frozen):
        raise ValueError(
            "the position has entries that are NaN or infinite; start at a finite one."
        )
    return frozen


def states_of_chains(kernel: Any, key: Any, state: Any) -> Any:
    """The states that the chains go on from, with a leading chain axis.

    Args:
        kernel: that is to go on.
        key: of the run.
        state: the final state of another run.

    Raises:
        TypeError: not a state.
        ValueError: the state of another kernel, without a chain axis, or not finite.
    """
    position = getattr(state, "position", None)
    if position is None or not jax.tree.leaves(position):
        raise TypeError(
            f"state must be the final state of a run, such as samples.final_state, not {state!r}. "
            "To start at a position, pass position= or positions=."
        )
    count_chains(state, "state", None)
    wanted = eqx.filter_eval_shape(kernel.init, key, one_of(position))
    if jax.tree.structure(wanted) != jax.tree.structure(state):
        raise ValueError(
            "state is not such as this kernel's init makes: it has other parts. Pass the kernel "
            "that it is from; its step size and the like may be others. A state read from a file "
            "does not have the rows of a stream: there, begin at its position by positions=."
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(state), strict=True)
    for (path, one), leaf in pairs:
        if (one.shape, one.dtype) != (leaf.shape[1:], leaf.dtype):
            raise ValueError(
                f"state{jax.tree_util.keystr(path)} has dtype {leaf.dtype} and shape {leaf.shape}, "
                f"but this kernel needs {one.dtype} and (chains, *{one.shape}). Pass the kernel "
                "that the state is from."
            )
    if not tree.known_finite(position):
        raise ValueError("state.position has entries that are NaN or infinite.")
    return state


def count_chains(batched: PyTree, name: str, num_chains: int | None) -> int:
    """How many chains a tree with a leading chain axis is of.

    Args:
        batched: the tree.
        name: what to call the argument in an error.
        num_chains: how many there should be, or None.

    Raises:
        ValueError: another number, or not one number for all arrays.
    """
    leaves = jax.tree_util.tree_leaves_with_path(batched)
    for path, leaf in leaves:
        count = num_chains if num_chains is not None else (np.shape(leaves[0][1]) or (0,))[0]
        if np.ndim(leaf) == 0 or np.shape(leaf)[0] != count or not count:
            wanted = f"num_chains={num_chains}" if num_chains is not None else "one for each chain"
            raise ValueError(
                f"{name}{jax.tree_util.keystr(path)} must have a leading axis of length "
                f"{wanted}, but its shape is {np.shape(leaf)}. Leave num_chains out, or pass "
                "position= for one start of all."
            )
    return np.shape(leaves[0][1])[0]


def first_step(states: Any) -> int:
    """The number of the first step: how many the states have taken, 0 where they don't say.

    Args:
        states: with a leading chain axis.
    """
    steps = getattr(states, "step", None)
    if not eqx.is_array(steps) or np.ndim(steps) != 1 or np.asarray(steps).dtype.kind != "i":
        return 0
    return int(np.max(np.asarray(steps)))
