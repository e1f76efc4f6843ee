"""Posterior variances from chains, with and without Stein's identity, and the reference's.

In the sampler's coordinates u, w = centre + B u, integration by parts under the posterior gives
E grad U = 0 and E u grad U^T = I. So with delta = B u and gamma = B grad U,
    E w - centre = E[delta - gamma],
    Cov w = B B^T + E[(delta delta^T - delta gamma^T)] - (E w - centre) (...)^T,
whatever B is, and with an unbiased estimate in place of the gradient. On a Gaussian with
B B^T = Cov w and exact gradients, both averages are of constants: no Monte Carlo error is left.
These are control variates of first and second order with fixed coefficients (Assaraf and Caffarel,
1999; Mira, Solgi and Imparato, 2013).
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key, PyTree

import ergodax as ex
from experiments.matthews_weare_2018.mnist_schemes import Problem

STEP, LEAPFROGS, BURN_IN = 0.35, 5, 50

Probe = Callable[[Any], tuple[Array, Array]]


@eqx.filter_jit
def start(kernel: Any, keys: Key[Array, " chains"], positions: Float[Array, "chains d"]) -> PyTree:
    """The first state of each chain."""
    return jax.vmap(kernel.init)(keys, positions)


@eqx.filter_jit
def advance(
    kernel: Any,
    probe: Probe,
    keys: Key[Array, " chains"],
    states: PyTree,
    basis: Float[Array, "d d"],
    length: int,
) -> tuple[PyTree, Float[Array, "4 chains d"]]:
    """Take `length` steps.

    Args:
        kernel: the sampler.
        probe: of a state, a position and the gradient there.
        keys: one for each chain.
        states: where the chains stand; step t uses the key fold_in(chain key, t).
        basis: B.
        length: how many steps.

    Returns:
        The states after, and the sums over the steps of delta, delta^2 at the states' positions,
        and of delta - gamma, delta^2 - delta gamma where the probe looked.
    """

    def step(states: Any, _: None) -> tuple[Any, Any]:
        fresh = jax.vmap(lambda key, state: jax.random.fold_in(key, state.step))(keys, states)
        states = jax.vmap(lambda k, s: kernel.step(k, s)[0])(fresh, states)
        return states, (states.position, *jax.vmap(probe)(states))

    states, seen = lax.scan(step, states, None, length)
    position, place, gradient = (x @ basis.T for x in seen)
    sums = (position, position**2, place - gradient, place * (place - gradient))
    return states, jnp.stack([jnp.sum(x, axis=0) for x in sums])


@dataclasses.dataclass(frozen=True)
class Moments:
    """Averages along each chain at some numbers of steps."""

    steps: np.ndarray  # shape (checkpoints,)
    # of the four quantities of `advance`, shape (checkpoints, 4, chains, d)
    averages: Float[np.ndarray, "checkpoints 4 chains d"]
    gaussian: Float[np.ndarray, " d"]  # the diagonal of B B^T, shape (d,)

    def variances(self, stein: bool, pool: bool = False) -> Float[np.ndarray, "checkpoints c d"]:
        """The variance of each coefficient from each chain, or from all (one row)."""
        pair = self.averages[:, 2:] if stein else self.averages[:, :2]
        if pool:
            pair = pair.mean(axis=2, keepdims=True)
        return pair[:, 1] - pair[:, 0] ** 2 + (self.gaussian if stein else 0.0)

    def after(self, burn_in: int) -> "Moments":
        """The averages without the steps up to a checkpoint, the number of which is `burn_in`."""
        sums = self.averages * self.steps[:, None, None, None]
        steps = self.steps[burn_in + 1 :] - self.steps[burn_in]
        averages = (sums[burn_in + 1 :] - sums[burn_in]) / steps[:, None, None, None]
        return Moments(steps, averages, self.gaussian)


def follow(
    kernel: Any,
    probe: Probe,
    positions: Float[np.ndarray, "chains d"],
    basis: Float[np.ndarray, "d d"],
    checkpoints: list[int],
    stretch: int,
    key: Any,
) -> Moments:
    """Run chains and average, in double precision from one stretch to the next.

    Args:
        kernel: the sampler.
        probe: see `advance`.
        positions: the starts, in the coordinates u.
        basis: B.
        checkpoints: numbers of steps at which the averages are kept, increasing multiples of
            `stretch`.
        stretch: steps that one compiled program takes, whose positions are held in memory.
        key: of everything random.

    Returns:
        Moments; a chain that has diverged has averages that are not finite.
    """
    chains = len(positions)
    key_start, key_run = jax.random.split(key)
    keys = jax.random.split(key_run, chains)
    states = start(kernel, jax.random.split(key_start, chains), jnp.asarray(positions))
    matrix = jnp.asarray(basis, jnp.float32)
    total, done, kept = np.zeros((4, *positions.shape)), 0, []
    for end in checkpoints:
        while done < end:
            states, sums = advance(kernel, probe, keys, states, matrix, stretch)
            total, done = total + np.asarray(sums, np.float64), done + stretch
        kept.append(total / done)
    return Moments(np.array(checkpoints), np.stack(kept), np.sum(basis**2, axis=1))


def error(
    variances: Float[np.ndarray, "*more d"], truth: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "*more"]:
    """||v - v*|| / ||v*||, an array of no axes where v is one vector."""
    return np.asarray(np.linalg.norm(variances - truth, axis=-1) / np.linalg.norm(truth))


def over_chains(
    errors: Float[np.ndarray, "*more chains"],
) -> tuple[Float[np.ndarray, "*more"], Float[np.ndarray, "*more"]]:
    """The root mean square over chains, and its standard error."""
    square = errors**2
    root = np.sqrt(square.mean(-1))
    spread = square.std(-1, ddof=1) / np.sqrt(square.shape[-1])
    return np.asarray(root), np.asarray(spread / (2.0 * root))


def monte_carlo_error(variances: Float[np.ndarray, "*more chains d"]) -> Float[np.ndarray, "*more"]:
    """What ||v - v*|| / ||v*|| of the mean over chains would be without bias."""
    own = variances.var(axis=-2, ddof=1) / variances.shape[-2]
    size = np.linalg.norm(variances.mean(axis=-2), axis=-1)
    return np.asarray(np.sqrt(own.sum(-1)) / size)


@dataclasses.dataclass(frozen=True)
class Reference:
    """Posterior variances."""

    variance: Float[np.ndarray, " d"]  # of each coefficient, by Stein's identity, shape (d,)
    error: float  # its relative Monte Carlo error, in the norm of `error`
    plain: Float[np.ndarray, " d"]  # the variance of the draws themselves, which checks the first
    plain_error: float  # its error, likewise
    fingerprint: str  # of the posterior
    draws: int  # of each chain
    chains: int  # how many
    seconds: float  # that it took


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


def run_reference(problem: Problem, draws: int, chains: int, seed: int) -> Reference:
    """Long HMC with full gradients, in whitened coordinates.

    Args:
        problem: the posterior and its Gaussian.
        draws: of each chain, after burn-in; rounded up to a multiple of its length.
        chains: at least two, for the error.
        seed: of everything.
    """
    begin = time.perf_counter()
    draws = -(-draws // BURN_IN) * BURN_IN
    basis = problem.whitening
    target = ex.FullGradient(problem.coordinates(basis))
    moments = follow(
        ex.hmc(target, STEP, num_leapfrog_steps=LEAPFROGS),
        lambda state: (state.position, state.estimate.gradient),
        problem.starts(basis, chains, seed),
        basis,
        [BURN_IN, BURN_IN + draws],
        BURN_IN,
        jax.random.key(seed),
    ).after(0)
    (variance,), (plain,) = (moments.variances(s, pool=True)[0] for s in (True, False))
    own, plain_own = (float(monte_carlo_error(moments.variances(s)[0])) for s in (True, False))
    mark, seconds = fingerprint(problem), time.perf_counter() - begin
    return Reference(variance, own, plain, plain_own, mark, draws, chains, seconds)
