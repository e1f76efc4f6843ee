"""Figure 2 of Ma, Chen and Fox (2015): which samplers have the right law in one dimension.

Each sampler runs at h and h / 2, with exact and with noisy gradients. Its histogram is
extrapolated bin by bin to h = 0 (twice the second less the first, exact up to order h^2), which
takes away the error of the steps and that of the noise; what remains is the law of the dynamics.
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, PRNGKeyArray

import ergodax as ex
from experiments import measured
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.ma_chen_fox_2015 import singular_metric as singular
from experiments.ma_chen_fox_2015.line import CASES, Case, edges_of, exact_values
from experiments.ma_chen_fox_2015.samplers import HEADS, NOISE, SCALE, STYLES, noisy, samplers
from experiments.measured import Measured, number
from experiments.page import Page, panels

STEPS = (0.02, 0.01)
BURN_IN = 20.0  # times from exact draws of the target to the sampler's own law
SPACING = 0.5  # time between draws kept
SINGULAR = (
    "With C = 1/2 the inverse metric is zero at four points, which the exact dynamics does not "
    "cross: steps of finite size jump over them, the less often the smaller they are, or end "
    "beyond the largest numbers. All chains start in the right well."
)
DOUBT = 4.5  # standard errors; by Student's t 12 right laws are all called right in 99.8% of runs


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    repeats: int = 40  # independent repeats, over which standard errors are taken
    num_chains: int = 25  # chains of a repeat
    duration: float = 250.0  # time, steps times step size, that a chain runs after burn-in
    bins: int = 30  # of the histograms, beside the two tails
    pieces: singular.Size = singular.Size()  # how much of the singular metric


QUICK = Size(40, 4, 160.0, 20, singular.Size(200, 20.0))


@dataclasses.dataclass(frozen=True)
class Law:
    """What is known of a sampler's law: a row for each repeat."""

    frequencies: Float[np.ndarray, "repeats bins"]  # of the bins
    second: Float[np.ndarray, " repeats"]  # mean of x^2
    log_speed: Float[np.ndarray, " repeats"]  # mean of log s

    def extrapolated(self, half: "Law") -> "Law":
        """To h = 0, from this law at h and another at h / 2."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(half), strict=True)
        return Law(*(2 * fine - coarse for coarse, fine in pairs))


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    table: pd.DataFrame  # a row for each target, noise, sampler and step size
    # those of the rows, by (target, noise, sampler, step)
    laws: dict[tuple[str, float, str, float], Law]
    edges: dict[str, np.ndarray]  # of the bins, by target
    verdicts: list[str]  # sentences, from the numbers
    # occupation of the pieces that the printed metric makes of the double well
    pieces: pd.DataFrame
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Run every sampler on every target."""
    key = jax.random.key(seed)
    laws: dict[tuple[str, float, str, float], Law] = {}
    edges, rows = {}, []
    for place, case in enumerate(CASES):
        truth = case.truth
        edges[case.name] = edges_of(truth, size.bins)
        for noise in (0.0, NOISE):
            say(f"{case.name}, gradient noise of variance {noise:g}")
            own = jax.random.fold_in(jax.random.fold_in(key, place), int(noise))
            for name, law in sample_laws(case, noise, size, edges[case.name], own, progress):
                laws[(case.name, noise, *name)] = law
        own = jax.random.fold_in(key, 100 + place)
        laws[(case.name, 0.0, "exact draws", 0.0)] = exact_draws(case, size, edges[case.name], own)
    for (target, noise, sampler, step), law in laws.items():
        case = next(c for c in CASES if c.name == target)
        head = {"target": target, "noise": noise, "sampler": sampler, "step_size": step}
        rows.append(head | measures(law, case.truth.probabilities(edges[target])))
    table = pd.DataFrame(rows)
    say("the double well with the printed metric, which is singular there")
    pieces = singular.run(size.pieces, jax.random.fold_in(key, 200), progress)
    exact = {case.name: exact_values(case, edges[case.name]) for case in CASES}
    facts = {
        "seed": seed, "friction": 1.0, "metric_scale": SCALE, "step_sizes": list(STEPS),
        **{k: v for k, v in dataclasses.asdict(size).items() if k != "pieces"},
        "exact": exact,
        "rows": table.to_dict("records"), "pieces": pieces.reset_index().to_dict("records"),
    }  # fmt: skip
    found = [*verdicts(table, exact), singular.verdict(pieces)]
    return Result(table, laws, edges, found, pieces, facts | {"verdicts": found})


