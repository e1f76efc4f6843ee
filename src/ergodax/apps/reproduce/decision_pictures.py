"""Pictures of what one decides by: bias, gradient noise, a funnel."""

from typing import Any

import numpy as np
from scipy import stats

from ergodax.apps.reproduce import bias_batches, bias_slopes, funnel, reduction
from ergodax.apps.reproduce.noise_problem import DOUBLE_WELL
from ergodax.apps.reproduce.pictures import panels

# Colours that are told apart by the colour-blind (Okabe and Ito), and a marker for each.
SCHEMES = {
    "SGLD": ("#0072B2", "o"),
    bias_slopes.CLEAN_SGLD: ("#56B4E9", "v"),
    "BAOAB": ("#D55E00", "^"),
    bias_slopes.CLEAN_BAOAB: ("#E69F00", "s"),
    "NOGIN": ("black", "D"),
}
METHODS = {
    "SGLD, plain batches": ("0.55", "o"),
    "SGLD, annealed steps": ("#56B4E9", "v"),
    "SGLD, zero variance": ("#0072B2", "^"),
    "SGLD, SVRG": ("#E69F00", "P"),
    "SGLD, SAGA": ("#D55E00", "X"),
    "SGLD, control variates": ("#AA4499", "s"),
    "SGLD, control variates, order 2": ("#CC79A7", "*"),
    "NOGIN, plain batches": ("#009E73", "<"),
    "NOGIN, control variates": ("black", "D"),
}
STEPPERS = {"SGLD": ("#0072B2", "o"), "SGRLD": ("#D55E00", "s")}
ROUNDING = 2e-4  # below it an error or a noise is not drawn to scale
STEP_COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#d8a400", "#D55E00")


def show_bias(result: bias_slopes.Result) -> Any:
    """Above: the double well by step size; below: the regression by batch and by step size."""
    figure, axes = panels(2, 2)
    _distances(axes[0, 0], result)
    _moments(axes[0, 1], result)
    _by_batch(axes[1, 0], result)
    _by_step(axes[1, 1], result)
    figure.suptitle(f"Stationary bias. Above: {DOUBLE_WELL.name} with noisy gradients; below: "
                    f"regression, N = {bias_batches.NUM_DATA}")  # fmt: skip
    return figure


def _distances(axis: Any, result: bias_slopes.Result) -> None:
    slopes = result.slopes.set_index("sampler")["distance"]
    for name, (colour, marker) in SCHEMES.items():
        own = result.laws.query("sampler == @name")
        axis.loglog(own["step_size"], own["distance"], marker=marker, ms=4, lw=1, color=colour,
                    label=f"{name}: order {slopes[name]:.2f}")  # fmt: skip
    axis.set_title("the whole law, exact", fontsize=9)
    axis.set_xlabel("step size of the sampler")
    axis.set_ylabel("distance in total variation")
    axis.legend(fontsize=6.5, frameon=False, loc="upper left")
    axis.set_ylim(1.5e-4, 0.15)
    _ticks(axis)


def _moments(axis: Any, result: bias_slopes.Result) -> None:
    """The exact bias of one moment, and what pairs of chains measure, with two errors."""
    for name, power in bias_slopes.MOMENTS.items():
        colour, marker = SCHEMES[name]
        own = result.laws.query("sampler == @name")
        seen = result.measured.query("sampler == @name")
        bias = own["fourth" if power == 4 else "variance"].abs()
        axis.loglog(own["step_size"], bias, lw=1, color=colour)
        axis.errorbar(
            seen["step_size"], seen["measured"].abs(), 2.0 * seen["error"], fmt=marker, ms=4,
            capsize=2, color=colour, mfc="none", label=f"{name}: E x{'⁴' if power == 4 else '²'}",
        )  # fmt: skip
    axis.set_title("one moment: exact (lines), by pairs of chains (points)", fontsize=9)
    axis.set_xlabel("step size of the sampler")
    axis.set_ylabel("relative bias")
    axis.legend(fontsize=6.5, frameon=False, loc="upper left")
    axis.set_ylim(top=0.3)
    _ticks(axis)


