"""The kinds of runs: ways to hold data, and samplers and estimators with states of their own."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.kills.runs import Kept, Sampled

ROWS, COLUMNS = 20_000, 5
BLOCK, PASSES = 2_000, 8  # rows of what is read at a time, and how often they are used
PIXELS, CLASSES, WIDTH = 64, 10, 400  # of the network: 190,000 parameters, 3 MB of state


@functools.cache
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


def posterior(data: Any = None) -> ex.Posterior:
    """Of the logistic regression on a source of the table, or on the table itself."""
    return ex.Posterior(log_prior, log_likelihood, table() if data is None else data)


def sghmc(gradient: Any) -> Any:
    """The sampler where it is not what matters."""
    return ex.sghmc(gradient, step_size=5e-3, friction=1.0)


def npy(folder: Path) -> Any:
    """The table in two .npy files."""
    paths = [folder / "features.npy", folder / "outcomes.npy"]
    for path, array in zip(paths, table(), strict=True):
        if not path.exists():
            np.save(path, array)
    return ex.data.npy(*paths, block_rows=BLOCK, page_rows=100, passes=PASSES)


def zarr(folder: Path) -> Any:
    """The table in a Zarr group."""
    import zarr

    path = folder / "table.zarr"
    if not path.exists():
        group = zarr.create_group(path)
        for name, array in zip(("features", "outcomes"), table(), strict=True):
            group.create_array(name, data=array, chunks=(1_000, *array.shape[1:]))
    return ex.data.zarr(
        path, ("features", "outcomes"), block_rows=BLOCK, page_rows=1_000, passes=PASSES
    )


def parquet(folder: Path) -> Any:
    """The table in a Parquet file of 40 row groups."""
    import pandas as pd

    path = folder / "table.parquet"
    if not path.exists():
        features, outcomes = table()
        named = {f"x{k}": features[:, k] for k in range(COLUMNS)} | {"y": outcomes}
        pd.DataFrame(named).to_parquet(path, row_group_size=500)
    return ex.data.parquet(path, target="y", block_rows=BLOCK, passes=PASSES)


def stream(folder: Path) -> Any:
    """The table from an iterator of the user's."""

    def batches() -> Iterator[tuple[np.ndarray, ...]]:
        return (tuple(array[k : k + 500] for array in table()) for k in range(0, ROWS, 500))

    return ex.data.stream(
        batches, num_rows=ROWS, block_rows=BLOCK, passes=PASSES, identity="the table of kills"
    )


def on(source: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """SGHMC on batches of a source."""
    return lambda folder: sghmc(ex.Minibatch(posterior(source(folder)), 50))


@functools.cache
def network() -> Any:
    """The posterior of a network of 190,000 parameters."""
    import equinox as eqx

    random = np.random.default_rng(1)
    images = random.normal(size=(1_000, PIXELS)).astype(np.float32)
    classes = np.argmax(images[:, :CLASSES], axis=1)
    module = eqx.nn.MLP(PIXELS, CLASSES, WIDTH, 2, key=jax.random.key(1))
    return ex.network.posterior(module, (images, classes), ex.network.likelihoods.Categorical())


def last_layer(position: Any) -> Any:
    """What is stored of a network's draw."""
    return jax.tree.leaves(position)[-1]


def regression(kernel: Callable[[Path], Any], num_steps: int, **more: Any) -> Sampled:
    """A run on the table."""
    return Sampled(kernel, num_steps, lambda folder: jnp.zeros(COLUMNS, jnp.float32), **more)


IN_MEMORY = regression(lambda _: sghmc(ex.Minibatch(posterior(), 50)), 200_000)
KINDS: dict[str, Kept] = {
    "data in memory": IN_MEMORY,
    "npy": regression(on(npy), 40_000),
    "zarr": regression(on(zarr), 40_000),
    "parquet": regression(on(parquet), 40_000),
    "stream": regression(on(stream), 30_000),
    "svrg": regression(lambda _: sghmc(ex.SVRG(posterior(), 50, period=400)), 50_000),
    "saga": regression(lambda _: sghmc(ex.SAGA(posterior(), 50)), 150_000),
    "cyclical": regression(
        lambda _: ex.cyclical(
            ex.sghmc, ex.Minibatch(posterior(), 50), 5e-3, period=1_000, friction=1.0
        ),
        100_000,
    ),
    "replica exchange": regression(
        lambda _: ex.replica_exchange(ex.sgld, ex.Minibatch(posterior(), 50), 1e-4), 30_000
    ),
    "network": Sampled(
        lambda _: ex.sghmc(ex.Minibatch(network(), 10), step_size=1e-4, friction=10.0), 200,
        lambda _: network().start, last_layer, thin=2,
    ),
}  # fmt: skip
SHORT: dict[str, Kept] = {  # where there are many trials; the draws take several files
    "a run": dataclasses.replace(IN_MEMORY, num_steps=10_000, thin=1),
}
