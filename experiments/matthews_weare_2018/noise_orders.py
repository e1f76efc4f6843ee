"""Section 5.1 of Matthews and Weare (2018): what gradient noise does to a law, by the step size.

The laws are exact: their distance from the target is found on grids, without sampling. Chains of
the samplers themselves then show how error falls with the gradients spent, down to those biases.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, PRNGKeyArray
from scipy import optimize

import ergodax as ex
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.matthews_weare_2018 import phase_grid
from experiments.matthews_weare_2018.noise_problem import (
    CASES,
    DOUBLE_WELL,
    SAMPLERS,
    THERMAL_MASS,
    Case,
    Sampler,
    Step,
    Values,
    gradient_noise,
)
from experiments.measured import Measured
from experiments.page import Page, lines, panels

STEPS = (0.28, 0.2, 0.14, 0.1, 0.07)
ERRORS = ("variance", "fourth", "distance")
ROUNDING = 1e-7  # below it an error is one of the grid
RACE = 0.25  # h of the chains
START = 0.0  # of the chains, the top of the barrier
CELLS = 1.5  # of the axis to a standard deviation of the injected noise, without momentum

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


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    steps: tuple[float, ...] = STEPS  # step sizes, falling
    repeats: int = 64  # of the race, over which the root mean square is taken
    num_chains: int = 32  # that share an estimate in each repeat
    num_steps: int = 2048  # of each chain, one gradient each


QUICK = Size(STEPS[1:4], 40, 16, 512)


class Law(NamedTuple):
    """Probabilities of evenly spaced places."""

    x: Values
    probabilities: Values

    def mean(self, function: Callable[[np.ndarray], np.ndarray]) -> float:
        """The expectation of a function of x."""
        return float(self.probabilities @ function(self.x))


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    table: pd.DataFrame  # the errors of each target, sampler and step size
    slopes: pd.DataFrame  # of their logarithms, for each target and sampler
    race: pd.DataFrame  # root mean square error of each sampler by gradients spent on a chain
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Find the laws, fit the slopes, run the chains."""
    rows = []
    for case in CASES:
        say(f"{case.name}: exact laws at {len(size.steps)} step sizes")
        for name, sampler in SAMPLERS.items():
            head = {"target": case.name, "sampler": name}
            for h in size.steps:
                law = stationary(case, sampler, h)
                rows.append(head | {"step_size": h} | errors(law, case))
    table = pd.DataFrame(rows)
    slopes = fit(table)
    say(f"{DOUBLE_WELL.name}: chains at h = {RACE:g}")
    race = run_race(size, jax.random.key(seed), progress)
    found = [*verdicts(slopes), race_verdict(race, size)]
    facts = {
        "seed": seed, "friction": 1.0, "thermal_mass": THERMAL_MASS, "race_step_size": RACE,
        **dataclasses.asdict(size), "rows": table.to_dict("records"),
        "slopes": slopes.to_dict("records"), "race": race.to_dict("records"), "verdicts": found,
    }  # fmt: skip
    return Result(table, slopes, race, found, facts)


def stationary(case: Case, sampler: Sampler, h: float) -> Law | None:
    """The law of x; where there is a thermostat, of a heavy one, which rests at some zeta.

    None where it has no stationary distribution: the kicks bring more than any friction takes out.

    Args:
        case: the target.
        sampler: of the table.
        h: the step size of those with a momentum; the others take h^2 / 2.
    """
    if sampler.parts is None:
        return _overdamped(case, sampler, 0.5 * h**2)
    grid, parts = case.grid, sampler.parts
    with jax.enable_x64(True):
        noise = np.asarray(gradient_noise(jnp.asarray(grid.x)))
    step = Step(h, -h * case.slope(grid.x), h**2 * noise)

    @functools.cache  # the search asks for its ends and its answer again
    def at(zeta: float) -> phase_grid.Law:
        return phase_grid.stationary(grid, parts(step._replace(zeta=zeta)), case.guess(grid))

    zeta = 1.0
    if sampler.seen is not None:
        seen = sampler.seen
        excess = lambda zeta: seen(at(zeta).kinetic, h, zeta) - 1.0  # noqa: E731
        most = 1.0 + 2.0 * h
        if excess(most) > 0:
            return None
        zeta = float(optimize.root_scalar(excess, bracket=(1.0, most), xtol=1e-6).root)
    return Law(grid.x, at(zeta).positions)


def _overdamped(case: Case, sampler: Sampler, eta: float) -> Law:
    injected = sampler.injected or (lambda eta, v: 1.0)
    law = ex.verify.transition_law(
        lambda z: -jax.grad(case.target.potential)(z),
        lambda z: injected(eta, gradient_noise(z)) ** 2,
        eta,
        ex.verify.Axis(-case.edge, case.edge, round(2.0 * case.edge * CELLS / np.sqrt(2.0 * eta))),
        gradient_noise=gradient_noise,
    )
    return Law(law.points[:, 0], law.weights)


