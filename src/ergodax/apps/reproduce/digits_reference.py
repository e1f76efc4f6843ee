"""The reference: long full-gradient HMC in whitened coordinates, kept in a file."""

import dataclasses
import hashlib
import time
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

from ergodax.apps.reproduce.digits_moments import follow, monte_carlo_error
from ergodax.apps.reproduce.digits_schemes import Problem
from ergodax.driver.progress import progress_bar
from ergodax.gradient import FullGradient
from ergodax.sampler import hmc

STEP, LEAPFROGS, BURN_IN = 0.35, 5, 50


@dataclasses.dataclass(frozen=True)
class Reference:
    """Posterior variances.

    Attributes:
        variance: of each coefficient, by Stein's identity, shape (d,).
        error: its relative Monte Carlo error, in the norm of `digits_moments.error`.
        plain: the variance of the draws themselves, which checks the first.
        plain_error: its error, likewise.
        fingerprint: of the posterior.
        draws: of each chain.
        chains: how many.
        seconds: that it took.
    """

    variance: Float[np.ndarray, " d"]
    error: float
    plain: Float[np.ndarray, " d"]
    plain_error: float
    fingerprint: str
    draws: int
    chains: int
    seconds: float


def fingerprint(problem: Problem) -> str:
    """Of the rows and the prior, in single precision."""
    text = hashlib.sha256(str(problem.prior_scale).encode())
    for array in (problem.table.features, problem.table.target):
        text.update(np.ascontiguousarray(array, np.float32).tobytes())
    return text.hexdigest()


def load(path: Path, problem: Problem, draws: int) -> Reference | None:
    """The stored reference, if it is of this posterior and has at least as many draws."""
    if not path.exists():
        return None
    names = {field.name for field in dataclasses.fields(Reference)}
    with np.load(path, allow_pickle=False) as archive:
        if not names <= set(archive.files):
            return None
        stored = {name: archive[name] for name in names}
    found = Reference(**{k: v.item() if v.ndim == 0 else v for k, v in stored.items()})
    enough = found.draws * found.chains >= draws
    return found if enough and found.fingerprint == fingerprint(problem) else None


def save(reference: Reference, path: Path) -> None:
    """Write it as an .npz file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, **dataclasses.asdict(reference))


def run(problem: Problem, draws: int, chains: int, seed: int, progress: bool = False) -> Reference:
    """Run it.

    Args:
        problem: the posterior and its Gaussian.
        draws: of each chain, after burn-in; rounded up to a multiple of its length.
        chains: at least two, for the error.
        seed: of everything.
        progress: show a bar.
    """
    begin = time.perf_counter()
    draws = -(-draws // BURN_IN) * BURN_IN
    basis = problem.whitening
    kernel = hmc(FullGradient(problem.coordinates(basis)), STEP, num_leapfrog_steps=LEAPFROGS)
    starts = problem.starts(basis, chains, seed)
    with progress_bar(BURN_IN + draws, show=progress) as report:
        moments = follow(
            kernel,
            lambda state: (state.position, state.estimate.gradient),
            starts,
            basis,
            [BURN_IN, BURN_IN + draws],
            BURN_IN,
            jax.random.key(seed),
            lambda done: report(done, done / (time.perf_counter() - begin)),
        ).after(0)
    (variance,), (plain,) = (moments.variances(s, pool=True)[0] for s in (True, False))
    error, plain_error = (monte_carlo_error(moments.variances(s)[0]) for s in (True, False))
    seconds = time.perf_counter() - begin
    mark = fingerprint(problem)
    return Reference(
        variance, float(error), plain, float(plain_error), mark, draws, chains, seconds
    )
