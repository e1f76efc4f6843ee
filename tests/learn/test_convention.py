"""Scikit-learn's own checks of its convention, on every regression and network.

Most of these fits are of tables that are made up and looked at for their shapes alone. So in the
slow checks `ex.infer` hands out draws of the normal law at the mode, in milliseconds and not in
seconds: what is checked is how the classes behave, and not the draws, whose laws have tests of
their own. So do the members of networks, about their optima. A few checks run as they are.
"""

import types
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.utils.estimator_checks import estimator_checks_generator

import ergodax as ex
from ergodax import learn, tune
from ergodax.driver import Samples
from ergodax.learn import members
from ergodax.tune.decisions import DecisionLog

MODELS = [
    learn.LinearRegressor(),
    learn.RobustRegressor(),
    learn.LogisticClassifier(),
    learn.PoissonRegressor(),
    learn.NegativeBinomialRegressor(),
]
QUICK: dict[str, Any] = {
    "hidden_layer_sizes": (8,),
    "num_members": 2,
    "max_epochs": 100,
    "num_draws": 5,
}
NETWORKS = [learn.MLPRegressor(**QUICK), learn.MLPClassifier(**QUICK)]


class OfRoundedCounts(learn.LatentDirichletAllocation):
    """Scikit-learn's checks fit any numbers that are not negative; counts of words are whole."""

    def _counts(self, X, *, reset):
        try:
            return super()._counts(X, reset=reset)
        except ValueError as error:
            if "whole numbers" not in str(error):
                raise
            sparse: Any = csr_array(X) if issparse(X) else None
            whole = np.ceil(np.asarray(X, float)) if sparse is None else sparse.ceil()
            return super()._counts(whole, reset=reset)


TOPICS = [OfRoundedCounts(2, max_iter=8, num_draws=4, random_state=0)]
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
EXCEPTIONS = {
    WEIGHTS: "a row of weight 2 and a row that stands twice have one posterior, and other draws",
}
WITH_INFER = {"check_fit_score_takes_y", "check_n_features_in"}


def checks(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Any = estimator_checks_generator(model, expected_failed_checks=EXCEPTIONS, mark=None)
        return [(m, check) for m, check in found if check.func.__name__ not in EXCEPTIONS]


@jax.jit
def potentials(posterior, positions):
    """Forward alone: the checks have tables of fifty shapes, and each compiles anew."""

    def potential(x):
        return -posterior.log_prior(x) - jnp.sum(
            jax.vmap(posterior.log_likelihood, (None, 0))(x, posterior.data)
        )

    return jax.vmap(potential)(positions)


def newton(posterior, position, h=0.05):
    """A step towards the mode, damped where it is long, and the Hessian, by differences."""
    d, steps = len(position), h * np.eye(len(position))
    pairs = [(i, j) for i in range(d) for j in range(i + 1)]
    both = [steps[i] + steps[j] for i, j in pairs]
    places = position + np.concatenate([np.zeros((1, d)), steps, -steps, both])
    found = np.asarray(potentials(posterior, places.astype(np.float32)), np.float64)
    middle, ahead, behind, further = np.split(found, [1, 1 + d, 1 + 2 * d])
    gradient, hessian = (ahead - behind) / (2 * h), np.empty((d, d))
    for (i, j), value in zip(pairs, further, strict=True):
        hessian[i, j] = hessian[j, i] = (value - ahead[i] - ahead[j] + middle[0]) / h**2
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(np.abs(values), 1e-3)
    step = vectors @ ((vectors.T @ gradient) / values)
    return position - step / max(1.0, np.abs(step).max()), values, vectors


def normal_at_the_mode(posterior, init, *, key, accuracy, num_chains, **_):
    """What `ex.infer` returns, of the normal law at the mode."""
    position = np.asarray(init, np.float64)
    for _ in range(20):
        position, values, vectors = newton(posterior, position)
    noise = np.asarray(jax.random.normal(key, (num_chains, 100, len(init))))
    draws = position + (noise / np.sqrt(values)) @ vectors.T
    samples = Samples(draws.astype(np.float32), None, None)
    table = tune.error_table(samples)
    tuned = types.SimpleNamespace(bias=None)
    return tune.Inference(samples, table, accuracy, True, DecisionLog(), tuned)


def about_the_optimum(posterior, starts, *, num_draws, **_):
    """What `sample_members` returns, of draws that are all where they began."""
    positions = jax.tree.map(lambda x: np.stack([x] * num_draws, axis=1), starts)
    return members.Members(positions, members.Setting(None, 1.0, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", MODELS + NETWORKS + TOPICS, ids=lambda model: type(model).__name__
)
def test_the_convention_is_kept(model, monkeypatch):
    monkeypatch.setattr(ex, "infer", normal_at_the_mode)
    monkeypatch.setattr(members, "sample_members", about_the_optimum)
    found, failed = checks(model), {}
    assert len(found) > 40
    with jax.numpy_dtype_promotion("standard"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator, check in found:
            try:
                check(estimator)
            except pytest.skip.Exception:
                continue
            except Exception as error:
                if type(error).__name__ != "SkipTest":
                    failed[str(check.func.__name__)] = repr(error)[:300]
    assert failed == {}


@pytest.mark.slow
def test_some_checks_with_the_draws_of_infer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator, check in checks(learn.LogisticClassifier()):
            if check.func.__name__ in WITH_INFER:
                check(estimator)