def errors(law: Law | None, case: Case) -> dict[str, float]:
    """Of the variance and of E x^4, relative; and the distance in total variation."""
    if law is None:
        return dict.fromkeys(ERRORS, float("nan"))
    truth = Law(law.x, case.probabilities(law.x))
    moments = [
        (m.mean(np.square) - m.mean(lambda x: x) ** 2, m.mean(_fourth)) for m in (law, truth)
    ]
    (variance, fourth), (true_variance, true_fourth) = moments
    return {
        "variance": variance / true_variance - 1.0,
        "fourth": fourth / true_fourth - 1.0,
        "distance": 0.5 * float(np.abs(law.probabilities - truth.probabilities).sum()),
    }


def _fourth(x: np.ndarray) -> np.ndarray:
    return np.square(np.square(x))


def fit(table: pd.DataFrame) -> pd.DataFrame:
    """Slopes of log error against log h, for each target and sampler.

    The slope is that between the two smallest step sizes, its error the change from the two before.
    Where an error changes its sign among them there is no slope.
    """
    rows = []
    for _, group in table.groupby(["target", "sampler"], sort=False):
        row = {name: group[name].iloc[0] for name in ("target", "sampler")}
        row["largest"] = float(np.nanmax(group[[*ERRORS]].abs().to_numpy()))
        logs = np.log(group["step_size"].to_numpy())
        for error in ERRORS:
            last = group[error].to_numpy()
            with np.errstate(invalid="ignore", divide="ignore"):
                sizes = np.where(last * last[-1] > 0, np.log(np.abs(last)), np.nan)
            local = np.diff(sizes) / np.diff(logs)
            row |= {error: local[-1], f"{error}_error": abs(local[-1] - local[-2])}
        rows.append(row)
    return pd.DataFrame(rows)


def verdicts(slopes: pd.DataFrame) -> list[str]:
    """Exact, or of which order."""
    found = []
    for row in slopes.to_dict("records"):
        name = f"{row['sampler']} on {row['target']}"
        if row["largest"] < ROUNDING:
            found.append(f"{name} is exact: no error exceeds {row['largest']:.0e}.")
            continue
        overdamped = SAMPLERS[str(row["sampler"])].parts is None
        slope = Measured(row["distance"], max(row["distance_error"], 0.01))
        own = f", of order {0.5 * slope.value:.2f} in its own step h²/2" if overdamped else ""
        found.append(f"{name}: the law is wrong by order {slope} in h{own}.")
    return found


def run_race(size: Size, key: PRNGKeyArray, progress: bool) -> pd.DataFrame:
    """Estimates of E x^2 and E x^4 on the double well, from chains that begin at one place."""
    rows = []
    for place, (name, sampler) in enumerate(SAMPLERS.items()):
        samples = ex.sample(
            sampler.kernel(DOUBLE_WELL.noisy, RACE),
            jnp.full(1, START, float),
            size.num_steps,
            num_chains=size.repeats * size.num_chains,
            key=jax.random.fold_in(key, place),
            progress=progress,
        )
        draws = samples.position[..., 0].reshape(size.repeats, size.num_chains, -1)
        law = stationary(DOUBLE_WELL, sampler, RACE)
        places = DOUBLE_WELL.grid.x
        target = Law(places, DOUBLE_WELL.probabilities(places))
        for moment, function in {"x²": np.square, "x⁴": _fourth}.items():
            truth = target.mean(function)
            bias = float("nan") if law is None else law.mean(function) - truth
            each = function(draws).mean(axis=1, dtype=np.float64)
            head = {"sampler": name, "moment": moment, "bias": bias}
            rows += [head | row for row in progress_of(each - truth)]
    return pd.DataFrame(rows)


def progress_of(errors: Float[np.ndarray, "repeats n"]) -> list[dict[str, Any]]:
    """Root mean square over repeats of the mean of the first n errors, n = 16, 32, 64 ..."""
    means = np.cumsum(errors, axis=1) / np.arange(1, errors.shape[1] + 1)
    rows = []
    for count in 2 ** np.arange(4, int(np.log2(errors.shape[1])) + 1):
        squares = means[:, count - 1] ** 2
        root = np.sqrt(squares.mean())
        error = squares.std(ddof=1) / np.sqrt(squares.size) / (2 * root)
        rows.append({"gradients": int(count), "error": float(root), "error_error": float(error)})
    return rows


def race_verdict(race: pd.DataFrame, size: Size) -> str:
    """Who is nearest at the end, by E x^4."""
    spent = race["gradients"].max()
    first = race.query("moment == 'x⁴' and gradients == @spent").sort_values("error")
    listed = ", ".join(
        f"{row['sampler']} {Measured(row['error'], row['error_error'])}"
        for row in first.to_dict("records")
    )
    return (
        f"At h = {RACE:g}, after {spent} gradients in each of "
        f"{size.num_chains} chains, E x⁴ on {DOUBLE_WELL.name} is off by (root mean square): "
        f"{listed}."
    )


