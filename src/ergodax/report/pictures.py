"""Pictures of a posterior: traces, marginals, calibration, agreement with a reference."""

from typing import Any

import numpy as np

COLOURS = ("#3b6fb6", "#d0662b", "#4c9a5b", "#8b5fa8")


def verbatim(name: str) -> str:
    r"""A user's name as matplotlib shows it letter for letter: `$` begins no formula.

    Example:
        >>> print(verbatim(r"$\frac{a$"))
        \$\frac{a\$
    """
    return name.replace("$", r"\$")


def grid(count: int, columns: int, height: float, width: float = 4.2) -> tuple[Any, np.ndarray]:
    """A figure of some panels.

    Args:
        count: how many.
        columns: in a row.
        height: of a panel, in inches.
        width: likewise.
    """
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


def calibration(table: Any) -> Any:
    """Observed frequency against predicted probability, with 95 % intervals.

    Args:
        table: of `evaluate.reliability`.
    """
    figure, axes = grid(1, 1, 3.6)
    axis = axes[0]
    axis.plot([0, 1], [0, 1], color="grey", lw=0.8, ls="--")
    predicted, observed = table["predicted"].to_numpy(), table["observed"].to_numpy()
    bars = np.stack([observed - table["low"].to_numpy(), table["high"].to_numpy() - observed])
    axis.errorbar(predicted, observed, np.abs(bars), fmt="o", color=COLOURS[0], ms=4, capsize=2)
    for x, y, count in zip(predicted, observed, table["count"].to_numpy(), strict=True):
        axis.annotate(str(count), (x, y), fontsize=7, xytext=(5, -9), textcoords="offset points")
    axis.set_xlabel("predicted probability")
    axis.set_ylabel("observed frequency")
    return figure


def agreement(table: Any) -> Any:
    """Every coefficient's difference from the reference, with two Monte Carlo standard errors."""
    figure, axes = grid(2, 2, 2.8)
    place = np.arange(len(table))
    axes[0].errorbar(
        place, table["difference"], 2 * table["mcse"], fmt=".", color=COLOURS[0], lw=0.8
    )
    axes[0].axhline(0, color="grey", lw=0.8)
    axes[0].set_title("difference of means, in posterior sd", fontsize=9)
    axes[1].plot(place, table["sd_ratio"], ".", color=COLOURS[1])
    axes[1].axhline(1, color="grey", lw=0.8)
    axes[1].set_title("ratio of standard deviations", fontsize=9)
    for axis in axes:
        axis.set_xlabel("coefficient", fontsize=8)
    return figure
