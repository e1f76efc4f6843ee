"""Gradients to an effective draw: unbiased multilevel estimates (UBUBU) beside randomised HMC.

`python -m benchmarks unbiased` prints a row for each posterior and method. All posteriors are in
coordinates whitened at the mode, where both methods need no other metric. MNIST needs its file in
the folder that ERGODAX_SHARED_DATA names.
"""

import argparse
import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.environment import describe
from benchmarks.report import Table
from benchmarks.strangers.posteriordb import shared

KEY = jax.random.key(0)
STEP, FRICTION, BURN_IN, RATE = 0.5, 2.0, 12, 0.1  # of the unbiased estimates
TEAMS, SEASONS = 20, 10
LENGTHS = (0.5, 1.0, 2.0, 3.0)  # of the trajectories, in posterior sds
ACCEPTED = 0.65  # the least share of trajectories with HMC's step


class Model(NamedTuple):
    """A posterior of a vector, and how many rows it has."""

    posterior: ex.Posterior
    dimension: int
    rows: int
    hessian: Callable[[jax.Array], jax.Array] | None = None  # by default JAX's


def multinomial(x: jax.Array, y: jax.Array, classes: int) -> Model:
    """Regression with the prior N(0, 1) for each weight."""
    rows, columns = x.shape

    def log_likelihood(w: jax.Array, example: tuple) -> jax.Array:
        row, label = example
        return jax.nn.log_softmax(row @ w.reshape(columns, classes))[label]

    def hessian(w: jax.Array) -> jax.Array:
        """Class by class: the sum over rows of p_i (1[i = j] - p_j) x x^T, and the prior's."""
        p = jax.nn.softmax(x @ w.reshape(columns, classes))
        found = np.zeros((columns, classes, columns, classes), np.float32)
        block = jax.jit(lambda weight: (x * weight[:, None]).T @ x)
        for i in range(classes):
            for j in range(i + 1):
                found[:, i, :, j] = found[:, j, :, i] = block(p[:, i] * ((i == j) - p[:, j]))
        return jnp.asarray(found.reshape(w.size, w.size)) + jnp.eye(w.size)

    posterior = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))
    return Model(posterior, columns * classes, rows, hessian)


def simulated(rows: int = 1_000, pixels: int = 20, classes: int = 5) -> Model:
    """A multinomial regression of 100 parameters."""
    keys = jax.random.split(jax.random.key(3), 3)
    x = jax.random.normal(keys[0], (rows, pixels)) / jnp.sqrt(pixels)
    truth = jax.random.normal(keys[1], (pixels, classes))
    return multinomial(x, jax.random.categorical(keys[2], x @ truth), classes)


def mnist() -> Model:
    """All digits, 60,000 rows of 784 pixels and a constant: 7,850 parameters."""
    with np.load(shared("mnist.npz")) as held:
        pixels, y = held["x_train"].reshape(-1, 784) / np.float32(255), held["y_train"]
    x = np.column_stack([pixels, np.ones(len(pixels), np.float32)])
    return multinomial(jnp.asarray(x), jnp.asarray(y, jnp.int32), 10)


def soccer() -> Model:
    """Goals of simulated seasons: each team's attack and defence, which change between seasons.

    Goals of a team are Poisson of exp(.3 + its attack - the other's defence); the strengths of a
    season are those before plus N(0, .2^2), and the first ones N(0, .5^2).
    """
    rng = np.random.default_rng(4)
    sds = np.r_[0.5, np.full(SEASONS - 1, 0.2)].astype(np.float32)
    steps = (sds[:, None, None] * rng.standard_normal((SEASONS, 2, TEAMS))).astype(np.float32)
    strength = steps.cumsum(axis=0)
    games = [(s, a, b) for s in range(SEASONS) for a in range(TEAMS) for b in range(TEAMS)]
    s, a, b = np.array([game for game in games if game[1] != game[2]]).T
    goals = rng.poisson(np.exp(0.3 + strength[s, 0, a] - strength[s, 1, b]))

    def log_likelihood(w: jax.Array, game: tuple) -> jax.Array:
        season, team, other, scored = game
        now = w.reshape(SEASONS, 2, TEAMS)[season]
        rate = 0.3 + now[0, team] - now[1, other]
        return scored * rate - jnp.exp(rate)

    def log_prior(w: jax.Array) -> jax.Array:
        moves = jnp.diff(w.reshape(SEASONS, -1), axis=0, prepend=0.0)
        return -0.5 * jnp.sum((moves / sds[:, None]) ** 2)

    data = *(jnp.asarray(index, jnp.int32) for index in (s, a, b)), jnp.asarray(goals, jnp.float32)
    return Model(ex.Posterior(log_prior, log_likelihood, data), strength.size, len(goals))


MODELS = {"simulated": simulated, "soccer": soccer, "mnist": mnist}


class Placed(eqx.Module):
    """A function of the position as one of u = L^T (position - mode), L L^T the Hessian there."""

    function: Callable[..., Any]
    mode: jax.Array
    scale: jax.Array  # L^-T

    def __call__(self, u: jax.Array, *example: Any) -> jax.Array:
        """At the position of u."""
        return self.function(self.mode + self.scale @ u, *example)


