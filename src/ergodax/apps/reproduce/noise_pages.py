"""Tables and files of the experiments of Matthews and Weare (2018)."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from ergodax.apps.reproduce import autocorrelation, mixture, noise_pictures, orders
from ergodax.apps.reproduce.divergences import Measured
from ergodax.apps.reproduce.noise_problem import SAMPLERS
from ergodax.apps.reproduce.pages import write_experiment
from ergodax.report import page as report
from ergodax.report.page import sentences_list


def slopes_table(result: orders.Result) -> pd.DataFrame:
    """A row for each target and sampler: orders in h, and in the overdamped samplers' own step."""
    rows = []
    for row in result.slopes.to_dict("records"):
        texts = {"target": row["target"], "sampler": row["sampler"]}
        exact = row["largest"] < orders.ROUNDING
        for error in orders.ERRORS:
            texts[error] = "exact" if exact else _slope(row, error)
        overdamped = SAMPLERS[str(row["sampler"])].parts is None
        texts["distance, own step"] = _slope(row, "distance", 0.5) if overdamped else ""
        rows.append(texts | {"largest error": f"{row['largest']:.2g}"})
    return pd.DataFrame(rows)


def _slope(row: Any, error: str, factor: float = 1.0) -> str:
    if not math.isfinite(row[error]):
        return "changes sign"
    return str(Measured(factor * row[error], factor * row[f"{error}_error"]))


def race_table(result: orders.Result) -> pd.DataFrame:
    """A row for each sampler: root mean square errors at the end, and exact biases."""
    last = result.race[result.race["gradients"] == result.race["gradients"].max()]
    rows = []
    for name, group in last.groupby("sampler", sort=False):
        texts = {"sampler": name}
        for row in pd.DataFrame(group).to_dict("records"):
            texts[f"error of E {row['moment']}"] = str(Measured(row["error"], row["error_error"]))
            texts[f"bias of E {row['moment']}"] = f"{row['bias']:.4f}"
        rows.append(texts)
    return pd.DataFrame(rows)


def times_table(result: autocorrelation.Result) -> pd.DataFrame:
    """A row for each h and C of the chains."""
    rows = []
    for row in result.chains.to_dict("records"):
        known = autocorrelation.exact(row["step_size"], row["noise"])
        columns = {
            "exact": "time", "slow mode": "slow_mode", "closed form": "closed_form",
            "with C⁴ - 4": "as_printed", "printed limit": "printed_limit",
        }  # fmt: skip
        rows.append(
            {"h": f"{row['step_size']:g}", "C": f"{row['noise']:g}"}
            | {"ArviZ": str(Measured(row["time"], row["time_error"]))}
            | {name: _number(known[column]) for name, column in columns.items()}
        )
    return pd.DataFrame(rows)


def errors_table(result: mixture.Result) -> pd.DataFrame:
    """A row for each sampler and number of passes, a column for each batch size."""
    table = result.table.pivot_table(
        index=["sampler", "passes"], columns="batch_size", values="error", sort=False
    )
    texts = table.map(lambda x: f"{x:.3g}").reset_index()
    texts.columns = [str(name) for name in texts.columns]
    return texts.astype(str)


def _number(x: float) -> str:
    return f"{x:.4f}" if math.isfinite(x) else "complex"


def write_orders(result: orders.Result, folder: Path) -> dict[str, Path]:
    """Write noise-orders.png, noise-orders.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", sentences_list(result.verdicts)),
        ("Orders in h", report.text_table(slopes_table(result))),
        (f"Chains at h = {orders.RACE:g}", report.text_table(race_table(result))),
        ("All errors, relative; distance in total variation", report.data_frame(result.table)),
    ]
    caption = (
        "Exact laws found on grids. A missing point is a step size at which the thermostat finds "
        "no rest. SGLD and mSGLD take the step size h²/2, as in the paper: second order in h "
        "there is first order in their own step. Thermostats are heavy in these laws, of mass "
        f"{orders.THERMAL_MASS:g} in the chains."
    )
    picture = noise_pictures.show_orders(result)
    return write_experiment(
        folder, "noise-orders", picture, caption, result.table, result.facts, sections
    )


def write_autocorrelation(result: autocorrelation.Result, folder: Path) -> dict[str, Path]:
    """Write autocorrelation.png, autocorrelation.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", sentences_list(result.verdicts)),
        ("Times", report.text_table(times_table(result))),
    ]
    caption = (
        "Where the closed form ends the eigenvalues are complex: the chain oscillates, and ArviZ's "
        "estimate, which takes no negative sums of lags, is too large."
    )
    picture = noise_pictures.show_autocorrelation(result)
    return write_experiment(
        folder, "autocorrelation", picture, caption, result.table, result.facts, sections
    )


def write_mixture(result: mixture.Result, folder: Path) -> dict[str, Path]:
    """Write mixture.png, mixture.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", sentences_list(result.verdicts)),
        ("Errors", report.text_table(errors_table(result))),
    ]
    caption = (
        "Second moments about the true mean, in units of the true covariance, less I: root mean "
        "square of the Frobenius norm over chains, divided by the square root of the dimension. "
        "The passes that the exact covariance takes are not counted."
    )
    picture = noise_pictures.show_mixture(result)
    return write_experiment(
        folder, "mixture", picture, caption, result.table, result.facts, sections
    )
