"""An experiment as texts, pictures and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.apps.bnn.experiment import Result
from ergodax.apps.bnn.methods import REFERENCE
from ergodax.apps.bnn.scores import FIGURES
from ergodax.report import page as report
from ergodax.report.page import sentences_list
from ergodax.report.pictures import COLOURS

PALETTE = (*COLOURS, "#b5964b", "#333333")
WITH_ERROR = ("log_likelihood", "rmse", "accuracy", "calibration_error")
AGAINST = {
    "regression": ("level of the central interval", "share of test targets inside"),
    "classification": ("confidence", "accuracy"),
}


def texts(result: Result) -> pd.DataFrame:
    """The table to read."""
    rows = []
    for row in result.table.to_dict("records"):
        cells = {"method": row["method"]}
        for name, title in FIGURES[result.facts["kind"]].items():
            if name in row:
                error = row.get(f"{name}_error") if name in WITH_ERROR else None
                cells[title] = measured(row[name], error)
        temperature = row["temperature"]
        cells["T"] = "" if np.isnan(temperature) else f"{temperature:.2f}"
        cells["s"] = f"{row['seconds']:.0f}"
        rows.append(cells)
    return pd.DataFrame(rows)


def measured(value: float, error: float | None) -> str:
    """A figure to two digits of its standard error, or to three digits without one.

    Args:
        value: the figure.
        error: its standard error.
    """
    if error is None or not np.isfinite(error) or error <= 0:
        return f"{value:.3g}"
    digits = max(0, 1 - int(np.floor(np.log10(error))))
    return f"{value:.{digits}f}±{error:.{digits}f}"


def reading(result: Result) -> list[str]:
    """How the table is read, a sentence each."""
    facts = result.facts
    regression = facts["kind"] == "regression"
    over = (
        f"the {facts['repetitions']} repetitions" if facts["repetitions"] > 1
        else "the test rows (bootstrap)"
    )  # fmt: skip
    sentences = [
        f"{facts['rows']:,} rows to learn from, {facts['test_rows']:,} held out; a network of "
        f"{facts['depth']} x {facts['width']} hidden units, normal priors of standard deviation "
        f"{facts['prior_scale']:g} / sqrt(inputs).",
        f"± is one standard error over {over}.",
        f"Every method takes {facts['evaluations']:,.0f} gradients of single examples: MAP one "
        f"network, the others {facts['members']} members or chains. A chain's count includes the "
        f"{facts['warm_steps']:,} steps of Adam before it.",
        "log-lik. is the mean test log-likelihood; T the kinetic temperature of the counted steps, "
        "1 for the right law: gradient noise heats SGHMC, and SGNHT's friction takes the heat out. "
        "s: seconds, compilation included, without the warm start that the chains share.",
    ]
    ours = [row for row in facts["methods"] if row["method"] in REFERENCE]
    sentences += [
        f"{row['method']} is the reference, from {row['evaluations']:,.0f} gradients of single "
        "examples: its law is the posterior's as far as its chains have mixed."
        for row in ours
    ]
    if regression:
        sentences.append(
            "Log-likelihood, RMSE and noise are in the target's own units. calibration is the mean "
            "over levels of |share of test targets in the central interval - level|."
        )
    else:
        sentences.append("ECE is the expected calibration error in 15 bins of equal width.")
    sentences += differences(result)
    if facts["strange"]:
        sentences.append(f"Strange inputs are {facts['strange']}; entropies are means, in nats.")
    return sentences


def differences(result: Result, base: str = "ensemble") -> list[str]:
    """Log-likelihoods less the ensemble's, paired by repetition; nothing without repetitions.

    Args:
        result: of the experiment.
        base: the method to compare with.
    """
    table = result.runs.pivot(index="repetition", columns="method", values="log_likelihood")
    if len(table) < 2 or base not in table:
        return []
    told = []
    for name in table.columns.drop(base):
        apart = (table[name] - table[base]).to_numpy()
        error = float(apart.std(ddof=1) / np.sqrt(len(apart)))
        told.append(f"{name} {measured(float(apart.mean()), error)}")
    return [f"Log-likelihood less the {base}'s, paired by repetition: {', '.join(told)}."]


def show(result: Result) -> Any:
    """Test log-likelihood by method with errors, and the reliability diagrams."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    kind, rows = result.facts["kind"], result.table.to_dict("records")
    for place, row in enumerate(reversed(rows)):
        colour = PALETTE[(len(rows) - 1 - place) % len(PALETTE)]
        error = row.get("log_likelihood_error")
        axes[0].errorbar(row["log_likelihood"], place, xerr=error, fmt="o", color=colour, capsize=3)
    axes[0].set_yticks(range(len(rows)), [row["method"] for row in reversed(rows)])
    axes[0].set(xlabel="test log-likelihood", ylim=(-0.5, len(rows) - 0.5))
    axes[0].grid(alpha=0.3)
    axes[1].plot([0, 1], [0, 1], color="grey", lw=0.8, ls="--")
    for number, (name, diagram) in enumerate(result.diagrams.items()):
        style = {"color": PALETTE[number % len(PALETTE)], "label": name, "lw": 1.2, "ms": 4}
        axes[1].plot(diagram.confidence, diagram.accuracy, "o-", **style)
    axes[1].set(**dict(zip(("xlabel", "ylabel"), AGAINST[kind], strict=True)))
    axes[1].legend(frameon=False, fontsize=9)
    return figure


def write(result: Result, folder: Path) -> dict[str, Path]:
    """Write network.png, network.csv, network.json and report.html.

    Args:
        result: of the experiment.
        folder: made if it does not exist.

    Returns:
        The paths by name.
    """
    picture = show(result)
    paths = report.results(folder, "network", picture, result.runs, result.facts)
    settings = {k: v for k, v in result.facts.items() if k != "methods"}
    caption = "Left: test log-likelihood. Right: reliability, on the diagonal where it is right."
    sections = [
        ("Methods at equal gradient evaluations", report.text_table(texts(result))),
        ("How it is read", sentences_list(reading(result))),
        ("The picture", report.picture(picture, caption)),
        ("What was run", report.key_values(settings)),
    ]
    report.write(paths["report"], title(result), sections)
    return paths


def title(result: Result) -> str:
    """The page's title."""
    return f"Bayesian neural network: {result.facts['kind']} on {result.facts['data']}"