def _ticks(axis: Any) -> None:
    axis.set_xticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
    axis.minorticks_off()


def _by_batch(axis: Any, result: bias_slopes.Result) -> None:
    """Lines in 1/n - 1/N that meet the full gradient's bias at 0."""
    size, rows = bias_batches.NUM_DATA, result.regression
    groups = rows[rows["fraction"] <= bias_batches.FRACTIONS[2]].groupby("step_size")
    for (step, own), colour in zip(groups, STEP_COLOURS, strict=False):
        axis.plot(1.0 / own["batch_size"], own["bias"], ".-", ms=4, lw=1, color=colour,
                  label=f"η = {float(str(step)):.2g}")  # fmt: skip
    shown = rows[rows["fraction"] == bias_batches.SHOWN].set_index("batch_size")["bias"]
    seen = result.batches
    axis.errorbar(
        1.0 / seen["batch_size"], seen["variance"] + shown[size], 2.0 * seen["variance_error"],
        fmt="o", ms=6, capsize=3, color="black", mfc="none", label="by pairs of chains",
    )  # fmt: skip
    axis.set_title("by batch size: a line whose slope falls with η", fontsize=9)
    axis.set_xlabel("1/n")
    axis.set_ylabel("relative bias of the variances")
    axis.legend(fontsize=6.5, frameon=False, loc="upper left")


def _by_step(axis: Any, result: bias_slopes.Result) -> None:
    for n, colour in zip((1, 4, 16, bias_batches.NUM_DATA), STEP_COLOURS, strict=False):
        own = result.regression.query("batch_size == @n")
        label = f"n = {n}" if n < bias_batches.NUM_DATA else "full gradient"
        axis.loglog(own["step_size"], own["bias"], ".-", ms=4, lw=1, color=colour, label=label)
    ends = np.array([own["step_size"].min(), own["step_size"].max()])
    axis.loglog(ends, 0.5 * own["bias"].min() * ends / ends[0], ":", lw=1, color="0.4",
                label="order 1")  # fmt: skip
    axis.set_title("by step size at fixed n: no floor", fontsize=9)
    axis.set_xlabel("step size η")
    axis.set_ylabel("relative bias of the variances")
    axis.legend(fontsize=6.5, frameon=False, loc="upper left")


def show_reduction(result: reduction.Result) -> Any:
    """Errors of means and variances by passes at each method's best step; and the noise."""
    figure, axes = panels(2, 2)
    for axis, kind in zip(axes[0], ("mean", "variance"), strict=True):
        _errors(axis, result, kind)
    axes[0, 0].set_title("rms error of means, in standard deviations", fontsize=9)
    axes[0, 1].set_title("rms error of variances, relative", fontsize=9)
    _noise(axes[1, 0], result)
    axes[1, 1].set_axis_off()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    axes[1, 1].legend(handles, labels, loc="center", fontsize=9, frameon=False)
    rows = result.facts["num_data"]
    figure.suptitle(f"Linear regression, N = {rows:,}, d = 10: each method at its best step size")
    return figure


