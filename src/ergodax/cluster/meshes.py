"""Meshes of devices: how one is made, and what of a run fits on it."""

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree

from ergodax.checks import whole_number
from ergodax.data.shards import AXIS as DATA
from ergodax.data.shards import is_shards

CHAINS, PARAMETERS = "chains", "parameters"
AXES = CHAINS, DATA, PARAMETERS
# Numbers in an array from which it is split: the message of a smaller one costs more than it saves.
SPLIT_FROM = 1 << 12


def mesh(chains: int | None = None, data: int = 1, parameters: int = 1) -> Mesh:
    """A mesh of devices for `sample(mesh=)`.

    Args:
        chains: over how many devices the chains are split; by default all that there are, divided
            by `data` and `parameters`.
        data: over how many devices the rows of the data are split; neighbouring ones, which
            belong to one process where possible.
        parameters: over how many devices of one process the arrays of a position are split, and all
            that has their shapes, such as momenta and stored draws: for networks that one device
            can't hold.

    Returns:
        A mesh with the axes "chains", "data" and "parameters", of the first
        chains * data * parameters devices of all processes.

    Raises:
        ValueError: there are fewer devices.

    Example:
        >>> import ergodax as ex
        >>> dict(ex.mesh(chains=1).shape)
        {'chains': 1, 'data': 1, 'parameters': 1}
    """
    devices = jax.devices()
    data = whole_number("data", data, at_least=0)
    parameters = whole_number("parameters", parameters, at_least=0)
    if chains is None:
        chains = max(1, len(devices) // max(1, data * parameters))
    shape = whole_number("chains", chains, at_least=0), data, parameters
    if min(shape) < 1 or math.prod(shape) > len(devices):
        asked = f"chains={chains} times data={data} times parameters={parameters}"
        raise ValueError(
            f"a mesh of {asked} devices is asked for, but there are {len(devices)}. Try ex.mesh(); "
            "a CPU counts as four devices with the environment variable "
            "XLA_FLAGS=--xla_force_host_platform_device_count=4."
        )
    return Mesh(np.array(devices[: math.prod(shape)]).reshape(shape), AXES)


def chains_of_all(mesh: Any, own: int) -> int:
    """How many chains all processes of a mesh have, where this one has `own`.

    No mesh, or a wrong one, is that of this process alone.
    """
    if not isinstance(mesh, Mesh) or CHAINS not in mesh.axis_names or not mesh.is_multi_process:
        return own
    mine = (owners(mesh) == jax.process_index()).any(axis=1)
    return own * len(mine) // int(mine.sum())


def owners(mesh: Mesh) -> np.ndarray:
    """The process of each device, an array (chains, data * parameters)."""
    process = np.vectorize(lambda device: device.process_index)(_in_order(mesh))
    return process.reshape(len(process), -1)


def _in_order(mesh: Mesh) -> np.ndarray:
    """The devices, an array (chains, data, parameters)."""
    order = [mesh.axis_names.index(name) for name in AXES if name in mesh.axis_names]
    return mesh.devices.transpose(order).reshape([mesh.shape.get(name, 1) for name in AXES])


def split_of_parameters(mesh: Mesh, shape: tuple[int, ...]) -> PartitionSpec:
    """How an array of a position is split along "parameters": its longest axis that can be."""
    across = mesh.shape[PARAMETERS]
    lengths = [n if n % across == 0 else 0 for n in shape]
    if across == 1 or math.prod(shape) < SPLIT_FROM or not any(lengths):
        return PartitionSpec()
    longest = int(np.argmax(lengths))
    return PartitionSpec(*[PARAMETERS if k == longest else None for k in range(len(shape))])


def checked_mesh(mesh: Any, kernel: Any, num_chains: int) -> Mesh:
    """A user's mesh, with all axes left to the compiler, if the run fits on it.

    Raises: TypeError for what is none; ValueError where chains or shards can't be split over it.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, not {mesh!r}. Try ex.mesh().")
    if CHAINS not in mesh.axis_names or not set(AXES) >= set(mesh.axis_names):
        raise ValueError(
            "mesh must have the axis 'chains' and may have 'data' and 'parameters', not "
            f"{mesh.axis_names}. Try ex.mesh(chains=..., data=..., parameters=...)."
        )
    across = mesh.shape[CHAINS]
    if num_chains % across:
        raise ValueError(
            f"num_chains={num_chains} can't be split evenly over the {across} devices of the "
            f"mesh's axis 'chains'. Try num_chains={-(-num_chains // across) * across}, or "
            "ex.mesh(chains=...) with a divisor of the number of chains."
        )
    _check_data(mesh.shape.get(DATA, 1), kernel)
    checked = Mesh(_in_order(mesh), AXES)
    if mesh.is_multi_process:
        _check_processes(owners(checked), checked.shape[PARAMETERS])
    return checked


def _check_data(across: int, kernel: PyTree) -> None:
    """Refuse a kernel that would evaluate all its rows on each of the devices along "data"."""
    found = [x for x in jax.tree.leaves(kernel, is_leaf=is_shards) if is_shards(x)]
    if across == 1:
        return
    if not found:
        estimator = type(getattr(kernel, "gradient", kernel)).__name__
        raise ValueError(
            f"the mesh splits the data over {across} devices, but {estimator} has none that are in "
            "shards. Wrap an ex.Minibatch or ex.ControlVariate: ex.Stratified(gradient, "
            f"shards={across}); or leave the axis out: ex.mesh()."
        )
    for shards in found:
        if shards.count % across:
            raise ValueError(
                f"shards={shards.count} can't be split evenly over the {across} devices of the "
                f"mesh's axis 'data'. Try shards={-(-shards.count // across) * across}."
            )


def _check_processes(owners: np.ndarray, parameters: int) -> None:
    """Refuse owners of devices that leave one idle, or with chains that are not neighbours.

    Nor may a position be spread over several processes, since each keeps its own chains whole.
    """
    if (np.ptp(owners.reshape(-1, parameters), axis=1) > 0).any():
        raise ValueError(
            f"the mesh's axis 'parameters', of {parameters} devices, goes over several processes, "
            "but each process keeps the draws of its own chains. Try parameters=... with a divisor "
            "of the devices of a process."
        )
    present, processes = set(owners.ravel().tolist()), jax.process_count()
    if len(present) != processes:
        raise ValueError(
            f"the mesh has devices of {len(present)} of the {processes} processes, but each must "
            "have one. Try ex.mesh()."
        )
    places = [np.flatnonzero((owners == one).any(axis=1)) for one in present]
    if any(np.ptp(place) >= len(place) for place in places):
        raise ValueError(
            "the mesh gives a process chains that do not follow each other. Order the devices by "
            "process, as ex.mesh() does."
        )
