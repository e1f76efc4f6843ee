"""Where a run lives: on a mesh of devices, the compiled loop under `shard_map`.

Chains and all that belongs to them are split along the mesh's axis "chains": each device maps over
its own and talks to none. Rows of data, where a kernel holds them in `Shards`, are split along the
axis "data". Everything else is the same on every device, the keys of the chains among it, so the
devices along "data" inject the same noise.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, PyTree

from ergodax.data.shards import AXIS as DATA
from ergodax.data.shards import is_shards
from ergodax.driver import loop
from ergodax.driver.meshes import CHAINS, checked_mesh
from ergodax.driver.parts import name_of
from ergodax.driver.processes import Alone, Together, watched
from ergodax.driver.traced import traced_kernel
from ergodax.driver.ways import Way
from ergodax.haste import in_haste

EACH, SAME = PartitionSpec(CHAINS), PartitionSpec()


class OnMesh:
    """A kernel and what is stored of a position, on the devices of one process or several.

    Args:
        kernel: the kernel.
        collect: the function of a position that is stored; None for the position itself.
        mesh: of devices, axes "chains" and perhaps "data".
        num_chains: a multiple of the devices along "chains".

    Attributes:
        processes: that the run is shared by.
        part: the name of this process's part of the stored run; empty for the whole.
    """

    def __init__(self, kernel: Any, collect: Callable | None, mesh: Any, num_chains: int) -> None:
        self.mesh = checked_mesh(mesh, kernel, num_chains)
        self.num_chains = num_chains
        self.chains = NamedSharding(self.mesh, EACH)
        self.several = self.mesh.is_multi_process
        self.processes = Together() if self.several else Alone()
        self.first, self.end = _range(self.chains, num_chains)
        own = name_of(self.processes.number, self.first, self.end, num_chains)
        self.part = own if self.several else ""
        self.kernel, self.collect = kernel, collect

    def start(self, key: Any, positions: PyTree, states: PyTree = None) -> tuple:
        """Keys and first states of all chains, and zeros in the shape of a draw of each of its own.

        Every process has all positions. Where there are states, they are the first ones; each
        process has those of its own chains.
        """
        given = {"seed": jax.random.key_data(key), "kernel": self.kernel}
        given |= {"start": positions} if states is None else {}
        self.processes.alike(_digests(given), num_chains=self.num_chains)
        kernel = self._placed(traced_kernel(self.kernel, key, positions))
        key = self._placed(key)
        with watched():
            if states is None:
                each = jax.tree.map(lambda x: self._at(x, self.chains), positions)
                (keys, infos, states), way = _start(self.mesh, kernel, key, each)
            else:
                states = self.put(states)
                (keys, infos), way = _go_on(self.mesh, kernel, key, states)
        self.step, self.programs = loop.Step(kernel, way), PROGRAMS[way.small]
        stored = loop.stored_of(self.collect, states)
        self.stored = self._placed(stored)
        zeros = loop.zeros_of(stored, states, self.end - self.first)
        return keys, states, (zeros, self.mine(infos))

    def advance(self, *where: Any) -> tuple:
        """See `loop.take_steps`."""
        chains, numbers = where[:3], self._placed(where[3:])
        with watched():
            out = jax.block_until_ready(
                self.programs.advance(self.mesh, self.step, chains, numbers)
            )
        return self._checked(*out)

    def draw(self, stretch: loop.Stretch, buffer: PyTree) -> tuple:
        """See `loop.make_draws`."""
        s = stretch
        chains = s.keys, s.blocks, s.states
        numbers = self._placed((s.first, s.count, s.thin, s.taken, s.offset))
        with watched():
            what = self.mesh, self.step, self.stored, chains, numbers
            out = jax.block_until_ready(self.programs.draw(what, buffer))
        return self._checked(*out)

    def replay(self, *where: Any) -> tuple:
        """See `loop.retrace`."""
        chains, numbers = where[:3], self._placed(where[3:])
        with watched():
            return jax.block_until_ready(
                self.programs.replay(self.mesh, self.step, chains, numbers)
            )

    def mine(self, tree: PyTree) -> PyTree:
        """Of arrays with a leading chain axis, the chains of this process."""
        return jax.tree.map(lambda x: _on_data(_mine, x), tree) if self.several else tree

    def put(self, tree: PyTree) -> PyTree:
        """Undo `mine`."""
        return jax.tree.map(lambda x: self._at(x, self.chains, self.first), tree)

    def whole(self, tree: PyTree) -> PyTree:
        """Arrays with a leading chain axis, all chains of them in every process, as NumPy's."""
        if not self.several:
            return jax.tree.map(np.asarray, tree)
        from jax.experimental.multihost_utils import process_allgather

        with watched():
            return jax.tree.map(lambda x: np.asarray(process_allgather(x, tiled=True)), tree)

    def buffer(self, row: PyTree, rows: int) -> PyTree:
        """See `loop.buffer`; the row has this process's chains, the buffer all of them."""

        def zeros(x: Any) -> jax.Array:
            shape = (self.num_chains, rows, *x.shape[1:])
            return jnp.zeros(shape, x.dtype, device=self.chains)

        return jax.tree.map(zeros, row)

    def _placed(self, tree: PyTree) -> PyTree:
        """The arrays of a tree on the mesh, shards of rows along "data"."""

        def place(node: Any) -> Any:
            sharding = NamedSharding(self.mesh, _spec(node))
            return jax.tree.map(lambda x: self._at(x, sharding), node)

        return jax.tree.map(place, tree, is_leaf=is_shards)

    def _at(self, x: Any, sharding: NamedSharding, first: int = 0) -> Any:
        """An array on the mesh; x begins at chain `first` if the sharding is that of chains."""
        if not eqx.is_array(x) and not isinstance(x, np.ndarray):
            return x
        if not self.several:
            return jax.device_put(x, sharding)
        length = self.num_chains if sharding is self.chains else None

        def one(x: Any) -> jax.Array:
            array = np.asarray(x)
            shape = array.shape if length is None else (length, *array.shape[1:])

            def piece(index: Any) -> np.ndarray:
                if length is None:
                    return array[index]
                begin, end, _ = index[0].indices(length)
                return array[begin - first : end - first]

            return jax.make_array_from_callback(shape, sharding, piece)

        return _on_data(one, x)

    def _checked(self, *out: Any) -> tuple:
        """What a program has computed, if the devices along "data" have found the same.

        Raises:
            RuntimeError: they have not.
        """
        *found, same = out
        if self.mesh.shape[DATA] > 1 and not self.whole(same).all():
            raise RuntimeError(
                "devices that share the rows of a chain have come to different positions. Each "
                "must inject the same noise, so a kernel may draw from its key alone, and the "
                "devices along the axis 'data' must be of one kind. Nothing of this chunk is kept."
            )
        return tuple(found)


