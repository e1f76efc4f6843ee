"""What a step costs at the size of networks: `python -m benchmarks network_steps`.

A perceptron 784-1200-760-10 (1.86 million parameters) on rows like MNIST's, batches of 100, in
float32. JAX's contestants take steps inside one scan, and draw batches by the same code. With
--posteriors PYTHON the samplers of posteriors and torch's SGD run in a process of their own, in
the same rounds.
"""

import argparse
import contextlib
import os
import subprocess
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import ergodax as ex
from benchmarks import environment
from benchmarks.report import Table, verdict
from benchmarks.timing import Contestant, race, ratio

WIDTHS, ROWS, BATCH = (784, 1200, 760, 10), 10_000, 100
GOALS = {"sgld": 1.5, "sghmc": 1.8}


def main(arguments: Sequence[str] | None = None) -> None:
    """Race optax's and our steps, and print their times and ratios."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks network_steps",
        description="Milliseconds a step at 1.86 million parameters, compared with optax.",
        epilog="example: python -m benchmarks network_steps --rounds 5",
    )
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--steps", type=int, default=20, help="steps a run (default: 20)")
    parser.add_argument(
        "--posteriors", type=Path, metavar="PYTHON", help="the interpreter that has posteriors"
    )
    options = parser.parse_args(arguments)
    for name, value in environment.describe().items():
        print(f"{name:>12}: {value}")
    with contextlib.ExitStack() as running:
        torch = {}
        if options.posteriors is not None:
            torch = running.enter_context(_torch(options.posteriors, options.steps))
        print(f"\n{_table(options.rounds, options.steps, torch).text()}")


def _table(rounds: int, steps: int, torch: dict[str, Callable[[int], Any]]) -> Table:
    posterior, start = perceptron()
    gradient = ex.Minibatch(posterior, BATCH)
    size = sum(x.size for x in jax.tree.leaves(ex.tree.freeze(start)))
    low = ex.Minibatch(perceptron(jnp.bfloat16)[0], BATCH)
    h = 1e-7
    runs = {
        "optax sgd": _optax(optax.sgd(h), gradient, start, steps),
        "optax adam": _optax(optax.adam(1e-4), gradient, start, steps),
        "sgld": _ours(ex.sgld(gradient, h), start, steps),
        "sgld, bfloat16 forward": _ours(ex.sgld(low, h), start, steps),
        "sghmc": _ours(ex.sghmc(gradient, h**0.5, 10.0), start, steps),
        "langevin, BAOAB": _ours(ex.langevin(gradient, h**0.5, 10.0), start, steps),
        "psgld": _ours(ex.psgld(gradient, h), start, steps),
        "microcanonical": _ours(ex.microcanonical(gradient, 1e-2, 1.0), start, steps),
    } | torch
    found = race([Contestant(name, run, steps) for name, run in runs.items()], rounds)
    table = Table(
        f"{size:,} parameters, batches of {BATCH}, {steps} steps a run, best of {rounds} rounds",
        ["", "ms a step", "median", "x optax sgd"],
        data={name: timing.microseconds for name, timing in found.items()},
    )
    for name, timing in found.items():
        times = [f"{1e-3 * t:.2f}" for t in (timing.minimum, timing.median)]
        table.rows.append([name, *times, str(ratio(timing, found["optax sgd"]))])
    table.notes = [
        verdict(name, ratio(found[name], found["optax sgd"]).median, goal)
        for name, goal in GOALS.items()
    ]
    return table


@contextlib.contextmanager
def _torch(python: Path, steps: int) -> Generator[dict[str, Callable[[int], Any]]]:
    """Contestants of another process, which is told a name and answers when its steps are taken."""
    script = Path(__file__).parent / "peers" / "torch_steps.py"
    settings = [*WIDTHS, ROWS, BATCH, len(os.sched_getaffinity(0))]
    command = [str(python), str(script), *map(str, settings)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None and answers is not None

        def run(name: str, seed: int) -> np.ndarray:
            asked.write(f"{name} {steps} {seed}\n")
            asked.flush()
            if answers.readline().strip() != "done":
                raise RuntimeError(f"{python}: {name} of {script.name} has failed; run it by hand")
            return np.zeros(2)

        try:
            if answers.readline().strip() != "ready":
                raise RuntimeError(
                    f"{python} has no torch or posteriors; run {script.name} by hand"
                )
            yield {
                "torch sgd": lambda seed: run("sgd", seed),
                "posteriors sgld": lambda seed: run("sgld", seed),
                "posteriors sghmc": lambda seed: run("sghmc", seed),
            }
        finally:
            process.kill()


def perceptron(compute_dtype: Any = None) -> tuple[Any, Any]:
    """The posterior of the network, and a start."""
    rng = np.random.default_rng(0)
    x = (rng.random((ROWS, WIDTHS[0])) * (rng.random((ROWS, WIDTHS[0])) < 0.2)).astype(np.float32)
    y = rng.integers(10, size=ROWS)
    keys = jax.random.split(jax.random.key(0), 3)
    layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(WIDTHS, WIDTHS[1:], keys, strict=False)]
    relu = eqx.nn.Lambda(jax.nn.relu)
    module = eqx.nn.Sequential([layers[0], relu, layers[1], relu, layers[2]])
    posterior = ex.network.posterior(
        module, (x, y), ex.network.likelihoods.Categorical(), compute_dtype=compute_dtype
    )
    return posterior, posterior.start


def _optax(
    optimiser: optax.GradientTransformation, gradient: ex.Minibatch, start: Any, steps: int
) -> Callable[[int], Any]:
    """Steps of an optimiser along the same gradient."""
    start = ex.tree.freeze(start)

    def step(carry: Any, key: Any) -> Any:
        position, state, batches = carry
        estimate, batches = gradient.estimate(key, batches, position)
        with jax.numpy_dtype_promotion("standard"):
            change, state = optimiser.update(estimate.gradient, state, position)
        return (optax.apply_updates(position, change), state, batches), None

    @eqx.filter_jit
    def run(seed: Any) -> Any:
        key, *keys = jax.random.split(jax.random.key(seed), steps + 1)
        carry = (start, optimiser.init(start), gradient.init(key, start))
        (position, _, _), _ = jax.lax.scan(step, carry, jnp.stack(keys))
        return jax.tree.leaves(position)[-1]

    return lambda seed: run(jnp.int32(seed))


def _ours(kernel: Any, start: Any, steps: int) -> Callable[[int], Any]:
    """Steps of a kernel, whose Info is dropped."""

    @eqx.filter_jit
    def run(kernel: Any, seed: Any) -> Any:
        key, *keys = jax.random.split(jax.random.key(seed), steps + 1)

        def step(state: Any, key: Any) -> Any:
            return kernel.step(key, state)[0], None

        state, _ = jax.lax.scan(step, kernel.init(key, start), jnp.stack(keys))
        return jax.tree.leaves(state.position)[-1]

    return lambda seed: run(kernel, jnp.int32(seed))
