"""Gradient noise and what takes it out: errors of posterior moments by gradient evaluations.

A Bayesian linear regression with N = 10,000 and d = 10, whose posterior is Gaussian and known.
Every chain starts at the mode, and what finding it took is counted for all alike; so are passes
that an estimator makes to set itself up, and those for gradients at draws that are kept.
"""

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, PRNGKeyArray

import ergodax as ex
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.formalml.linear_law import Regression
from experiments.formalml.reduction_methods import (
    BATCH_SIZE,
    DATA_SEED,
    DIMENSION,
    METHODS,
    PLAIN,
    Method,
    Setting,
    budget,
    exact_inflation,
    make_kernel,
    prepare,
    step_sizes,
)
from experiments.measured import number
from experiments.page import Page, lines, panels

FRACTIONS = (0.003, 0.01, 0.03, 0.1, 0.3)  # of the inverse of the largest curvature

REDUCED = ("SGLD, SVRG", "SGLD, SAGA", "SGLD, control variates")
FEW = (PLAIN, "SGLD, zero variance", *REDUCED[1:], "NOGIN, control variates")
# Colours that are told apart by the colour-blind (Okabe and Ito), and a marker for each.
STYLES = {
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
ROUNDING = 2e-4  # below it an error or a noise is not drawn to scale


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    num_data: int = 10_000  # N
    repeats: int = 16  # independent chains
    # N evaluations each, rising; the last is where step sizes are chosen
    passes: tuple[int, ...] = (30, 60, 120)
    # step sizes of SGLD, in units of the inverse of the largest curvature; NOGIN tries as
    # many of its own
    fractions: tuple[float, ...] = FRACTIONS
    methods: tuple[str, ...] = tuple(METHODS)  # of the table


QUICK = Size(10_000, 8, (30, 50), (0.01, 0.1), FEW)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    table: pd.DataFrame  # a row for each method, step size and number of passes
    best: pd.DataFrame  # the rows of each method at its best step size
    # the trace of the gradient's covariance by method, relative to plain batches
    noise: pd.DataFrame
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Find the mode, then run every method at every step size."""
    key = jax.random.key(seed)
    setting = prepare(size.num_data)
    say(f"the mode, in {setting.passes} passes")
    rows = []
    for place, name in enumerate(size.methods):
        method = METHODS[name]
        steps = step_sizes(method, setting, size.fractions)
        say(f"{name}: {len(steps)} step sizes, {size.passes[-1]} passes")
        for index, h in enumerate(steps):
            own = jax.random.fold_in(jax.random.fold_in(key, place), index)
            for row in measure(method, setting, h, size, own, progress):
                rows.append({"method": name, "step_size": h} | row)
    table = pd.DataFrame(rows)
    chosen = best_steps(table)
    noise = relative_noise(chosen)
    found = verdicts(chosen, noise, setting)
    facts = {
        "seed": seed, "data_seed": DATA_SEED, "batch_size": BATCH_SIZE, "dimension": DIMENSION,
        **dataclasses.asdict(size), "passes_for_the_mode": setting.passes,
        "rows": table.to_dict("records"), "noise": noise.to_dict("records"), "verdicts": found,
    }  # fmt: skip
    return Result(table, chosen, noise, found, facts)


def measure(
    method: Method,
    setting: Setting,
    step_size: float,
    size: Size,
    key: PRNGKeyArray,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Errors after each number of passes, set-up included."""
    rows, (overhead, each) = setting.posterior.num_data, budget(method, setting)
    num_steps = (size.passes[-1] * rows - overhead) // each
    kernel = make_kernel(method, setting, step_size, num_steps)
    samples = ex.sample(
        kernel, setting.mode, num_steps, num_chains=size.repeats, key=key, progress=progress
    )
    spent = overhead + np.cumsum(samples.info.evaluations[0].astype(np.int64))
    exact = exact_inflation(method, setting, step_size)
    noise = float(samples.info.potential[:, num_steps // 10 :].mean(dtype=np.float64))
    found = []
    for passes in size.passes:
        left = (passes * rows - overhead) // rows // 2 if method.kind == "zero variance" else 0
        count = int(np.searchsorted(spent, (passes - left) * rows, side="right"))
        mean, variance = estimates(method, samples, count, left, setting)
        row = {"passes": passes, "noise": noise, "exact_inflation": exact}
        found.append(row | errors(mean, variance, setting.problem))
    return found


def estimates(
    method: Method, samples: ex.Samples, count: int, kept: int, setting: Setting
) -> tuple[Float[np.ndarray, "repeats d"], Float[np.ndarray, "repeats d"]]:
    """Means and variances by each chain's first `count` draws, the first tenth left out.

    Args:
        method: how they are made.
        samples: of the chains.
        count: draws.
        kept: draws at which exact gradients are taken, for zero variance.
        setting: the problem.
    """
    span = np.arange(count // 10, count)
    if method.kind == "zero variance":
        span = span[np.linspace(0, len(span) - 1, kept).astype(int)]
    draws = samples.position[:, span]
    if method.kind == "annealed":
        sizes = samples.info.step_size[:, span]
        tables = [
            ex.postprocess.weighted(ex.Samples(x[None], None, None), h[None])
            for x, h in zip(draws, sizes, strict=True)
        ]
        return (np.stack([t["mean"] for t in tables]), np.stack([t["sd"] ** 2 for t in tables]))
    if method.kind == "zero variance":
        return _zero_variance(draws, setting)
    x = draws.astype(np.float64)
    return x.mean(axis=1), x.var(axis=1)


def _zero_variance(
    draws: Float[np.ndarray, "repeats n d"], setting: Setting
) -> tuple[Float[np.ndarray, "repeats d"], Float[np.ndarray, "repeats d"]]:
    slopes = ex.postprocess.gradients(draws, setting.posterior)
    found = []
    with warnings.catch_warnings():  # the draws are few, as full gradients are dear
        warnings.simplefilter("ignore", UserWarning)
        for x, g in zip(draws, slopes, strict=True):
            pair = x[None], np.asarray(g)[None]
            means = ex.postprocess.zero_variance(*pair)
            found.append((means.mean, ex.postprocess.zero_variance(
                *pair, functions="variance", order=2
            ).mean))  # fmt: skip
    means, variances = zip(*found, strict=True)
    return np.stack(means), np.stack(variances)


def errors(
    means: Float[np.ndarray, "repeats d"],
    variances: Float[np.ndarray, "repeats d"],
    problem: Regression,
) -> dict[str, float]:
    """Root mean squares over repeats and components, with standard errors over repeats.

    Args:
        means: estimates; their errors are in posterior standard deviations.
        variances: estimates; their errors are relative.
        problem: the truth.
    """
    true = np.diag(problem.covariance)
    row = {}
    for name, off in {
        "mean": (means - problem.mean) / np.sqrt(true),
        "variance": variances / true - 1.0,
    }.items():
        squares = np.mean(off**2, axis=1)
        root = float(np.sqrt(squares.mean()))
        row[name] = root
        row[f"{name}_error"] = float(squares.std(ddof=1) / np.sqrt(squares.size) / (2.0 * root))
    return row


def best_steps(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each method at the step size whose larger error is least at the end."""
    last = pd.DataFrame(table[table["passes"] == table["passes"].max()])
    last = last.assign(worst=last[["mean", "variance"]].max(axis=1)).sort_values("worst")
    keys = ["method", "step_size"]
    return table.merge(last.drop_duplicates("method")[keys], on=keys)


def relative_noise(best: pd.DataFrame) -> pd.DataFrame:
    """The trace of the gradient's covariance in stationarity, relative to that of plain batches."""
    own = best.groupby("method", sort=False)["noise"].first()
    return pd.DataFrame({"method": own.index, "trace": own / own[PLAIN]}).reset_index(drop=True)


def verdicts(best: pd.DataFrame, noise: pd.DataFrame, setting: Setting) -> list[str]:
    """Who is nearest, and by how much the noise is less."""
    last = pd.DataFrame(best[best["passes"] == best["passes"].max()]).sort_values("variance")
    listed = "; ".join(
        f"{row['method']} {shown(row, 'mean')} and {shown(row, 'variance')}"
        for row in last.to_dict("records")
    )
    traces = noise.set_index("method")["trace"]
    less = ", ".join(
        f"{name.removeprefix('SGLD, ')} {1.0 / traces[name]:.0f}"
        for name in REDUCED
        if name in traces.index
    )
    return [
        f"After {last['passes'].iloc[0]} passes, {setting.passes} of them for the mode, errors of "
        f"means (in standard deviations) and of variances (relative): {listed}.",
        f"The trace of the gradient's covariance is less than that of plain batches by: {less}. "
        "With control variates of order 2 nothing but rounding is left, as the scores are linear.",
    ]


def shown(row: Any, kind: str) -> str:
    """An error as text; one of rounding by its power of ten."""
    if row[kind] < 1e-4:
        return f"{row[kind]:.0e}"
    return str(number(row, kind))


def reduction_table(result: Result) -> pd.DataFrame:
    """A row for each method at its best step size, after all passes."""
    last = pd.DataFrame(result.best[result.best["passes"] == result.best["passes"].max()])
    traces = result.noise.set_index("method")["trace"]
    rows = []
    for row in last.to_dict("records"):
        inflation = row["exact_inflation"]
        rows.append(
            {
                "method": row["method"],
                "step size": f"{row['step_size']:.2g}",
                "error of means, sds": shown(row, "mean"),
                "of variances": shown(row, "variance"),
                "exact bias": "" if pd.isna(inflation) else f"{inflation:.3f}",
                "noise, relative": f"{traces[row['method']]:.2g}",
            }
        )
    return pd.DataFrame(rows)


def show(result: Result) -> Any:
    """Errors of means and variances by passes at each method's best step; and the noise."""
    figure, axes = panels(2, 2)
    titles = {"mean": "rms error of means, in sds", "variance": "rms error of variances, relative"}
    for axis, (kind, title) in zip(axes[0], titles.items(), strict=True):
        seen = result.best[result.best[kind] > ROUNDING]  # zero variance can fall to rounding
        xlabel = "passes over the data, set-up included"
        lines(axis, seen, "passes", kind, "method", STYLES, title=title, xlabel=xlabel)
    bars, rows = axes[1, 0], result.noise.to_dict("records")[::-1]
    names = [str(row["method"]) for row in rows]
    traces = [max(ROUNDING, row["trace"]) for row in rows]
    bars.barh(names, traces, color=[STYLES[name][0] for name in names])
    bars.tick_params(axis="y", labelsize=7)
    bars.set(xscale="log", title="trace of the gradient's covariance, relative")
    axes[1, 1].set_axis_off()
    handles, labels = axes[0, 1].get_legend_handles_labels()
    axes[1, 1].legend(handles, labels, loc="center", fontsize=9, frameon=False)
    count = result.facts["num_data"]
    figure.suptitle(f"Linear regression, N = {count:,}, d = 10: each method at its best step size")
    return figure


def variance_reduction(*, options: Options = DEFAULTS) -> None:
    """Errors of posterior moments by passes: SGLD with plain batches and what improves on it.

    SVRG, SAGA, control variates of order 1 and 2, zero-variance estimates, falling steps, and
    NOGIN, on a linear regression with 10,000 examples.

    Example: python -m experiments variance-reduction --quick
    """
    conduct("variance-reduction", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The tables and the picture."""
    return Page(
        title="Gradient noise and what takes it out",
        facts=result.facts,
        tables={"rms errors after all passes, at the best step size": reduction_table(result)},
        sentences=result.verdicts,
        figure=show(result),
        caption="Root mean squares over repeats and components, with two standard errors. All "
        "chains start at the mode, whose passes are counted for all; half of the passes of the "
        "zero-variance estimates go to exact gradients at draws. Best: the larger of the two "
        "errors is least, on the runs that are shown.",
        table=result.table,
        numbers={"All step sizes": result.table},
    )
