"""One data set, and the figures of many."""

import time
from typing import Any

import jax
import numpy as np
from scipy import stats

import ergodax as ex
from benchmarks.calibration.families import Family

DRAWS, BINS = 99, 10  # of the draws that the truth is ranked among; of the ranks
MANY = 1.96  # standard errors of a bound that holds in 95 of 100


def one(family: Family, number: int, rows: int, max_seconds: float) -> dict[str, Any]:
    """Parameters, data, `infer`, and how it compares with what is true.

    Args:
        family: of models.
        number: of the data set, its seed.
        rows: of the data set.
        max_seconds: of `infer`.
    """
    rng = np.random.default_rng([number, rows, *family.what.encode()])
    truth, posterior = family.simulate(rng, rows)
    begin = time.perf_counter()
    result = ex.infer(
        posterior,
        np.zeros(truth.size, np.float32),
        key=jax.random.key(number),
        max_seconds=max_seconds,
        progress=False,
    )
    seconds = time.perf_counter() - begin
    draws = np.asarray(result.samples.position, np.float64).reshape(-1, truth.size)
    few = draws[np.linspace(0, len(draws) - 1, DRAWS).astype(int)]
    table, answer = result.table, family.answer(posterior, draws)
    found: dict[str, Any] = {"number": number, "rows": rows, "seconds": round(seconds, 3)}
    found |= {"converged": bool(result.converged), "rank": (few < truth).sum(axis=0).tolist()}
    pairs = (("mean", answer.error_mean), ("sd", answer.error_sd))
    for what, own in pairs:
        off = (table[what].to_numpy() - getattr(answer, what)) / answer.sd
        mcse = table[f"mcse_{what}"].to_numpy() * table["sd"].to_numpy() / answer.sd
        error = np.hypot(mcse, own)
        bound = MANY * error + table[f"bias_{what}"].to_numpy()
        found[f"z_{what}"] = np.round(off / error, 4).tolist()
        found[f"inside_{what}"] = (np.abs(off) <= bound).tolist()
    return found


def figures(found: list[dict[str, Any]]) -> dict[str, float]:
    """Of all data sets of a family.

    Returns:
        `p`: of the least uniform component's ranks, times the number of components; `chi2`: its
        statistic; `sd_mean`, `sd_sd`: root mean squares of the z-scores; `coverage`: of bounds that
        are said to hold in 95 of 100, with its standard error `coverage_error`.
    """
    ranks = np.array([each["rank"] for each in found])
    edges = np.linspace(0, DRAWS + 1, BINS + 1)
    counts = np.stack([np.histogram(r, edges)[0] for r in ranks.T])
    chi2, p = stats.chisquare(counts, axis=1)
    worst = int(np.argmin(p))
    z = {what: np.array([each[f"z_{what}"] for each in found]) for what in ("mean", "sd")}
    # Of each data set, whose bounds hold or fail together.
    inside = [np.mean([each["inside_mean"], each["inside_sd"]]) for each in found]
    return {
        "datasets": len(found),
        "converged": float(np.mean([each["converged"] for each in found])),
        "chi2": float(chi2[worst]),
        "p": min(1.0, float(p[worst]) * len(p)),
        "sd_mean": float(np.sqrt(np.mean(z["mean"] ** 2))),
        "sd_sd": float(np.sqrt(np.mean(z["sd"] ** 2))),
        "coverage": float(np.mean(inside)),
        "coverage_error": float(np.std(inside) / np.sqrt(len(inside))),
        "seconds": float(np.median([each["seconds"] for each in found])),
    }