def _errors(axis: Any, result: reduction.Result, kind: str) -> None:
    for name, (colour, marker) in METHODS.items():
        own = result.best.query("method == @name")
        if own.empty:
            continue
        axis.errorbar(
            own["passes"], own[kind], 2.0 * own[f"{kind}_error"], marker=marker, ms=5, lw=1,
            capsize=2, color=colour, label=name,
        )  # fmt: skip
    ticks = sorted(set(result.best["passes"]))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(ticks, [str(t) for t in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("passes over the data, set-up included")
    seen = result.best[kind].to_numpy()
    axis.set_ylim(bottom=0.7 * seen[seen > ROUNDING].min())
    if (seen < ROUNDING).any():
        text = "zero variance falls to rounding: the posterior is Gaussian"
        colour = METHODS["SGLD, zero variance"][0]
        axis.text(0.02, 0.03, text, transform=axis.transAxes, fontsize=7, color=colour)


def _noise(axis: Any, result: reduction.Result) -> None:
    traces = dict(zip(result.noise["method"], result.noise["trace"].astype(float), strict=True))
    names = [name for name in METHODS if name in traces]
    places = np.arange(len(names))
    axis.barh(places, [traces[name] for name in names], color=[METHODS[n][0] for n in names])
    axis.set_xscale("log")
    axis.set_xlim(ROUNDING, 2.0)
    for place, name in enumerate(names):
        if traces[name] < ROUNDING:
            axis.text(1.2 * ROUNDING, place, "rounding", va="center", fontsize=7)
    axis.set_yticks(places, names, fontsize=7)
    axis.invert_yaxis()
    axis.axvline(0.1, color="0.4", ls=":", lw=1)
    axis.set_title("trace of the gradient's covariance, relative", fontsize=9)


def show_funnel(result: funnel.Result) -> Any:
    """Quantiles, two probabilities by step size, and a chain of each sampler."""
    figure, axes = panels(2, 2)
    chosen = {name: float(funnel.best(result.table, name)["step_size"]) for name in STEPPERS}
    _quantiles(axes[0, 0], result, chosen)
    _tail(axes[0, 1], result, -2.0)
    _tail(axes[1, 0], result, -6.0)
    _paths(axes[1, 1], result, chosen)
    figure.suptitle("Neal's funnel: v ~ N(0, 9), x | v ~ N(0, exp(v)), exact gradients")
    return figure


def _quantiles(axis: Any, result: funnel.Result, chosen: dict[str, float]) -> None:
    truth = funnel.SCALE * stats.norm.ppf(funnel.QUANTILES)
    axis.axline((0.0, 0.0), slope=1.0, color="0.5", lw=1)
    for name, (colour, marker) in STEPPERS.items():
        h = chosen[name]
        axis.plot(truth, result.quantiles[name, h], marker, ms=4, color=colour, mfc="none",
                  label=f"{name}, h = {h:g}")  # fmt: skip
    h = max(funnel.SGLD_STEPS)
    axis.plot(truth, result.quantiles["SGLD", h], "x", ms=4, color="0.5", label=f"SGLD, h = {h:g}")
    axis.set_xlabel("quantile of N(0, 9)")
    axis.set_ylabel("quantile of v")
    axis.set_title("v, its 0.1% to 99.9% quantiles", fontsize=9)
    axis.legend(fontsize=7, frameon=False, loc="upper left")


def _tail(axis: Any, result: funnel.Result, place: float) -> None:
    event = f"below {place:g}"
    table = result.table.query("diverged == 0")
    for name, (colour, marker) in STEPPERS.items():
        for x, face in ((1, colour), (9, "none")):
            own = table.query("sampler == @name and x == @x")
            if own.empty:
                continue
            axis.errorbar(
                own["step_size"], own[event], 2.0 * own[f"{event}_error"], fmt=marker, ms=5,
                capsize=2, color=colour, mfc=face, label=f"{name}, {x} x",
            )  # fmt: skip
    axis.plot(result.exact["step_size"], result.exact[event], color=STEPPERS["SGRLD"][0], lw=1,
              label="SGRLD, 1 x, exact law")  # fmt: skip
    axis.axhline(funnel.truth(place), color="black", lw=1, ls="--", label="funnel")
    axis.set_xscale("log")
    axis.set_ylim(bottom=0.0)
    axis.set_xlabel("step size")
    axis.set_title(f"P(v < {place:g})", fontsize=9)
    if place == -2.0:
        axis.legend(fontsize=6.5, frameon=False, loc="lower left")


def _paths(axis: Any, result: funnel.Result, chosen: dict[str, float]) -> None:
    thin = result.facts["thin"]
    for name, (colour, _) in STEPPERS.items():
        path = result.paths[name, chosen[name]][:500]
        axis.plot(thin * np.arange(path.size), path, lw=0.7, color=colour,
                  label=f"{name}, h = {chosen[name]:g}")  # fmt: skip
    bound = np.log(chosen["SGLD"] / 2.0)
    axis.axhline(bound, color=STEPPERS["SGLD"][0], lw=1, ls="--",
                 label="below: SGLD is unstable")  # fmt: skip
    axis.set_xlabel("step")
    axis.set_title("v of one chain", fontsize=9)
    axis.legend(fontsize=6.5, frameon=False, loc="upper right")