def _on_devices(mesh: Mesh, function: Callable, fixed: PyTree, chains: PyTree) -> Any:
    """function(fixed, chains) on every device with its own chains, and whether devices agree.

    Args:
        mesh: the devices.
        function: (fixed, chains) -> a tree with a leading chain axis, states its first entry.
        fixed: the same everywhere, but for shards of rows.
        chains: a tree with a leading chain axis.
    """
    arrays, static = eqx.partition(fixed, eqx.is_array)
    specs = jax.tree.map(_spec, arrays, is_leaf=is_shards)

    def local(arrays: PyTree, chains: PyTree) -> Any:
        return function(eqx.combine(arrays, static), chains)

    split = jax.shard_map(local, mesh=mesh, in_specs=(specs, EACH), out_specs=EACH, check_vma=False)
    return split(arrays, chains)


def _agreed(mesh: Mesh, states: Any, well: Bool[Array, " chains"]) -> Bool[Array, " chains"]:
    """Whether the devices along "data" have the same positions, where these are numbers."""
    if mesh.shape[DATA] == 1:
        return jnp.ones_like(well)
    positions = jax.tree.map(lambda x: x.reshape(x.shape[0], -1), states.position)
    alike = [
        jnp.all(lax.pmax(x, DATA) == lax.pmin(x, DATA), axis=1) for x in jax.tree.leaves(positions)
    ]
    return jnp.all(jnp.stack(alike), axis=0) | ~lax.pmin(well, DATA)


