"""Pictures of what was verified: residuals at points and over a plane, biases by step size."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ergodax.report.pictures import COLOURS, grid, verbatim
from ergodax.verify import KernelReport, Report, bias

GRID, LINE = 33, 400  # points along an axis of a plane; along a line
LEAST = 1e-17  # zero, on a logarithmic axis
VARIABLE = re.compile(r"(\w+)(?:\[\d+\])?")
MANY = 6  # functions whose biases are drawn in colour
Elsewhere = Callable[[dict[str, np.ndarray]], Report]


def residuals(report: Report, elsewhere: Elsewhere) -> tuple[Any, str]:
    """The relative residual at the points, and along a line or over a plane of states.

    Args:
        report: what was found.
        elsewhere: the report at other states, by variable with a leading axis.

    Returns:
        The figure, and a caption.
    """
    shown = plane(report.names)
    figure, axes = grid(1 + bool(shown), 1 + bool(shown), 4.2, 5.2)
    ordered = np.sort(np.maximum(report.relative, LEAST))
    axes[0].plot(np.arange(1, ordered.size + 1), ordered, ".", color=COLOURS[0])
    axes[0].axhline(report.tolerance, color="grey", ls="--", lw=1, label="tolerance")
    axes[0].set(yscale="log", ylim=(LEAST / 2, 2), xlabel="points, from the least residual")
    axes[0].set(ylabel="relative residual div J / pi")
    axes[0].legend(frameon=False)
    caption = "The residual at each point, relative to the terms that cancel in it."
    if shown:
        states, lines = _states(report, shown)
        try:
            found = np.maximum(elsewhere(states).relative, LEAST)
        except ValueError:  # not finite somewhere between the points
            axes[1].set_axis_off()
            return figure, caption
        _over(axes[1], report, shown, lines, found)
        rest = len(report.names) - len(shown)
        held = ", the other variables as at the worst point" if rest else ""
        caption += f" Right: by {' and '.join(report.names[k] for k in shown)}{held}."
    return figure, caption


def plane(names: list[str]) -> list[int]:
    """The columns to draw the residual over: the position's two, or its one and a momentum's.

    Args:
        names: of the columns; [] where the position has more than two, or is no plain array.
    """
    places = [k for k, name in enumerate(names) if name.partition("[")[0] == "position"]
    if not all(map(VARIABLE.fullmatch, names)) or not 1 <= len(places) <= 2:
        return []
    if len(places) == 1:
        others = [k for k, name in enumerate(names) if name.partition("[")[0] == "momentum"]
        places += others[:1]
    return places


def _states(report: Report, shown: list[int]) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """States along the columns shown, the others at the worst point; and the axes' values."""
    low, high = report.points.min(axis=0), report.points.max(axis=0)
    margin = 0.1 * (high - low)
    count = LINE if len(shown) == 1 else GRID
    lines = [np.linspace(low[k] - margin[k], high[k] + margin[k], count) for k in shown]
    points = np.tile(list(report.worst.values()), (count ** len(shown), 1))
    for k, values in zip(shown, np.meshgrid(*lines, indexing="ij"), strict=True):
        points[:, k] = values.ravel()
    states: dict[str, np.ndarray] = {}
    for variable in dict.fromkeys(name.partition("[")[0] for name in report.names):
        columns = [k for k, n in enumerate(report.names) if n.partition("[")[0] == variable]
        scalar = variable in report.names
        states[variable] = points[:, columns[0]] if scalar else points[:, columns]
    return states, lines


def _over(axis: Any, report: Report, shown: list[int], lines: list[np.ndarray], found: Any) -> None:
    """The residual along a line, or over a plane with the points of the report."""
    from matplotlib.colors import LogNorm

    names = [verbatim(report.names[k]) for k in shown]
    if len(shown) == 1:
        axis.plot(lines[0], found, color=COLOURS[0], lw=1)
        axis.axhline(report.tolerance, color="grey", ls="--", lw=1)
        axis.set(yscale="log", ylim=(LEAST / 2, 2), xlabel=names[0])
        return
    colours = axis.pcolormesh(*lines, found.reshape(GRID, GRID).T, norm=LogNorm(LEAST, 1.0))
    axis.plot(*report.points[:, shown].T, ".", ms=2, color="white", alpha=0.6)
    axis.set(xlabel=names[0], ylabel=names[1])
    axis.figure.colorbar(colours, ax=axis, label="relative residual")


def biases(report: KernelReport) -> tuple[Any, str]:
    """Biases by step size with their fitted orders, and the limits in standard errors.

    Args:
        report: what was found.

    Returns:
        The figure, and a caption.
    """
    figure, (left, right) = grid(2, 2, 4.2, 5.2)
    h, orders = report.step_sizes, bias.order(report.step_sizes, report.bias)
    largest = np.argsort(-np.abs(report.bias.value).max(axis=0), kind="stable")
    for rank, f in enumerate(largest[:MANY]):
        colour = COLOURS[rank % len(COLOURS)]
        size, error = np.abs(report.bias.value[:, f]), report.bias.error[:, f]
        known = np.isfinite(orders.value[f])
        text = f": order {orders.value[f]:.2f} ± {orders.error[f]:.2f}" if known else ""
        mark = "os"[rank >= len(COLOURS)]
        apart = h * 1.02**rank
        left.errorbar(apart, size, error, fmt=mark, ms=4, color=colour, capsize=2,
                      label=verbatim(report.functions[f]) + text)  # fmt: skip
        if known:
            top = h.argmax()
            left.plot(h, size[top] * (h / h[top]) ** orders.value[f], color=colour, lw=1)
    floor = float(report.bias.error.min())
    left.set(xscale="log", yscale="log", ylim=(floor / 2, None))
    left.set(xlabel="step size h", ylabel=f"|bias| in sd after time {report.duration:.3g}")
    left.set_xticks(h, [f"{each:.3g}" for each in h])
    left.set_xticks([], minor=True)
    left.legend(frameon=False, fontsize=8)
    left.grid(alpha=0.3)
    place = np.arange(len(report.functions))
    for k, name in enumerate(("after the time", "one step")):
        bars = {"height": 0.35, "color": COLOURS[k], "label": name}
        right.barh(place + 0.4 * k - 0.2, report.scores[k], **bars)
    right.axvline(report.critical, color="black", ls="--", lw=1, label="no accident")
    right.set_yticks(place, [verbatim(name) for name in report.functions])
    right.invert_yaxis()
    right.set(xlabel="limit as h → 0, in its standard errors")
    right.legend(frameon=False, fontsize=8)
    caption = (
        "Left: biases by step size with one standard error; a line has the fitted order. Right: "
        f"the limits, which are zero for a right kernel; beyond {report.critical:.1f} standard "
        "errors they are not."
    )
    return figure, caption
