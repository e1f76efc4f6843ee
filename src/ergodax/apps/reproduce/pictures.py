"""The two figures."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.apps.reproduce import figure2, figure3, problem
from ergodax.apps.reproduce.cases import CASES, Case

# Colours that are told apart by the colour-blind (Okabe and Ito), and a marker for each.
STYLES = {
    "SGLD": ("#0072B2", "o"),
    "SGHMC": ("#009E73", "s"),
    "naive SGRHMC": ("#D55E00", "X"),
    "gSGRHMC": ("#AA4499", "D"),
}
HEADS = {0.0: "exact gradients", problem.NOISE: f"noisy gradients, variance {problem.NOISE:g}"}


def panels(rows: int, columns: int) -> tuple[Any, Any]:
    """A figure and its axes, an array of rows and columns."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (4.4 * columns, 3.4 * rows)
    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")


def show_figure2(result: figure2.Result) -> Any:
    """A row for each target: densities at h = 0, and divergences as h goes to 0."""
    figure, axes = panels(len(CASES), 3)
    for row, case in zip(axes, CASES, strict=True):
        _densities(row[0], result, case)
        for axis, noise in zip(row[1:], HEADS, strict=True):
            _divergences(axis, result, case, noise)
    axes[0, 0].legend(fontsize=7, frameon=False, loc="upper right")
    axes[0, 1].legend(fontsize=7, frameon=False)
    figure.suptitle("Without Γ, SGRHMC converges to another law as h → 0; with it, to the target")
    return figure


def _densities(axis: Any, result: figure2.Result, case: Case) -> None:
    """The histograms extrapolated to h = 0 over the truth, and the exact naive law."""
    edges = result.edges[case.name]
    truth, naive = case.truth, case.naive
    shown = (truth.places > edges[0]) & (truth.places < edges[-1])
    places = truth.places[shown]
    axis.fill_between(places, truth.density[shown], color="0.85", label="target")
    axis.plot(places, naive.density[shown], color="black", lw=1, ls="--", label="exp(-U) / s")
    middles, widths = 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)
    for name, (colour, marker) in STYLES.items():
        law = result.laws[(case.name, problem.NOISE, name, 0.0)]
        density = law.frequencies.mean(axis=0)[1:-1] / widths
        axis.plot(middles, density, marker, ms=3, color=colour, label=name, alpha=0.8)
    axis.set_title(f"{case.name}: density at h → 0, noisy gradients", fontsize=9)
    axis.set_xlabel("x")
    axis.set_ylabel("density")


def _divergences(axis: Any, result: figure2.Result, case: Case, noise: float) -> None:
    """KL(target || sampler) at h, h / 2 and 0, with two standard errors."""
    steps = [*figure2.STEPS, 0.0]
    table = result.table.set_index(["target", "noise", "sampler", "step_size"])
    for shift, name in zip((-0.18, -0.06, 0.06, 0.18), STYLES, strict=True):
        colour, marker = STYLES[name]
        rows = table.loc[[(case.name, noise, name, step) for step in steps]]
        axis.errorbar(
            np.arange(len(steps)) + shift, rows["kl_from_target"],
            2 * rows["kl_from_target_error"], fmt=marker, ms=5, capsize=2, color=colour, label=name,
        )  # fmt: skip
    exact = result.facts["exact"][case.name]["naive_kl_from_target_in_bins"]
    axis.axhline(exact, color="black", lw=1, ls="--", label="of exp(-U) / s")
    axis.axhline(0.0, color="0.6", lw=0.8)
    axis.set_xticks(np.arange(len(steps)), [*(f"h = {h:g}" for h in steps[:-1]), "h → 0"])
    axis.set_title(f"{case.name}: {HEADS[noise]}", fontsize=9)
    axis.set_ylabel("KL(target || sampler)")


def show_figure3(result: figure3.Result) -> Any:
    """The first steps of each sampler over the target's contours, and how well it mixes."""
    figure, axes = panels(2, 2)
    steps = result.table[result.table["noise"] > 0].set_index("sampler")["step_size"]
    for axis, name in zip(axes.flat, figure3.SAMPLERS, strict=False):
        _contours(axis)
        path = result.paths[name]
        axis.plot(*path.T, marker=STYLES[name][1], ms=3, lw=0.8, color=STYLES[name][0])
        axis.plot(*path[0], "*", ms=11, color="black", label="start")
        axis.set_title(f"{name}, h = {steps[name]:g}: first {len(path) - 1} steps", fontsize=9)
        axis.set_xlabel("x₁")
        axis.set_ylabel("x₂")
        axis.legend(fontsize=7, frameon=False, loc="lower left")
    _mixing(axes[1, 1], result)
    figure.suptitle(
        f"Each sampler at its best step size with a bias within {100 * figure3.BOUND:g}%:\n"
        "paths with noisy gradients, and mixing"
    )
    return figure


def _contours(axis: Any) -> None:
    """The regions of highest density that hold 50, 90 and 99% of the target."""
    x, y = np.meshgrid(np.linspace(-3.4, 3.4, 141), np.linspace(-2.1, 2.3, 121))
    target = ex.targets.banana()
    points = jnp.asarray(np.stack([x.ravel(), y.ravel()], axis=1), float)
    potential = np.asarray(jax.vmap(target.potential)(points)).reshape(x.shape)
    mass = np.sort(np.exp(-potential).ravel())[::-1]
    inside = np.searchsorted(np.cumsum(mass) / mass.sum(), [0.99, 0.9, 0.5])
    levels = np.append(mass[inside], mass[0])
    colours = ["0.93", "0.82", "0.68"]
    axis.contourf(x, y, np.exp(-potential), levels=levels.tolist(), colors=colours)


def _mixing(axis: Any, result: figure3.Result) -> None:
    """Effective draws per 1000 gradients: hollow with exact gradients, filled with noisy ones."""
    table = result.table.set_index(["noise", "sampler"])
    for place, quantity in enumerate(figure3.QUANTITIES):
        for shift, name in zip((-0.2, 0.0, 0.2), figure3.SAMPLERS, strict=True):
            colour, marker = STYLES[name]
            for noise, face in zip(HEADS, ("none", colour), strict=True):
                value = table.loc[(noise, name), f"ess_{quantity}"]
                label = f"{name}, {'noisy' if noise else 'exact'}" if place == 0 else None
                axis.plot(place + shift, value, marker, ms=7, mec=colour, mfc=face, label=label)
    axis.set_yscale("log")
    axis.set_xlim(-0.5, 4.0)
    axis.set_xticks(range(3), ["x₁", "x₂", "x₁²"])
    axis.set_ylabel("effective draws per 1000 gradients")
    axis.set_title("mixing", fontsize=9)
    axis.legend(fontsize=6.5, frameon=False, loc="center right")