@in_haste
def _start(mesh: Mesh, kernel: Any, key: Any, positions: PyTree) -> tuple[tuple, Way]:
    def local(fixed: tuple, positions: PyTree) -> tuple:
        kernel, key = fixed
        first = lax.axis_index(CHAINS) * jax.tree.leaves(positions)[0].shape[0]
        return loop.first_states(kernel, key, positions, first)

    keys, infos, states = _on_devices(mesh, local, (kernel, key), positions)
    return (keys, infos, states), _way(mesh, kernel, keys, states)


@in_haste
def _go_on(mesh: Mesh, kernel: Any, key: Any, states: PyTree) -> tuple[tuple, Way]:
    def local(fixed: tuple, states: PyTree) -> tuple:
        first = lax.axis_index(CHAINS) * jax.tree.leaves(states.position)[0].shape[0]
        kernel, key = fixed
        return loop.next_keys(kernel, key, states, first)

    keys, infos = _on_devices(mesh, local, (kernel, key), states)
    return (keys, infos), _way(mesh, kernel, keys, states)


def _way(mesh: Mesh, kernel: Any, keys: Any, states: PyTree) -> Way:
    alone = mesh.shape[DATA] == 1  # else the devices talk within a step
    return loop.way_of_steps(kernel, keys, states) if alone else Way()


def _take_steps(mesh: Mesh, step: loop.Step, chains: tuple, numbers: tuple) -> tuple:
    def local(fixed: tuple, chains: tuple) -> tuple:
        step, numbers = fixed
        states, well = loop.take_steps(step, *chains, *numbers)
        return states, well, _agreed(mesh, states, well)

    return _on_devices(mesh, local, (step, numbers), chains)


def _make_draws(what: tuple, buffer: PyTree) -> tuple:
    mesh, step, stored, chains, numbers = what

    def local(fixed: tuple, chains: tuple) -> tuple:
        step, stored, numbers = fixed
        stretch = loop.Stretch(*chains[0], *numbers)
        states, buffer, well = loop.make_draws((step, stored, stretch), chains[1])
        return states, buffer, well, _agreed(mesh, states, well)

    return _on_devices(mesh, local, (step, stored, numbers), (chains, buffer))


def _retrace(mesh: Mesh, step: loop.Step, chains: tuple, numbers: tuple) -> tuple:
    def local(fixed: tuple, chains: tuple) -> tuple:
        step, numbers = fixed
        return loop.retrace(step, *chains, *numbers)

    return _on_devices(mesh, local, (step, numbers), chains)


PROGRAMS = loop.programs(_take_steps, _make_draws, _retrace)


def _spec(node: Any) -> PartitionSpec:
    return PartitionSpec(DATA) if is_shards(node) else SAME


def _range(chains: NamedSharding, num_chains: int) -> tuple[int, int]:
    """The first chain of this process, and the one after its last."""
    slices = chains.addressable_devices_indices_map((num_chains,)).values()
    ends = [one[0].indices(num_chains) for one in slices if one is not None]
    return min(begin for begin, _, _ in ends), max(end for _, end, _ in ends)


def _digests(tree: PyTree) -> dict[str, str]:
    """Of the arrays in a tree, by their paths."""
    arrays = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {
        jax.tree_util.keystr(path): hashlib.blake2b(
            np.asarray(x).tobytes() + str(x.dtype).encode(), digest_size=16
        ).hexdigest()
        for path, x in arrays
    }


def _mine(x: Any) -> np.ndarray:
    parts = {s.index[0].start or 0: s.data for s in x.addressable_shards}
    return np.concatenate([np.asarray(parts[begin]) for begin in sorted(parts)])


def _on_data(function: Callable, x: Any) -> Any:
    """The function of an array; of keys, on the numbers that they are made of."""
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return function(x)
    words = function(jax.random.key_data(x))
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(x))
