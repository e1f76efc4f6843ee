"""Figure 2 of Ma, Chen and Fox (2015): which samplers have the right law in one dimension.

Each sampler runs at h and h / 2, with exact and with noisy gradients. Its histogram is
extrapolated bin by bin to h = 0 (twice the second less the first, exact up to order h^2), which
takes away the error of the steps and that of the noise; what remains is the law of the dynamics.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, PRNGKeyArray

import ergodax as ex
from ergodax.apps.reproduce import divergences, problem, singular
from ergodax.apps.reproduce.cases import CASES, Case, edges_of, exact_values
from ergodax.apps.reproduce.divergences import Measured

STEPS = (0.02, 0.01)
BURN_IN = 20.0  # times from exact draws of the target to the sampler's own law
SPACING = 0.5  # time between draws kept
DOUBT = 4.5  # standard errors; by Student's t 12 right laws are all called right in 99.8% of runs


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run.

    Attributes:
        repeats: independent repeats, over which standard errors are taken.
        num_chains: chains of a repeat.
        duration: time, steps times step size, that a chain runs after burn-in.
        bins: of the histograms, beside the two tails.
        pieces: how much of the singular metric.
    """

    repeats: int = 40
    num_chains: int = 25
    duration: float = 250.0
    bins: int = 30
    pieces: singular.Size = singular.Size()


QUICK = Size(40, 4, 160.0, 20, singular.Size(200, 20.0))


@dataclasses.dataclass(frozen=True)
class Law:
    """What is known of a sampler's law: a row for each repeat.

    Attributes:
        frequencies: of the bins.
        second: mean of x^2.
        log_speed: mean of log s.
    """

    frequencies: Float[np.ndarray, "repeats bins"]
    second: Float[np.ndarray, " repeats"]
    log_speed: Float[np.ndarray, " repeats"]

    def extrapolated(self, half: "Law") -> "Law":
        """To h = 0, from this law at h and another at h / 2."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(half), strict=True)
        return Law(*(2 * fine - coarse for coarse, fine in pairs))


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found.

    Attributes:
        table: a row for each target, noise, sampler and step size.
        laws: those of the rows, by (target, noise, sampler, step).
        edges: of the bins, by target.
        verdicts: sentences, from the numbers.
        pieces: occupation of the pieces that the printed metric makes of the double well.
        facts: everything that is a number, for JSON.
    """

    table: pd.DataFrame
    laws: dict[tuple[str, float, str, float], Law]
    edges: dict[str, np.ndarray]
    verdicts: list[str]
    pieces: pd.DataFrame
    facts: dict[str, Any]


def run(
    size: Size,
    seed: int = 0,
    progress: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Result:
    """Run every sampler on every target.

    Args:
        size: how much.
        seed: of everything.
        progress: show bars.
        say: called with a line before each stage.
    """
    key = jax.random.key(seed)
    laws: dict[tuple[str, float, str, float], Law] = {}
    edges, rows = {}, []
    for place, case in enumerate(CASES):
        truth = case.truth
        edges[case.name] = edges_of(truth, size.bins)
        for noise in (0.0, problem.NOISE):
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
        "seed": seed, "friction": 1.0, "metric_scale": problem.SCALE, "step_sizes": list(STEPS),
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
    named = problem.samplers(problem.noisy(case.target, noise), case.offset)
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
    return Law(divergences.frequencies(draws, edges), *means)


def measures(law: Law, truth: np.ndarray) -> dict[str, float]:
    """Both divergences from the true bins and the two means, with standard errors.

    The divergences of single repeats, whose bias the jackknife takes away, stand beside them.
    """
    one = [divergences.divergence(row, truth) for row in law.frequencies]
    measured = {
        "kl_from_target": divergences.jackknife(
            lambda q: divergences.divergence(truth, q), law.frequencies
        ),
        "kl_to_target": divergences.jackknife(
            lambda q: divergences.divergence(q, truth), law.frequencies
        ),
        "second_moment": divergences.mean(law.second),
        "log_speed": divergences.mean(law.log_speed),
    }
    columns = {}
    for name, (value, error) in measured.items():
        columns |= {name: value, f"{name}_error": error}
    return columns | {"kl_to_target_one_repeat": float(np.mean(one))}


def measured(row: Any, name: str) -> Measured:
    """A number of a row with its standard error."""
    return Measured(float(row[name]), float(row[f"{name}_error"]))


def verdicts(table: pd.DataFrame, exact: dict[str, dict[str, float]]) -> list[str]:
    """A sentence on each sampler's law at h = 0.

    Args:
        table: of the measures.
        exact: values by target.
    """
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
    return [measured(row, name).deviation(value) for name, value in expected.items()]


def _listed(numbers: list[float]) -> str:
    return "KL {:+.1f}, E x² {:+.1f}, E log s {:+.1f}".format(*numbers)
