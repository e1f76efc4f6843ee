"""Where a run lives: the default device, or a mesh of devices of one process or several.

One class serves both. On a mesh the programs of the loop run under `shard_map`: chains and all that
belongs to them are split along the axis "chains", so that each device maps over its own and talks
to none; rows of data, where a kernel holds them in `Shards`, are split along the axis "data".
Everything else is the same on every device, the keys of the chains among it, so the devices along
"data" inject the same noise. The arrays of a position may be split along "parameters", and with
them all that has their shapes; that axis is left to XLA, which puts in the messages. Without a mesh
the same programs are compiled as they are: their steps are faster than on a mesh of one device, and
nothing has to be placed before a call.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from ergodax.cluster.meshes import CHAINS, PARAMETERS, checked_mesh, split_of_parameters
from ergodax.cluster.processes import Alone, Together, on_words, watched
from ergodax.data.block import errors_of_reading
from ergodax.data.shards import AXIS as DATA
from ergodax.data.shards import is_shards
from ergodax.driver import cpu_fusion, loop
from ergodax.driver.compile import OPTIMISATION, compiled_at, runs_are_short, traced_kernel
from ergodax.graph import calls_python, lowered
from ergodax.persist.draws import name_of
from ergodax.persist.fingerprint import digests

EACH, SAME = PartitionSpec(CHAINS), PartitionSpec()


class Executor:
    """A kernel and what is stored of a position, and the programs of the loop with them.

    Args:
        kernel: the kernel.
        collect: the function of a position that is stored; None for the position itself.
        mesh: of devices, axes "chains" and perhaps "data" and "parameters"; None for the default
            device.
        num_chains: of all processes; a multiple of the devices along "chains".

    Attributes:
        processes: that the run is shared by.
        part: the name of this process's part of the stored run; empty for the whole.

    Raises:
        TypeError: not a mesh.
        ValueError: the run does not fit on the mesh.
    """

    def __init__(
        self, kernel: Any, collect: loop.Collect | None, mesh: Mesh | None, num_chains: int
    ) -> None:
        self.kernel, self.collect, self.num_chains = kernel, collect, num_chains
        self.mesh, self.own = None, num_chains  # devices, and chains of this process
        self.device: SingleDeviceSharding | None = None  # to which the user has bound some array
        self.several, self.part, self.processes = False, "", Alone()
        self.splits: dict[tuple[int, ...], PartitionSpec] = {}  # of the shapes in a position
        self.watched = contextlib.nullcontext
        if mesh is None:
            return
        self.mesh = checked_mesh(mesh, kernel, num_chains)
        self.chains = NamedSharding(self.mesh, EACH)
        self.several = self.mesh.is_multi_process
        if self.several:
            self.processes, self.watched = Together(), watched
            first, end = _range(self.chains, num_chains)
            self.own = end - first
            self.part = name_of(self.processes.number, first, end, num_chains)

    def start(self, key: PRNGKeyArray, positions: PyTree, states: PyTree = None) -> tuple:
        """Keys and first states of all chains, and zeros in the shape of a draw of each of its own.

        Every process has all positions. Where there are states, they are the first ones; each
        process has those of its own chains.
        """
        if self.several:
            given = digests(key, "seed") | digests(self.kernel, "kernel")
            given |= digests(positions, "start") if states is None else {}
            self.processes.alike(given, num_chains=self.num_chains)
        with self.watched(), errors_of_reading():
            kernel, *where = self._begun(key, positions, states)
            (keys, infos, made), way = start(self.mesh, kernel, *where)
        states = made if states is None else where[-1]
        self.step, self.programs = loop.Step(kernel, way), PROGRAMS[way.small]
        stored = loop.stored_of(self.collect, states)
        if self.mesh is None and self.device is None:  # by an array that `collect` uses, perhaps
            self.device = _bound_to(stored)
            keys, states = self._everywhere((keys, states))
        collected = self.collect is not None and calls_python(stored.program.jaxpr)
        self.calls_python = way.calls_python or collected
        self.stored = self._placed(stored)
        zeros = loop.zeros_of(stored, states, self.own)
        return keys, states, (zeros, self.mine(infos))

    def trace(self, key: PRNGKeyArray, positions: PyTree) -> None:
        """Trace the program of `start` and all that a step is, and compile nothing."""
        lowered(start, self.mesh, *self._begun(key, positions, None))

    def _begun(self, key: PRNGKeyArray, positions: PyTree, states: PyTree) -> tuple:
        """Kernel, key, positions and states where they belong; None for positions or for states."""
        if self.mesh is not None:
            shapes = {x.shape[1:] for x in jax.tree.leaves(positions)}
            self.splits = {shape: split_of_parameters(self.mesh, shape) for shape in shapes}
        else:
            self.device = _bound_to((self.kernel, key, positions, states))
        kernel, key = self._placed(traced_kernel(self.kernel, key, positions)), self._placed(key)
        if states is None:
            return kernel, key, self.put(positions), None
        return kernel, key, None, self.put(states)

    def advance(self, chains: tuple, *numbers: Array) -> tuple:
        """See `loop.take_steps`; chains are (keys, blocks, states)."""
        numbers = self._placed(numbers)
        return self._run(self.programs.advance, self.mesh, self.step, chains, numbers)

    def draw(self, chains: tuple, stretch: loop.Stretch, buffer: PyTree) -> tuple:
        """See `loop.make_draws`; the buffer's memory is reused.

        Where a callback may end the program, a copy of the buffer is given, so that its draws
        are there afterwards.
        """
        buffer = _copied(buffer) if self.calls_python else buffer
        what = self.mesh, self.step, self.stored, chains, self._placed(stretch)
        short = runs_are_short()
        program = self.programs.draw_unoptimised if short else self.programs.draw
        return self._run(program, what, buffer)

    def replay(self, chains: tuple, *numbers: Array) -> tuple:
        """See `loop.retrace`."""
        numbers = self._placed(numbers)
        return self._run(self.programs.replay, self.mesh, self.step, chains, numbers)

    def mine(self, tree: PyTree) -> PyTree:
        """Of arrays with a leading chain axis, the chains of this process."""
        return jax.tree.map(lambda x: on_words(_mine, x), tree) if self.several else tree

    def put(self, tree: PyTree) -> PyTree:
        """On their devices arrays of all chains, or of this process's chains: undo `mine`."""
        if self.mesh is None:
            return jax.tree.map(lambda x: jax.device_put(x, self.device), tree)
        return jax.tree.map(lambda x: self._at(x, self._of_chains(x.shape[1:])), tree)

    def whole(self, tree: PyTree) -> PyTree:
        """Arrays with a leading chain axis, all chains of them in every process, as NumPy's."""
        if not self.several:
            return jax.tree.map(np.asarray, tree)
        from jax.experimental.multihost_utils import process_allgather

        with watched():
            return jax.tree.map(lambda x: np.asarray(process_allgather(x, tiled=True)), tree)

    def buffer(self, row: PyTree, rows: int) -> PyTree:
        """Zeros for so many rows of draws, leaves (chains, rows, ...), like those in `row`."""
        if self.mesh is None:
            return self._everywhere(_buffer(row, rows))

        def zeros(x: Array | np.ndarray) -> jax.Array:
            shape = (self.num_chains, rows, *x.shape[1:])
            return jnp.zeros(shape, x.dtype, device=self._of_chains(x.shape[1:], None))

        return jax.tree.map(zeros, row)

    def _run(self, program: Callable, *args: Any) -> tuple:
        """What a program computes, if the devices along "data" find the same."""
        with self.watched():
            *found, same = jax.block_until_ready(program(*args))
        if same is not None and not self.whole(same).all():
            raise RuntimeError(
                "devices that share the rows of a chain have come to different positions. Each "
                "must inject the same noise, so a kernel may draw from its key alone, and the "
                "devices along the axis 'data' must be of one kind. Nothing of this chunk is kept."
            )
        return tuple(found)

    def _placed(self, tree: PyTree) -> PyTree:
        """The arrays of a tree on the mesh, shards of rows along "data"."""
        mesh = self.mesh
        if mesh is None:
            return self._everywhere(tree)

        def place(node: Any) -> Any:
            spec = self.splits.get(node.shape, SAME) if eqx.is_array(node) else _spec(node)
            sharding = NamedSharding(mesh, spec)
            return jax.tree.map(lambda x: self._at(x, sharding), node)

        return jax.tree.map(place, tree, is_leaf=is_shards)

    def _everywhere(self, tree: PyTree) -> PyTree:
        """A tree with its arrays on the device to which some array of the run is bound.

        Of one argument that is bound and others that are not JAX would compile each program again
        when they come back from it, as bound as the first.
        """
        if self.device is None:
            return tree
        return jax.tree.map(
            lambda x: jax.device_put(x, self.device) if eqx.is_array(x) else x, tree
        )

    def _of_chains(self, shape: tuple[int, ...], *more: None) -> NamedSharding:
        """Of an array (chains, *shape), or with as many axes between as there are `more`."""
        assert self.mesh is not None
        return NamedSharding(self.mesh, PartitionSpec(CHAINS, *more, *self.splits.get(shape, ())))

    def _at(self, x: Any, sharding: NamedSharding) -> Any:
        """An array on the mesh; if its first axis is that of chains, of all or of its own."""
        if not eqx.is_array(x):
            return x
        if not self.several:
            return jax.device_put(x, sharding)

        def one(x: Array | np.ndarray) -> Array:
            array = np.asarray(x)
            of_chains = tuple(sharding.spec)[:1] == (CHAINS,)
            shape = (self.num_chains, *x.shape[1:]) if of_chains else x.shape
            return jax.make_array_from_process_local_data(sharding, array, shape)

        return on_words(one, x)


