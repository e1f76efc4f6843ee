"""Where the chains start."""

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree


def positions_of_chains(position: PyTree, positions: PyTree, num_chains: int) -> PyTree:
    """The first positions of all chains, with a leading chain axis.

    Args:
        position: one position for all chains, or None.
        positions: one position each, with a leading chain axis, or None.
        num_chains: how many.

    Raises:
        ValueError: both or neither of position and positions, or a wrong leading axis.
    """
    if (position is None) == (positions is None):
        raise ValueError(
            "pass either position, the start of every chain, or positions, with a leading "
            "chain axis."
        )
    if positions is None:
        one = tree.freeze(position)
        # By NumPy, which compiles nothing.
        rows = lambda x: np.broadcast_to(np.asarray(x), (num_chains, *x.shape))  # noqa: E731
        frozen = jax.tree.map(lambda x: jax.device_put(rows(x)), one)
    else:
        frozen = tree.freeze(positions, "positions")
        for path, leaf in jax.tree_util.tree_leaves_with_path(frozen):
            if leaf.ndim == 0 or leaf.shape[0] != num_chains:
                raise ValueError(
                    f"positions{jax.tree_util.keystr(path)} must have a leading axis of length "
                    f"num_chains={num_chains}, but its shape is {leaf.shape}. Pass num_chains= as "
                    "many as there are, or position= for one start of all."
                )
    if not tree.known_finite(frozen):
        raise ValueError(
            "the position has entries that are NaN or infinite; start at a finite one."
        )
    return frozen
