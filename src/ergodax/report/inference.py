"""What `infer` found, as texts, facts and files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.learn.regression import ERROR
from ergodax.report import page as report
from ergodax.report import pictures
from ergodax.report.page import plain, sentences_list
from ergodax.tune import Inference

ROWS = 40  # components in the terminal
DIGITS = {"mean": ".4g", "sd": ".4g", "ess": ",.0f", "r_hat": ".4f"}
PANELS = 9  # components in the pictures
POINTS = 2_000  # of a chain in a trace


def texts(result: Inference) -> tuple[str, pd.DataFrame]:
    """A title and the table to read: every component, or those with the largest errors."""
    table = result.table
    title = "posterior; errors, mcse and bias in posterior sd"
    if len(table) > ROWS:
        order = np.argsort(-table["error"].fillna(np.inf).to_numpy(), kind="stable")[:ROWS]
        title += f"; the {ROWS} of {len(table)} components with the largest errors"
        table = table.iloc[np.sort(order)]
    exact = not table[["bias_mean", "bias_sd"]].fillna(1.0).to_numpy().any()
    cells = {"component": [str(name) for name in table.index]}
    for name in table.columns:
        if not (exact and name.startswith("bias")):
            digits = DIGITS.get(str(name), ".2g")
            cells[name] = ["" if pd.isna(x) else f"{x:{digits}}" for x in table[name]]
    return title, pd.DataFrame(cells)


def decisions(result: Inference) -> pd.DataFrame:
    """The account, a row for each decision."""
    rows = [(d.what, d.chosen, d.why) for d in result.account.decisions]
    return pd.DataFrame(rows, columns=["question", "chosen", "because"])


def facts(result: Inference) -> dict[str, Any]:
    """Everything that is a number, for JSON."""
    return {
        "converged": result.converged,
        "verdict": result.verdict(),
        "accuracy": result.accuracy,
        "error_means": ERROR,
        "components": result.table.to_dict("index"),
        "decisions": [vars(decision) for decision in result.account.decisions],
        "seconds": dict(result.account.seconds),
    }


def write(result: Inference, folder: Path, title: str) -> dict[str, Path]:
    """Write draws.npz, summary.csv, account.txt, facts.json and report.html.

    Args:
        result: with the components' names in its table, of draws of a vector.
        folder: made if it does not exist.
        title: of the report.

    Returns:
        The paths by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {"draws": "draws.npz", "summary": "summary.csv", "account": "account.txt",
             "facts": "facts.json", "report": "report.html"}  # fmt: skip
    paths = {key: folder / name for key, name in names.items()}
    result.samples.save(paths["draws"])
    result.table.to_csv(paths["summary"])
    paths["account"].write_text(f"{result}\n{ERROR}\n", encoding="utf-8")
    paths["facts"].write_text(json.dumps(plain(facts(result)), indent=2) + "\n", encoding="utf-8")
    report.write(paths["report"], title, sections(result))
    return paths


def sections(result: Inference) -> list[tuple[str, str]]:
    """The report's sections: verdict, table, pictures, account."""
    shown = pictures.furthest(result.table, PANELS)
    names = [str(result.table.index[k]) for k in shown]
    draws = np.asarray(result.samples.position)[..., shown]
    thin = max(1, draws.shape[1] // POINTS)
    which = "the components furthest from zero" if len(result.table) > PANELS else "each component"
    traces = pictures.traces(draws[:, ::thin], names, thin, "draw")
    seconds = {name: f"{value:.1f} s" for name, value in result.account.seconds.items()}
    return [
        ("Verdict", sentences_list([result.verdict(), ERROR])),
        ("Posterior", report.data_frame(result.table)),
        ("Marginals", report.picture(pictures.marginals(draws, names), f"Draws of {which}.")),
        ("Traces", report.picture(traces, f"Paths of {which}, a colour for each chain.")),
        ("What was decided, and why", report.text_table(decisions(result))),
        ("Seconds", report.key_values(dict(seconds))),
    ]
