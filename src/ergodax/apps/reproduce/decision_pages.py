"""Tables and files of the experiments on bias, variance reduction and the funnel."""

from pathlib import Path
from typing import Any

import pandas as pd

from ergodax.apps.reproduce import bias_slopes, decision_pictures, funnel, reduction
from ergodax.apps.reproduce.divergences import Measured
from ergodax.apps.reproduce.pages import write_experiment
from ergodax.report import page as report
from ergodax.report.page import sentences_list

BOUND = (
    "<p>What a batch does to SGLD: the stationary bias is η (c<sub>disc</sub> + c<sub>noise</sub> "
    "N² / n) + O(η²), with 1/n - 1/N for 1/n where rows are distinct. The noise's share is a "
    "product of η and 1/n: it vanishes with η at fixed n, and there is no additive C / n. It is "
    "small for η ≪ n / N². On a Gaussian posterior the mean is exactly unbiased at every η and n, "
    "and the law is not that of the full gradient: its variance is larger.</p>"
)


def slopes_table(result: bias_slopes.Result) -> pd.DataFrame:
    """A row for each sampler: the orders of its errors in its own step size."""
    rows = []
    for row in result.slopes.to_dict("records"):
        orders = {
            title: str(Measured(row[name], max(row[f"{name}_error"], 0.01)))
            for title, name in {"law": "distance", "E x²": "variance", "E x⁴": "fourth"}.items()
        }
        rows.append({"sampler": row["sampler"]} | orders)
    return pd.DataFrame(rows)


def pairs_table(result: bias_slopes.Result) -> pd.DataFrame:
    """A row for each pair of chains on the double well: measured and exact relative biases."""
    return pd.DataFrame(
        [
            {
                "sampler": row["sampler"],
                "moment": f"E x^{row['moment']}",
                "h": f"{row['step_size']:g}",
                "measured": str(Measured(row["measured"], row["error"])),
                "a pair, exact": f"{row['pair']:.5f}",
                "bias, exact": f"{row['exact']:.5f}",
            }
            for row in result.measured.to_dict("records")
        ]
    )


def batches_table(result: bias_slopes.Result) -> pd.DataFrame:
    """A row for each batch size: what it adds to the bias of mean and variances."""
    return pd.DataFrame(
        [
            {
                "n": str(row["batch_size"]),
                "mean, in sds": str(Measured(row["mean"], row["mean_error"])),
                "variances": str(Measured(row["variance"], row["variance_error"])),
                "exact": f"{row['exact']:.4f}",
            }
            for row in result.batches.to_dict("records")
        ]
    )


def write_bias(result: bias_slopes.Result, folder: Path) -> dict[str, Path]:
    """Write bias.png, bias.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", BOUND + sentences_list(result.verdicts)),
        ("Orders in the sampler's own step size", report.text_table(slopes_table(result))),
        ("Pairs of chains at h and h/2", report.text_table(pairs_table(result))),
        ("Pairs of chains with n and 2n", report.text_table(batches_table(result))),
        ("Exact errors", report.data_frame(result.laws)),
        ("Exact biases on the regression", report.data_frame(result.regression)),
    ]
    caption = (
        "Laws and lines are exact; points are measured by ex.diagnostics.bias and batch_bias, "
        "with two standard errors. The variance of SGLD on the double well is right by accident: "
        "the noise's share of its bias cancels that of the step, and E x⁴ is looked at instead."
    )
    picture = decision_pictures.show_bias(result)
    return write_experiment(folder, "bias", picture, caption, result.laws, result.facts, sections)


def reduction_table(result: reduction.Result) -> pd.DataFrame:
    """A row for each method at its best step size, after all passes."""
    last = pd.DataFrame(result.best[result.best["passes"] == result.best["passes"].max()])
    traces = result.noise.set_index("method")["trace"]
    rows = []
    for row in last.to_dict("records"):
        inflation = row["exact_inflation"]
        rows.append(
            {
                "method": row["method"],
                "step size": f"{row['step_size']:.2g}",
                "error of means, sds": reduction.shown(row, "mean"),
                "of variances": reduction.shown(row, "variance"),
                "exact bias": "" if pd.isna(inflation) else f"{inflation:.3f}",
                "noise, relative": f"{traces[row['method']]:.2g}",
            }
        )
    return pd.DataFrame(rows)


def write_reduction(result: reduction.Result, folder: Path) -> dict[str, Path]:
    """Write variance-reduction.png, variance-reduction.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", sentences_list(result.verdicts)),
        ("At the best step size", report.text_table(reduction_table(result))),
        ("All step sizes", report.data_frame(result.table)),
    ]
    caption = (
        "Root mean squares over repeats and components, with two standard errors. All chains start "
        "at the mode, whose passes are counted for all; half of the passes of the zero-variance "
        "estimates go to exact gradients at draws. Best: the larger of the two errors is least, on "
        "the runs that are shown."
    )
    picture = decision_pictures.show_reduction(result)
    return write_experiment(
        folder, "variance-reduction", picture, caption, result.table, result.facts, sections
    )


def funnel_table(result: funnel.Result) -> pd.DataFrame:
    """A row for each sampler and step size, and the funnel's own."""
    rows = []
    for row in result.table.to_dict("records"):
        head = {"x": str(row["x"]), "sampler": row["sampler"], "h": f"{row['step_size']:g}"}
        rows.append(head | _probabilities(row) | {"chains lost": f"{100 * row['diverged']:.0f}%"})
    for row in result.exact.to_dict("records"):
        exact = {f"P(v < {p:g})": f"{row[f'below {p:g}']:.4f}" for p in funnel.PLACES}
        head = {"x": "1", "sampler": "SGRLD, exact law", "h": f"{row['step_size']:g}"}
        rows.append(head | exact)
    truth = {f"P(v < {p:g})": f"{funnel.truth(p):.4f}" for p in funnel.PLACES}
    rows.append({"x": "", "sampler": "funnel", "h": "", "P(|x| < 1)": "0.6223"} | truth)
    return pd.DataFrame(rows).fillna("")


def _probabilities(row: Any) -> dict[str, str]:
    found = {f"P(v < {p:g})": str(funnel.measured(row, f"below {p:g}")) for p in funnel.PLACES}
    return found | {"P(|x| < 1)": str(funnel.measured(row, "small x"))}


def write_funnel(result: funnel.Result, folder: Path) -> dict[str, Path]:
    """Write funnel.png, funnel.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", sentences_list(result.verdicts)),
        ("Probabilities", report.text_table(funnel_table(result))),
    ]
    caption = (
        "Each sampler takes as many gradients from one start. Filled: one x; hollow: nine. Bars: "
        "two standard errors over chains. Step sizes at which a chain left the finite numbers are "
        "not drawn."
    )
    picture = decision_pictures.show_funnel(result)
    return write_experiment(
        folder, "funnel", picture, caption, result.table, result.facts, sections
    )
