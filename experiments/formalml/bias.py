"""Stationary bias by step size and by batch: exact laws, and what coupled pairs of chains measure.

On the double well (x^2 - 1)^2 / 4 with gradient noise of standard deviation 1 - cos(1 + 5 x) the
laws are found on grids; on a conjugate regression mean and covariance of SGLD are the solution of
a linear system, for every step size and batch. `ex.diagnostics.bias` and `batch_bias`, which know
none of this, are set beside them.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray

import ergodax as ex
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.formalml.batch_bias import (
    BATCH_SIZES,
    DATA_SEED,
    FRACTIONS,
    NUM_DATA,
    SHOWN,
    constants,
    exact_regression,
    make_regression,
    measure_batches,
)
from experiments.matthews_weare_2018 import noise_orders as orders
from experiments.matthews_weare_2018.noise_problem import (
    DOUBLE_WELL,
    SAMPLERS,
    Sampler,
    baoab_parts,
)
from experiments.measured import Measured
from experiments.page import Page, lines, panels

OWN_STEPS = (0.04, 0.028, 0.02, 0.014, 0.01)  # of the schemes without momentum
STEPS = (0.28, 0.2, 0.14, 0.1, 0.07)
CLEAN_SGLD, CLEAN_BAOAB = "SGLD, exact gradient", "BAOAB, exact gradient"
# The variance of SGLD is right by accident: the noise's share of its bias cancels that of the step.
MOMENTS = {"SGLD": 4, CLEAN_BAOAB: 2, "NOGIN": 4}  # E x^2 or E x^4, measured at:
PAIRS = {"SGLD": (0.04, 0.02), CLEAN_BAOAB: (0.28, 0.2), "NOGIN": (0.28, 0.2)}
ORDERS = {"SGLD": 1, CLEAN_SGLD: 1, "BAOAB": 1, CLEAN_BAOAB: 2, "NOGIN": 2}
# Colours that are told apart by the colour-blind (Okabe and Ito), and a marker for each.
STYLES = {
    "SGLD": ("#0072B2", "o"),
    CLEAN_SGLD: ("#56B4E9", "v"),
    "BAOAB": ("#D55E00", "^"),
    CLEAN_BAOAB: ("#E69F00", "s"),
    "NOGIN": ("black", "D"),
}
STEP_COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#d8a400", "#D55E00")
BOUND = (
    "What a batch does to SGLD: the stationary bias is η (c_disc + c_noise "
    "N² / n) + O(η²), with 1/n - 1/N for 1/n where rows are distinct. The noise's share is a "
    "product of η and 1/n: it vanishes with η at fixed n, and there is no additive C / n. It is "
    "small for η ≪ n / N². On a Gaussian posterior the mean is exactly unbiased at every η and n, "
    "and the law is not that of the full gradient: its variance is larger."
)


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    num_steps: int = 12_000  # of each pair of chains on the double well
    num_chains: int = 160  # pairs
    batch_steps: int = 2000  # of each pair on the regression
    batches: tuple[int, ...] = (1, 4, 16)  # n of the pairs (n, 2 n)


QUICK = Size(1500, 64, 1500, (4,))


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    laws: pd.DataFrame  # exact errors of each sampler and step size on the double well
    slopes: pd.DataFrame  # of their logarithms
    measured: pd.DataFrame  # the bias of a moment by coupled chains, beside exact values
    regression: pd.DataFrame  # exact biases on the regression, by step size and batch size
    batches: pd.DataFrame  # the bias that a batch brings, by coupled chains, beside exact values
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Find the laws, then measure biases of some of them."""
    key_steps, key_batches = jax.random.split(jax.random.key(seed))
    say(f"{DOUBLE_WELL.name}: exact laws of {len(ORDERS)} samplers")
    laws = exact_laws()
    slopes = orders.fit(laws)
    say("regression: exact biases")
    problem = make_regression()
    regression = exact_regression(problem)
    say(f"pairs of chains at h and h/2: {', '.join(PAIRS)}")
    measured = measure_steps(size, key_steps, progress)
    say(f"pairs of chains with n and 2n of {NUM_DATA} examples: n = {size.batches}")
    batches = measure_batches(
        problem, size.batches, size.batch_steps, size.num_chains, key_batches, progress
    )
    found = verdicts(slopes, measured, regression, batches)
    facts = {
        "seed": seed, "data_seed": DATA_SEED, "num_data": NUM_DATA, **dataclasses.asdict(size),
        "laws": laws.to_dict("records"), "slopes": slopes.to_dict("records"),
        "measured": measured.to_dict("records"), "regression": regression.to_dict("records"),
        "batch_pairs": batches.to_dict("records"), "verdicts": found,
    }  # fmt: skip
    return Result(laws, slopes, measured, regression, batches, found, facts)


