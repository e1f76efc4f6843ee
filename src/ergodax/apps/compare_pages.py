"""The comparison as texts, picture and files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from ergodax.apps.compare import PATIENCE, Result
from ergodax.apps.compare_measure import OURS, Measured
from ergodax.report import page as report
from ergodax.report.page import sentences_list
from ergodax.report.pictures import COLOURS

CAPTION = (
    "Effective draws a second of the worst coefficient, while sampling and with everything before "
    "counted. Hollow: the time to the goal follows from the rate."
)


def reading(result: Result) -> list[str]:
    """How the table is read, a sentence each."""
    goal, facts = result.limits.goal, result.facts
    return [
        f"{facts['chains']} chains each, float32 data, {facts['dimension']} coefficients with "
        f"N(0, {facts['prior_scale']:g}²) priors, {facts['cores']} cores, load "
        f"{facts['load_before']:.1f} before and {facts['load_after']:.1f} after.",
        f"ESS/s: ArviZ's bulk ESS of the worst coefficient, while sampling, compiled. "
        f"ESS/s all in: {goal:,.0f} over the seconds to ESS {goal:,.0f} (every mcse at most "
        f"{goal**-0.5:.2g} sd), compilation, mode, warm-up and tuning counted.",
        f"* not reached within {result.limits.most:g} s of sampling, {PATIENCE:g} times that where "
        "the table is large and the reference had to be sampled: extrapolated from the rate.",
        "grads: gradients of the whole data to an effective draw; minibatches make none.",
        "errors: the largest of any coefficient, in posterior sd (means) and relative (sds), Monte "
        f"Carlo error of the draws included. {_references(facts['references'])}",
        "A step is one of all chains together; a step of NUTS is a trajectory.",
        *result.skipped,
    ]


def _references(references: dict[str, dict[str, Any]]) -> str:
    told = ", ".join(dict.fromkeys(known["told"] for known in references.values()))
    worst = max(known["error"] for known in references.values())
    return f"The reference is {told}; its own standard errors are at most {worst:.2g} sd."


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
            "grads": "none" if row.gradients_each is None else _number(row.gradients_each),
            "error of mean": f"{row.error_mean:.3f}",
            "of sd": f"{row.error_sd:.3f}",
        }
        rows.append(cells)
    return pd.DataFrame(rows)


def show(result: Result) -> Any:
    """ESS a second: against N on logarithmic axes, or as bars where there is one N."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    one = len({row.num_data for row in result.rows}) == 1
    shape = {"figsize": (10, 1.6 + 0.4 * len(result.rows) if one else 4.2), "layout": "constrained"}
    figure, axes = plt.subplots(1, 2, sharey=True, **shape)
    goal = result.limits.goal
    panels: list[tuple[str, Callable[[Measured], float]]] = [
        ("while sampling", lambda row: row.rate),
        (f"all in, to ESS {goal:,.0f}", lambda row: row.all_in(goal)),
    ]
    for axis, (title, value) in zip(axes, panels, strict=True):
        draw = _bars if one else _lines
        draw(axis, result.rows, value, hollow=title != "while sampling")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    at = result.overtakes
    if at is not None:
        axes[1].axvline(at, color="0.4", lw=1, ls=":")
        axes[1].annotate(
            f"infer overtakes\nat about {float(f'{at:.1g}'):,.0f} rows", (at, 0.97),
            xycoords=("data", "axes fraction"), xytext=(5, 0), textcoords="offset points",
            color="0.3", va="top", fontsize=9,
        )  # fmt: skip
    if not one:
        axes[0].legend(frameon=False)
        axes[0].set_ylabel("effective draws a second")
    return figure


def _lines(
    axis: Any, rows: list[Measured], value: Callable[[Measured], float], *, hollow: bool
) -> None:
    for number, sampler in enumerate(dict.fromkeys(row.sampler for row in rows)):
        mine = [row for row in rows if row.sampler == sampler]
        colour, width = COLOURS[number % len(COLOURS)], 2.0 if sampler == OURS else 1.2
        sizes = [row.num_data for row in mine]
        axis.plot(sizes, [value(row) for row in mine], color=colour, label=sampler, lw=width)
        for row in mine:
            face = "white" if hollow and row.extrapolated else colour
            axis.plot(row.num_data, value(row), "o", color=colour, markerfacecolor=face)
    axis.set(xscale="log", yscale="log", xlabel="rows N")


def _bars(
    axis: Any, rows: list[Measured], value: Callable[[Measured], float], *, hollow: bool
) -> None:
    for place, row in enumerate(reversed(rows)):
        colour = COLOURS[(len(rows) - 1 - place) % len(COLOURS)]
        face = "white" if hollow and row.extrapolated else colour
        axis.barh(place, value(row), height=0.6, color=face, edgecolor=colour)
        axis.annotate(
            _number(value(row)), (value(row), place), xytext=(4, 0), textcoords="offset points",
            va="center",
        )  # fmt: skip
    values = [value(row) for row in rows]
    axis.set(xscale="log", xlim=(0.3 * min(values), 5.0 * max(values)))
    axis.set(xlabel="effective draws a second")
    axis.set_yticks(range(len(rows)), [row.sampler for row in reversed(rows)])


def markdown(result: Result) -> str:
    """The table, how it is read, the verdicts and the notes."""
    table = texts(result)
    lines = ["| " + " | ".join(row) + " |" for row in [table.columns, *table.to_numpy()]]
    lines.insert(1, "|---:|---" + "|---:" * (table.shape[1] - 2) + "|")
    parts = [
        [f"# {result.facts['title']}", "", *lines, ""],
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
    picture = show(result)
    paths = report.results(folder, "compare", picture, result.table, result.facts)
    paths["markdown"] = folder / "compare.md"
    paths["markdown"].write_text(markdown(result), encoding="utf-8")
    sections = [
        ("Effective draws a second", report.text_table(texts(result))),
        ("How it is read", sentences_list(reading(result))),
        ("The picture", report.picture(picture, CAPTION)),
        ("Verdicts", sentences_list(result.verdicts)),
        ("Notes", sentences_list(_notes(result))),
    ]
    report.write(paths["report"], result.facts["title"], sections)
    return paths


def _notes(result: Result) -> list[str]:
    return [f"{row.sampler}, N = {row.num_data:,}: {row.note}" for row in result.rows]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