def sample_laws(
    case: Case, noise: float, size: Size, edges: np.ndarray, key: PRNGKeyArray, progress: bool
) -> list[tuple[tuple[str, float], Law]]:
    """The laws of all samplers at h, at h / 2 and extrapolated."""
    found = []
    named = samplers(noisy(case.target, noise), case.offset)
    for place, (name, sampler) in enumerate(named.items()):
        both = []
        for half, step in enumerate(STEPS):
            own = jax.random.fold_in(jax.random.fold_in(key, place), half)
            both.append(sample_law(sampler(step), step, case, size, edges, own, progress))
            found.append(((name, step), both[-1]))
        found.append(((name, 0.0), both[0].extrapolated(both[1])))
    return found


def sample_law(
    kernel: ex.Kernel,
    step: float,
    case: Case,
    size: Size,
    edges: np.ndarray,
    key: PRNGKeyArray,
    progress: bool = False,
) -> Law:
    """Run the chains of all repeats at once, each from an exact draw of the target."""
    key_start, key_run = jax.random.split(key)
    chains = size.repeats * size.num_chains
    samples = ex.sample(
        kernel,
        positions=case.truth.draw(key_start, chains)[:, None],
        num_steps=round((BURN_IN + size.duration) / step),
        thin=round(SPACING / step),
        num_chains=chains,
        key=key_run,
        progress=progress,
    )
    draws = samples.position[:, round(BURN_IN / SPACING) :]
    return law_of(draws.reshape(size.repeats, -1), case, edges)


def exact_draws(case: Case, size: Size, edges: np.ndarray, key: PRNGKeyArray) -> Law:
    """As many independent draws as a sampler keeps: what the histograms make of the truth."""
    each = size.num_chains * int(size.duration / SPACING)
    draws = np.asarray(case.truth.draw(key, size.repeats * each))
    return law_of(draws.reshape(size.repeats, -1), case, edges)


def law_of(draws: Float[np.ndarray, "repeats n"], case: Case, edges: np.ndarray) -> Law:
    """Histogram and means of each repeat's draws."""
    means = (f(draws.astype(np.float64)).mean(axis=1) for f in (np.square, case.log_speed))
    return Law(measured.frequencies(draws, edges), *means)


def measures(law: Law, truth: np.ndarray) -> dict[str, float]:
    """Both divergences from the true bins and the two means, with standard errors.

    The divergences of single repeats, whose bias the jackknife takes away, stand beside them.
    """
    one = [measured.divergence(row, truth) for row in law.frequencies]
    numbers = {
        "kl_from_target": measured.jackknife(
            lambda q: measured.divergence(truth, q), law.frequencies
        ),
        "kl_to_target": measured.jackknife(
            lambda q: measured.divergence(q, truth), law.frequencies
        ),
        "second_moment": measured.mean(law.second),
        "log_speed": measured.mean(law.log_speed),
    }
    columns = {}
    for name, (value, error) in numbers.items():
        columns |= {name: value, f"{name}_error": error}
    return columns | {"kl_to_target_one_repeat": float(np.mean(one))}


def verdicts(table: pd.DataFrame, exact: dict[str, dict[str, float]]) -> list[str]:
    """A sentence on each sampler's law at h = 0."""
    found = []
    for row in table.query("step_size == 0 and sampler != 'exact draws'").to_dict("records"):
        known = exact[row["target"]]
        means = (known["second_moment"], known["log_speed"])
        numbers = _deviations(row, 0.0, *means)
        wrong = max(numbers[0], abs(numbers[1]), abs(numbers[2])) > DOUBT
        judged = "is wrong" if wrong else "is right within its error"
        noise = f"noise {row['noise']:g}" if row["noise"] else "exact gradients"
        sentence = (
            f"{row['sampler']} {judged} on {row['target']} ({noise}): in standard errors from the "
            f"target {_listed(numbers)}"
        )
        if row["sampler"] == "naive SGRHMC":
            means = (known["naive_second_moment"], known["naive_log_speed"])
            numbers = _deviations(row, known["naive_kl_from_target_in_bins"], *means)
            sentence += f"; from exp(-U) / s {_listed(numbers)}"
        found.append(sentence + ".")
    return found


def _deviations(row: Any, divergence: float, second: float, speed: float) -> list[float]:
    expected = {"kl_from_target": divergence, "second_moment": second, "log_speed": speed}
    return [number(row, name).deviation(value) for name, value in expected.items()]


def _listed(numbers: list[float]) -> str:
    return "KL {:+.1f}, E x² {:+.1f}, E log s {:+.1f}".format(*numbers)