def _on_devices(mesh: Mesh | None, function: Callable, fixed: tuple, chains: tuple) -> Any:
    """function(*fixed, *chains) on every device with its own chains.

    `fixed` is the same everywhere, but for shards of rows; `chains` and what the function returns
    are trees with a leading chain axis.
    """
    if mesh is None:
        return function(*fixed, *chains)
    arrays, static = eqx.partition(fixed, eqx.is_array)
    specs = jax.tree.map(_spec, arrays, is_leaf=is_shards)

    def local(arrays: PyTree, chains: tuple) -> Any:
        return function(*eqx.combine(arrays, static), *chains)

    by_hand = set(mesh.axis_names) if mesh.shape[PARAMETERS] == 1 else {CHAINS, DATA}
    split = jax.shard_map(
        local, mesh=mesh, in_specs=(specs, EACH), out_specs=EACH, axis_names=by_hand,
        check_vma=False,
    )  # fmt: skip
    return split(arrays, chains)


def _bound_to(tree: PyTree) -> SingleDeviceSharding | None:
    """The device to which a user has bound arrays of a tree, if it is one."""
    found = [x for x in jax.tree.leaves(tree) if getattr(x, "committed", False)]
    devices = {place for x in found for place in x.devices()}
    return SingleDeviceSharding(devices.pop()) if len(devices) == 1 else None


