"""Matthews and Weare (2018), section 5.3: posterior variances of MNIST's 7 against 9.

The error of a chain is ||v - v*|| / ||v*||, v being the 129 posterior variances that this one chain
gives and v* the reference's. A pass is N derivatives of one row's log-likelihood, wherever they
were taken: fitting the Gaussian is charged to every chain in full. The paper does not say which
norm its relative error is in, so the error of the trace is given as well, which averages over
coefficients and is smaller; so is that of v averaged over all chains, which shows the bias.
"""

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import PRNGKeyArray

from ergodax.learn import tables
from ergodax.learn.tables import Table
from experiments.command import DEFAULTS, Many, Options, Say, finish, place_for, speaker
from experiments.data import find
from experiments.matthews_weare_2018.mnist_schemes import (
    CONTROLLED,
    WHITENED,
    Problem,
    Scheme,
    all_schemes,
    prepare,
)
from experiments.matthews_weare_2018.moments import (
    Moments,
    Reference,
    error,
    follow,
    load,
    monte_carlo_error,
    over_chains,
    run_reference,
    save,
)
from experiments.measured import Measured
from experiments.page import Page, lines, panels

GOAL = 0.01
PAPER_PASSES = 100  # at which the paper's error is about the goal
DRAWS, STEIN = "draws", "Stein"
LEGEND = (
    "Columns: one chain's error after 10, 25 and 100 passes through the data, set-up included; at "
    "the last, the error of the trace, and of all chains together with what Monte Carlo alone "
    "would give; and the passes from which one chain is within 1%, in brackets by extrapolation."
)
# Colours that are told apart by the colour-blind (Okabe and Ito).
COLOURS = {
    "NOGIN": "#0072B2",
    "mSGLD": "#D55E00",
    "CC-ADL": "#E69F00",
    WHITENED: "#56B4E9",
    CONTROLLED: "#009E73",
}
MARKERS = {6: "o", 25: "s", 100: "^"}
SHOWN = (10, 25, 100)  # passes, in the table of texts
PASSES = (8.0, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 35.0, 50.0, 70.0, 100.0)


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is run."""

    num_chains: int = 16  # of each scheme
    passes: tuple[float, ...] = PASSES  # set-up included, at which errors are measured
    plain: tuple[int, ...] = (6, 100)  # batch sizes of ordinary minibatches
    control: tuple[int, ...] = (6, 25, 100)  # batch sizes with the Gaussian as control
    reference_draws: int = 96_000  # of all reference chains together
    reference_chains: int = 16  # how many


QUICK = Size(8, PASSES[:8], (6, 100), (6, 25), 4800)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    table: pd.DataFrame  # a row for each scheme, batch size, estimator and number of passes
    reached: pd.DataFrame  # a row for each scheme, batch size and estimator
    reference: Reference  # v*
    gaussian_error: float  # of the fitted Gaussian's own variances
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(table: Table, prior_scale: float, size: Size, store: Path, seed: int, say: Say) -> Result:
    """Fit the Gaussian, find or run the reference, run the schemes.

    Args:
        table: prepared rows.
        prior_scale: standard deviation of each coefficient.
        size: how much.
        store: the file of the reference; it is written if it does not fit.
        seed: of everything.
        say: prints a line.

    Raises:
        ValueError: the Gaussian's fit does not converge.
    """
    begin = time.perf_counter()
    problem = prepare(table, prior_scale, seed)
    schemes = all_schemes(problem, size.plain, size.control)
    setup = problem.gaussian.passes
    seconds = time.perf_counter() - begin
    say(f"Gaussian fitted in {setup:g} passes, coordinates chosen: {seconds:.1f} s")
    reference = find_reference(problem, size, store, seed, say)
    rows = []
    for place, scheme in enumerate(schemes):
        say(f"{scheme.name}, n = {scheme.batch_size}, h = {scheme.step_size:.3g}")
        key = jax.random.fold_in(jax.random.key(seed), place)
        rows += measure(scheme, problem, reference, size, key)
    results = pd.DataFrame(rows)
    gaussian = np.diag(problem.whitening @ problem.whitening.T)
    alone = float(error(gaussian, reference.variance))
    reached = reached_table(results)
    facts = {
        "rows": len(table.target), "coefficients": len(gaussian), "prior_scale": prior_scale,
        "seed": seed, **dataclasses.asdict(size), "set_up_passes": setup,
        "set_up_newton_steps": problem.gaussian.rounds, "set_up_seconds": seconds,
        "set_up_arithmetic_in_gradient_passes": arithmetic(problem),
        "gaussian_alone_error": alone, "reference_error": reference.error,
        "reference_plain_error": reference.plain_error,
        "reference_difference_of_plain": float(error(reference.plain, reference.variance)),
        "reference_seconds": reference.seconds, "reference_draws_each": reference.draws,
        "reached": reached.to_dict("records"),
    }  # fmt: skip
    found = verdicts(reached, alone, reference)
    return Result(results, reached, reference, alone, found, facts | {"verdicts": found})


def arithmetic(problem: Problem) -> float:
    """Multiplications of the set-up over those of a gradient of all rows, 2 N d.

    Each pass of the fit has two products of N d^2 beside the gradient; the choice of coordinates
    has four: lengths of rows, rotation, its second moments, and the rows in new coordinates.
    """
    d = problem.whitening.shape[0]
    return problem.gaussian.passes * (1.0 + d) + 2.0 * d


def find_reference(problem: Problem, size: Size, store: Path, seed: int, say: Say) -> Reference:
    """Read the reference, or run and store it."""
    found = load(store, problem, size.reference_draws)
    if found is None:
        say(f"reference: HMC with full gradients, {size.reference_draws:,} draws")
        chains = size.reference_chains
        draws = -(-size.reference_draws // chains)
        found = run_reference(problem, draws, chains, seed + 1)
        save(found, store)
    else:
        say(f"reference: read from {store}")
    return found


def measure(
    scheme: Scheme, problem: Problem, reference: Reference, size: Size, key: PRNGKeyArray
) -> list[dict[str, Any]]:
    """Run a scheme; a row for each estimator and number of passes."""
    setup = problem.gaussian.passes
    half = max(1, len(problem.table.target) // (2 * scheme.batch_size))  # a pass, in steps
    passes = [p for p in size.passes if p >= setup + 0.5]
    steps = [int(2 * (p - setup)) * half for p in passes]
    key_start, key_run = jax.random.split(key)
    starts = problem.starts(scheme.basis, size.num_chains, int(jax.random.bits(key_start)))
    begin = time.perf_counter()
    moments = follow(scheme.kernel, last_gradient, starts, scheme.basis, steps, half, key_run)
    head = {
        "scheme": scheme.name, "batch_size": scheme.batch_size, "step_size": scheme.step_size,
        "seconds": time.perf_counter() - begin,
    }  # fmt: skip
    rows = []
    for estimator in (DRAWS, STEIN) if scheme.whitened else (DRAWS,):
        numbers = errors(moments, estimator == STEIN, reference.variance)
        for place, number in enumerate(passes):
            total = setup + size.num_chains * (number - setup)
            row = {"estimator": estimator, "passes": number, "passes_of_all_chains": total}
            rows.append(head | row | {name: float(x[place]) for name, x in numbers.items()})
    return rows


def last_gradient(state: Any) -> Any:
    """Where the gradient was evaluated last, and what it was."""
    return state.gradient[1]


def errors(moments: Moments, stein: bool, truth: np.ndarray) -> dict[str, np.ndarray]:
    """Errors at each checkpoint: of one chain, of all together, and of the trace."""
    with np.errstate(all="ignore"):  # of chains that have diverged
        each, pooled = moments.variances(stein), moments.variances(stein, pool=True)
        one, one_error = over_chains(error(each, truth))
        total = truth.sum(keepdims=True)
        trace, trace_error = over_chains(error(each.sum(-1, keepdims=True), total))
        return {
            "error": one,
            "error_mcse": one_error,
            "trace_error": trace,
            "trace_error_mcse": trace_error,
            "pooled_error": error(pooled[:, 0], truth),
            "pooled_monte_carlo": monte_carlo_error(each),
        }


def reached_table(table: pd.DataFrame) -> pd.DataFrame:
    """For each scheme, batch size and estimator: where its error falls to the goal and stays.

    `extrapolated` is where an error that falls with the root of the passes would reach it.
    """
    rows = []
    keys = ["scheme", "batch_size", "estimator"]
    for _, group in table.groupby(keys, sort=False):
        last = group.iloc[-1]
        row = {**last[[*keys, "step_size", "seconds"]].to_dict()}
        for name in ("error", "trace_error"):
            above = ~(group[name] <= GOAL).to_numpy()
            first = len(above) - int(np.argmax(above[::-1])) if above.any() else 0
            inside = first < len(above)
            row[f"passes_to_{name}"] = group["passes"].iloc[first] if inside else np.nan
        reach = row["passes_to_error"]
        far = last["passes"] * (last["error"] / GOAL) ** 2
        row["extrapolated"] = far if np.isnan(reach) else reach
        rows.append(row)
    return pd.DataFrame(rows)


def verdicts(reached: pd.DataFrame, alone: float, reference: Reference) -> list[str]:
    """The best scheme, the Gaussian alone, and how well the truth is known."""
    found = [
        f"The fitted Gaussian alone is off by {alone:.2%}; the reference's own error is "
        f"{reference.error:.2%}."
    ]
    there = reached.dropna(subset="passes_to_error")
    if there.empty:
        return [*found, f"No scheme reaches {GOAL:.0%} with one chain."]
    best = there.loc[there["passes_to_error"].idxmin()]
    found.append(
        f"One chain of {best['scheme']} with n = {best['batch_size']} ({best['estimator']}) is "
        f"within {GOAL:.0%} from {best['passes_to_error']:g} passes on, set-up included."
    )
    found += [
        f"{row['scheme']} with n = {row['batch_size']} would need about {row['extrapolated']:,.0f} "
        "passes, by extrapolation."
        for row in reached.to_dict("records")
        if row["scheme"] == "NOGIN" and np.isnan(row["passes_to_error"])
    ]
    return found


def errors_table(result: Result) -> pd.DataFrame:
    """A row for each scheme, batch size and estimator, as text; errors in percent."""
    keys = ["scheme", "batch_size", "estimator"]
    groups = {name: rows.to_dict("records") for name, rows in result.table.groupby(keys)}
    texts = []
    for found in result.reached.to_dict("records"):
        scheme, n, estimator = (found[key] for key in keys)
        rows = groups[(scheme, n, estimator)]
        text = {"scheme": scheme, "n": str(n), "by": estimator}
        for number in SHOWN:
            at = [row for row in rows if row["passes"] == number]
            text[str(number)] = _percent(at[0], "error", "error_mcse") if at else ""
        text["trace"] = _percent(rows[-1], "trace_error", "trace_error_mcse")
        text["pooled"] = _percent(rows[-1], "pooled_error", "pooled_monte_carlo")
        texts.append(text | {"1% at": _passes(found)})
    return pd.DataFrame(texts)


def _percent(row: dict[Any, Any], name: str, error: str) -> str:
    if not np.isfinite(row[name]) or row[name] > 100:
        return "diverged"
    return str(Measured(100 * row[name], 100 * row[error]))


def _passes(found: dict[Any, Any]) -> str:
    if np.isfinite(found["passes_to_error"]):
        return f"{found['passes_to_error']:g}"
    far = found["extrapolated"]
    return f"(~{far:,.0f})" if np.isfinite(far) and far < 1e6 else "never"


def show(result: Result) -> Any:
    """Error against passes: of one chain in the norm, and of the trace."""
    figure, (axes,) = panels(1, 2)
    table = result.table[result.table["scheme"].isin(COLOURS)]
    rows = pd.DataFrame(table).rename(columns=lambda name: name.replace("_mcse", "_error"))
    rows = rows.assign(curve=[_curve(row) for row in rows.to_dict("records")])
    styles = {
        _curve(row): (
            COLOURS[row["scheme"]],
            MARKERS.get(row["batch_size"], "D"),
            "-" if row["estimator"] == STEIN else "--",
        )
        for row in rows.drop_duplicates("curve").to_dict("records")
    }
    heads = {"error": "||v - v*|| / ||v*||, one chain", "trace_error": "of the trace, one chain"}
    for axis, (name, head) in zip(axes, heads.items(), strict=True):
        shown = rows[rows[name] < 2.0]  # the others have diverged
        lines(axis, shown, "passes", name, "curve", styles, title=head, xlabel="passes, set-up too")
        axis.axhline(GOAL, color="black", lw=0.8, ls=":")
        axis.plot(PAPER_PASSES, GOAL, "k*", ms=12, label="the paper, about")
    axes[0].axhline(result.gaussian_error, color="0.5", lw=0.8, ls="--", label="Gaussian alone")
    axes[0].set_ylabel("relative error of the posterior variances")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return figure


def _curve(row: dict[Any, Any]) -> str:
    stein = ", Stein" if row["estimator"] == STEIN else ""
    return f"{row['scheme']}, n = {row['batch_size']}{stein}"


def mnist(
    *,
    data: Path = Path("mnist.npz"),
    classes: Annotated[tuple[str, str], Many] = ("7", "9"),
    components: int = 128,
    prior_scale: float = 10.0,
    reference: Path | None = None,
    options: Options = DEFAULTS,
) -> None:
    """Matthews and Weare (2018), section 5.3: posterior variances of MNIST's 7 against 9.

    NOGIN, mSGLD and CC-ADL as in the paper, and NOGIN in whitened coordinates with a fitted
    Gaussian as control variate, against long HMC with full gradients.

    Example: python -m experiments mnist --data mnist.npz --quick

    Parameters
    ----------
    data
        An .npz file with x_train and y_train.
    classes
        The two digits.
    components
        How many principal components of the images are the features, beside an intercept.
    prior_scale
        Standard deviation of each coefficient's normal prior.
    reference
        The file of the reference's variances: read if it fits, else written; reference.npz in
        the output folder by default.
    """
    images = tables.read_npz(find(data, "mnist", "--data FILE"), "x_train", "y_train", classes)
    table = standardised(images, components)
    place, size = place_for("mnist", options), QUICK if options.quick else Size()
    store = reference or place / "reference.npz"
    result = run(table, prior_scale, size, store, options.seed, speaker(options))
    finish(present(result), "mnist", place, options)


def standardised(images: Table, components: int) -> Table:
    """Principal components with mean 0 and sd 1, and an intercept as the last column."""
    (table,) = tables.varying([images], components)
    x = (table.features - table.features.mean(axis=0)) / table.features.std(axis=0)
    x, names = np.c_[x, np.ones(len(x))], [*table.names, "intercept"]
    return dataclasses.replace(table, features=x, names=names)


def present(result: Result) -> Page:
    """The table and the picture."""
    head = "Error of the posterior variances in percent: one chain after so many passes"
    return Page(
        title="Matthews and Weare (2018), 5.3: posterior variances of MNIST's 7 against 9",
        facts=result.facts,
        tables={head: errors_table(result)},
        sentences=[LEGEND, *result.verdicts],
        figure=show(result),
        caption="Error of the posterior variances against passes, two standard errors over "
        "chains. Solid: with Stein's identity; dashed: the variance of the draws.",
        table=result.table,
        numbers={"All numbers": result.table},
    )
