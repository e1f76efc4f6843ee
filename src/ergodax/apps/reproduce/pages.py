"""Tables to read, and the files of an experiment: picture, CSV, facts and report."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from ergodax.apps.reproduce import figure2, figure3, pictures
from ergodax.apps.reproduce.cases import CASES
from ergodax.apps.reproduce.divergences import Measured
from ergodax.report import page as report

TITLES = {
    "figure2": "Ma, Chen and Fox (2015), Figure 2: which samplers have the right law",
    "figure3": "Ma, Chen and Fox (2015), Figure 3, left: who mixes best",
    "noise-orders": "Matthews and Weare (2018), 5.1: what gradient noise does to a law",
    "autocorrelation": "Matthews and Weare (2018), 4.3: autocorrelation by gradient noise",
    "mixture": "Matthews and Weare (2018), 5.2: a mixture's means by batch size and passes",
    "mnist": "Matthews and Weare (2018), 5.3: posterior variances of MNIST's 7 against 9",
    "bias": "Stationary bias by step size and by batch",
    "variance-reduction": "Gradient noise and what takes it out",
    "funnel": "Neal's funnel: SGLD against SGRLD",
}
REVERSE = "reverse"
KL_TITLE = "1000 KL(target || sampler) by h, the reverse, and E x² at h → 0"


def laws_table(result: figure2.Result) -> pd.DataFrame:
    """A row for each target, gradient and sampler: 1000 divergences, and E x^2, as text."""
    rows = []
    for _, group in result.table.groupby(["target", "noise", "sampler"], sort=False):
        limit = group[group["step_size"] == 0].iloc[0]
        row = {"target": limit["target"], "sampler": limit["sampler"]}
        row["noise"] = f"{limit['noise']:g}"
        for step in figure2.STEPS:
            at = group[group["step_size"] == step]
            row[f"h = {step:g}"] = _thousand(at.iloc[0], "kl_from_target") if len(at) else ""
        row["h → 0"] = _thousand(limit, "kl_from_target")
        row[REVERSE] = _thousand(limit, "kl_to_target")
        row["E x²"] = str(figure2.measured(limit, "second_moment"))
        rows.append(row)
    for case in CASES:
        exact = result.facts["exact"][case.name]
        naive = {
            "h → 0": f"{1000 * exact['naive_kl_from_target_in_bins']:.3f}",
            REVERSE: f"{1000 * exact['naive_kl_to_target_in_bins']:.3f}",
            "E x²": f"{exact['naive_second_moment']:.4f}",
        }
        truth = {"h → 0": "0", REVERSE: "0", "E x²": f"{exact['second_moment']:.4f}"}
        rows.append({"target": case.name, "sampler": "exp(-U) / s"} | naive)
        rows.append({"target": case.name, "sampler": "target"} | truth)
    return pd.DataFrame(rows).fillna("").sort_values("target", kind="stable")


def _thousand(row: Any, name: str) -> str:
    value, error = figure2.measured(row, name)
    return str(Measured(1000 * value, 1000 * error))


def pieces_table(result: figure2.Result) -> pd.DataFrame:
    """Where the chains of the singular metric are, as text."""
    texts = result.pieces.map(lambda x: "" if math.isnan(x) else f"{x:.3g}")
    return texts.reset_index()


def mixing_table(result: figure3.Result) -> pd.DataFrame:
    """A row for each gradient and sampler at its best step size, as text."""
    rows = []
    for row in result.table.to_dict("records"):
        bias = {
            f"bias of E {name}": str(Measured(row[f"bias_{name}"], row[f"bias_{name}_error"]))
            for name in figure3.exact_values()
        }
        ess = {f"ESS {name}": f"{row[f'ess_{name}']:.1f}" for name in figure3.QUANTITIES}
        head = {"noise": f"{row['noise']:g}", "sampler": row["sampler"]}
        rows.append(head | {"h": f"{row['step_size']:g}"} | bias | ess)
    return pd.DataFrame(rows)


def write_figure2(result: figure2.Result, folder: Path) -> dict[str, Path]:
    """Write figure2.png, figure2.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", report.sentences_list(result.verdicts)),
        (KL_TITLE, report.text_table(laws_table(result))),
        (
            "The metric as printed on the double well",
            "<p>With C = 1/2 the inverse metric is zero at four points, which the exact dynamics "
            "does not cross; steps of finite size jump over them, the less often the smaller they "
            "are, or end beyond the largest numbers. All chains start in the right well.</p>"
            + report.text_table(pieces_table(result)),
        ),
    ]
    caption = (
        "Left: densities extrapolated to h = 0 over the target (grey) and the exact law of the "
        "sampler without Γ (dashed). Right: Kullback-Leibler divergence, with two standard errors."
    )
    picture = pictures.show_figure2(result)
    return write_experiment(
        folder, "figure2", picture, caption, result.table, result.facts, sections
    )


def write_figure3(result: figure3.Result, folder: Path) -> dict[str, Path]:
    """Write figure3.png, figure3.csv, facts.json and report.html.

    Returns:
        The paths by name.
    """
    sections = [
        ("Verdicts", report.sentences_list(result.verdicts)),
        ("At the best step size", report.text_table(mixing_table(result))),
        ("All step sizes tried", report.data_frame(result.grid)),
    ]
    caption = (
        "Shaded: regions that hold 50, 90 and 99% of the target. Right: bulk effective draws per "
        "1000 gradients; hollow with exact gradients, filled with noisy ones."
    )
    picture = pictures.show_figure3(result)
    return write_experiment(
        folder, "figure3", picture, caption, result.grid, result.facts, sections
    )


def write_experiment(
    folder: Path,
    name: str,
    picture: Any,
    caption: str,
    table: pd.DataFrame,
    facts: dict[str, Any],
    sections: list[tuple[str, str]],
) -> dict[str, Path]:
    """Write NAME.png, NAME.csv, facts.json and report.html.

    Args:
        folder: made if it does not exist.
        name: of the experiment.
        picture: a figure.
        caption: of it.
        table: for the CSV.
        facts: everything that is a number.
        sections: of the report, each a title and HTML.

    Returns:
        The paths by name.
    """
    paths = report.results(folder, name, picture, table, facts, facts_name="facts")
    settings = {k: v for k, v in facts.items() if not isinstance(v, dict | list)}
    shown = [
        ("The figure", report.picture(picture, caption)),
        *sections,
        ("What was run", report.key_values(settings)),
    ]
    report.write(paths["report"], TITLES[name], shown)
    return paths
