"""Pictures of reports: of a posterior, and of what was verified."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ergodax.checks import legible
from ergodax.verify import KernelReport, Report

COLOURS = ("#3b6fb6", "#d0662b", "#4c9a5b", "#8b5fa8")
GRID, LINE = 33, 400  # points along an axis of a plane; along a line
LEAST = 1e-17  # zero, on a logarithmic axis
VARIABLE = re.compile(r"(\w+)(?:\[\d+\])?")
LONGEST = 40  # characters of a name
MANY = 6  # functions whose biases are drawn in colour
Elsewhere = Callable[[dict[str, np.ndarray]], Report]


def verbatim(name: str) -> str:
    r"""A user's name as matplotlib shows it, on one line: `$` begins no formula.

    Example:
        >>> print(verbatim(r"$\frac{a$"))
        \$\frac{a\$
    """
    return legible(name, LONGEST).replace("$", r"\$")


def grid(count: int, columns: int, height: float, width: float = 4.2) -> tuple[Any, np.ndarray]:
    """A figure of `count` panels, of a height and width in inches."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = -(-count // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, axes.flat[:count]


def furthest(summary: Any, most: int) -> list[int]:
    """The rows whose means are the furthest from zero, in posterior sd; in the table's order."""
    size = np.abs(summary["mean"].to_numpy() / summary["sd"].to_numpy())
    return np.sort(np.argsort(-size)[:most]).tolist()


def traces(draws: np.ndarray, names: list[str], thin: int = 1) -> Any:
    """Each chain's path, a panel for each column of `draws` (chains, draws, panels)."""
    figure, axes = grid(len(names), 2, 1.7)
    steps = np.arange(draws.shape[1]) * thin
    for k, axis in enumerate(axes):
        for chain in range(draws.shape[0]):
            axis.plot(steps, draws[chain, :, k], lw=0.4, color=COLOURS[chain % 4], alpha=0.8)
        axis.set_title(verbatim(names[k]), fontsize=9)
        axis.set_xlabel("draw", fontsize=8)
    return figure


def marginals(draws: np.ndarray, names: list[str], reference: np.ndarray | None = None) -> Any:
    """Histograms of the draws, over the reference's outline where there is one."""
    figure, axes = grid(len(names), 3, 2.2)
    for k, axis in enumerate(axes):
        parts = [each[..., k].ravel() for each in (draws, reference) if each is not None]
        low, high = np.quantile(np.concatenate(parts), [0.0005, 0.9995])
        bins = np.linspace(low, high, 50).tolist()
        common = {"bins": bins, "density": True}
        axis.hist(parts[0], color=COLOURS[0], alpha=0.45, label="draws", **common)
        for other in parts[1:]:
            outline = {"histtype": "step", "color": "black", "lw": 1.1, "label": "reference"}
            axis.hist(other, **outline, **common)
        axis.set_title(verbatim(names[k]), fontsize=9)
        axis.set_yticks([])
    if reference is not None:
        axes[0].legend(fontsize=8, frameon=False)
    return figure


def ratios(draws: np.ndarray, names: list[str], what: str = "odds ratio") -> Any:
    """The odds ratio of one unit of each column of coefficients (chains, draws, columns).

    Or the rate ratio, where the logarithm of the mean is linear.

    Of less where that would be beyond e^10: of a power of ten, which its name then tells.
    """
    change = np.quantile(draws.reshape(-1, draws.shape[-1]), [0.5, 0.025, 0.975], axis=0)
    unit = 10.0 ** -np.ceil(np.log10(np.maximum(np.abs(change).max(axis=0) / 10.0, 1.0)))
    names = [n if u == 1.0 else f"{n}, {u:g}" for n, u in zip(names, unit, strict=True)]
    ratio = np.exp(change * unit)
    figure, (axis,) = grid(1, 1, 0.8 + 0.21 * len(names), 7.0)
    place = np.arange(len(names))
    bars = np.abs(ratio[1:] - ratio[0])
    axis.errorbar(ratio[0], place, xerr=bars, fmt="o", ms=3.5, lw=1.2, color=COLOURS[0])
    axis.axvline(1.0, color="grey", lw=0.8, ls="--")
    axis.set(xscale="log", ylim=(len(names) - 0.5, -0.5), xlabel=what)
    axis.set_yticks(place, [verbatim(name) for name in names], fontsize=8)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("{x:g}")
    axis.tick_params(axis="x", which="both", labelsize=7, length=3, pad=3)
    axis.grid(axis="x", which="both", alpha=0.25)
    return figure


def reliability(table: Any) -> Any:
    """Observed frequency against predicted probability, with 95 % intervals."""
    figure, (axis,) = grid(1, 1, 3.6)
    axis.plot([0, 1], [0, 1], color="grey", lw=0.8, ls="--")
    predicted, observed = table["predicted"].to_numpy(), table["observed"].to_numpy()
    bars = np.stack([observed - table["low"].to_numpy(), table["high"].to_numpy() - observed])
    axis.errorbar(predicted, observed, np.abs(bars), fmt="o", color=COLOURS[0], ms=4, capsize=2)
    for x, y, count in zip(predicted, observed, table["count"].to_numpy(), strict=True):
        axis.annotate(str(count), (x, y), fontsize=7, xytext=(5, -9), textcoords="offset points")
    axis.set(xlabel="predicted probability", ylabel="observed frequency")
    return figure


def race(seconds: dict[str, tuple[float, float]]) -> Any:
    """How long each sampler takes: seconds that it had, and those to the accuracy."""
    figure, (axis,) = grid(1, 1, 0.9 + 0.4 * len(seconds), 7.0)
    names, (had, needed) = list(seconds), np.array(list(seconds.values())).T
    further = np.nan_to_num(np.maximum(needed - had, 0.0))
    axis.barh(names, had, color=COLOURS[0], label="measured")
    if further.any():
        style = {"facecolor": "none", "edgecolor": COLOURS[0], "hatch": "///"}
        axis.barh(names, further, left=had, label="extrapolated", **style)
        axis.legend(frameon=False)
    axis.invert_yaxis()
    axis.set(xlabel="seconds until every error is small enough")
    return figure


def agreement(table: Any) -> Any:
    """Every coefficient's difference from the reference, with two Monte Carlo standard errors."""
    figure, (means, ratios) = grid(2, 2, 2.8)
    place = np.arange(len(table))
    error = 2 * table["mcse"]
    means.errorbar(place, table["difference"], error, fmt=".", color=COLOURS[0], lw=0.8)
    means.set(title="difference of means, in posterior sd", xlabel="coefficient")
    ratios.plot(place, table["sd_ratio"], ".", color=COLOURS[1])
    ratios.set(title="ratio of standard deviations", xlabel="coefficient")
    for axis, right in ((means, 0), (ratios, 1)):
        axis.axhline(right, color="grey", lw=0.8)
    return figure


def residuals(report: Report, elsewhere: Elsewhere) -> tuple[Any, str]:
    """The relative residual at the points, and along a line or over a plane of states."""
    shown = plane(report.names)
    panels = 1 + bool(shown)
    figure, axes = grid(panels, panels, 4.2, 5.2)
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
    """The columns to draw the residual over: the position's two, or its one and a momentum's."""
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
    """Biases by step size with their fitted orders, and the limits in standard errors."""
    figure, (left, right) = grid(2, 2, 4.2, 5.2)
    h, orders = report.step_sizes, report.orders
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
