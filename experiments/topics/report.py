"""The comparison as tables, sentences and a picture."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from experiments.page import Page, panels
from experiments.topics.comparison import Result
from experiments.topics.peers import PEERS
from experiments.topics.train import Settings

TITLE = "Topics of a stream of documents"
CAPTION = (
    "Held-out perplexity by documents seen; the band is two standard errors of the runs' mean."
)
COLOURS = ("#3b6fb6", "#d0662b", "#4c9a5b", "#8b5fa8")


def present(result: Result) -> Page:
    """The tables, how they are read, and the picture."""
    used = {name: _used(name, each) for name, each in result.settings.items()}
    numbers = {f"Topics: {name}, first run": each.table for name, each in result.topics.items()}
    if len(result.grid):
        numbers["The grid, judged by other documents"] = _sorted(result.grid)
    numbers["Settings"] = (
        pd.DataFrame(used, dtype=object).rename_axis("setting").reset_index().fillna("")
    )
    found = {
        "settings": used,
        "skipped": result.skipped,
        "summary": result.summary.to_dict("records"),
        "grid": result.grid.to_dict("records"),
    }
    return Page(
        title=TITLE,
        facts=result.facts | found,
        tables={"Held-out perplexity": texts(result)},
        sentences=reading(result),
        figure=show(result),
        caption=CAPTION,
        table=result.rows,
        numbers=numbers,
    )


def texts(result: Result) -> pd.DataFrame:
    """The table to read, a row for each method."""
    rows = []
    for row in result.summary.itertuples(index=False):
        value: Any = row
        rows.append(
            {
                "method": value.method,
                "documents": f"{value.documents:,}",
                "perplexity": _with_error(value.perplexity, value.standard_error),
                "alone": _with_error(value.alone, value.alone_error),
                "NPMI": f"{value.npmi:.3f}",
                "s/100": f"{value.pace:.3f}",
                "runs": str(value.runs),
            }
        )
    return pd.DataFrame(rows)


def _with_error(value: float, error: float) -> str:
    return f"{value:,.1f}" + ("" if np.isnan(error) else f" ± {error:.1f}")


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
        "perplexity: each word's probability is averaged over the later half of the run's "
        "snapshots before the logarithm, for every method alike. alone: of the last snapshot.",
        "NPMI: coherence of the 10 likeliest words of each topic, mean over topics; 1 if they only "
        "occur together, 0 if independent, -1 if they never meet.",
        "s/100: processor seconds, of all cores together, to learn from 100 documents; the median, "
        "which leaves out compilation.",
        *([error] if facts["repeats"] > 1 else []),
        *result.skipped,
    ]


def show(result: Result) -> Any:
    """Perplexity against documents seen, averaged and of each snapshot alone; a line a method."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    figure, (axes,) = panels(1, 2)
    axes[1].sharey(axes[0])
    titles = {"perplexity": "averaged over snapshots", "alone": "each snapshot alone"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for number, (method, rows) in enumerate(result.rows.groupby("method", sort=False)):
            runs = rows.pivot(index="documents", columns="repeat", values=column)
            _draw(axis, str(method), number, runs)
        axis.set(xlabel="documents seen", title=title, yscale="log")
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 1.25, 1.5, 2, 2.5, 3, 4, 6, 8)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.yaxis.set_minor_locator(LogLocator(subs=()))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("held-out perplexity")
    axes[1].legend(frameon=False)
    return figure


def _draw(axis: Any, method: str, number: int, runs: pd.DataFrame) -> None:
    """The mean over runs, and a band of two standard errors."""
    colour = COLOURS[number % len(COLOURS)]
    style = "-" if number < len(COLOURS) else "--"
    seen, values = runs.index.to_numpy(), runs.to_numpy()
    mean = values.mean(axis=1)
    axis.plot(seen, mean, style, marker="o", ms=3, color=colour, label=method)
    if values.shape[1] > 1:
        error = 2 * values.std(axis=1, ddof=1) / values.shape[1] ** 0.5
        axis.fill_between(seen, mean - error, mean + error, color=colour, alpha=0.2, lw=0)


def _used(method: str, settings: Settings) -> dict[str, Any]:
    """The settings that the method uses."""
    of_peers = ("num_topics", "alpha", "beta", "offset", "power", "batch_size", "snapshot_every")
    return {
        name: value
        for name, value in dataclasses.asdict(settings).items()
        if method not in PEERS or name in of_peers
    }


def _sorted(grid: pd.DataFrame) -> pd.DataFrame:
    """The points of each method from the best to the worst."""
    order = list(grid["method"].unique())
    rows = sorted(
        grid.to_dict("records"), key=lambda row: (order.index(row["method"]), row["perplexity"])
    )
    table = pd.DataFrame(rows)
    axes = table.columns.difference(["method", "perplexity"])
    return table.astype(dict.fromkeys(axes, object)).fillna("")  # axes of other methods