def has_momentum(name: str) -> bool:
    """Whether the sampler's step size is that of a scheme with a momentum."""
    return "SGLD" not in name


# A step whose injected noise makes room for the gradient's has the law of the exact gradient.
SCHEMES = {
    "SGLD": SAMPLERS["SGLD"],
    CLEAN_SGLD: Sampler(
        lambda g, h: ex.sgld(ex.FullGradient(g.target), 0.5 * h**2),
        injected=lambda eta, v: jnp.sqrt(1.0 - 0.5 * eta * v),
    ),
    "BAOAB": SAMPLERS["BAOAB"],
    CLEAN_BAOAB: Sampler(
        lambda g, h: ex.langevin(ex.FullGradient(g.target), h),
        lambda step: baoab_parts(step._replace(heat=0.0 * step.heat)),
    ),
    "NOGIN": SAMPLERS["NOGIN"],
}


def _second(x: Float[Array, " 1"]) -> dict[str, Float[Array, " 1"]]:
    return {"moment": x**2}


def _fourth(x: Float[Array, " 1"]) -> dict[str, Float[Array, " 1"]]:
    return {"moment": x**4}


MOMENT = {2: _second, 4: _fourth}  # the same function for every step size, so one program


def own_step(name: str, step_size: float) -> float:
    """The h of the table of schemes: without momentum it is that of h^2 / 2."""
    return step_size if SCHEMES[name].parts is not None else float(np.sqrt(2.0 * step_size))


def law_of(name: str, step_size: float) -> orders.Law:
    """The exact law of x on the double well."""
    law = orders.stationary(DOUBLE_WELL, SCHEMES[name], own_step(name, step_size))
    assert law is not None  # there is no thermostat
    return law


def exact_laws() -> pd.DataFrame:
    """Errors of variance, E x^4 and in total variation, for each sampler and step size."""
    rows = []
    for name, scheme in SCHEMES.items():
        for h in OWN_STEPS if scheme.parts is None else STEPS:
            found = orders.errors(law_of(name, h), DOUBLE_WELL)
            rows.append({"target": DOUBLE_WELL.name, "sampler": name, "step_size": h} | found)
    return pd.DataFrame(rows)


def true_moment(power: int) -> float:
    """E x^power under the target."""
    x = DOUBLE_WELL.grid.x
    return float(DOUBLE_WELL.probabilities(x) @ x**power)


def measure_steps(size: Size, key: PRNGKeyArray, progress: bool = False) -> pd.DataFrame:
    """The relative bias of E x^4, or E x^2, by pairs of chains at h and h / 2."""
    pairs = [(name, h) for name, steps in PAIRS.items() for h in steps]
    rows = []
    for place, (name, h) in enumerate(pairs):
        power = MOMENTS[name]
        report = ex.diagnostics.bias(
            lambda h, name=name: SCHEMES[name].kernel(DOUBLE_WELL.noisy, own_step(name, h)),
            jnp.ones(1),
            h,
            size.num_steps,
            key=jax.random.fold_in(key, place),
            order=ORDERS[name],
            function=MOMENT[power],
            num_chains=size.num_chains,
            burn_in=size.num_steps // 10,
            progress=progress,
        )
        row = report.table.xs("mean", level=1).iloc[0]
        found, error = row["bias_coarse"], report.ratio * row["bias_error"]
        scale = true_moment(power)
        relative = {"measured": float(found / scale), "error": float(error / scale)}
        head = {"sampler": name, "moment": power, "step_size": h, "order": ORDERS[name]}
        rows.append(head | relative | exact_pair(name, h))
    return pd.DataFrame(rows)


