"""Where a run lives: on JAX's default device. `mesh` has the same for several."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ergodax.data.block import errors_of_reading
from ergodax.driver import loop
from ergodax.driver.processes import Alone
from ergodax.driver.traced import traced_kernel
from ergodax.haste import runs_are_short


class OnOneDevice:
    """A kernel and what is stored of a position, and the programs of the loop with them.

    Args:
        kernel: the kernel.
        collect: the function of a position that is stored; None for the position itself.

    Attributes:
        processes: that the run is shared by.
        part: the name of this process's part of the stored run; empty for the whole.
    """

    processes, part = Alone(), ""

    def __init__(self, kernel: Any, collect: Callable | None) -> None:
        self.kernel, self.collect = kernel, collect

    def start(self, key: Any, positions: PyTree, states: PyTree = None) -> tuple:
        """Keys and first states of all chains, and zeros in the shape of a draw of each.

        Where there are states, they are the first ones.
        """
        kernel = traced_kernel(self.kernel, key, positions)
        with errors_of_reading():
            if states is None:
                keys, infos, states, way = loop.start(kernel, key, positions)
            else:
                states = jax.tree.map(jnp.asarray, states)
                keys, infos, way = loop.go_on(kernel, key, states)
        self.step, self.programs = loop.Step(kernel, way), loop.PROGRAMS[way.small]
        self.stored = loop.stored_of(self.collect, states)
        return keys, states, (loop.zeros_of(self.stored, states, keys.shape[0]), infos)

    def advance(self, *where: Any) -> tuple:
        """See `loop.take_steps`."""
        return jax.block_until_ready(self.programs.advance(self.step, *where))

    def draw(self, stretch: loop.Stretch, buffer: PyTree) -> tuple:
        """See `loop.make_draws`."""
        draw = self.programs.draw_in_haste if runs_are_short() else self.programs.draw
        return jax.block_until_ready(draw((self.step, self.stored, stretch), buffer))

    def replay(self, *where: Any) -> tuple:
        """See `loop.retrace`."""
        return self.programs.replay(self.step, *where)

    def mine(self, tree: PyTree) -> PyTree:
        """Of arrays with a leading chain axis, the chains of this process."""
        return tree

    def put(self, tree: PyTree) -> PyTree:
        """Undo `mine`."""
        return jax.tree.map(jax.device_put, tree)

    def whole(self, tree: PyTree) -> PyTree:
        """Arrays with a leading chain axis, all chains of them in every process, as NumPy's."""
        return jax.tree.map(np.asarray, tree)

    def buffer(self, row: PyTree, rows: int) -> PyTree:
        """See `loop.buffer`."""
        return loop.buffer(row, rows)