def laws_table(result: Result) -> pd.DataFrame:
    """A row for each target, gradient and sampler: 1000 divergences, and E x^2, as text."""
    rows = []
    for _, group in result.table.groupby(["target", "noise", "sampler"], sort=False):
        limit = group[group["step_size"] == 0].iloc[0]
        row = {"target": limit["target"], "sampler": limit["sampler"]}
        row["noise"] = f"{limit['noise']:g}"
        for step in STEPS:
            at = group[group["step_size"] == step]
            row[f"h = {step:g}"] = _thousand(at.iloc[0], "kl_from_target") if len(at) else ""
        row["h → 0"] = _thousand(limit, "kl_from_target")
        row["reverse"] = _thousand(limit, "kl_to_target")
        row["E x²"] = str(number(limit, "second_moment"))
        rows.append(row)
    for case in CASES:
        exact = result.facts["exact"][case.name]
        naive = {
            "h → 0": f"{1000 * exact['naive_kl_from_target_in_bins']:.3f}",
            "reverse": f"{1000 * exact['naive_kl_to_target_in_bins']:.3f}",
            "E x²": f"{exact['naive_second_moment']:.4f}",
        }
        truth = {"h → 0": "0", "reverse": "0", "E x²": f"{exact['second_moment']:.4f}"}
        rows.append({"target": case.name, "sampler": "exp(-U) / s"} | naive)
        rows.append({"target": case.name, "sampler": "target"} | truth)
    return pd.DataFrame(rows).fillna("").sort_values("target", kind="stable")


def _thousand(row: Any, name: str) -> str:
    value, error = number(row, name)
    return str(Measured(1000 * value, 1000 * error))


def pieces_table(result: Result) -> pd.DataFrame:
    """Where the chains of the singular metric are, as text."""
    texts = result.pieces.map(lambda x: "" if math.isnan(x) else f"{x:.3g}")
    return texts.reset_index()


def show(result: Result) -> Any:
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


def _densities(axis: Any, result: Result, case: Case) -> None:
    """The histograms extrapolated to h = 0 over the truth, and the exact naive law."""
    edges = result.edges[case.name]
    truth, naive = case.truth, case.naive
    shown = (truth.places > edges[0]) & (truth.places < edges[-1])
    places = truth.places[shown]
    axis.fill_between(places, truth.density[shown], color="0.85", label="target")
    axis.plot(places, naive.density[shown], color="black", lw=1, ls="--", label="exp(-U) / s")
    middles, widths = 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)
    for name, (colour, marker) in STYLES.items():
        law = result.laws[(case.name, NOISE, name, 0.0)]
        density = law.frequencies.mean(axis=0)[1:-1] / widths
        axis.plot(middles, density, marker, ms=3, color=colour, label=name, alpha=0.8)
    axis.set_title(f"{case.name}: density at h → 0, noisy gradients", fontsize=9)
    axis.set_xlabel("x")
    axis.set_ylabel("density")


def _divergences(axis: Any, result: Result, case: Case, noise: float) -> None:
    """KL(target || sampler) at h, h / 2 and 0, with two standard errors."""
    steps = [*STEPS, 0.0]
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


def figure2(*, options: Options = DEFAULTS) -> None:
    """Ma, Chen and Fox (2015), Figure 2: which samplers have the right law in one dimension.

    SGLD, SGHMC, naive SGRHMC and gSGRHMC on x²/2 and on x⁴ - 2x², with exact and noisy gradients,
    at two step sizes and extrapolated to none; and what the metric as printed does to the double
    well.

    Example: python -m experiments figure2 --quick
    """
    conduct("figure2", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The tables and the picture."""
    head = "1000 KL(target || sampler) by h, the reverse, and E x² at h → 0"
    groups = laws_table(result).groupby("target")
    tables = {f"{target}: {head}": rows.drop(columns="target") for target, rows in groups}
    tables["x⁴ - 2x² with the metric as printed, C = 0.5, and a positive one"] = pieces_table(
        result
    )
    return Page(
        title="Ma, Chen and Fox (2015), Figure 2: which samplers have the right law",
        facts=result.facts,
        tables=tables,
        sentences=[*result.verdicts, SINGULAR],
        figure=show(result),
        caption="Left: densities extrapolated to h = 0 over the target (grey) and the exact law of "
        "the sampler without Γ (dashed). Right: Kullback-Leibler divergence, with two standard "
        "errors.",
        table=result.table,
    )
