"""What a step of each sampler costs, interleaved with SGLD's in one run."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.tasks.logistic import BATCH_SIZE, FRICTION, STEP_SIZE, Task, make
from benchmarks.timing import Contestant, Timing, race

CATEGORIES = 129  # as many numbers as the regression has


def timings(steps: int, rounds: int) -> dict[str, Timing]:
    """Of ex.sample(...), one chain, thin=10, by the names of `laws.SAMPLERS` and "scir"."""
    task = make()
    runs = {name: _run(kernel, task.start, steps) for name, kernel in _kernels(task).items()}
    runs["scir"] = _run(_scir(task.num_data), jnp.zeros(CATEGORIES), steps)
    return race([Contestant(name, run, steps) for name, run in runs.items()], rounds)


def _kernels(task: Task) -> dict[str, ex.Kernel]:
    """On the logistic regression of `benchmarks steps`."""
    gradient = ex.Minibatch(task.posterior, BATCH_SIZE)
    known = ex.KnownCovariance(gradient, jnp.ones(task.start.size))
    slow, fast = STEP_SIZE["sgld"], STEP_SIZE["sghmc"]
    clock = {"gradient_scale": 1e4}
    return {
        "sgld": ex.sgld(gradient, slow),
        "sghmc": ex.sghmc(gradient, fast, FRICTION),
        "langevin, BAOAB": ex.langevin(gradient, fast, FRICTION),
        "nogin, V known": ex.nogin(known, fast, FRICTION),
        "langevin, UBU": ex.langevin(gradient, fast, FRICTION, scheme="UBU"),
        "langevin, BU": ex.langevin(gradient, fast, FRICTION, scheme="BU"),
        "sms_ubu": ex.sms_ubu(gradient, fast, FRICTION),
        "sa_sgld": ex.sa_sgld(gradient, slow, **clock),
        "samadams": ex.samadams(gradient, fast, FRICTION, **clock),
        "barker": ex.barker(gradient, slow),
        "barker, V known": ex.barker(known, slow, compensate=True),
        "lattice_random_walk": ex.lattice_random_walk(gradient, slow),
    }


def _scir(num_data: int) -> ex.Kernel:
    """Weights of categories, of which most rows are in a few."""
    shares = 1.0 / np.arange(1, CATEGORIES + 1)
    rows = np.random.default_rng(0).choice(CATEGORIES, num_data, p=shares / shares.sum())
    posterior = ex.Posterior(
        lambda eta: jnp.sum(0.1 * eta - jnp.exp(eta)), lambda eta, row: eta[row], rows
    )
    return ex.scir(ex.Minibatch(posterior, BATCH_SIZE), 0.01)


def _run(kernel: ex.Kernel, start: jax.Array, steps: int) -> Callable[[int], np.ndarray]:
    def call(seed: int) -> np.ndarray:
        key = jax.random.key(seed)
        return ex.sample(kernel, start, steps, thin=10, key=key, progress=False).position[0]

    return call
