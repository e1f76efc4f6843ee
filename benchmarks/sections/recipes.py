"""What generality costs: a recipe as a user writes it, beside the update written by hand."""

from collections.abc import Callable
from typing import Any

import jax

import ergodax as ex
from benchmarks.peers import handwritten, ours, recipes
from benchmarks.report import Table, verdict
from benchmarks.sections.settings import Settings
from benchmarks.tasks.logistic import Task
from benchmarks.timing import Contestant, Timing, race, ratio

RECIPE, NAMED, HAND = "user's recipe", "named sampler", "hand-written"
GOAL = 1.1
WIDTHS = (100_000, 1_000_000)  # memory at both, time at the larger
STEP_SIZE, FRICTION = 0.1, 2.0  # for a standard normal


def logistic_recipes(task: Task, settings: Settings) -> Table:
    """The four samplers on batches of the logistic regression, by the public call."""
    steps = settings.steps
    table = _table(
        f"Recipes: N={task.num_data:,}, D={task.start.size}, batch 100, one chain, thin=10, "
        f"{steps:,} steps a run"
    )
    for sampler in recipes.SAMPLERS:
        common = (sampler, task, steps, 10)
        group = [
            Contestant(RECIPE, ours.run(*common, replace=True, generic=True), steps),
            Contestant(NAMED, ours.run(*common, replace=True), steps),
            Contestant(HAND, handwritten.run(*common), steps),
        ]
        _add(table, sampler, race(group, settings.side_rounds))
    return table


def wide_recipes(settings: Settings) -> Table:
    """The same four on a million coordinates: a standard normal and its exact gradient."""
    steps, start = settings.steps // 1_000, _start(WIDTHS[-1])
    table = _table(
        f"Recipes: d={WIDTHS[-1]:,} in two arrays, exact gradient, {steps} steps a run",
        *(f"memory / d at {d:,}" for d in WIDTHS),
    )
    for sampler in recipes.SAMPLERS:
        hand = handwritten.wide(sampler, start, steps, STEP_SIZE, FRICTION)
        group = [
            *(Contestant(n, ours.wide(k, start, steps), steps) for n, k in _kernels(sampler)),
            Contestant(HAND, hand, steps),
        ]
        _add(table, sampler, race(group, settings.side_rounds), _memory(sampler))
    table.notes.append(
        "memory / d: temporary memory of one compiled step beside its states, in numbers for each "
        "coordinate; the same at both d is O(d)."
    )
    return table


def _table(title: str, *extra: str) -> Table:
    columns = ["sampler", "us a step", "median", "x hand-written", "sd", *extra]
    return Table(title, columns)


def _add(
    table: Table,
    sampler: str,
    times: dict[str, Timing],
    memory: dict[str, list[float]] | None = None,
) -> None:
    """Three rows, two verdicts."""
    hand = times[HAND]
    for name, timing in times.items():
        against, scale = ratio(timing, hand), timing.scale / hand.scale
        numbers = memory[name] if memory else []
        row = [f"{sampler}, {name}", f"{timing.minimum:,.2f}", f"{timing.median:,.2f}"]
        table.rows.append([*row, str(against), f"{scale:.2f}", *(f"{x:.2f}" for x in numbers)])
        table.data[row[0]] = {
            "microseconds": timing.microseconds,
            "sd_to_handwritten": scale,
            "memory_to_dimension": numbers,
        }
        if name != HAND:
            table.notes.append(verdict(f"{row[0]} to {HAND}", against.median, GOAL))


def _kernels(sampler: str) -> list[tuple[str, ex.Kernel]]:
    gradient = ex.FullGradient(ex.Target(_potential))
    return [
        (RECIPE, recipes.kernel(sampler, gradient, STEP_SIZE, FRICTION)),
        (NAMED, ours.named(sampler, gradient, STEP_SIZE, FRICTION)),
    ]


def _potential(x: dict) -> jax.Array:
    return 0.5 * ex.tree.dot(x, x)


def _start(dimension: int) -> dict:
    """A draw from the target: a matrix and a vector, as in a layer of a network."""
    shapes = {"bias": (dimension // 1_000,), "weight": (dimension // 1_000, 999)}
    keys = jax.random.split(jax.random.key(0))
    return {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def _memory(sampler: str) -> dict[str, list[float]]:
    """Temporary numbers for each coordinate in one compiled step, at each width."""
    key = jax.random.key(0)
    by_hand = handwritten.wide_step(sampler, STEP_SIZE, FRICTION)

    def temporary(step: Callable, state: Any, dimension: int) -> float:
        analysis = jax.jit(step).lower(state, key).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes / (4 * dimension)

    found = {name: [] for name in (RECIPE, NAMED, HAND)}
    for d in WIDTHS:
        start = _start(d)
        for name, kernel in _kernels(sampler):
            step = lambda state, key, kernel=kernel: kernel.step(key, state)  # noqa: E731
            found[name].append(temporary(step, kernel.init(key, start), d))
        found[HAND].append(temporary(by_hand, handwritten.wide_start(sampler, key, start), d))
    return found
