"""What others answer on the same posteriors: NUTS of NumPyro and of BlackJAX, SGLD of posteriors.

Each is run as its documentation has it, nothing tuned by hand, and says what its users look at:
R-hat, effective sample size, divergences. The same judge compares it with the reference.
"""

import importlib.metadata
import importlib.util
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

import ergodax as ex
from benchmarks.strangers.bank import Absent, Problem

CHAINS, WARMUP, DRAWS = 4, 1_000, 1_000  # what NumPyro's and BlackJAX's examples take
RADIUS, ATTEMPTS = 2.0, 100  # starts are uniform within 2 of the user's, as NumPyro and Stan do
R_HAT, LEAST = 1.01, 400  # Vehtari et al. (2021): all chains agree, and enough draws to say so
DIVERGED = 1e-3  # of the draws, above which few users would go on
TAILS = (0.05, 0.95)  # quantiles whose effective sample size counts too
ROWS = 100  # of a batch, of posteriors
RATES = 10.0 ** np.arange(1.0, -2.5, -0.5)  # learning rates, of posteriors


class Found(NamedTuple):
    """The draws of a peer, shape (chains, draws, d), how many diverged, and what it was set to."""

    draws: np.ndarray
    divergences: int
    how: str


class Flat(NamedTuple):
    """A problem over vectors: log density, the user's start."""

    log_density: Callable[[Array], Array]
    start: Float[Array, " d"]


def answer(
    name: str, problem: Problem, key: int, seconds: float, imported: float
) -> dict[str, Any]:
    """What a peer says of a problem, in the form that the judge reads.

    Args:
        name: one of PEERS.
        problem: of the bank.
        key: number of the key.
        seconds: that posteriors may take; NUTS has no clock and is killed by the command.
        imported: the seconds that the imports took.
    """
    begin = time.perf_counter()
    found = PEERS[name](problem, jax.random.key(key), seconds)
    draws = np.asarray(found.draws, np.float64)
    told = reading(draws)
    took = time.perf_counter() - begin
    fine = (
        told["r_hat"] <= R_HAT
        and told["ess"] >= LEAST
        and found.divergences <= DIVERGED * draws[..., 0].size
    )
    return {
        "converged": bool(fine),
        "verdict": f"R-hat {told['r_hat']:.3f}, effective sample size {told['ess']:.0f}, "
        f"{found.divergences} divergences",
        "mean": told["mean"].tolist(),
        "sd": told["sd"].tolist(),
        "error": told["error"].tolist(),
        "infer": took,
        "total": took + imported,
        "account": found.how,
    }


def reading(draws: np.ndarray) -> dict[str, Any]:
    """Means, sds and their standard errors by ArviZ, the worst R-hat and effective sample size.

    Args:
        draws: shape (chains, draws, d).

    Returns:
        `mean`, `sd`, `error` (the larger of both standard errors, in posterior sd) of each
        component; `r_hat`, `ess`: of the worst one, infinite and 0 where a number is not finite.
    """
    from arviz_stats.base import array_stats  # here, since infer's runs don't wait for it

    columns = np.moveaxis(draws, -1, 0)
    with np.errstate(all="ignore"):
        mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
        axes = {"chain_axis": 0, "draw_axis": 1}
        errors = [
            [float(array_stats.mcse(x, method=method, **axes)) for x in columns]
            for method in ("mean", "sd")
        ]
        r_hat = max(float(array_stats.rhat(x, **axes)) for x in columns)
        bulk = [float(array_stats.ess(x, method="bulk", **axes)) for x in columns]
        tail = [float(array_stats.ess(x, method="tail", prob=TAILS, **axes)) for x in columns]
        error = np.max(errors, axis=0) / sd
    ess = min(bulk + tail)
    known = np.isfinite([r_hat, ess]).all()
    r_hat, ess = (r_hat, ess) if known else (np.inf, 0.0)
    return {"mean": mean, "sd": sd, "error": error, "r_hat": r_hat, "ess": ess}


def flat(problem: Problem) -> Flat:
    """The log density of a vector.

    Args:
        problem: of the bank.
    """
    start, unravel = ravel_pytree(jax.tree.map(jnp.asarray, problem.start))
    return Flat(lambda x: -problem.target.potential(unravel(x)), start)


