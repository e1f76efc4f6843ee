"""The table, the picture and the files of the experiment on MNIST's 7 against 9."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.apps.reproduce import digits
from ergodax.apps.reproduce.digits_schemes import CONTROLLED, WHITENED
from ergodax.apps.reproduce.divergences import Measured
from ergodax.apps.reproduce.pages import write_experiment
from ergodax.report import page as report
from ergodax.report.page import sentences_list

HEAD = "Error of the posterior variances in percent: one chain after so many passes"
LEGEND = (
    "Columns: one chain's error after 10, 25 and 100 passes through the data, set-up included; at "
    "the last, the error of the trace, and of all chains together with what Monte Carlo alone "
    "would give; and the passes from which one chain is within 1%, in brackets by extrapolation."
)
# Colours that are told apart by the colour-blind (Okabe and Ito).
COLOURS = {
    "NOGIN": "#0072B2",
    "mSGLD": "#D55E00",
    "CC-ADL": "#E69F00",
    WHITENED: "#56B4E9",
    CONTROLLED: "#009E73",
}
MARKERS = {6: "o", 25: "s", 100: "^"}
SHOWN = (10, 25, 100)  # passes, in the table of texts


def errors_table(result: digits.Result) -> pd.DataFrame:
    """A row for each scheme, batch size and estimator, as text; errors in percent."""
    keys = ["scheme", "batch_size", "estimator"]
    groups = {name: rows.to_dict("records") for name, rows in result.table.groupby(keys)}
    texts = []
    for found in result.reached.to_dict("records"):
        scheme, n, estimator = (found[key] for key in keys)
        rows = groups[(scheme, n, estimator)]
        text = {"scheme": scheme, "n": str(n), "by": estimator}
        for number in SHOWN:
            at = [row for row in rows if row["passes"] == number]
            text[str(number)] = _percent(at[0], "error", "error_mcse") if at else ""
        text["trace"] = _percent(rows[-1], "trace_error", "trace_error_mcse")
        text["pooled"] = _percent(rows[-1], "pooled_error", "pooled_monte_carlo")
        texts.append(text | {"1% at": _passes(found)})
    return pd.DataFrame(texts)


def _percent(row: dict[Any, Any], name: str, error: str) -> str:
    if not np.isfinite(row[name]) or row[name] > 100:
        return "diverged"
    return str(Measured(100 * row[name], 100 * row[error]))


def _passes(found: dict[Any, Any]) -> str:
    if np.isfinite(found["passes_to_error"]):
        return f"{found['passes_to_error']:g}"
    far = found["extrapolated"]
    return f"(~{far:,.0f})" if np.isfinite(far) and far < 1e6 else "never"


def show(result: digits.Result) -> Any:
    """Error against passes: of one chain in the norm, and of the trace."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    heads = {"error": "||v - v*|| / ||v*||, one chain", "trace_error": "of the trace, one chain"}
    for axis, (name, head) in zip(axes, heads.items(), strict=True):
        for keys, rows in result.table.groupby(["scheme", "batch_size", "estimator"], sort=False):
            _curve(axis, keys, rows.to_dict("list"), name)
        axis.axhline(digits.GOAL, color="black", lw=0.8, ls=":")
        axis.plot(digits.PAPER_PASSES, digits.GOAL, "k*", ms=12, label="the paper, about")
        axis.set(xscale="log", yscale="log", ylim=(1e-3, 2), title=head)
        axis.set_xlabel("passes through the data, set-up included")
        axis.axvline(25, color="0.8", lw=0.8, zorder=0)
        axis.set_xticks([10, 25, 50, 100], ["10", "25", "50", "100"])
        axis.minorticks_off()
    axes[0].axhline(result.gaussian_error, color="0.5", lw=0.8, ls="--", label="Gaussian alone")
    axes[0].set_ylabel("relative error of the posterior variances")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return figure


def _curve(axis: Any, keys: Any, columns: dict[Any, list], name: str) -> None:
    scheme, n, estimator = keys
    if scheme not in COLOURS:
        return
    stein = estimator == digits.STEIN
    values = np.array(columns[name])
    values[~(values < 2.0)] = np.nan
    axis.errorbar(
        columns["passes"], values, 2 * np.array(columns[f"{name}_mcse"]),
        label=f"{scheme}, n = {n}" + (", Stein" if stein else ""),
        color=COLOURS[scheme], marker=MARKERS.get(n, "D"), ls="-" if stein else "--",
        mfc=None if stein else "white", ms=4, lw=1,
    )  # fmt: skip


def write(result: digits.Result, folder: Path) -> dict[str, Path]:
    """Write mnist.png, mnist.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    caption = (
        "Error of the posterior variances against passes, two standard errors over chains. "
        "Solid: with Stein's identity; dashed: the variance of the draws."
    )
    sections = [
        ("Verdicts", sentences_list(result.verdicts)),
        (HEAD, report.text_table(errors_table(result)) + f"<p>{LEGEND}</p>"),
        ("All numbers", report.data_frame(result.table)),
    ]
    return write_experiment(
        folder, "mnist", show(result), caption, result.table, result.facts, sections
    )
