"""What the runs found, as texts, picture and files."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.apps import report
from ergodax.apps.lda.experiment import Result
from ergodax.apps.pictures import COLOURS
from ergodax.apps.reproduce.pages import plain, sentences_list

TITLE = "Topics of a stream of documents"
CAPTION = (
    "Held-out perplexity by documents seen; the band is two standard errors of the runs' mean."
)


def texts(result: Result) -> pd.DataFrame:
    """The table to read, a row for each method."""
    rows = []
    for row in result.summary.itertuples(index=False):
        value: Any = row
        error = "" if np.isnan(value.standard_error) else f" ± {value.standard_error:.1f}"
        rows.append(
            {
                "method": value.method,
                "documents": f"{value.documents:,}",
                "perplexity": f"{value.perplexity:,.1f}{error}",
                "alone": f"{value.last_alone:,.1f}",
                "NPMI": f"{value.npmi:.3f}",
                "s/1,000": f"{1_000 * value.seconds / value.documents:.2f}",
                "runs": str(value.runs),
            }
        )
    return pd.DataFrame(rows)


def reading(result: Result) -> list[str]:
    """How the table is read, a sentence each."""
    facts = result.facts
    error = (
        f"± is the standard error of the mean over {facts['repeats']} runs that differ in stream, "
        "start and noise."
    )
    part = {"tenth": "Every 10th", "half": "Every 2nd"}[facts["held_back"]]
    return [
        f"{part} token of {facts['test_documents']:,} test documents is held back, "
        f"{facts['held_back_tokens']:,} in all, the same for every method; perplexity is the "
        f"inverse geometric mean of their probabilities given the document's other tokens. "
        f"A model that knows nothing has {facts['vocabulary']:,}, the number of words.",
        "Samplers: the probability is averaged over the later half of the run's snapshots before "
        "the logarithm. alone: of the last snapshot. Other packages give one estimate of the "
        "topics, with nothing to average.",
        "NPMI: coherence of the 10 likeliest words of each topic, mean over topics; 1 if they only "
        "occur together, 0 if independent, -1 if they never meet.",
        "s/1,000: seconds of learning from 1,000 documents, compilation included.",
        *([error] if facts["repeats"] > 1 else []),
        *result.skipped,
    ]


def show(result: Result) -> Any:
    """Perplexity against documents seen, a line for each method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    for number, (method, rows) in enumerate(result.rows.groupby("method", sort=False)):
        colour = COLOURS[number % len(COLOURS)]
        style = "-" if number < len(COLOURS) else "--"
        runs = rows.pivot(index="documents", columns="repeat", values="perplexity").to_numpy()
        seen, mean = np.unique(rows["documents"].to_numpy()), runs.mean(axis=1)
        axis.plot(seen, mean, style, marker="o", ms=3, color=colour, label=str(method))
        if runs.shape[1] > 1:
            error = 2 * runs.std(axis=1, ddof=1) / runs.shape[1] ** 0.5
            axis.fill_between(seen, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
    axis.set(xlabel="documents seen", ylabel="held-out perplexity", yscale="log")
    axis.grid(alpha=0.3, which="both")
    axis.legend(frameon=False)
    return figure


def facts(result: Result) -> dict[str, Any]:
    """Everything that is a number, for JSON."""
    return plain(
        {
            **result.facts,
            "settings": {
                name: dataclasses.asdict(settings) for name, settings in result.settings.items()
            },
            "skipped": result.skipped,
            "summary": result.summary.to_dict("records"),
            "grid": result.grid.to_dict("records"),
        }
    )


def write(result: Result, folder: Path) -> dict[str, Path]:
    """Write perplexity.csv and .png, grid.csv, topics.csv and .json, facts.json, report.html.

    Args:
        result: of the runs.
        folder: made if it does not exist.

    Returns:
        The paths by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        "perplexity": folder / "perplexity.csv",
        "picture": folder / "perplexity.png",
        "facts": folder / "facts.json",
        "report": folder / "report.html",
    }
    picture = show(result)
    picture.savefig(paths["picture"], dpi=150)
    result.rows.to_csv(paths["perplexity"], index=False)
    paths["facts"].write_text(json.dumps(facts(result), indent=2) + "\n", encoding="utf-8")
    sections = [
        ("Held-out perplexity", report.text_table(texts(result))),
        ("How it is read", sentences_list(reading(result))),
        ("By documents seen", report.picture(picture, CAPTION)),
    ]
    if len(result.grid):
        paths["grid"] = folder / "grid.csv"
        result.grid.to_csv(paths["grid"], index=False)
        sections.append(("The grid, judged by other documents", report.data_frame(result.grid)))
    for number, (method, topics) in enumerate(result.topics.items()):
        if number == 0:
            paths |= topics.write(folder)
        sections.append((f"Topics: {method}, first run", report.data_frame(topics.table)))
    for method, settings in result.settings.items():
        sections.append((f"Settings: {method}", report.key_values(dataclasses.asdict(settings))))
    report.write(paths["report"], TITLE, sections)
    return paths
