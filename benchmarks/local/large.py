"""What a network of 10^7 parameters costs: `python -m benchmarks local --large`.

A perceptron of three layers on random data. Memory is the most that a process ever held, of
processes that differ in the width alone: what they hold beside the weights grows by a multiple of
these, and the programs of JAX are what is left. A step is a leapfrog of a trajectory, beside a step
of optax's SGD on the same rows.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ergodax as ex
from benchmarks.report import Table, verdict
from benchmarks.timing import Contestant, race, ratio
from ergodax.local import in_place
from ergodax.local.law import local_law

WIDTHS = 1_600, 2_236, 4_472  # 5, 10 and 40 million parameters
ROWS, CHUNK, LEAPS = 512, 128, 32
GOALS = {"memory": 6.0, "step": 1.8}


def network(width: int) -> tuple[Callable[[Any, Any], Any], dict[str, Any], Any]:
    """A loss of one example, weights, and data."""
    rng, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0), 3)
    shapes = {"first": (width, width), "second": (width, width), "last": (width,)}
    draw = jax.jit(jax.random.normal, static_argnums=1)
    pairs = zip(keys, shapes.items(), strict=True)
    weights = {name: draw(key, shape) / math.sqrt(width) for key, (name, shape) in pairs}
    x = jnp.asarray(rng.normal(size=(ROWS, width)), jnp.float32)
    y = jnp.asarray(rng.normal(size=ROWS), jnp.float32)

    def loss(w: Any, row: Any) -> Any:
        x, y = row
        hidden = jnp.tanh(jnp.tanh(x @ w["first"]) @ w["second"])
        return 0.5 * (y - hidden @ w["last"]) ** 2

    return loss, weights, (x, y)


def localization(weights: Any) -> float:
    """That keeps the draws about as far from w* as w* is from 0."""
    return size(weights) / float(optax.tree.norm(weights, squared=True))


def size(weights: Any) -> int:
    """How many parameters."""
    return sum(x.size for x in jax.tree.leaves(weights))


def held(width: int, seconds: float) -> dict[str, Any]:
    """Megabytes that this process held before, and at most, and what was found."""
    loss, weights, data = network(width)
    jax.block_until_ready(jax.vmap(loss, (None, 0))(weights, jax.tree.map(lambda x: x[:8], data)))
    megabytes = 4.0 * size(weights) / 2**20
    before = megabytes_held("VmRSS")
    found = ex.local.learning_coefficient(
        loss, weights, data, key=jax.random.key(1), localization=localization(weights),
        batch_size=CHUNK, max_seconds=seconds,
    )  # fmt: skip
    most = megabytes_held("VmHWM")
    return {"weights": megabytes, "before": before, "most": most, "found": str(found)}


def megabytes_held(which: str) -> float:
    """By this process, now (VmRSS) or at most (VmHWM): Linux's own count."""
    status = Path("/proc/self/status").read_text()
    return float(status.split(f"{which}:")[1].split()[0]) / 2**10


def memory(seconds: float) -> Table:
    """Of a process for each width."""
    table = Table(
        f"most memory, {seconds:g} s each",
        ["parameters", "weights, MB", "MB beside what was there"],
    )
    seen = []
    # Arrays that were let go go back to the system, so that what is counted is what is in use.
    variables = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    for width in WIDTHS:
        call = [sys.executable, "-m", "benchmarks.local.large", str(width), str(seconds)]
        made = subprocess.run(call, capture_output=True, text=True, env=variables, check=True)
        found = json.loads(made.stdout)
        seen.append((found["weights"], found["most"] - found["before"] + found["weights"]))
        cells = (f"{found['weights'] * 2**18:,.0f}", *(f"{x:.0f}" for x in seen[-1]))
        table.rows.append(list(cells))
        table.notes.append(found["found"])
    weights, held_for_them = np.transpose(seen)
    slope, rest = np.polyfit(weights, held_for_them, 1)
    table.notes.append(
        f"the weights with all that is held for them: {slope:.1f} times the weights, and "
        f"{rest:.0f} MB of programs. " + verdict("memory", slope, GOALS["memory"])
    )
    return table


def step(rounds: int) -> Table:
    """A leapfrog beside a step of SGD, both of all rows of one chunk."""
    loss, weights, data = network(WIDTHS[1])
    data = jax.tree.map(lambda x: x[:CHUNK], data)
    law = local_law(loss, weights, data, 1.0, localization(weights), chunk=CHUNK)
    mean = lambda w: jnp.mean(jax.vmap(loss, (None, 0))(w, data))  # noqa: E731
    sgd = optax.sgd(1e-6)

    @jax.jit
    def train(w: Any) -> Any:
        def one(_: Any, w: Any) -> Any:
            return optax.apply_updates(w, sgd.update(jax.grad(mean)(w), sgd.init(w))[0])

        return jax.lax.fori_loop(0, LEAPS, one, w)

    leaps = in_place.Leaps(jnp.float32(1e-6), jnp.int32(LEAPS - 1))  # as many gradients
    deadline = in_place.Deadline.never()
    collect = jax.tree_util.Partial(lambda x: x["last"][0])  # the same at each call

    def ours(seed: int) -> Any:
        start = jax.tree.map(jnp.copy, weights)
        return in_place.run(law, jax.random.key(seed), start, leaps, 1, collect, deadline)[0][
            "last"
        ]

    runs = {"optax sgd": lambda _: train(weights)["last"], "leapfrog": ours}
    found = race([Contestant(name, run, LEAPS) for name, run in runs.items()], rounds)
    table = Table(f"{size(weights):,} parameters, {CHUNK} rows", ["", "ms a gradient"])
    table.rows = [[name, f"{1e-3 * timing.minimum:.1f}"] for name, timing in found.items()]
    times = ratio(found["leapfrog"], found["optax sgd"])
    table.notes = [f"{times} times. " + verdict("step", times.median, GOALS["step"])]
    return table


if __name__ == "__main__":
    print(json.dumps(held(int(sys.argv[1]), float(sys.argv[2]))))