def exact_pair(name: str, step_size: float) -> dict[str, float]:
    """The relative bias itself, and what a pair of chains of infinite length would say.

    The pair takes the bias for a single power of h.
    """
    power, ratio = MOMENTS[name], 2.0 ** ORDERS[name]
    at, half = (law_of(name, h).mean(lambda x: x**power) for h in (step_size, 0.5 * step_size))
    truth = true_moment(power)
    fitted = (at - half) * ratio / (ratio - 1.0)
    return {"exact": at / truth - 1.0, "pair": fitted / truth}


def verdicts(
    slopes: pd.DataFrame, measured: pd.DataFrame, regression: pd.DataFrame, batches: pd.DataFrame
) -> list[str]:
    """Orders, agreement, and what the batch does."""
    listed = ", ".join(
        f"{row['sampler']} {Measured(row['distance'], max(row['distance_error'], 0.01))}"
        for row in slopes.to_dict("records")
    )
    off = ((measured["measured"] - measured["pair"]) / measured["error"]).abs().max()
    off_batch = ((batches["variance"] - batches["exact"]) / batches["variance_error"]).abs().max()
    off_mean = (batches["mean"] / batches["mean_error"]).abs().max()
    small = regression[regression["fraction"] == min(FRACTIONS)].set_index("batch_size")
    large = regression[regression["fraction"] == FRACTIONS[-3]].set_index("batch_size")
    n = BATCH_SIZES[2]
    falls = large.loc[n, "bias"] / small.loc[n, "bias"]
    disc, noise = constants(regression)
    return [
        f"Orders of the law in the sampler's own step: {listed}.",
        f"Pairs of chains agree with the exact laws within {off:.1f} standard errors.",
        f"On the regression the bias of the variances is η ({disc:.3g} + {noise:.3g} "
        f"N² (1/n - 1/N)) for small η: with n = {n} it falls {falls:.2f} times as η falls 4 times, "
        "so it vanishes with η at fixed n, and no term in 1/n alone is left.",
        "The posterior mean is unbiased at every η and n; measured it is off by at most "
        f"{off_mean:.1f} standard errors, and the variances agree with the exact ones within "
        f"{off_batch:.1f}.",
    ]


def slopes_table(result: Result) -> pd.DataFrame:
    """A row for each sampler: the orders of its errors in its own step size."""
    rows = []
    for row in result.slopes.to_dict("records"):
        orders = {
            title: str(Measured(row[name], max(row[f"{name}_error"], 0.01)))
            for title, name in {"law": "distance", "E x²": "variance", "E x⁴": "fourth"}.items()
        }
        rows.append({"sampler": row["sampler"]} | orders)
    return pd.DataFrame(rows)


def pairs_table(result: Result) -> pd.DataFrame:
    """A row for each pair of chains on the double well: measured and exact relative biases."""
    return pd.DataFrame(
        [
            {
                "sampler": row["sampler"],
                "moment": f"E x^{row['moment']}",
                "h": f"{row['step_size']:g}",
                "measured": str(Measured(row["measured"], row["error"])),
                "a pair, exact": f"{row['pair']:.5f}",
                "bias, exact": f"{row['exact']:.5f}",
            }
            for row in result.measured.to_dict("records")
        ]
    )


def batches_table(result: Result) -> pd.DataFrame:
    """A row for each batch size: what it adds to the bias of mean and variances."""
    return pd.DataFrame(
        [
            {
                "n": str(row["batch_size"]),
                "mean, in sds": str(Measured(row["mean"], row["mean_error"])),
                "variances": str(Measured(row["variance"], row["variance_error"])),
                "exact": f"{row['exact']:.4f}",
            }
            for row in result.batches.to_dict("records")
        ]
    )


