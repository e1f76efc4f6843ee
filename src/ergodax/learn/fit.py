"""What `ergodax infer` asks of an estimator: rows held out, and other samplers beside."""

import dataclasses
import warnings

import jax
import numpy as np
import pandas as pd

import ergodax as ex
from ergodax.checks import legible
from ergodax.learn.base import NotConvergedWarning
from ergodax.learn.beside import Nuts, Reference, run_nuts, run_reference
from ergodax.learn.estimators import (
    LinearRegressor,
    LogisticClassifier,
    NegativeBinomialRegressor,
    PoissonRegressor,
    RobustRegressor,
)
from ergodax.learn.families import MULTINOMIAL
from ergodax.learn.held_out import HeldOut, held_out
from ergodax.learn.regression import Model, distinct, title
from ergodax.learn.tables import Table
from ergodax.tune import Inference

ESTIMATORS = {
    "linear": LinearRegressor,
    "robust": RobustRegressor,
    "logistic": LogisticClassifier,
    "multinomial": LogisticClassifier,
    "poisson": PoissonRegressor,
    "negative-binomial": NegativeBinomialRegressor,
}


@dataclasses.dataclass(frozen=True)
class Fit:
    """What was found."""

    model: Model  # what was sampled
    result: Inference  # draws and table in the table's units
    held_out: HeldOut | None  # how well they predict, if rows were held out
    reference: Reference | None  # if it was asked for
    nuts: Nuts | None  # likewise


def fit(
    kind: str,
    train: Table,
    test: Table | None = None,
    *,
    prior_scale: float = 1.0,
    seed: int = 0,
    accuracy: float = 0.05,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    progress: bool = True,
    reference: bool = False,
    nuts: bool = False,
    checkpoint: ex.Checkpoint | None = None,
) -> Fit:
    """Fit the estimator of a kind to a table, predict the rows held out, compare with others.

    `kind` is one of ESTIMATORS, `reference` asks for HMC with full gradients, `nuts` for the
    no-U-turn sampler for as long as the answer took; the rest is as of the estimators. Raises:
    ValueError for an accuracy out of range, a class without a row, and what `fit` of an estimator
    does.
    """
    estimator = ESTIMATORS[kind](
        prior_scale=prior_scale,
        accuracy=accuracy,
        num_chains=num_chains,
        max_seconds=max_seconds,
        random_state=seed,
        checkpoint=checkpoint,
        verbose=progress,
    )
    codes = np.unique(train.target).astype(int)
    if train.classes and len(codes) < len(train.classes):
        absent = [name for k, name in enumerate(train.classes) if k not in codes]
        raise ValueError(f"all rows of class {absent[0]} are held out; hold out fewer.")
    frame = pd.DataFrame(train.features, columns=pd.Index(list(distinct(train.names))))
    with warnings.catch_warnings():  # the verdict is told in any case
        warnings.simplefilter("ignore", NotConvergedWarning)
        several = len(train.classes) > 2
        estimator.fit(frame, _labels(train) if several else train.target)
    model, result = estimator.model_.with_classes(train.classes), estimator.inference_
    law = model.units.family
    scores = None if test is None else held_out(result.samples.position, test, law)
    key = jax.random.key(seed)
    checked = run = None
    if reference:
        key_reference = jax.random.fold_in(key, 1)
        checked = run_reference(model, result, test, key_reference, num_chains, progress)
    if nuts:
        seconds = sum(result.account.seconds.values())
        run = run_nuts(model, seconds, accuracy, jax.random.fold_in(key, 2), num_chains)
    return Fit(model, result, scores, checked, run)


def _labels(table: Table) -> np.ndarray:
    """The class of each row."""
    return np.array(table.classes, object)[table.target.astype(int)]


def header(kind: str, train: Table, test: Table | None) -> tuple[str, str]:
    """What is regressed on what, and how much of it, before any work begins."""
    family, several = ESTIMATORS[kind].family, len(train.classes) > 2
    held = f", {len(test.target):,} held out" if test else ""
    components = (len(train.classes) if several else 1) * (len(train.names) + 1)
    components += len(family.shapes)
    names = tuple(legible(name) for name in train.classes)
    what = title(MULTINOMIAL if several else family, names)
    return what, f"{len(train.target):,} rows{held}, {components} components"
