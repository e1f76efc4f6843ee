"""The cold posterior curve: how the test log-likelihood depends on the temperature."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.apps.bnn import methods, scores
from ergodax.apps.bnn.data import Task
from ergodax.apps.bnn.experiment import Options
from ergodax.apps.bnn.pages import measured
from ergodax.report import page as report
from ergodax.report.pictures import COLOURS

CAPTION = (
    "Test log-likelihood of cyclical SGHMC at temperature T, with one standard error over the test "
    "rows; T = 1 is the posterior. Dashed: a deep ensemble from as many gradients."
)


def curve(
    task: Task,
    temperatures: tuple[float, ...],
    options: Options,
    say: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Sample exp(-U / T) at each temperature, from one warm start and with the same batches.

    Args:
        task: the data.
        temperatures: positive; 1 is the posterior.
        options: see Options; its methods do not matter.
        say: called with a line after each run.

    Returns:
        A row for each temperature, and one of the ensemble with temperature 0.

    Raises:
        ValueError: a temperature that is not positive and finite, or none.

    Reference:
        Wenzel et al., How good is the Bayes posterior in deep neural networks really?, 2020.
    """
    if not temperatures or not all(0 < t < float("inf") for t in temperatures):
        raise ValueError(f"temperatures must be positive and finite, not {temperatures}.")
    problem = options.problem(task, options.seed)
    rows = []
    for temperature in (0.0, *sorted(temperatures)):
        if temperature:
            outcome = methods.cyclical_sghmc(problem, temperature)
        else:
            outcome = methods.ensemble(problem)
        figures = scores.scores(task, outcome.prediction)
        bounds = scores.errors(task, outcome.prediction)
        row = {"temperature": temperature, "kinetic": outcome.temperature, **figures}
        rows.append(row | {f"{name}_error": error for name, error in bounds.items()})
        told = measured(figures["log_likelihood"], bounds["log_likelihood"])
        say(f"T = {temperature:g}: log-likelihood {told}, {outcome.seconds:.1f} s")
    return pd.DataFrame(rows)


def texts(table: pd.DataFrame, task: Task) -> pd.DataFrame:
    """The table to read."""
    rows = []
    for row in table.to_dict("records"):
        name = f"{row['temperature']:g}" if row["temperature"] else "0 (ensemble)"
        kinetic = "" if np.isnan(row["kinetic"]) else f"{row['kinetic']:.3g}"
        cells = {"temperature": name, "kinetic": kinetic}
        for figure, head in scores.FIGURES[task.kind].items():
            if figure in row:
                cells[head] = measured(row[figure], row.get(f"{figure}_error"))
        rows.append(cells)
    return pd.DataFrame(rows)


def show(table: pd.DataFrame) -> Any:
    """Log-likelihood against temperature, the ensemble's as a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    rows = table.to_dict("records")
    cold = next(row["log_likelihood"] for row in rows if row["temperature"] == 0)
    hot = table[table["temperature"] > 0]
    axis.errorbar(
        hot["temperature"], hot["log_likelihood"], hot["log_likelihood_error"], fmt="o-",
        color=COLOURS[0], capsize=3, label="SGHMC",
    )  # fmt: skip
    axis.axhline(cold, color="grey", ls="--", label="ensemble")
    axis.set(xscale="log", xlabel="temperature", ylabel="test log-likelihood")
    axis.legend(frameon=False)
    axis.grid(alpha=0.3)
    return figure


def write(table: pd.DataFrame, task: Task, folder: Path) -> dict[str, Path]:
    """Write cold.png, cold.csv, cold.json and report.html.

    Args:
        table: of `curve`.
        task: the data.
        folder: made if it does not exist.

    Returns:
        The paths by name.
    """
    picture = show(table)
    facts = {"data": task.name, "temperatures": table.to_dict("records")}
    paths = report.results(folder, "cold", picture, table, facts)
    sections = [
        ("By temperature", report.text_table(texts(table, task))),
        ("The picture", report.picture(picture, CAPTION)),
    ]
    report.write(paths["report"], f"Cold posteriors: {task.name}", sections)
    return paths
