"""The comparison as texts, picture and files."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from ergodax.apps import report
from ergodax.apps.compare import OURS, Result
from ergodax.apps.pictures import COLOURS
from ergodax.apps.reproduce.pages import plain, sentences_list

TITLE = "infer against NUTS: logistic regression by number of rows"
CAPTION = (
    "Effective draws a second of the worst coefficient, while sampling and with everything before "
    "counted. Hollow: the time to the goal follows from the rate."
)


def reading(result: Result) -> list[str]:
    """How the table is read, a sentence each."""
    goal, chains = result.limits.goal, result.facts["chains"]
    return [
        f"{chains} chains each, float32 data, {result.facts['dimension']} coefficients with "
        f"N(0, 10²) priors, {result.facts['cores']} cores, load {result.facts['load_before']:.1f} "
        f"before and {result.facts['load_after']:.1f} after.",
        f"ESS/s: ArviZ's bulk ESS of the worst coefficient, while sampling, compiled. "
        f"ESS/s all in: {goal:,.0f} over the seconds to ESS {goal:,.0f} (every mcse at most "
        f"{goal**-0.5:.2g} sd), compilation, mode, warm-up and tuning counted.",
        f"* not reached within {result.limits.most:g} s of sampling: extrapolated from the rate.",
        "errors: the largest of any coefficient against importance sampling in double precision, "
        "in posterior sd (means) and relative (sds); Monte Carlo error of the draws included.",
        "A step is one of all chains together; a step of NUTS is a trajectory.",
        *result.skipped,
    ]


def texts(result: Result) -> pd.DataFrame:
    """The table to read."""
    rows = []
    for row in result.rows:
        star = "*" if row.extrapolated else ""
        cells = {
            "N": f"{row.num_data:,}",
            "sampler": row.sampler,
            "ESS/s": _number(row.rate),
            "ESS/s all in": _number(row.all_in(result.limits.goal)) + star,
            "s to goal": _number(row.to_goal) + star,
            "set-up s": _number(row.setup_seconds),
            "us a step": _number(row.microseconds),
            "error of mean": f"{row.error_mean:.3f}",
            "of sd": f"{row.error_sd:.3f}",
        }
        rows.append(cells)
    return pd.DataFrame(rows)


def show(result: Result) -> Any:
    """ESS a second against N, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    goal = result.limits.goal
    for number, sampler in enumerate(dict.fromkeys(row.sampler for row in result.rows)):
        rows = [row for row in result.rows if row.sampler == sampler]
        colour = COLOURS[number % len(COLOURS)]
        for axis, values in zip(
            axes, ([r.rate for r in rows], [r.all_in(goal) for r in rows]), strict=True
        ):
            sizes = [r.num_data for r in rows]
            axis.plot(sizes, values, color=colour, label=sampler, lw=2 if sampler == OURS else 1.2)
            for row, value in zip(rows, values, strict=True):
                hollow = row.extrapolated and axis is axes[1]
                face = "white" if hollow else colour
                axis.plot(row.num_data, value, "o", color=colour, markerfacecolor=face)
    for axis, title in zip(axes, ("while sampling", f"all in, to ESS {goal:,.0f}"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="rows N", title=title)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("effective draws a second")
    axes[0].legend(frameon=False)
    return figure


def markdown(result: Result) -> str:
    """The table, how it is read, the verdicts and the notes."""
    table = texts(result)
    lines = ["| " + " | ".join(row) + " |" for row in [table.columns, *table.to_numpy()]]
    lines.insert(1, "|---:|---" + "|---:" * (table.shape[1] - 2) + "|")
    parts = [
        [f"# {TITLE}", "", *lines, ""],
        [*(f"- {sentence}" for sentence in reading(result)), ""],
        ["## Verdicts", "", *(f"- {sentence}" for sentence in result.verdicts), ""],
        ["## Notes", "", *(f"- {note}" for note in _notes(result)), ""],
    ]
    return "\n".join(line for part in parts for line in part)


def write(result: Result, folder: Path) -> dict[str, Path]:
    """Write compare.png, compare.csv, compare.json, compare.md and report.html.

    Args:
        result: of the comparison.
        folder: made if it does not exist.

    Returns:
        The paths by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {"picture": "png", "table": "csv", "facts": "json", "markdown": "md"}
    paths = {name: folder / f"compare.{suffix}" for name, suffix in names.items()}
    paths["report"] = folder / "report.html"
    picture = show(result)
    picture.savefig(paths["picture"], dpi=150)
    result.table.to_csv(paths["table"], index=False)
    paths["facts"].write_text(json.dumps(plain(result.facts), indent=2) + "\n", encoding="utf-8")
    paths["markdown"].write_text(markdown(result), encoding="utf-8")
    sections = [
        ("Effective draws a second", report.text_table(texts(result))),
        ("How it is read", sentences_list(reading(result))),
        ("The picture", report.picture(picture, CAPTION)),
        ("Verdicts", sentences_list(result.verdicts)),
        ("Notes", sentences_list(_notes(result))),
    ]
    report.write(paths["report"], TITLE, sections)
    return paths


def _notes(result: Result) -> list[str]:
    return [f"{row.sampler}, N = {row.num_data:,}: {row.note}" for row in result.rows]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