def _spec(node: Any) -> PartitionSpec:
    return PartitionSpec(DATA) if is_shards(node) else SAME


@compiled_at
def start(
    mesh: Mesh | None, kernel: Any, key: PRNGKeyArray, positions: PyTree, states: PyTree = None
) -> tuple[tuple, loop.Way]:
    """What `loop.first_states` returns, and the way of the steps, found once for a program."""

    def local(kernel: Any, key: PRNGKeyArray, positions: PyTree, states: PyTree) -> tuple:
        first: Any = 0
        if mesh is not None:
            here = jax.tree.leaves(positions if states is None else states.position)[0].shape[0]
            first = lax.axis_index(CHAINS) * here
        return loop.first_states(kernel, key, first, positions, states)

    keys, infos, made = _on_devices(mesh, local, (kernel, key), (positions, states))
    way = loop.Way()
    if mesh is None or mesh.size == mesh.shape[CHAINS]:  # else the devices talk within a step
        way = loop.way_of_steps(kernel, keys, made if states is None else states)
    return (keys, infos, made), way


@compiled_at
def _copied(buffer: PyTree) -> PyTree:
    return jax.tree.map(jnp.copy, buffer)


@compiled_at
def _buffer(row: PyTree, rows: int) -> PyTree:
    return jax.tree.map(lambda x: jnp.zeros((x.shape[0], rows, *x.shape[1:]), x.dtype), row)