def starts(key: PRNGKeyArray, of: Flat) -> Float[Array, "chains d"]:
    """A start for each chain, with a finite density and gradient.

    Args:
        key: of the draws.
        of: the problem.

    Raises:
        RuntimeError: none was found.
    """
    usable = jax.jit(
        lambda x: jnp.isfinite(of.log_density(x)) & jnp.isfinite(jax.grad(of.log_density)(x)).all()
    )
    chosen = []
    for attempt in range(CHAINS * ATTEMPTS):
        jump = jax.random.uniform(
            jax.random.fold_in(key, attempt), of.start.shape, of.start.dtype, -RADIUS, RADIUS
        )
        if usable(of.start + jump):
            chosen.append(of.start + jump)
        if len(chosen) == CHAINS:
            return jnp.stack(chosen)
    raise RuntimeError("no start with a finite density and gradient was found")


def numpyro(problem: Problem, key: PRNGKeyArray, seconds: float) -> Found:
    """NumPyro's NUTS with its defaults."""
    from numpyro.infer import MCMC, NUTS

    of = flat(problem)
    kernel = NUTS(potential_fn=lambda x: -of.log_density(x))
    sampler = MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(key, init_params=starts(key, of), extra_fields=("diverging",))
    diverging = sampler.get_extra_fields(group_by_chain=True)["diverging"]
    draws = np.asarray(sampler.get_samples(group_by_chain=True))
    return Found(draws, int(np.sum(diverging)), version("numpyro"))


def blackjax(problem: Problem, key: PRNGKeyArray, seconds: float) -> Found:
    """BlackJAX's NUTS after its window adaptation, all chains by vmap."""
    import blackjax as library

    of = flat(problem)

    def chain(key: PRNGKeyArray, start: Array) -> Any:
        adapt, draw = jax.random.split(key)
        warmup = library.window_adaptation(library.nuts, of.log_density)
        (state, settings), _ = warmup.run(adapt, start, WARMUP)
        step = library.nuts(of.log_density, **settings).step

        def one(state: Any, key: PRNGKeyArray) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(one, state, jax.random.split(draw, DRAWS))[1]

    begin, run = jax.random.split(key)
    draws, diverging = jax.jit(jax.vmap(chain))(jax.random.split(run, CHAINS), starts(begin, of))
    return Found(np.asarray(draws), int(np.sum(diverging)), version("blackjax"))


def posteriors(problem: Problem, key: PRNGKeyArray, seconds: float) -> Found:
    """SGLD of posteriors on batches, at the smallest learning rate that its draws approve of.

    A smaller rate has less bias, which R-hat does not see, and mixes more slowly, which it does.

    Raises:
        Absent: there are no rows to take batches of, or posteriors is not installed.
    """
    if not isinstance(problem.target, ex.Posterior) or problem.target.num_data <= ROWS:
        raise Absent("posteriors is run where there are rows to take batches of")
    if importlib.util.find_spec("posteriors") is None:
        raise Absent("posteriors is not installed; --posteriors names the Python that has it")
    from benchmarks.strangers.torch_density import sgld

    begin = time.perf_counter()
    first = np.asarray(starts(key, flat(problem)))
    tried: list[tuple[bool, Found]] = []
    for rung, rate in enumerate(RATES):
        left = seconds - (time.perf_counter() - begin)
        draws = sgld(problem, first, float(rate), rung, left / (len(RATES) - rung))
        told = reading(np.asarray(draws, np.float64))
        fine = told["r_hat"] <= R_HAT and told["ess"] >= LEAST
        tried.append((fine, Found(draws, 0, f"{version('posteriors')}, learning rate {rate:.2g}")))
    return ([found for fine, found in tried if fine] or [tried[len(tried) // 2][1]])[-1]


def version(name: str) -> str:
    """A package's name and version."""
    return f"{name} {importlib.metadata.version(name)}"


PEERS: dict[str, Callable[[Problem, PRNGKeyArray, float], Found]] = {
    "numpyro": numpyro,
    "blackjax": blackjax,
    "posteriors": posteriors,
}
