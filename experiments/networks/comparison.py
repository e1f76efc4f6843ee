"""Every method on the same data, from the same number of gradients."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import ergodax as ex
from experiments.networks.methods import METHODS, REFERENCE
from experiments.networks.problem import FRICTION, RATE, Budget, Problem
from experiments.networks.scores import calibrated, errors, scores
from experiments.networks.tasks import Task

DEFAULT_STEPS = {"regression": 16_000, "classification": 20_000}
QUICK_STEPS = {"regression": 1_500, "classification": 300}
SETTINGS = ("width", "depth", "prior_scale", "members", "seed", "quick")
DRAWS = {"regression": 100, "classification": 30}  # predicting ten thousand images costs more


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user may set; None means chosen by the kind of task.

    Raises:
        ValueError: a number out of range, or no such method.
    """

    methods: tuple[str, ...] = tuple(METHODS)  # which run
    width: int = 50  # units of a hidden layer
    depth: int = 1  # hidden layers
    prior_scale: float = 1.0  # of the normal prior, in units of 1 / sqrt(inputs)
    members: int = 5  # chains, and members of the ensemble
    steps: int | None = None  # of each member, the sampler's warm start included
    batch_size: int = 100  # examples in a batch
    seed: int = 0  # of everything random
    quick: bool = False  # few steps

    def __post_init__(self) -> None:
        """Refuse before any work what would fail after it."""
        least = {"width": 1, "depth": 0, "members": 1, "batch_size": 1}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} must be at least {value}, not {getattr(self, name)}.")
        if self.steps is not None and self.steps < 100:
            raise ValueError(f"steps must be at least 100, not {self.steps}.")
        if not 0 < self.prior_scale < float("inf"):
            raise ValueError(f"prior_scale must be positive and finite, not {self.prior_scale}.")
        unknown = set(self.methods) - set(METHODS) - set(REFERENCE)
        if unknown or not self.methods:
            raise ValueError(
                f"no such method: {sorted(unknown)}. There are {', '.join(METHODS | REFERENCE)}."
            )

    def problem(self, task: Task, seed: int) -> Problem:
        """A task with its posterior and budget."""
        table = QUICK_STEPS if self.quick else DEFAULT_STEPS
        budget = Budget(
            members=self.members, steps=self.steps or table[task.kind],
            batch_size=self.batch_size, draws=DRAWS[task.kind],
        )  # fmt: skip
        return Problem(task, budget, self.width, self.depth, self.prior_scale, seed)


@dataclasses.dataclass(frozen=True)
class Result:
    """What an experiment found."""

    # a row for each method: each figure, and its standard error as "NAME_error"
    table: pd.DataFrame
    runs: pd.DataFrame  # a row for each method and repetition
    # the reliability diagram of each method, in the first repetition
    diagrams: dict[str, ex.network.Calibration]
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(
    tasks: list[Task], options: Settings, say: Callable[[str], None] = lambda text: None
) -> Result:
    """Run every method on every task.

    Args:
        tasks: repetitions of one task: splits, or the same task again for further seeds.
        options: see Settings.
        say: called with a line after each run.

    Returns:
        A Result; standard errors are over the repetitions, or, of a single one, over its test
        rows by the bootstrap.
    """
    rows, single, diagrams = [], {}, {}
    problem = None
    for repetition, task in enumerate(tasks):
        problem = options.problem(task, options.seed + repetition)
        for name in options.methods:
            outcome = (METHODS | REFERENCE)[name](problem)
            figures = scores(task, outcome.prediction)
            if repetition == 0:
                diagrams[name] = calibrated(task, outcome.prediction)
                single[name] = errors(task, outcome.prediction)
            cost = {"evaluations": outcome.evaluations, "seconds": outcome.seconds}
            more = {"draws": outcome.prediction.count, "temperature": outcome.temperature}
            rows.append({"method": name, "repetition": repetition, **figures, **cost, **more})
            say(f"{name}: {_told(figures)}, {outcome.seconds:.1f} s")
    assert problem is not None
    runs = pd.DataFrame(rows)
    table = _table(runs, single, len(tasks))
    return Result(table, runs, diagrams, _facts(tasks, options, problem, table))


def _told(figures: dict[str, float]) -> str:
    names = ("log_likelihood", "rmse", "accuracy", "calibration_error")
    return ", ".join(f"{n.replace('_', ' ')} {figures[n]:.4g}" for n in names if n in figures)


def _table(runs: pd.DataFrame, single: dict[str, Any], repetitions: int) -> pd.DataFrame:
    rows = []
    for name, group in runs.groupby("method", sort=False):
        values = group.drop(columns=["method", "repetition"])
        row = {"method": name, **values.mean().to_dict()}
        if repetitions > 1:
            spread = values.std(ddof=1) / np.sqrt(repetitions)
            row |= {f"{figure}_error": float(spread[figure]) for figure in values.columns}
        else:
            row |= {f"{figure}_error": error for figure, error in single[str(name)].items()}
        rows.append(row)
    return pd.DataFrame(rows)


def _facts(
    tasks: list[Task], options: Settings, problem: Problem, table: pd.DataFrame
) -> dict[str, Any]:
    task = tasks[0]
    return {
        "data": task.name, "kind": task.kind, "rows": len(task.y), "test_rows": len(task.y_test),
        "inputs": task.x.shape[1], "classes": task.classes, "repetitions": len(tasks),
        "strange": task.strange_kind or None,
        **{name: getattr(options, name) for name in SETTINGS},
        "steps": problem.budget.steps, "batch_size": problem.batch_size,
        "warm_steps": problem.budget.warm_steps, "step_size": problem.step_size(),
        "evaluations": problem.evaluations, "friction": FRICTION,
        "rate_of_adam": RATE,
        "methods": table.to_dict("records"),
    }  # fmt: skip
