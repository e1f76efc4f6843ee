"""Where a run lives: on one device, or on a mesh, the compiled loop under `shard_map`.

Chains and all that belongs to them are split along the mesh's axis "chains": each device maps over
its own and talks to none. Rows of data, where a kernel holds them in `Shards`, are split along the
axis "data". Everything else is the same on every device, the keys of the chains among it, so the
devices along "data" inject the same noise.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from ergodax.data.shards import AXIS as DATA
from ergodax.data.shards import is_shards
from ergodax.driver import loop
from ergodax.driver.processes import Alone, Together, watched

CHAINS = "chains"
EACH, SAME = PartitionSpec(CHAINS), PartitionSpec()


def mesh(chains: int | None = None, data: int = 1) -> Mesh:
    """A mesh of devices for `sample`.

    Args:
        chains: over how many devices the chains are split; by default all that are left.
        data: over how many devices the rows are split; neighbours, so on one host where possible.

    Returns:
        A mesh with the axes "chains" and "data", of the first chains * data devices of all
        processes.

    Raises:
        ValueError: fewer devices than that.
    """
    devices = jax.devices()
    chains = len(devices) // data if chains is None and data > 0 else chains
    if chains is None or chains < 1 or data < 1 or chains * data > len(devices):
        raise ValueError(
            f"chains={chains} times data={data} devices are asked for, but there are "
            f"{len(devices)}. Try chains={len(devices)}; on a CPU set "
            "XLA_FLAGS=--xla_force_host_platform_device_count=4 for four."
        )
    chosen = np.array(devices[: chains * data]).reshape(chains, data)
    return Mesh(chosen, (CHAINS, DATA))


class OnOneDevice:
    """A kernel and what is stored of a position, on JAX's default device."""

    processes = Alone()

    def __init__(self, kernel: Any, collect: Callable) -> None:
        self.kernel, self.collect = kernel, collect

    def start(self, key: Any, positions: PyTree) -> tuple:
        """See `loop.start`."""
        return loop.start(self.kernel, self.collect, key, positions)

    def advance(self, *where: Any) -> tuple:
        """See `loop.advance`."""
        return jax.block_until_ready(loop.advance(self.kernel, *where))

    def draw(self, stretch: loop.Stretch, buffer: PyTree) -> tuple:
        """See `loop.draw`."""
        return jax.block_until_ready(loop.draw((self.kernel, self.collect, stretch), buffer))

    def replay(self, *where: Any) -> tuple:
        """See `loop.replay`."""
        return loop.replay(self.kernel, *where)

    def part(self, num_chains: int) -> str:
        """The name of this process's part of the stored run: none, it is the whole."""
        return ""

    def mine(self, tree: PyTree) -> PyTree:
        """Of arrays with a leading chain axis, the chains of this process."""
        return tree

    def put(self, tree: PyTree, like: PyTree = None) -> PyTree:
        """Undo `mine`."""
        return tree

    def whole(self, tree: PyTree) -> PyTree:
        """The same arrays of all chains, as NumPy arrays in every process."""
        return jax.tree.map(np.asarray, tree)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Zeros with a leading chain axis."""
        return jnp.zeros(shape, dtype)


class OnMesh:
    """The same on the devices of a mesh, of one process or several.

    Args:
        kernel: the kernel.
        collect: what is stored of a position.
        mesh: of devices, axes "chains" and perhaps "data".
        num_chains: a multiple of the devices along "chains".

    Raises:
        TypeError: not a mesh.
        ValueError: other axes, chains that can't be split evenly, a kernel that can't be split over
            data, or a mesh that leaves a process without a device.
    """

    def __init__(self, kernel: Any, collect: Callable, mesh: Any, num_chains: int) -> None:
        self.mesh = checked(mesh, kernel, num_chains)
        self.num_chains = num_chains
        self.processes = Alone() if self.mesh.is_multi_process else Alone()
        self.processes = Together() if self.mesh.is_multi_process else Alone()
        self.kernel, self.collect = self._placed(kernel), self._placed(collect)

    def start(self, key: Any, positions: PyTree) -> tuple:
        """See `loop.start`."""
        each = jax.tree.map(self._split, positions)
        with watched():
            return _start(self.mesh, self.kernel, self.collect, self._placed(key), each)

    def advance(self, keys: Any, blocks: PyTree, states: PyTree, *numbers: Any) -> tuple:
        """See `loop.advance`."""
        what = self.mesh, self.kernel, (keys, blocks, states), self._placed(numbers)
        with watched():
            return self._checked(*jax.block_until_ready(_advance(*what)))

    def draw(self, stretch: loop.Stretch, buffer: PyTree) -> tuple:
        """See `loop.draw`."""
        s = stretch
        numbers = self._placed((s.first, s.count, s.thin, s.taken, s.offset))
        chains = s.keys, s.blocks, s.states
        with watched():
            return self._checked(
                *jax.block_until_ready(
                    _draw((self.mesh, self.kernel, self.collect, chains, numbers), buffer)
                )
            )

    def replay(self, keys: Any, blocks: PyTree, states: PyTree, *numbers: Any) -> tuple:
        """See `loop.replay`."""
        what = self.mesh, self.kernel, (keys, blocks, states), self._placed(numbers)
        with watched():
            return jax.block_until_ready(_replay(*what))

    def part(self, num_chains: int) -> str:
        """The name of this process's part of the stored run."""
        if self.processes.count == 1:
            return ""
        first, end = self._chains()
        return f"process-{self.processes.number}.chains-{first}-{end}-of-{num_chains}"

    def mine(self, tree: PyTree) -> PyTree:
        """Of arrays with a leading chain axis, the chains of this process."""
        return jax.tree.map(_unwrapped(_mine), tree)

    def put(self, tree: PyTree) -> PyTree:
        """Undo `mine`."""
        sharding = NamedSharding(self.mesh, EACH)
        if self.processes.count == 1:
            return jax.tree.map(lambda x: jax.device_put(x, sharding), tree)
        first, _ = self._chains()

        def one(x: Any) -> jax.Array:
            array = np.asarray(x)

            def piece(index: tuple) -> np.ndarray:
                chains = slice(index[0].start - first, index[0].stop - first)
                return array[(chains, *index[1:])]

            return jax.make_array_from_callback(
                (self.num_chains, *array.shape[1:]), sharding, piece
            )

        return jax.tree.map(_unwrapped(one), tree)

    def whole(self, tree: PyTree) -> PyTree:
        """The same arrays of all chains, as NumPy arrays in every process."""
        if self.processes.count == 1:
            return jax.tree.map(np.asarray, tree)
        from jax.experimental import multihost_utils

        with watched():
            return jax.tree.map(
                lambda x: np.asarray(multihost_utils.process_allgather(x, tiled=True)), tree
            )

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Zeros with a leading chain axis; `shape` has this process's chains."""
        sharding = NamedSharding(self.mesh, EACH)
        return jnp.zeros((self.num_chains, *shape[1:]), dtype, device=sharding)