def whitened(model: Model) -> ex.Posterior:
    """The posterior of u."""
    plain = model.posterior
    mode = ex.find_mode(plain, jnp.zeros(model.dimension)).position
    hessian = (model.hessian or jax.jit(jax.hessian(plain.potential)))(mode)
    root = jnp.linalg.cholesky(hessian)
    scale = jax.scipy.linalg.solve_triangular(root, jnp.eye(model.dimension), lower=True).T
    place = functools.partial(Placed, mode=mode, scale=scale)
    return ex.Posterior(place(plain.log_prior), place(plain.log_likelihood), plain.data)


class RandomisedHMC(ex.Kernel):
    """HMC with a random number of leapfrog steps (Bou-Rabee and Sanz-Serna, 2017)."""

    kernel: ex.Kernel
    numbers: jax.Array

    def init(self, key: Any, position: Any) -> Any:
        """That of HMC."""
        return self.kernel.init(key, position)

    def step(self, key: Any, state: Any) -> tuple[Any, Any]:
        """With one of the numbers, each as likely."""
        key_number, key_step = jax.random.split(key)
        number = jax.random.choice(key_number, self.numbers)
        with warnings.catch_warnings():  # a static field that is traced: its loop takes it
            warnings.simplefilter("ignore")
            kernel = dataclasses.replace(self.kernel, num_leapfrog_steps=number)
        return kernel.step(key_step, state)  # chains together cost the longest of theirs


def randomised_hmc(posterior: ex.Posterior, start: jax.Array) -> tuple[float, RandomisedHMC]:
    """With the longest step h / 2^(k/2) that is accepted often enough.

    The first h is that at which energy is missed by .5 on average on a standard Gaussian, whose
    error is about dimension h^4 / 32, or .5 where that is less.
    """
    h = min(STEP, (16.0 / start.size) ** 0.25)
    options = {"num_chains": 4, "key": jax.random.key(1), "progress": False}
    while True:
        numbers = jnp.array([max(1, round(length / h)) for length in LENGTHS])
        kernel = RandomisedHMC(ex.hmc(posterior, h), numbers)
        run = ex.sample(kernel, start, 30, burn_in=10, **options)
        if np.mean(run.info.acceptance) >= ACCEPTED:
            return h, kernel
        h /= np.sqrt(2.0)


def rows_of(name: str, num: int, draws: int, counts: Sequence[int]) -> list[list[str]]:
    """A row for randomised HMC, and one for unbiased estimates of each number of draws.

    Args:
        name: of the model.
        num: runs of each level of the unbiased estimates.
        draws: of each of four chains of HMC.
        counts: draws of an unbiased estimate.
    """
    model = MODELS[name]()
    posterior, start = whitened(model), jnp.zeros(model.dimension)
    about, found = [name, f"{model.rows:,} x {model.dimension:,}"], []

    def told(method: str, *cells: str) -> None:
        found.append([*about, method, *cells])
        print(found[-1], f"{time.perf_counter() - began:.0f} s", flush=True)

    began = time.perf_counter()
    h, kernel = randomised_hmc(posterior, start)
    run = ex.sample(kernel, start, draws, burn_in=20, num_chains=4, key=KEY, progress=False)
    positions = np.asarray(run.position, np.float64)
    ess = np.asarray(ex.diagnostics.ess(positions, "mean"))
    spent = float(np.sum(run.info.evaluations)) / model.rows
    worst, average = spent / ess.min(), float(np.mean(spent / ess))
    told(f"randomised HMC, step {h:.3g}", f"{worst:.1f}", f"{average:.1f}", "one chain")
    variance = positions.var(axis=(0, 1))
    for count in counts:
        estimate = ex.replicas.unbiased(
            ex.FullGradient(posterior), start, STEP, FRICTION, burn_in=BURN_IN, num_draws=count,
            rate=RATE, function=lambda u: u,
        )  # fmt: skip
        plan = estimate.plan(jax.random.key(5), num=num, levels=2)
        values, _ = jax.jit(jax.vmap(estimate.coarsest))(jax.random.split(KEY, num))
        own = np.mean(np.asarray(values, np.float64).var(axis=0, ddof=1) / variance)
        each = float(own) * plan.variance * plan.cost / model.rows
        in_a_row = f"{plan.costs[0] / model.rows:.0f}"
        told(f"UBUBU, {count} draws, step {STEP:g}", "", f"{each:.1f}", in_a_row)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks unbiased",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="by default all")
    parser.add_argument("--num", type=int, default=64, help="runs of each level")
    parser.add_argument("--draws", type=int, default=400, help="of each chain of HMC")
    parser.add_argument("--counts", type=int, nargs="+", default=[16, 128], help="of an estimate")
    given = parser.parse_args(arguments)
    columns = (
        *("posterior", "rows x parameters", "method", "gradients an effective draw: worst mean"),
        *("average mean", "gradients in a row to the first result"),
    )
    table = Table("Whitened at the mode, full gradients", columns)
    for name in given.models or MODELS:
        table.rows += rows_of(name, given.num, given.draws, given.counts)
    table.notes += [f"{key}: {value}" for key, value in describe().items()]
    print("\n" + table.text())


if __name__ == "__main__":
    main()
