"""The ArviZ tree of a regression: names for every axis, log-likelihoods, predictive draws."""

import warnings
from typing import Any

import numpy as np

from ergodax.learn.base import MOST_STORED, Regression
from ergodax.learn.design import Matrix
from ergodax.learn.regression import Model, Rows


def posterior_tree(
    estimator: Regression, rows: Rows, model: Model, latents: np.ndarray | None
) -> Any:
    """What `posterior_` gives.

    Args:
        estimator: fitted.
        rows: it was fitted to.
        model: that was sampled.
        latents: of groups, shape (chains, draws, groups), in the linear predictor's units.
    """
    samples = estimator.inference_.samples
    dims: dict[str, list[str]] = {"coefficient": ["column"], "y": ["row"]}
    coords: dict[str, Any] = {"column": model.columns, "row": np.arange(len(rows.y))}
    if model.classes:
        dims |= {"coefficient": ["class", "column"], "intercept": ["class"]}
        coords["class"] = list(model.classes)
    y = np.asarray(rows.classes)[rows.y.astype(int)] if rows.classes else rows.y
    more: dict[str, Any] = {"observed_data": {"y": y}}
    if latents is not None:
        name, labels = rows.group
        variable = f"{name}_effect"
        more["posterior"] = {variable: latents}
        dims[variable], coords[name] = [name], [str(label) for label in labels]
    if samples.num_chains * samples.num_draws * len(rows.y) <= MOST_STORED:
        likelihood, predictive = _of_rows(estimator, rows)
        more["log_likelihood"] = {"y": likelihood}
        more["posterior_predictive"] = {"y": predictive}
    else:
        warnings.warn(
            f"{len(rows.y)} rows at {samples.num_chains * samples.num_draws} draws are too many: "
            "posterior_ has no log_likelihood and no posterior_predictive.",
            UserWarning,
            stacklevel=3,
        )
    return samples.to_arviz(dims=dims, coords=coords, more=more)


def _of_rows(estimator: Regression, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood and a predictive draw of every row, at every draw, leading axes of both."""
    samples = estimator.inference_.samples
    family, rng = estimator._law(), np.random.default_rng(estimator._seed)  # pyright: ignore[reportPrivateUsage]
    groups = None
    if rows.groups is not None:
        groups = np.asarray(rows.group[1], object)[rows.groups]
    matrix = Matrix(rows.x, groups, rows.offset)
    predictor, shapes = estimator._predictor(matrix, None)  # pyright: ignore[reportPrivateUsage]
    likelihood, predictive = [], []
    draws = samples.num_chains * samples.num_draws
    step = max(1, MOST_STORED // (64 * draws * max(1, len(rows.classes))))
    for start in range(0, len(rows.y), step):
        part = slice(start, start + step)
        eta, y = predictor(part), rows.y[part]
        density = family.log_density(y, eta, shapes)
        likelihood.append(density if rows.weight is None else density * rows.weight[part])
        if eta.ndim == 3:  # the largest of eta and Gumbel's noise has the law of the softmax
            drawn = np.argmax(eta + rng.gumbel(size=eta.shape), axis=-1)
        else:
            drawn = family.law(eta, shapes).rvs(size=eta.shape, random_state=rng)
        predictive.append(np.asarray(rows.classes)[drawn.astype(int)] if rows.classes else drawn)
    shape = samples.num_chains, samples.num_draws, len(rows.y)
    return tuple(np.concatenate(x, axis=1).reshape(shape) for x in (likelihood, predictive))  # pyright: ignore[reportReturnType]
