"""Where a run lives: the default device, or a mesh of devices of one process or several.

One class serves both. On a mesh the programs of the loop run under `shard_map`: chains and all that
belongs to them are split along the axis "chains", so that each device maps over its own and talks
to none; rows of data, where a kernel holds them in `Shards`, are split along the axis "data".
Everything else is the same on every device, the keys of the chains among it, so the devices along
"data" inject the same noise. Without a mesh the same programs are compiled as they are: their steps
are faster than on a mesh of one device, and nothing has to be placed before a call.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, PyTree

from ergodax.cluster.meshes import CHAINS, checked_mesh
from ergodax.cluster.processes import Alone, Together, watched
from ergodax.data.block import errors_of_reading
from ergodax.data.shards import AXIS as DATA
from ergodax.data.shards import is_shards
from ergodax.driver import loop
from ergodax.driver.compile import compiled_at, runs_are_short
from ergodax.driver.execution import Way
from ergodax.driver.traced import traced_kernel
from ergodax.persist.draws import name_of

EACH, SAME = PartitionSpec(CHAINS), PartitionSpec()


class Executor:
    """A kernel and what is stored of a position, and the programs of the loop with them.

    Args:
        kernel: the kernel.
        collect: the function of a position that is stored; None for the position itself.
        mesh: of devices, axes "chains" and perhaps "data"; None for the default device.
        num_chains: of all processes; a multiple of the devices along "chains".

    Attributes:
        processes: that the run is shared by.
        part: the name of this process's part of the stored run; empty for the whole.

    Raises:
        TypeError: not a mesh.
        ValueError: the run does not fit on the mesh.
    """

    def __init__(
        self, kernel: Any, collect: Callable | None, mesh: Mesh | None, num_chains: int
    ) -> None:
        self.kernel, self.collect, self.num_chains = kernel, collect, num_chains
        self.mesh, self.first, self.end = None, 0, num_chains
        self.several, self.part, self.processes = False, "", Alone()
        if mesh is None:
            return
        self.mesh = checked_mesh(mesh, kernel, num_chains)
        self.chains = NamedSharding(self.mesh, EACH)
        self.several = self.mesh.is_multi_process
        if self.several:
            self.processes = Together()
            self.first, self.end = _range(self.chains, num_chains)
            self.part = name_of(self.processes.number, self.first, self.end, num_chains)

    def start(self, key: Any, positions: PyTree, states: PyTree = None) -> tuple:
        """Keys and first states of all chains, and zeros in the shape of a draw of each of its own.

        Every process has all positions. Where there are states, they are the first ones; each
        process has those of its own chains.
        """
        given = {"seed": jax.random.key_data(key), "kernel": self.kernel}
        given |= {"start": positions} if states is None else {}
        if self.several:
            self.processes.alike(_digests(given), num_chains=self.num_chains)
        kernel = self._placed(traced_kernel(self.kernel, key, positions))
        key = self._placed(key)
        with self._watched(), errors_of_reading():
            if states is None:
                (keys, infos, states), way = start(self.mesh, kernel, key, self._split(positions))
            else:
                states = self.put(states)
                (keys, infos), way = go_on(self.mesh, kernel, key, states)
        self.step, self.programs = loop.Step(kernel, way), PROGRAMS[way.small]
        stored = loop.stored_of(self.collect, states)
        self.stored = self._placed(stored)
        zeros = loop.zeros_of(stored, states, self.end - self.first)
        return keys, states, (zeros, self.mine(infos))

    def advance(self, *where: Any) -> tuple:
        """See `loop.take_steps`."""
        chains, numbers = where[:3], self._placed(where[3:])
        program = self.programs.advance
        return self._checked(*self._run(program, self.mesh, self.step, chains, numbers))

    def draw(self, stretch: loop.Stretch, buffer: PyTree) -> tuple:
        """See `loop.make_draws`."""
        s = stretch
        chains = s.keys, s.blocks, s.states
        numbers = self._placed((s.first, s.count, s.thin, s.taken, s.offset))
        program = self.programs.draw_unoptimised if runs_are_short() else self.programs.draw
        what = self.mesh, self.step, self.stored, chains, numbers
        return self._checked(*self._run(program, what, buffer))

    def replay(self, *where: Any) -> tuple:
        """See `loop.retrace`."""
        chains, numbers = where[:3], self._placed(where[3:])
        return self._run(self.programs.replay, self.mesh, self.step, chains, numbers)

    def mine(self, tree: PyTree) -> PyTree:
        """Of arrays with a leading chain axis, the chains of this process."""
        return jax.tree.map(lambda x: _on_data(_mine, x), tree) if self.several else tree

    def put(self, tree: PyTree) -> PyTree:
        """Undo `mine`."""
        return self._split(tree, self.first)

    def whole(self, tree: PyTree) -> PyTree:
        """Arrays with a leading chain axis, all chains of them in every process, as NumPy's."""
        if not self.several:
            return jax.tree.map(np.asarray, tree)
        from jax.experimental.multihost_utils import process_allgather

        with watched():
            return jax.tree.map(lambda x: np.asarray(process_allgather(x, tiled=True)), tree)

    def buffer(self, row: PyTree, rows: int) -> PyTree:
        """Zeros for the rows of draws, leaves (chains, rows, ...).

        Args:
            row: one draw of this process's chains, leaves (chains, ...).
            rows: how many.
        """
        if self.mesh is None:
            return loop.buffer(row, rows)

        def zeros(x: Any) -> jax.Array:
            shape = (self.num_chains, rows, *x.shape[1:])
            return jnp.zeros(shape, x.dtype, device=self.chains)

        return jax.tree.map(zeros, row)

    def _run(self, program: Callable, *args: Any) -> tuple:
        with self._watched():
            return jax.block_until_ready(program(*args))

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Where others take part, a broken connection is a process lost."""
        with watched() if self.several else contextlib.nullcontext():
            yield

    def _checked(self, *out: Any) -> tuple:
        """What a program has computed, if the devices along "data" have found the same.

        Raises:
            RuntimeError: they have not.
        """
        *found, same = out
        if same is not None and not self.whole(same).all():
            raise RuntimeError(
                "devices that share the rows of a chain have come to different positions. Each "
                "must inject the same noise, so a kernel may draw from its key alone, and the "
                "devices along the axis 'data' must be of one kind. Nothing of this chunk is kept."
            )
        return tuple(found)

    def _split(self, tree: PyTree, first: int = 0) -> PyTree:
        """Arrays with a leading chain axis on their devices; they begin at chain `first`."""
        if self.mesh is None:
            return jax.tree.map(jax.device_put, tree)
        return jax.tree.map(lambda x: self._at(x, self.chains, first), tree)

    def _placed(self, tree: PyTree) -> PyTree:
        """The arrays of a tree on the mesh, shards of rows along "data"."""
        if self.mesh is None:
            return tree

        def place(node: Any) -> Any:
            assert self.mesh is not None
            sharding = NamedSharding(self.mesh, _spec(node))
            return jax.tree.map(lambda x: self._at(x, sharding), node)

        return jax.tree.map(place, tree, is_leaf=is_shards)

    def _at(self, x: Any, sharding: NamedSharding, first: int = 0) -> Any:
        """An array on the mesh; x begins at chain `first` if the sharding is that of chains."""
        if not eqx.is_array(x):
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


def _on_devices(mesh: Mesh | None, function: Callable, fixed: PyTree, chains: PyTree) -> Any:
    """function(fixed, chains) on every device with its own chains.

    Args:
        mesh: the devices, or None for the default one.
        function: (fixed, chains) -> a tree with a leading chain axis.
        fixed: the same everywhere, but for shards of rows.
        chains: a tree with a leading chain axis.
    """
    if mesh is None:
        return function(fixed, chains)
    arrays, static = eqx.partition(fixed, eqx.is_array)
    specs = jax.tree.map(_spec, arrays, is_leaf=is_shards)

    def local(arrays: PyTree, chains: PyTree) -> Any:
        return function(eqx.combine(arrays, static), chains)

    split = jax.shard_map(local, mesh=mesh, in_specs=(specs, EACH), out_specs=EACH, check_vma=False)
    return split(arrays, chains)


def _agreed(mesh: Mesh | None, states: Any, well: Bool[Array, " chains"]) -> Any:
    """Whether devices along "data" have the same positions, where these are numbers; else None."""
    if mesh is None or mesh.shape[DATA] == 1:
        return None
    positions = jax.tree.map(lambda x: x.reshape(x.shape[0], -1), states.position)
    alike = [
        jnp.all(lax.pmax(x, DATA) == lax.pmin(x, DATA), axis=1) for x in jax.tree.leaves(positions)
    ]
    return jnp.all(jnp.stack(alike), axis=0) | ~lax.pmin(well, DATA)


@compiled_at
def start(mesh: Mesh | None, kernel: Any, key: Any, positions: PyTree) -> tuple[tuple, Way]:
    """What `loop.first_states` returns, and the way of the steps, found once for a program."""

    def local(fixed: tuple, positions: PyTree) -> tuple:
        kernel, key = fixed
        return loop.first_states(kernel, key, positions, _first_chain(mesh, positions))

    keys, infos, states = _on_devices(mesh, local, (kernel, key), positions)
    return (keys, infos, states), _way(mesh, kernel, keys, states)


@compiled_at
def go_on(mesh: Mesh | None, kernel: Any, key: Any, states: PyTree) -> tuple[tuple, Way]:
    """What `loop.next_keys` returns, and the way of the steps."""

    def local(fixed: tuple, states: PyTree) -> tuple:
        kernel, key = fixed
        return loop.next_keys(kernel, key, states, _first_chain(mesh, states.position))

    keys, infos = _on_devices(mesh, local, (kernel, key), states)
    return (keys, infos), _way(mesh, kernel, keys, states)


def _take_steps(mesh: Mesh | None, step: loop.Step, chains: tuple, numbers: tuple) -> tuple:
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


def _retrace(mesh: Mesh | None, step: loop.Step, chains: tuple, numbers: tuple) -> tuple:
    def local(fixed: tuple, chains: tuple) -> tuple:
        step, numbers = fixed
        return loop.retrace(step, *chains, *numbers)

    return _on_devices(mesh, local, (step, numbers), chains)


PROGRAMS = loop.programs(_take_steps, _make_draws, _retrace)


def _way(mesh: Mesh | None, kernel: Any, keys: Any, states: PyTree) -> Way:
    alone = mesh is None or mesh.shape[DATA] == 1  # else the devices talk within a step
    return loop.way_of_steps(kernel, keys, states) if alone else Way()


def _first_chain(mesh: Mesh | None, positions: PyTree) -> Any:
    """The number of the first chain of this device."""
    if mesh is None:
        return 0
    return lax.axis_index(CHAINS) * jax.tree.leaves(positions)[0].shape[0]


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
