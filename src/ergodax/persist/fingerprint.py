"""What a run is, in short texts by name, so that it is not resumed as another one."""

import hashlib
import os
import platform
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.block import blocks_of
from ergodax.errors import CheckpointError
from ergodax.persist import callbacks

PROGRAM = "the program of a step (model, sampler or library)"
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(
    kernel: Any,
    collect: Callable[..., Any] | None,
    keys: PyTree,
    states: PyTree,
    *,
    kept: bool,
    **counts: int,
) -> dict[str, str]:
    """Digests of all that the draws depend on.

    The model is told by the traced program of one step, which contains every function it calls,
    by the constants that were caught in it, and by what can be seen of Python functions that it
    calls back; the data and the settings by the kernel's arrays.

    Keys and first states have a leading chain axis; `kept` says whether the run is to be resumed;
    counts are numbers that must not change.

    Raises:
        ValueError: a run that is kept has data that can't be told from others.
    """
    # Named like the parts of the chains, in which several processes may differ.
    parts = {"key: the number of chains": str(jax.tree.leaves(keys)[0].shape[0])}
    parts |= {name: str(value) for name, value in counts.items()}
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), (keys, states))

    def step(kernel: Any, key: PRNGKeyArray, state: PyTree) -> Any:
        state, info = kernel.step(key, state)
        position = tree.thaw(state.position)
        return state, info, position if collect is None else collect(position)

    parts |= program(PROGRAM, step, kernel, *one)
    parts |= digests(kernel, "kernel") | digests(keys, "key") | digests(states.position, "position")
    for k, block in enumerate(blocks_of(states)):
        facts = block.source.facts()
        if kept and facts.get("identity", "") is None:
            raise ValueError(
                "a run on a stream can't be kept in a checkpoint without a name for its rows: "
                "nothing else would tell when they have changed. Pass identity= to "
                "ex.data.stream, such as identity='clicks of 2026-11'."
            )
        parts |= {f"data {k}: {name}": str(value) for name, value in facts.items()}
    return parts


def program(name: str, function: Callable[..., Any], *args: PyTree) -> dict[str, str]:
    """Of the traced program of a function, under that name, and of what is caught in it."""
    return of_jaxpr(name, eqx.filter_make_jaxpr(function)(*args)[0])


def of_jaxpr(name: str, closed: Any) -> dict[str, str]:
    """Of a program that has been traced already."""
    parts = {name: _digest(ADDRESS.sub("", str(closed.jaxpr)).encode())}
    parts |= callbacks.digests(closed.jaxpr)
    for k, constant in enumerate(closed.consts):
        parts[f"constant {k} of the program (an array that a function of yours uses)"] = _array(
            constant
        )
    return parts


def compare(now: dict[str, str], then: dict[str, str], where: Path | None) -> None:
    """Refuse to go on with a run that is not the one that was begun. Raises: CheckpointError."""
    changed = [name for name in now if now[name] != then.get(name)]
    changed += [name for name in then if name not in now]
    if changed:
        shown = "; ".join(f"{n}{_values(n, now, then)}" for n in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise CheckpointError(
            f"the run in {where} can't be resumed by this one, since these have changed: {shown}"
            f"{more}. Restore them, or choose another folder for a new run."
        )


def surroundings(mesh: Mesh | None) -> dict[str, str]:
    """What the last bits of the draws depend on, and their law does not."""
    device = jax.devices()[0] if mesh is None else mesh.devices.flat[0]
    words = ("ERGODAX_OPTIMISATION", "ERGODAX_FUSED_NUMBERS", "ERGODAX_WIDE_PRODUCT", "XLA_FLAGS")
    return {
        "the version of JAX": jax.__version__,
        "the device": f"{device.device_kind}, {platform.machine()}",
        "the mesh": "none" if mesh is None else str(dict(mesh.shape)),
        "jax_default_matmul_precision": str(jax.config.jax_default_matmul_precision),
    } | {name: os.environ.get(name, "not set") for name in words}


def warn_of_rounding(now: dict[str, str], then: dict[str, str], step: int) -> None:
    """Say that a run goes on at `step` in other surroundings than those it was begun in."""
    changed = [f"{name} ({then.get(name)} then, {now[name]} now)" for name in now]
    changed = [text for text, name in zip(changed, now, strict=True) if then.get(name) != now[name]]
    if changed:
        warnings.warn(
            f"{'; '.join(changed)}: from step {step} on the draws may differ, by rounding, from "
            "those of a run that was not interrupted. Their law is the same.",
            stacklevel=2,
        )


def _values(name: str, now: dict[str, str], then: dict[str, str]) -> str:
    old, new = then.get(name, "absent"), now.get(name, "absent")
    return f" ({old} then, {new} now)" if max(len(old), len(new)) <= 20 else ""


def digests(tree: PyTree, name: str) -> dict[str, str]:
    """Of the arrays in a tree, by their paths after the name; single numbers as they are."""
    paths = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {name + jax.tree_util.keystr(path): _array(leaf) for path, leaf in paths}


def _array(value: Any) -> str:
    if tree.is_key(value):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind in "fiub":
        return str(array[()])  # the shortest text that tells it from its neighbours
    array = np.ascontiguousarray(array)
    return _digest(f"{array.dtype}{array.shape}".encode(), array.view(np.uint8).data)


def _digest(*pieces: bytes | memoryview) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
