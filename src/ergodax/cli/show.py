"""Tables in the terminal."""

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ergodax.apps.job import Result
from ergodax.report import are_figures
from ergodax.report.pictures import furthest

ROWS = 12


def text_table(texts: pd.DataFrame, title: str | None = None) -> Table:
    """A table of texts: words to the left, the first of them whole, and figures to the right.

    Args:
        texts: cells.
        title: above it.
    """
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False,
        padding=(0, 1, 0, 0),
    )  # fmt: skip
    named = False
    for name in texts.columns:
        words = not are_figures(texts[name])
        side = "left" if words else "right"
        table.add_column(str(name), justify=side, no_wrap=words and not named, overflow="fold")
        named = named or words
    for row in texts.itertuples(index=False):
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def show_result(console: Console, result: Result) -> None:
    """Print the summary, the held-out performance and the comparison."""
    console.print(summary_table(result.summary))
    facts = result.facts
    shown = {"SGHMC": facts["held_out"]}
    if "reference" in facts:
        shown["reference"] = facts["reference"]["held_out"]
    console.print(held_out_table(shown, facts["held_out_rows"]))
    console.print(
        f"least ESS {facts['least_ess']:.0f}, largest R-hat {facts['largest_r_hat']:.4f}, "
        f"{facts['seconds']:.1f} s, {facts['passes_through_the_data']:,.0f} passes through the "
        "data a chain",
        highlight=False,
    )
    if "comparison" in facts:
        c = facts["comparison"]
        console.print(
            "beside the reference, in its posterior sd: means differ by "
            f"{c['mean_difference_rms']:.3f} rms, {c['mean_difference_max']:.3f} at most "
            f"({c['expected_from_monte_carlo_rms']:.3f} rms expected from Monte Carlo alone); "
            f"sd ratios {c['sd_ratio_min']:.3f} to {c['sd_ratio_max']:.3f}, mean "
            f"{c['sd_ratio_mean']:.3f}",
            highlight=False,
        )


def summary_table(summary: pd.DataFrame) -> Table:
    """The coefficients furthest from zero in posterior standard deviations."""
    chosen = summary.iloc[furthest(summary, ROWS)]
    more = len(summary) - len(chosen)
    title = f"posterior; {more} smaller coefficients are in the report" if more else "posterior"
    table = Table("coefficient", "mean", "sd", "mcse", "ess", "r_hat", title=title)
    for name, row in chosen.iterrows():
        numbers = [f"{row[c]:.3f}" for c in ("mean", "sd", "mcse")]
        table.add_row(str(name), *numbers, f"{row['ess']:.0f}", f"{row['r_hat']:.4f}")
    return table


def held_out_table(scores: dict[str, dict[str, float]], rows: int) -> Table:
    """Accuracy and log predictive density with their posterior standard deviations."""
    table = Table(
        "", "accuracy", "log predictive density", "averaged over draws",
        title=f"{rows} held-out rows, mean and sd over the posterior",
    )  # fmt: skip
    for name, s in scores.items():
        table.add_row(
            name,
            f"{s['accuracy']:.4f} ± {s['accuracy_sd']:.4f}",
            f"{s['log_predictive_density']:.4f} ± {s['log_predictive_density_sd']:.4f}",
            f"{s['averaged_accuracy']:.4f}, {s['averaged_log_predictive_density']:.4f}",
        )
    return table
