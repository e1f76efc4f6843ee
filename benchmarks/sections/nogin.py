"""What an estimated covariance costs: NOGIN beside SGHMC on the same batches."""

from collections.abc import Callable

import jax
import numpy as np

import ergodax as ex
from benchmarks.report import Table
from benchmarks.sections.settings import Settings
from benchmarks.tasks.logistic import BATCH_SIZE, FRICTION, STEP_SIZE, Task
from benchmarks.timing import Contestant, race, ratio

SGHMC = "sghmc, no covariance"
REFRESH = 100
STEPS = 5  # times fewer than in other sections: to factor a matrix in each step is slow


def nogin_table(task: Task, settings: Settings) -> Table:
    """The public call, one chain: SGHMC, and NOGIN by the structure of its covariance."""
    steps = settings.steps // STEPS
    times = race(
        [Contestant(n, _run(k, task, steps), steps) for n, k in _kernels(task).items()],
        settings.side_rounds,
    )
    title = (
        f"NOGIN: N={task.num_data:,}, D={task.start.size}, batch {BATCH_SIZE}, one chain, "
        f"thin=10, {steps:,} steps a run"
    )
    table = Table(title, ["sampler", "us a step", "median", "x sghmc", "sd"])
    base = times[SGHMC]
    for name, timing in times.items():
        against, scale = ratio(timing, base), timing.scale / base.scale
        numbers = [f"{timing.minimum:,.2f}", f"{timing.median:,.2f}", str(against), f"{scale:.2f}"]
        table.rows.append([name, *numbers])
        table.data[name] = {"microseconds": timing.microseconds, "sd_to_sghmc": scale}
    table.notes.append("sd: no check here; SGHMC is heated by the gradient's noise, NOGIN is not.")
    return table


def _kernels(task: Task) -> dict[str, ex.Kernel]:
    gradient = ex.Minibatch(task.posterior, BATCH_SIZE)
    known = ex.KnownCovariance(gradient, ex.Diagonal(jax.numpy.ones(task.start.size)))
    h = STEP_SIZE["sghmc"]

    def nogin(structure: str, refresh: int = 1) -> ex.Kernel:
        return ex.nogin(ex.ScoreCovariance(gradient, structure, refresh=refresh), h, FRICTION)

    return {
        SGHMC: ex.sghmc(gradient, h, FRICTION),
        "nogin, known diagonal": ex.nogin(known, h, FRICTION),
        "nogin, diagonal": nogin("diagonal"),
        "nogin, diagonal, refresh 10": nogin("diagonal", 10),
        "nogin, scalar": nogin("scalar"),
        f"nogin, low rank {BATCH_SIZE}": nogin("low rank"),
        f"nogin, dense, refresh {REFRESH}": nogin("dense", REFRESH),
    }


def _run(kernel: ex.Kernel, task: Task, steps: int) -> Callable[[int], np.ndarray]:
    def call(seed: int) -> np.ndarray:
        key = jax.random.key(seed)
        return ex.sample(kernel, task.start, steps, thin=10, key=key, progress=False).position[0]

    return call
