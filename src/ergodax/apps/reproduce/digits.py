"""Matthews and Weare (2018), section 5.3: posterior variances of MNIST's 7 against 9.

The error of a chain is ||v - v*|| / ||v*||, v being the 129 posterior variances that this one chain
gives and v* the reference's. A pass is N derivatives of one row's log-likelihood, wherever they
were taken: fitting the Gaussian is charged to every chain in full. The paper does not say which
norm its relative error is in, so the error of the trace is given as well, which averages over
coefficients and is smaller; so is that of v averaged over all chains, which shows the bias.
"""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from ergodax.apps.reproduce import digits_reference
from ergodax.apps.reproduce.digits_moments import (
    Moments,
    error,
    follow,
    monte_carlo_error,
    over_chains,
)
from ergodax.apps.reproduce.digits_reference import Reference
from ergodax.apps.reproduce.digits_schemes import Problem, Scheme, all_schemes, prepare
from ergodax.driver.progress import progress_bar
from ergodax.learn.tables import Table

GOAL = 0.01
PAPER_PASSES = 100  # at which the paper's error is about the goal
DRAWS, STEIN = "draws", "Stein"
PASSES = (8.0, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 35.0, 50.0, 70.0, 100.0)


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        num_chains: of each scheme.
        passes: set-up included, at which errors are measured.
        plain: batch sizes of ordinary minibatches.
        control: batch sizes with the Gaussian as control.
        reference_draws: of all reference chains together.
        reference_chains: how many.
    """

    num_chains: int = 16
    passes: tuple[float, ...] = PASSES
    plain: tuple[int, ...] = (6, 100)
    control: tuple[int, ...] = (6, 25, 100)
    reference_draws: int = 96_000
    reference_chains: int = 16


QUICK = Size(8, PASSES[:8], (6, 100), (6, 25), 4800)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found.

    Attributes:
        table: a row for each scheme, batch size, estimator and number of passes.
        reached: a row for each scheme, batch size and estimator.
        reference: v*.
        gaussian_error: of the fitted Gaussian's own variances.
        verdicts: sentences, from the numbers.
        facts: everything that is a number, for JSON.
    """

    table: pd.DataFrame
    reached: pd.DataFrame
    reference: Reference
    gaussian_error: float
    verdicts: list[str]
    facts: dict[str, Any]


def run(
    table: Table,
    prior_scale: float,
    size: Size,
    store: Path,
    seed: int = 0,
    progress: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Result:
    """Fit the Gaussian, find or run the reference, run the schemes.

    Args:
        table: prepared rows.
        prior_scale: standard deviation of each coefficient.
        size: how much.
        store: the file of the reference; it is written if it does not fit.
        seed: of everything.
        progress: show bars.
        say: called with a line before each stage.

    Raises:
        ValueError: the Gaussian's fit does not converge.
    """
    begin = time.perf_counter()
    problem = prepare(table, prior_scale, seed)
    schemes = all_schemes(problem, size.plain, size.control)
    setup = problem.gaussian.passes
    seconds = time.perf_counter() - begin
    say(f"Gaussian fitted in {setup:g} passes, coordinates chosen: {seconds:.1f} s")
    reference = find_reference(problem, size, store, seed, progress, say)
    rows = []
    for place, scheme in enumerate(schemes):
        say(f"{scheme.name}, n = {scheme.batch_size}, h = {scheme.step_size:.3g}")
        key = jax.random.fold_in(jax.random.key(seed), place)
        rows += measure(scheme, problem, reference, size, key, progress)
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


def find_reference(
    problem: Problem,
    size: Size,
    store: Path,
    seed: int,
    progress: bool,
    say: Callable[[str], None],
) -> Reference:
    """Read the reference, or run and store it."""
    found = digits_reference.load(store, problem, size.reference_draws)
    if found is None:
        say(f"reference: HMC with full gradients, {size.reference_draws:,} draws")
        chains = size.reference_chains
        draws = -(-size.reference_draws // chains)
        found = digits_reference.run(problem, draws, chains, seed + 1, progress)
        digits_reference.save(found, store)
    else:
        say(f"reference: read from {store}")
    return found


def measure(
    scheme: Scheme,
    problem: Problem,
    reference: Reference,
    size: Size,
    key: Any,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Run a scheme; a row for each estimator and number of passes."""
    setup = problem.gaussian.passes
    half = max(1, len(problem.table.target) // (2 * scheme.batch_size))  # a pass, in steps
    passes = [p for p in size.passes if p >= setup + 0.5]
    steps = [int(2 * (p - setup)) * half for p in passes]
    key_start, key_run = jax.random.split(key)
    starts = problem.starts(scheme.basis, size.num_chains, int(jax.random.bits(key_start)))
    begin = time.perf_counter()
    with progress_bar(steps[-1], show=progress) as report:
        moments = follow(
            scheme.kernel,
            _looked,
            starts,
            scheme.basis,
            steps,
            half,
            key_run,
            lambda done: report(done, done / (time.perf_counter() - begin)),
        )
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


def _looked(state: Any) -> Any:
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
