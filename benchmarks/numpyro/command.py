"""The bridge on models as NumPyro's examples have them: does each build and give NUTS's answer?

`python -m benchmarks numpyro` prints the table. Each model is run by `ex.infer` and by NumPyro's
NUTS (four chains of 1,000 draws after 1,000 of warm-up). The answers agree if the mean of
every component, and that of its squared distance from NUTS's mean, differ by less than five times
the standard error of the difference. Where NUTS's own R-hat is above 1.05 it runs again, for ten
times as long from the prior's median; where it still is, because labels or signs may be exchanged,
the log densities of the draws alone are compared, which do not change with these; and where they
don't mix either there is nothing to agree with. Models that observe nothing are drawn from exactly.
An answer whose verdict is not "converged" is compared too, and marked.
"""

import argparse
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from numpyro.infer import MCMC, NUTS, Predictive, init_to_median, init_to_uniform

import ergodax as ex
from benchmarks.numpyro.series import SERIES_CASES
from benchmarks.numpyro.tables import TABLES, Case

CASES = TABLES | SERIES_CASES
NUM_CHAINS, NUM_DRAWS = 4, 1_000
LONGER = 10  # times, where NUTS's chains do not agree
FAR = 5.0  # standard errors
MIXED = 1.05  # R-hat, below which NUTS's chains agree
FIXED = 1e-6  # sd
LOUD = ", not converged"


class Row(NamedTuple):
    """What came of a model."""

    name: str
    built: str  # as what, or why not
    answer: str
    seconds: float  # of infer

    def __str__(self) -> str:
        return f"{self.name:<32} {self.built:<44.44} {self.answer:<46} {self.seconds:6.1f} s"


def main(arguments: Sequence[str]) -> None:
    """Print the table, a row as soon as it is known, then how many cases are right."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks numpyro", description=__doc__)
    parser.add_argument("--only", nargs="*", help="parts of the names of models")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="of each inference")
    options = parser.parse_args(arguments)
    numpyro.set_host_device_count(1)
    rows = []
    for name, case in CASES.items():
        if not options.only or any(part in name for part in options.only):
            rows.append(outcome(name, case, options.max_seconds))
            print(rows[-1], flush=True)
    right = [row for row in rows if row.answer.startswith("agrees")]
    loud = sum(row.answer.endswith(LOUD) for row in right)
    print(f"{len(right)} of {len(rows)} build and give NUTS's answer, {loud} with a warning")


def outcome(name: str, case: Case, max_seconds: float) -> Row:
    """Build a model, and compare the two answers."""
    warnings.simplefilter("ignore")
    try:
        target: Any = ex.bridge.numpyro(case.model, *case.args, **case.kwargs)
        start = target.start(jax.random.key(0))
    except (ValueError, ImportError) as error:
        return Row(name, f"refused: {error}", "", 0.0)
    whole = isinstance(target, ex.bridge.ModelTarget)
    built = f"whole: {target.reason}" if whole else f"{target.num_data} rows"
    began = time.perf_counter()
    key = jax.random.key(1)
    result = ex.infer(target, start, key=key, max_seconds=max_seconds, progress=False)
    seconds = time.perf_counter() - began
    ours = result.samples.position
    theirs = by_nuts(case)
    if worst_r_hat(theirs) > MIXED:
        theirs = by_nuts(case, LONGER)
    told = ""
    if worst_r_hat(theirs) > MIXED:
        ours, theirs = (log_densities(target, list(ours), draws) for draws in (ours, theirs))
        told = " (NUTS's chains differ)"
    answer = compared(ours, theirs) + told
    return Row(name, built, answer if result.converged else answer + LOUD, seconds)


def by_nuts(case: Case, longer: int = 1) -> dict[str, np.ndarray]:
    """Draws of NumPyro's NUTS, or exact ones; leaves (chains, draws, ...)."""
    if case.ancestral:
        exact = Predictive(case.model, num_samples=NUM_CHAINS * NUM_DRAWS * LONGER)
        drawn = exact(jax.random.key(2), *case.args, **case.kwargs)
        return {k: np.asarray(x).reshape(NUM_CHAINS, -1, *x.shape[1:]) for k, x in drawn.items()}
    settings = {"num_chains": NUM_CHAINS, "chain_method": "vectorized", "progress_bar": False}
    draws = {"num_warmup": 1_000 * longer, "num_samples": NUM_DRAWS * longer, "thinning": longer}
    start = init_to_median if longer > 1 else init_to_uniform
    mcmc = MCMC(NUTS(case.model, init_strategy=start), **draws, **settings)
    mcmc.run(jax.random.key(2), *case.args, **case.kwargs)
    return {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}


def worst_r_hat(draws: dict[str, np.ndarray]) -> float:
    """Of all components that move."""
    moving = [x[..., x.std(axis=(0, 1)) > FIXED] for x in draws.values()]
    return max(float(np.max(ex.diagnostics.r_hat(x))) for x in moving if x.size)


def log_densities(target: Any, names: list[str], draws: dict[str, Any]) -> dict[str, np.ndarray]:
    """Of each draw, (chains, draws), in the sampler's unconstrained numbers."""

    def one(values: dict[str, Any]) -> jax.Array:
        return -target.potential(target.freeze(values))

    arrays = {name: jax.numpy.asarray(draws[name]) for name in names}
    return {"log density": np.asarray(jax.jit(jax.vmap(jax.vmap(one)))(arrays))}


def compared(ours: dict[str, Any], theirs: dict[str, np.ndarray]) -> str:
    """Whether the means and sds of all components agree."""
    worst, where = 0.0, ""
    if worst_r_hat(theirs) > MIXED:
        return f"NUTS's R-hat is {worst_r_hat(theirs):.2f}"
    for name, draws in ours.items():
        pair = [np.asarray(x, np.float64) for x in (draws, theirs[name])]
        centre, sd = pair[1].mean(axis=(0, 1)), pair[1].std(axis=(0, 1))
        moves = sd > FIXED  # else a constraint says what it is
        for look in (lambda x: x, lambda x, c=centre: (x - c) ** 2):
            (mine, error), (other, theirs_error) = (_mean(look(x)) for x in pair)
            gap = np.abs(mine - other) / np.where(moves, np.hypot(error, theirs_error), np.inf)
            if gap.size and gap.max() > worst:
                place = np.argwhere(gap == gap.max())[0].tolist()
                worst, where = float(gap.max()), f"{name}{place or ''}"
    return f"{'agrees' if worst < FAR else 'differs'}: {worst:.1f} at {where}"


def _mean(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and its standard error."""
    size = np.asarray(ex.diagnostics.ess(draws, "mean"))
    return draws.mean(axis=(0, 1)), draws.std(axis=(0, 1)) / np.sqrt(size)
