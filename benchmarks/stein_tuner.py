"""Does a bandit on the kernel Stein discrepancy choose better steps than the tools of `tune`?

    python -m benchmarks stein_tuner

A logistic regression in whitened coordinates; samplers whose step trades bias for mixing. Eight
steps, a factor of two apart, are the arms. Successive halving (Coullon, South and Nemeth, Efficient
and generalizable tuning strategies for stochastic gradient MCMC) runs all of them, keeps the half
whose draws have the smallest discrepancy, and goes on to one. What a step is worth is the error of
one chain at a fixed budget, in posterior sds, root mean square over many chains and all components.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.nuts import problem as nuts_problem
from benchmarks.report import Table
from ergodax.diagnostics import kernel_stein_discrepancy
from ergodax.tune import Coordinates, find_step, first_step, in_coordinates

FACTORS = 2.0 ** np.arange(-4, 4)  # of the ten-per-cent rule's step
CHAINS = 32  # for the errors
DIMENSION = 10
DRAWS = 2_000  # of an arm in a round, for its discrepancy
FRICTION = 1.0
SEARCH = {"num_rounds": 40, "num_chains": 4, "num_steps": 500, "thin": 5}  # of `find_step`


class Sampler(NamedTuple):
    """A family of kernels by their step."""

    gradient: Any
    kernel: Callable[[float], ex.Kernel]
    friction: float | None = None


def samplers(target: Any) -> dict[str, Sampler]:
    """By name, of a target in whitened coordinates."""
    plain = ex.Minibatch(target, 500)
    control = ex.ControlVariate(target, 100, jnp.zeros(DIMENSION))
    return {
        "SGLD, batches of 500": Sampler(plain, lambda h: ex.sgld(plain, h)),
        "SGLD, control variates": Sampler(control, lambda h: ex.sgld(control, h)),
        "SGHMC, batches of 500": Sampler(plain, lambda h: ex.sghmc(plain, h, FRICTION), FRICTION),
    }


def run(sampler: Sampler, h: float, steps: int, chains: int, key: Any) -> Any:
    """Draws of chains that begin at the mode, some thousand of each; None where they diverge."""
    thin = max(1, steps // 2_000)
    try:
        samples = ex.sample(
            sampler.kernel(h), jnp.zeros(DIMENSION), steps, key=key, num_chains=chains,
            thin=thin, progress=False,
        )  # fmt: skip
    except ex.DivergenceError:
        return None
    return samples.position


def error(draws: Any, mean: np.ndarray) -> float:
    """Root mean square over chains and components, of means and of sds, whichever is larger."""
    if draws is None:
        return np.inf
    off = draws.mean(axis=1) - mean, draws.std(axis=1) - 1.0
    return float(max(np.sqrt(np.mean(x**2)) for x in off))


def by_halving(
    sampler: Sampler, gradient: Any, steps: list[float], budget: int, key: Any
) -> tuple[float, int]:
    """The step that is left, and the evaluations of an example that it took.

    Args:
        sampler: to tune.
        gradient: for the discrepancy: the target, or an estimator.
        steps: the arms.
        budget: steps of all arms together.
        key: of the runs.
    """
    exact = isinstance(gradient, ex.Posterior)
    rows, statistic = (gradient.num_data, "v") if exact else (gradient.batch_size, "u")
    left, evaluations, rounds = list(steps), 0, int(np.log2(len(steps)))
    for number in range(rounds):
        each, found = budget // (rounds * len(left)), []
        for arm, h in enumerate(left):
            key_run, key_rows = jax.random.split(jax.random.fold_in(key, 100 * number + arm))
            draws, value = run(sampler, h, each, 1, key_run), np.inf
            evaluations += each * sampler.gradient.batch_size + min(DRAWS, each) * rows
            if draws is not None:
                value = kernel_stein_discrepancy(
                    draws, gradient, num_draws=DRAWS, statistic=statistic, num_resamples=2,
                    key=None if exact else key_rows,
                ).squared  # fmt: skip
            found.append(value)
        left = [left[k] for k in np.argsort(found)[: len(left) // 2]]
    return left[0], evaluations


def table(name: str, sampler: Sampler, problem: Any, target: Any, options: Any) -> Table:
    """What each tool chose, and its error in that of the best arm."""
    reference, budget = problem.reference, options.budget
    mean = np.linalg.solve(reference.basis, reference.mean - reference.mode)
    key, *keys = jax.random.split(jax.random.key(time.time_ns() % 2**31), 1 + options.repeats)
    rule = first_step(sampler.gradient, jnp.zeros(DIMENSION), key=key, friction=sampler.friction)

    def error_of(h: float) -> float:
        return error(run(sampler, h, budget, CHAINS, key), mean)

    errors = {rule * float(f): error_of(rule * float(f)) for f in FACTORS}
    best, whole = min(errors.values()), budget * sampler.gradient.batch_size
    found = Table(
        f"{name}: {budget:,} steps, N = {target.num_data:,}; error of the best arm {best:.3f} sd",
        ["step by", "in the rule's", "error, in the best arm's", "cost, in the run's"],
    )

    def add(way: str, chosen: list[float], off: list[float], cost: float) -> None:
        steps = " to ".join(dict.fromkeys(f"{h / rule:.2g}" for h in (min(chosen), max(chosen))))
        found.rows.append([way, steps, f"{np.mean(off) / best:.2f}", f"{cost / whole:.2g}"])

    best_arm = min(errors, key=lambda h: errors[h])
    add("the best arm", [best_arm], [best], 0.0)
    add("the ten-per-cent rule", [rule], [errors[rule]], 0.0)
    origin = jnp.zeros(DIMENSION)
    chosen = [
        find_step(sampler.kernel, target, origin, rule, key=k, **SEARCH).step_size for k in keys[:3]
    ]
    read = sampler.gradient.batch_size + target.num_data / SEARCH["thin"]  # a step, on average
    spent = read * SEARCH["num_rounds"] * SEARCH["num_chains"] * SEARCH["num_steps"]
    add("temperature, all rows", chosen, [error_of(h) for h in chosen], spent)
    for way, gradient in (("all rows", target), ("batches", sampler.gradient)):
        halved = [
            by_halving(sampler, gradient, list(errors), options.share * budget, k) for k in keys
        ]
        chosen = [h for h, _ in halved]
        add(f"discrepancy, {way}", chosen, [errors[h] for h in chosen], halved[0][1])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each sampler."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks stein_tuner", description="A bandit on the kernel Stein discrepancy."
    )
    parser.add_argument("--num-data", type=int, default=50_000, help="rows (50,000)")
    parser.add_argument("--budget", type=int, default=20_000, help="steps of the run (20,000)")
    parser.add_argument("--share", type=int, default=4, help="runs that the bandit may cost (4)")
    parser.add_argument("--repeats", type=int, default=10, help="of the bandit (10)")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    options = parser.parse_args(arguments)
    problem = nuts_problem.make(options.num_data, DIMENSION, seed=0)
    reference = problem.reference
    coordinates = Coordinates(jnp.asarray(reference.mode), jnp.asarray(reference.basis))
    target, tables = in_coordinates(problem.posterior, coordinates), []
    for name, sampler in samplers(target).items():
        tables.append(table(name, sampler, problem, target, options))
        print(f"\n{tables[-1].text()}", flush=True)
    if options.markdown is not None:
        parts = [f"# {__doc__.splitlines()[0]}" if __doc__ else "", *(t.markdown() for t in tables)]
        options.markdown.write_text("\n\n".join(parts) + "\n")
