"""Regressions on a table for `infer`: logistic and linear, every row used."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

import ergodax as ex
from ergodax.apps.regression import GaussianPrior
from ergodax.learn import tables
from ergodax.tune import Inference

ERROR = (
    "error: one Monte Carlo standard error plus the estimated bias, of the mean or of the sd, "
    "whichever is larger, in posterior sd"
)


@dataclasses.dataclass(frozen=True)
class Model:
    """A posterior and what its components are called.

    Attributes:
        posterior: of a vector.
        init: where to begin.
        names: of the components.
        title: what is regressed on what.
    """

    posterior: ex.Posterior
    init: Float[Array, " d"]
    names: list[str]
    title: str


def logistic(table: tables.Table, prior_scale: float, components: int | None = None) -> Model:
    """Coefficients with independent normal priors.

    Args:
        table: two classes, as read.
        prior_scale: standard deviation of each prior.
        components: reduce the features to so many principal components first.
    """
    ready, _ = tables.prepare(table, table.rows(np.arange(1)), components)
    x, y = _float32(ready.features, ready.target)
    posterior = ex.Posterior(_prior(prior_scale, x.shape[1]), _bernoulli, (x, y))
    title = f"{table.classes[1]} against {table.classes[0]}"
    return Model(posterior, jnp.zeros(x.shape[1], x.dtype), ready.names, title)


def linear(table: tables.Table, prior_scale: float) -> Model:
    """Coefficients and the logarithm of the residual sd, with independent normal priors.

    The target is standardised, so that coefficients are in its standard deviations.

    Args:
        table: features and a numeric target.
        prior_scale: standard deviation of each prior.

    Raises:
        ValueError: the target is constant.
    """
    scale = table.target.std()
    if not scale > 0:
        raise ValueError("the target is constant: there is nothing to predict.")
    ready, _ = tables.prepare(table, table.rows(np.arange(1)))
    x, y = _float32(ready.features, (table.target - table.target.mean()) / scale)
    d = x.shape[1] + 1
    posterior = ex.Posterior(_prior(prior_scale, d), _normal, (x, y))
    names = [*ready.names, "log residual sd"]
    return Model(posterior, jnp.zeros(d, x.dtype), names, "linear regression")


def read_numeric(path: Path, target: str) -> tables.Table:
    """A CSV or Parquet file whose target is a number.

    Args:
        path: the file.
        target: the column to predict.

    Raises:
        FileNotFoundError: no such file.
        ValueError: as of `tables.read_table`, or a target that is not a number.
    """
    features, outcome = tables.read_columns(path, target)
    if not pd.api.types.is_numeric_dtype(outcome):
        raise ValueError(f"target={target!r} is not a number; try --model logistic.")
    names = [str(name) for name in features.columns]
    values = outcome.to_numpy(np.float64)
    return tables.Table(features.to_numpy(), values, names, (target, target))


def named(result: Inference, names: list[str]) -> Inference:
    """The same with the components' names in its table."""
    return dataclasses.replace(result, table=result.table.set_axis(names))


def _float32(*arrays: np.ndarray) -> tuple[Array, ...]:
    return tuple(jnp.asarray(x, jnp.float32) for x in arrays)


def _prior(scale: float, dimension: int) -> GaussianPrior:
    if not 0 < scale < float("inf"):
        raise ValueError(f"prior_scale must be positive and finite, not {scale}.")
    return GaussianPrior(jnp.asarray(scale, jnp.float32), jnp.zeros(dimension, jnp.float32))


def _bernoulli(w: Array, example: Any) -> Array:
    x, y = example
    score = w @ x  # in this order all chains' scores come out contiguous
    return y * score - jax.nn.softplus(score)


def _normal(position: Array, example: Any) -> Array:
    x, y = example
    log_sd = position[-1]
    return -0.5 * ((y - x @ position[:-1]) * jnp.exp(-log_sd)) ** 2 - log_sd