def _advance(mesh: Mesh | None, step: loop.Step, chains: tuple, numbers: tuple) -> tuple:
    return _on_devices(mesh, _agreeing(mesh, loop.take_steps), (step, *numbers), chains)


def _draw(what: tuple, buffer: PyTree) -> tuple:
    mesh, step, stored, chains, stretch = what
    function = _agreeing(mesh, loop.make_draws)
    return _on_devices(mesh, function, (step, stored, stretch), (*chains, buffer))


def _replay(mesh: Mesh | None, step: loop.Step, chains: tuple, numbers: tuple) -> tuple:
    return *_on_devices(mesh, loop.retrace, (step, *numbers), chains), None


def _agreeing(mesh: Mesh | None, function: Callable) -> Callable:
    """The function, which returns states first and what went well last; then if devices agree."""

    def both(*args: Any) -> tuple:
        found = function(*args)
        return *found, _agreed(mesh, found[0], found[-1])

    return both


def _agreed(
    mesh: Mesh | None, states: PyTree, well: Bool[Array, " chains"]
) -> Bool[Array, " chains"] | None:
    """Whether devices along "data" have the same positions, where these are numbers; else None."""
    if mesh is None or mesh.shape[DATA] == 1:
        return None
    positions = jax.tree.map(lambda x: x.reshape(x.shape[0], -1), states.position)
    alike = [
        jnp.all(lax.pmax(x, DATA) == lax.pmin(x, DATA), axis=1) for x in jax.tree.leaves(positions)
    ]
    return jnp.all(jnp.stack(alike), axis=0) | ~lax.pmin(well, DATA)


class Programs(NamedTuple):
    """Programs that take steps, compiled alike, so that they take them alike.

    They can't be called within another program.
    """

    advance: Callable
    draw: Callable
    draw_unoptimised: Callable
    replay: Callable


def _programs(more: dict[str, Any]) -> Programs:
    # "warn", though nothing warns: with "all" Equinox holds the filters of warnings, which are of
    # the process, while XLA compiles, and a thread that does so loses the warnings of another.
    return Programs(
        compiled_at(_advance, OPTIMISATION, more),
        compiled_at(_draw, OPTIMISATION, more, donate="warn-except-first"),
        compiled_at(_draw, 0, more, donate="warn-except-first"),
        compiled_at(_replay, OPTIMISATION, more),
    )


PROGRAMS = {False: _programs({}), True: _programs(cpu_fusion.WITHOUT_LIBRARY)}  # by Way.small


def _range(chains: NamedSharding, num_chains: int) -> tuple[int, int]:
    """The first chain of this process, and the one after its last."""
    slices = chains.addressable_devices_indices_map((num_chains,)).values()
    ends = [one[0].indices(num_chains) for one in slices if one is not None]
    return min(begin for begin, _, _ in ends), max(end for _, end, _ in ends)


def _mine(x: Array) -> np.ndarray:
    ranges = [shard.index[0].indices(x.shape[0]) for shard in x.addressable_shards]
    first, end = min(r[0] for r in ranges), max(r[1] for r in ranges)
    whole = np.empty((end - first, *x.shape[1:]), x.dtype)
    for (begin, stop, _), shard in zip(ranges, x.addressable_shards, strict=True):
        whole[begin - first : stop - first, *shard.index[1:]] = np.asarray(shard.data)
    return whole