def slopes_table(result: Result) -> pd.DataFrame:
    """A row for each target and sampler: orders in h, and in the overdamped samplers' own step."""
    rows = []
    for row in result.slopes.to_dict("records"):
        texts = {"target": row["target"], "sampler": row["sampler"]}
        exact = row["largest"] < ROUNDING
        for error in ERRORS:
            texts[error] = "exact" if exact else _slope(row, error)
        overdamped = SAMPLERS[str(row["sampler"])].parts is None
        texts["distance, own step"] = _slope(row, "distance", 0.5) if overdamped else ""
        rows.append(texts | {"largest error": f"{row['largest']:.2g}"})
    return pd.DataFrame(rows)


def _slope(row: Any, error: str, factor: float = 1.0) -> str:
    if not math.isfinite(row[error]):
        return "changes sign"
    return str(Measured(factor * row[error], factor * row[f"{error}_error"]))


def race_table(result: Result) -> pd.DataFrame:
    """A row for each sampler: root mean square errors at the end, and exact biases."""
    last = result.race[result.race["gradients"] == result.race["gradients"].max()]
    rows = []
    for name, group in last.groupby("sampler", sort=False):
        texts = {"sampler": name}
        for row in pd.DataFrame(group).to_dict("records"):
            texts[f"error of E {row['moment']}"] = str(Measured(row["error"], row["error_error"]))
            texts[f"bias of E {row['moment']}"] = f"{row['bias']:.4f}"
        rows.append(texts)
    return pd.DataFrame(rows)


def show(result: Result) -> Any:
    """Errors by h on both targets, by the overdamped samplers' own step, and by gradients spent."""
    figure, axes = panels(2, 2)
    seen = result.table[result.table["distance"] > ROUNDING]
    seen = seen.assign(own_step=0.5 * seen["step_size"] ** 2)
    well = seen[seen["target"] == DOUBLE_WELL.name]
    own = {name: STYLES[name] for name in SAMPLERS if SAMPLERS[name].parts is None}
    distance = "distance in total variation"
    by_step = ("step_size", "distance", "sampler", STYLES)
    for axis, case in zip(axes[0], CASES, strict=True):
        rows = seen[seen["target"] == case.name]
        lines(axis, rows, *by_step, title=case.name, xlabel="h (overdamped: h²/2)", ylabel=distance)
    lines(
        axes[1, 0], well, "own_step", "distance", "sampler", own,
        title=f"{DOUBLE_WELL.name}, by the step size of SGLD itself", xlabel="step size h²/2",
        ylabel=distance,
    )  # fmt: skip
    race = result.race[result.race["moment"] == "x⁴"]
    lines(
        axes[1, 1], race, "gradients", "error", "sampler", STYLES,
        title=f"{DOUBLE_WELL.name}, h = {RACE:g}; dashed: exact bias",
        xlabel="gradients spent on a chain", ylabel="rms error of E x⁴",
    )  # fmt: skip
    for name, rows in race.groupby("sampler", sort=False):
        axes[1, 1].axhline(abs(rows["bias"].mean()), color=STYLES[str(name)][0], ls="--", lw=0.6)
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle("Gradient noise of standard deviation 1 - cos(1 + 5x)")
    return figure


def noise_orders(*, options: Options = DEFAULTS) -> None:
    """Matthews and Weare (2018), section 5.1: what gradient noise does to a law, by step size.

    NOGIN, SGHMC, CC-ADL, SGNHT, BAOAB, SGLD and mSGLD on N(0, 1) and on (x² - 1)²/4, with noise
    that depends on the position: exact laws, their orders in h, and error by gradients spent.

    Example: python -m experiments noise-orders --quick
    """
    conduct("noise-orders", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The tables and the picture."""
    return Page(
        title="Matthews and Weare (2018), 5.1: what gradient noise does to a law",
        facts=result.facts,
        tables={
            "orders in h of the errors of the variance, of E x⁴ and in total variation": (
                slopes_table(result)
            ),
            f"chains on (x² - 1)²/4 at h = {RACE:g}": race_table(result),
        },
        sentences=result.verdicts,
        figure=show(result),
        caption="Exact laws found on grids. A missing point is a step size at which the "
        "thermostat has no stationary law. SGLD and mSGLD take the step size h²/2, as in the "
        "paper: second order in h there is first order in their own step. Thermostats are heavy "
        f"in these laws, of mass {THERMAL_MASS:g} in the chains.",
        table=result.table,
        numbers={"All errors, relative; distance in total variation": result.table},
    )
