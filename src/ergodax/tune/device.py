"""Where an inference computes: on the accelerator, or on the host where that is quicker.

A step on few rows starts dozens of small programs on an accelerator, one after the other, for each
of which the host's processor needs a fraction of the time.
"""

import contextlib
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, Int, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget
from ergodax.tune.host import on_device

STEPS = 64  # gradients in a row that are timed, each with what starting it costs in a loop
TINY = 1e-30  # of a gradient, by which a step moves
BANDWIDTH = 5e10  # bytes a second, that no host reads faster


def full_precision() -> contextlib.AbstractContextManager[None]:
    """While active, accelerators multiply matrices in the precision of their numbers.

    Many round the factors to ten bits otherwise, which spoils the differences of potentials by
    which draws are accepted. What the user has chosen stays.
    """
    if jax.default_backend() == "cpu" or jax.config.jax_default_matmul_precision is not None:
        return contextlib.nullcontext()
    return jax.default_matmul_precision("highest")


class Quicker(NamedTuple):
    """The host's processor, where it computes gradients in less time than the accelerator.

    Attributes:
        device: of the host.
        seconds: of a gradient of all chains there.
        slower: and on the accelerator.
    """

    device: Any
    seconds: float
    slower: float

    def moved(self, target: AbstractTarget, position: PyTree) -> tuple[AbstractTarget, PyTree]:
        """The same, their arrays on the host's device."""
        arrays, others = eqx.partition((target, position), eqx.is_array)
        return eqx.combine(jax.device_put(arrays, self.device), others)

    def __str__(self) -> str:
        """Both times."""
        return (
            f"a gradient takes {1e3 * self.seconds:.2g} ms there, and "
            f"{1e3 * self.slower:.2g} ms on {jax.devices()[0].device_kind}"
        )


def quicker_host(target: AbstractTarget, init: PyTree, num_chains: int) -> Quicker | None:
    """The host's processor if it is quicker; None without an accelerator, or if the user chose one.

    Gradients of all chains are timed in a loop on both, unless the host could not even read the
    data as fast.

    Args:
        target: of the position.
        init: a position at which it is finite.
        num_chains: whose gradients are computed at once.
    """
    if jax.default_backend() == "cpu" or jax.config.jax_default_device is not None:
        return None
    try:
        host = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None
    return _quicker(target, init, num_chains, host)


def _quicker(target: AbstractTarget, init: PyTree, num_chains: int, host: Any) -> Quicker | None:
    chains = jax.tree.map(lambda x: on_device([x] * num_chains, x.dtype), tree.freeze(init, "init"))
    here = _seconds(target, chains, STEPS)
    size = sum(x.nbytes for x in jax.tree.leaves(eqx.filter(target, eqx.is_array)))
    if size / BANDWIDTH > here:
        return None
    found = Quicker(host, 0.0, here)
    try:
        with jax.default_device(host):
            target, chains = found.moved(target, chains)
            if _seconds(target, chains, 1) > STEPS * here:
                return None
            there = _seconds(target, chains, STEPS)
    except Exception:  # the model's own: it has arrays that stay on the accelerator
        return None
    return found._replace(seconds=there) if there < here else None


def _seconds(target: AbstractTarget, chains: PyTree, steps: int) -> float:
    """Of a gradient of all chains, of so many in a row."""
    count, times = on_device(steps, "int32"), []
    for _ in range(2):  # the first compiles
        began = time.perf_counter()
        jax.block_until_ready(_gradients(target, chains, count))
        times.append(time.perf_counter() - began)
    return min(times) / steps


@eqx.filter_jit
def _gradients(target: AbstractTarget, chains: PyTree, steps: Int[Array, ""]) -> PyTree:
    """The positions after so many steps that hardly move."""

    def step(_: Int[Array, ""], positions: PyTree) -> PyTree:
        gradients = jax.vmap(lambda x: target.value_and_gradient(x)[1])(positions)
        return jax.tree.map(lambda x, g: x - TINY * g, positions, gradients)

    return lax.fori_loop(0, steps, step, chains)