def show(result: Result) -> Any:
    """Above: the double well by step size; below: the regression by batch and by step size."""
    figure, axes = panels(2, 2)
    step = "step size of the sampler"
    exact = ("step_size", "distance", "sampler", STYLES)
    title = "the whole law, exact"
    lines(axes[0, 0], result.laws, *exact, title=title, xlabel=step, ylabel="total variation")
    for name, power in MOMENTS.items():
        own = result.laws[result.laws["sampler"] == name]
        values = np.abs(own["fourth" if power == 4 else "variance"])
        axes[0, 1].plot(own["step_size"], values, lw=1, color=STYLES[name][0])
    seen = result.measured.rename(columns={"error": "measured_error"})
    lines(
        axes[0, 1], seen, "step_size", "measured", "sampler", STYLES,
        title="one moment: exact (lines), by pairs of chains (points)", xlabel=step,
        ylabel="relative bias",
    )  # fmt: skip
    _regression(axes[1], result)
    for axis in axes.flat:
        axis.legend(fontsize=6.5, frameon=False, loc="upper left")
    figure.suptitle(
        f"Stationary bias. Above: {DOUBLE_WELL.name} with noisy gradients; below: regression, "
        f"N = {NUM_DATA}"
    )
    return figure


def _regression(axes: Any, result: Result) -> None:
    """Lines in 1/n that meet the full gradient's bias, and lines in the step size without floor."""
    rows, seen = result.regression, result.batches
    groups = rows[rows["fraction"] <= FRACTIONS[2]].groupby("step_size")
    for (step, own), colour in zip(groups, STEP_COLOURS, strict=False):
        label = f"η = {float(str(step)):.2g}"
        axes[0].plot(1.0 / own["batch_size"], own["bias"], ".-", color=colour, label=label)
    full = rows[rows["fraction"] == SHOWN].set_index("batch_size").loc[NUM_DATA, "bias"]
    axes[0].errorbar(
        1.0 / seen["batch_size"], seen["variance"] + full, 2.0 * seen["variance_error"], fmt="ko",
        mfc="none", capsize=3, label="by pairs of chains",
    )  # fmt: skip
    axes[0].set(title="by batch size", xlabel="1/n", ylabel="relative bias of the variances")
    shown = zip((1, 4, 16, NUM_DATA), STEP_COLOURS, strict=False)
    styles = {f"n = {n}": (colour, ".") for n, colour in shown}
    named = rows.assign(n=[f"n = {n}" for n in rows["batch_size"]])
    title, xlabel = "by step size at fixed n: no floor", "step size η"
    lines(axes[1], named, "step_size", "bias", "n", styles, title=title, xlabel=xlabel)


def bias(*, options: Options = DEFAULTS) -> None:
    """Stationary bias by step size and by batch: exact laws, and what pairs of chains measure.

    SGLD, BAOAB and NOGIN on (x² - 1)²/4 with noisy gradients: their orders in the step size. SGLD
    on a regression: a batch's bias is a product of step size and 1/n, and vanishes with either.

    Example: python -m experiments bias --quick
    """
    conduct("bias", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The tables and the picture."""
    return Page(
        title="Stationary bias by step size and by batch",
        facts=result.facts,
        tables={
            "orders in the sampler's own step size": slopes_table(result),
            "relative biases by pairs of chains at h and h/2": pairs_table(result),
            "what a batch adds, by pairs of chains": batches_table(result),
        },
        sentences=[*result.verdicts, BOUND],
        figure=show(result),
        caption="Laws and lines are exact; points are measured by ex.diagnostics.bias and "
        "batch_bias, with two standard errors. The variance of SGLD on the double well is right "
        "by accident: the noise's share of its bias cancels that of the step, and E x⁴ is looked "
        "at instead.",
        table=result.laws,
        numbers={"Exact errors": result.laws, "Exact biases on the regression": result.regression},
    )
