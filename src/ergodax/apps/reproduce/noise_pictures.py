"""Pictures of the experiments of Matthews and Weare (2018)."""

from typing import Any

import numpy as np
import pandas as pd

from ergodax.apps.reproduce import autocorrelation, mixture, orders
from ergodax.apps.reproduce.noise_problem import CASES, DOUBLE_WELL, SAMPLERS
from ergodax.apps.reproduce.pictures import panels

# Colours that are told apart by the colour-blind (Okabe and Ito), and a marker for each.
STYLES = {
    "NOGIN": ("black", "o"),
    "SGHMC, compensated": ("#009E73", "s"),
    "CC-ADL": ("#D55E00", "D"),
    "SGNHT": ("#AA4499", "v"),
    "BAOAB": ("#0072B2", "^"),
    "SGHMC": ("#56B4E9", "<"),
    "mSGLD": ("#E69F00", "P"),
    "SGLD": ("0.55", "X"),
}


def show_orders(result: orders.Result) -> Any:
    """Errors by h on both targets, by the overdamped samplers' own step, and by gradients spent."""
    figure, axes = panels(2, 2)
    for axis, case in zip(axes[0], CASES, strict=True):
        rows = result.table.query("target == @case.name")
        _by_step(axis, rows, list(SAMPLERS), "step_size")
        axis.set_title(case.name, fontsize=9)
        axis.set_xlabel("h (SGLD and mSGLD: step size h²/2)")
    # NOGIN is exact on the first target, and labelled so there.
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    rows = result.table.query("target == @DOUBLE_WELL.name")
    rows = rows.assign(own_step=0.5 * rows["step_size"] ** 2)
    overdamped = [name for name, sampler in SAMPLERS.items() if sampler.parts is None]
    _by_step(axes[1, 0], rows.query("sampler in @overdamped"), overdamped, "own_step")
    axes[1, 0].set_title(f"{DOUBLE_WELL.name}, by the step size of SGLD itself", fontsize=9)
    axes[1, 0].set_xlabel("step size h²/2")
    _race(axes[1, 1], result.race)
    figure.suptitle("Gradient noise of standard deviation 1 - cos(1 + 5x)")
    return figure


def _by_step(axis: Any, rows: pd.DataFrame, names: list[str], step: str) -> None:
    seen = rows.query("distance > @orders.ROUNDING")
    for name in names:
        own = seen[seen["sampler"] == name]
        colour, marker = STYLES[name]
        label = name if len(own) else f"{name}: exact on {rows['target'].iloc[0]}"
        axis.loglog(
            own[step], own["distance"], marker=marker, ms=4, lw=1, color=colour, label=label
        )
    ticks = sorted(set(rows[step]))
    last = seen["distance"].to_numpy()[seen[step].to_numpy() == ticks[-1]]
    if last.size:
        _guide(axis, ticks, 2.0 * float(np.max(last)), 1)
    if last.size and step == "step_size":
        _guide(axis, ticks, 0.5 * float(np.min(last)), 2)
    axis.set_xticks(ticks, [f"{h:.2g}" for h in ticks])
    axis.minorticks_off()
    axis.set_ylabel("distance in total variation")


def _guide(axis: Any, steps: list[float], height: float, order: int) -> None:
    """A line of a given order through `height` at the largest step, and its name beside it."""
    ends = np.array([steps[0], steps[-1]])
    heights = height * (ends / ends[1]) ** order
    axis.loglog(ends, heights, ls=":", lw=1, color="0.4")
    axis.annotate(
        f"order {order}", (ends[0], heights[0]), (12, -1),
        textcoords="offset points", fontsize=7, va="top",
    )  # fmt: skip


def _race(axis: Any, race: pd.DataFrame) -> None:
    for name, own in race.query("moment == 'x⁴'").groupby("sampler", sort=False):
        colour, marker = STYLES[str(name)]
        axis.loglog(own["gradients"], own["error"], marker=marker, ms=3, color=colour, lw=1)
        axis.axhline(abs(own["bias"].iloc[0]), color=colour, ls="--", lw=0.6)
    axis.set_title(f"{DOUBLE_WELL.name}, h = {orders.RACE:g}; dashed: exact bias", fontsize=9)
    axis.set_xlabel("gradients spent on a chain")
    axis.set_ylabel("rms error of E x⁴")


def show_autocorrelation(result: autocorrelation.Result) -> Any:
    """Times by C: exact, in closed form, as printed, and measured."""
    figure, axes = panels(1, len(autocorrelation.STEPS))
    for axis, h in zip(axes[0], autocorrelation.STEPS, strict=True):
        rows = result.table[result.table["step_size"] == h]
        chains = result.chains[result.chains["step_size"] == h]
        axis.loglog(rows["noise"], rows["time"], color="black", lw=1, label="x, exact: C²")
        axis.loglog(
            rows["noise"], rows["closed_form"], color="#0072B2", lw=3, alpha=0.4,
            label="slow mode, closed form",
        )  # fmt: skip
        axis.loglog(
            rows["noise"][::3], rows["slow_mode"][::3], "+", color="#0072B2", label="its matrix"
        )
        axis.loglog(
            rows["noise"], rows["printed_limit"], ":", color="#D55E00", label="printed limit"
        )
        axis.errorbar(
            chains["noise"], chains["time"], 2.0 * chains["time_error"], fmt="o", ms=4,
            color="#009E73", mfc="none", label="chains, by ArviZ",
        )  # fmt: skip
        axis.set_title(f"h = {h:g}", fontsize=9)
        axis.set_xlabel("standard deviation C of the gradient")
    axes[0, 0].set_ylabel("autocorrelation time, steps")
    axes[0, 0].legend(fontsize=7, frameon=False)
    return figure


def show_mixture(result: mixture.Result) -> Any:
    """A heat map of the error for each sampler."""
    from matplotlib.colors import LogNorm

    names = list(mixture.SAMPLERS)
    figure, axes = panels(2, 3)
    image = None
    for axis, name in zip(axes.flat, names, strict=False):
        rows = result.table[result.table["sampler"] == name]
        grid = rows.pivot_table(index="passes", columns="batch_size", values="error")
        image = axis.imshow(
            grid, origin="lower", aspect="auto", norm=LogNorm(0.05, 5.0), cmap="cividis"
        )
        for place, value in np.ndenumerate(grid.to_numpy()):
            text = f"{value:.2g}" if value < 10 else f"{value:.0f}"
            axis.text(place[1], place[0], text, ha="center", va="center", fontsize=8,
                      color="black" if value > 0.5 else "white")  # fmt: skip
        axis.set_xticks(range(grid.shape[1]), [str(n) for n in grid.columns])
        axis.set_yticks(range(grid.shape[0]), [str(p) for p in grid.index])
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("batch size")
        axis.set_ylabel("passes over the data")
    axes.flat[-1].set_axis_off()
    figure.colorbar(image, ax=axes, label="relative error of second moments", extend="both")
    return figure
