"""The runs that are killed: small models, real storage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

ROOT = Path(__file__).parents[2]
RETURNED = "returned.zarr"  # beside the folder of the checkpoint: the Samples of a finished run
ROWS, COLUMNS = 20_000, 5
CHAINS = 2
SAVE_EVERY = 0.02  # seconds, so that many of the kills fall into the writing of files


def table() -> tuple[np.ndarray, np.ndarray]:
    """A logistic regression's features and outcomes, always the same."""
    random = np.random.default_rng(7)
    features = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    chance = 1.0 / (1.0 + np.exp(-features @ np.linspace(-1.0, 1.0, COLUMNS)))
    return features, (random.uniform(size=ROWS) < chance).astype(np.float32)


def log_prior(w: jax.Array) -> jax.Array:
    """Standard normal."""
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w: jax.Array, example: tuple) -> jax.Array:
    """Logistic, of one row."""
    features, outcome = example
    value = jnp.dot(features, w)
    return outcome * value - jax.nn.softplus(value)


def in_memory(folder: Path) -> Any:
    """SGHMC with SAGA's table of all gradients in its state."""
    posterior = ex.Posterior(log_prior, log_likelihood, table())
    return ex.sghmc(ex.SAGA(posterior, 50), step_size=5e-3, friction=1.0)


def streamed(folder: Path) -> Any:
    """SGHMC on blocks of two files."""
    paths = [folder / "features.npy", folder / "outcomes.npy"]
    for path, array in zip(paths, table(), strict=True):
        if not path.exists():
            np.save(path, array)
    source = ex.data.npy(*paths, block_rows=2_000, page_rows=100)
    posterior = ex.Posterior(log_prior, log_likelihood, source)
    return ex.sghmc(ex.Minibatch(posterior, 50), step_size=5e-3, friction=1.0)


KERNELS: dict[str, Callable[[Path], Any]] = {"in memory": in_memory, "streamed": streamed}
STEPS = {"in memory": 400_000, "streamed": 60_000}  # of a run that is killed


def run(kind: str, folder: Path, num_steps: int, **more: Any) -> ex.Samples:
    """A run of one of the kernels.

    Args:
        kind: a key of KERNELS.
        folder: for the data that are streamed.
        num_steps: of each chain.
        more: further arguments of `ex.sample`.
    """
    return ex.sample(
        KERNELS[kind](folder), jnp.zeros(COLUMNS, jnp.float32), num_steps, thin=20, burn_in=100,
        num_chains=CHAINS, key=jax.random.key(3), progress=False, **more,
    )  # fmt: skip
