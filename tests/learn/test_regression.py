"""Regressions: the posterior in standardised columns, and the way back to the user's units."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.driver import Samples
from ergodax.learn.base import in_units
from ergodax.learn.estimators import LinearRegressor
from ergodax.learn.families import LINEAR, LOGISTIC, NEGATIVE_BINOMIAL, ROBUST
from ergodax.learn.regression import Rows, regression
from ergodax.tune.decisions import Decision, DecisionLog, Inference, Tuned
from ergodax.tune.whitening import Coordinates

RNG = np.random.default_rng(1)
X = np.array([3.0, 1e4, -7.0]) + RNG.normal(size=(50, 3)) * np.array([0.01, 2e3, 1.0])
Y = 1e6 + X @ np.array([5e3, 2.0, -4e3]) + RNG.normal(size=50)
NUMBERS = Rows(X, Y, ["a", "b", "c"])
CLASSES = Rows(X, (Y > np.median(Y)) * 1.0, ["a", "b", "c"], classes=("0", "1"))


@pytest.mark.parametrize("numbers", [True, False])
def test_the_line_is_the_same_in_both_units(numbers):
    made = regression(NUMBERS, LINEAR) if numbers else regression(CLASSES, LOGISTIC)
    w = RNG.normal(size=(2, 6, len(made.init)))
    told = made.units(w)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    line = w[..., :3] @ z.T + w[..., 3:4]
    line = Y.mean() + Y.std() * line if numbers else line
    np.testing.assert_allclose(told["coefficient"] @ X.T + told["intercept"][..., None], line)
    assert ("residual_sd" in told) == numbers
    if numbers:
        np.testing.assert_allclose(told["residual_sd"], Y.std() * np.exp(w[..., 4]))
    assert made.names == ["a", "b", "c", "intercept", "residual sd"][: len(made.init)]


def test_the_residual_sd_is_a_parameter():
    rows = Rows(np.arange(4.0)[:, None], np.array([0.0, 1, 0, 1]), ["x"])
    posterior = regression(rows, LINEAR).posterior
    x, y, weight = (np.asarray(a, np.float64) for a in posterior.data)
    assert weight.tolist() == [1.0] * 4 + [0.0] * 28  # rows that are added count nothing
    w, log_sd = np.array([0.3, -0.2]), 0.4
    expected = weight * (-0.5 * ((y - x @ w) / np.exp(log_sd)) ** 2 - log_sd)
    position = jnp.array([*w, log_sd], jnp.float32)
    values = posterior.log_likelihoods(position, posterior.data)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_the_prior_has_its_scale():
    posterior = regression(NUMBERS, LINEAR, 2.0).posterior
    assert posterior.log_prior(jnp.full(5, 4.0)) == pytest.approx(-0.5 * 5 * 16 / 4)
    with pytest.raises(ValueError, match="prior_scale must be positive"):
        regression(NUMBERS, LINEAR, 0.0)


@pytest.mark.parametrize("family", [LINEAR, ROBUST, NEGATIVE_BINOMIAL])
@pytest.mark.parametrize("intercept", [True, False])
def test_what_is_sampled_has_the_name_of_what_it_moves(family, intercept):
    """Columns may be called as other components are, or as the sds of groups begin."""
    groups = np.arange(50) % 5
    names = ["intercept", "residual sd", "sd of g"]
    y = np.arange(50.0) % 7
    rows = Rows(X, y, names, groups=groups.astype(np.int32), group=("g", [*range(5)]))
    made = regression(rows, family, intercept=intercept)
    sampled, at = made.sampled, np.zeros(len(made.init))
    assert len(sampled) == len(made.init) and sorted(sampled) == sorted(made.names)
    flat = np.concatenate([np.atleast_1d(x) for _, x in sorted(made.units(at).items())])
    for k, name in enumerate(sampled):
        moved = made.units(at + np.eye(len(at))[k])
        after = np.concatenate([np.atleast_1d(x) for _, x in sorted(moved.items())])
        assert after[made.names.index(name)] != flat[made.names.index(name)]
        others = {made.names[j] for j in np.flatnonzero(after != flat)} - {name}
        assert others <= {"intercept (2)"}  # which moves with the slopes


def test_names_are_distinct():
    rows = dataclasses.replace(CLASSES, names=["intercept", "a", "a"])
    assert regression(rows, LOGISTIC).names == ["intercept", "a", "a (2)", "intercept (2)"]


def test_a_constant_target_is_refused():
    with pytest.raises(ValueError, match="the target is constant"):
        LinearRegressor().fit(X, np.ones(50))


def test_faults_and_decisions_name_the_columns():
    """Infer calls components by their number in the position."""
    model = regression(CLASSES, LOGISTIC)
    draws = jnp.asarray(RNG.normal(size=(4, 50, len(model.init))), jnp.float32)
    account = DecisionLog(
        [Decision("sampler", "nuts", "position[1] is slow in all of 64 rows")],
        faults=["position[0] and position[3] have an R-hat of 1.3"],
    )
    coordinates = Coordinates(jnp.zeros(4), jnp.eye(4))
    tuned = Tuned(None, coordinates, jnp.zeros((4, 4)), bias=None, thin=1, burn_in=0)
    samples = Samples(draws, None, None)
    told = in_units(Inference(samples, None, 0.05, True, account, tuned), model, 0.05)
    assert told.verdict() == "NOT converged: a and intercept have an R-hat of 1.3"
    assert told.account.decisions[0].why == "b is slow in all of 50 rows"


def test_a_large_offset_of_a_linear_regression_loses_no_figures():
    """In single precision the difference of target and offset would be off by units here."""
    rng = np.random.default_rng(0)
    offset, rest = rng.uniform(0.0, 1e8, 50), rng.normal(size=50)
    names = ["a", "b", "c"]
    with_offset = regression(Rows(X, offset + rest, names, offset=offset), LINEAR)
    without = regression(Rows(X, rest, names), LINEAR)
    at = jnp.linspace(-0.5, 0.5, len(without.init), dtype=jnp.float32)
    found, expected = (made.posterior.potential(at) for made in (with_offset, without))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
