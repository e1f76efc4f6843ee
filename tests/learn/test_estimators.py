"""The regressions: laws in the user's units against exact ones, predictions, bad input by name."""

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from arviz_stats.loo import loo
from scipy import special, stats
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ergodax import learn
from ergodax.learn.design import FrameDesign, check_table
from ergodax.learn.estimators import central_interval
from ergodax.learn.families import LINEAR, NEGATIVE_BINOMIAL, POISSON

RNG = np.random.default_rng(3)
X = 50.0 + 10.0 * RNG.normal(size=100)  # far from 0 and 1
LABEL = np.where(RNG.random(100) < special.expit(0.1 * (X - 47.0)), "yes", "no")
PRICE = 1e4 + 300.0 * X + 2e3 * RNG.normal(size=100)


@pytest.fixture(scope="module")
def logistic():
    frame = pd.DataFrame({"age": X})
    return learn.LogisticClassifier(random_state=0).fit(frame, LABEL)


def quadrature():
    """Mean and sd of coefficient and intercept, in the user's units, on a grid."""
    z, y = (X - X.mean()) / X.std(), LABEL == "yes"
    axis = np.linspace(-6.0, 6.0, 601)
    slope, base = np.meshgrid(axis, axis, indexing="ij")
    score = slope[..., None] * z + base[..., None] + special.logit(y.mean())
    log = np.sum(special.log_expit(np.where(y, score, -score)), axis=-1)
    mass = special.softmax(log - 0.5 * (slope**2 + base**2))
    coefficient = slope / X.std()
    intercept = special.logit(y.mean()) + base - coefficient * X.mean()
    means = [np.sum(mass * value) for value in (coefficient, intercept)]
    squares = [np.sum(mass * value**2) for value in (coefficient, intercept)]
    return np.array(means), np.sqrt(np.array(squares) - np.square(means))


def gaps(draws, mean, sd, ess):
    """How far means and sds are off, in their standard errors; a normal law's of the sd."""
    off = (draws.mean(axis=0) - mean) / sd * np.sqrt(ess)
    wide = (draws.std(axis=0) / sd - 1.0) * np.sqrt(2.0 * ess)
    return np.abs(np.concatenate([off, wide]))


@pytest.mark.slow
def test_the_logistic_law_is_that_of_quadrature(logistic):
    """Four figures, z = 5: 2e-6 for a false alarm; the ESS of squares is taken as half."""
    mean, sd = quadrature()
    draws = logistic.inference_.samples.position
    flat = np.stack([draws["coefficient"][..., 0].ravel(), draws["intercept"].ravel()], axis=1)
    ess = logistic.inference_.table["ess"].to_numpy()
    assert logistic.converged_ and ess.min() > 400
    assert np.all(gaps(flat, mean, sd, 0.5 * ess) < 5.0)
    np.testing.assert_allclose(logistic.coef_[0, 0], flat[:, 0].mean())
    # Negative controls: an intercept at the columns' means, a coefficient of standardised columns.
    centred = np.stack([flat[:, 0], flat[:, 1] + flat[:, 0] * X.mean()], axis=1)
    assert gaps(centred, mean, sd, 0.5 * ess).max() > 5.0
    assert gaps(flat * [X.std(), 1.0], mean, sd, 0.5 * ess).max() > 5.0


@pytest.mark.slow
def test_the_account_counts_the_rows_of_the_table(logistic):
    why = " ".join(d.why for d in logistic.inference_.account.decisions)
    assert f"{len(X)} rows" in why and "128 rows" not in why


@pytest.mark.slow
def test_probabilities_tree_and_pickles(logistic):
    frame = pd.DataFrame({"age": [30.0, 50.0, 70.0]})
    found = logistic.predict_proba(frame)
    draws = logistic.inference_.samples.position
    scores = draws["coefficient"] * frame["age"].to_numpy() + draws["intercept"][..., None]
    np.testing.assert_allclose(found[:, 1], special.expit(scores).mean(axis=(0, 1)), atol=0.01)
    assert logistic.predict(frame).tolist() == ["no", "yes", "yes"]
    with pytest.raises(TypeError, match="neither all numbers nor all text: row 1 holds 'old'"):
        logistic.predict(frame.assign(age=[30.0, "old", 70.0]))
    tree = logistic.posterior_
    assert tree["posterior"]["coefficient"].dims == ("chain", "draw", "column")
    assert tree["posterior"]["column"].to_numpy().tolist() == ["age"]
    assert set(np.unique(tree["posterior_predictive"]["y"])) == {"no", "yes"}
    told: Any = loo(tree)
    assert np.isfinite(told.elpd)
    elpd = np.asarray(tree["log_likelihood"]["y"]).mean(axis=(0, 1)).sum()
    assert -100 * np.log(2) < elpd < 0
    assert list(logistic.summary().columns) == ["mean", "sd", "5%", "95%", "error", "ess", "r_hat"]
    for dump in (pickle, cloudpickle):
        again = dump.loads(dump.dumps(logistic))
        np.testing.assert_array_equal(again.predict_proba(frame), found)
    fresh: Any = clone(logistic)
    assert fresh.get_params() == logistic.get_params()


@pytest.mark.slow
def test_the_linear_law_is_a_mixture_of_closed_forms():
    """Given the residual sd all is normal; the sd is integrated out on a grid."""
    model = learn.LinearRegressor(random_state=0).fit(X[:, None], PRICE)
    z = np.column_stack([(X - X.mean()) / X.std(), np.ones(100)])
    y = (PRICE - PRICE.mean()) / PRICE.std()
    grid = np.linspace(-3.0, 1.0, 801)
    log, means, covariances = [], [], []
    for log_sd in grid:
        covariance = np.linalg.inv(z.T @ z * np.exp(-2 * log_sd) + np.eye(2))
        whole = z @ z.T + np.exp(2 * log_sd) * np.eye(100)
        log.append(stats.multivariate_normal.logpdf(y, cov=whole) - 0.5 * log_sd**2)
        means.append(covariance @ z.T @ y * np.exp(-2 * log_sd))
        covariances.append(covariance)
    mass = special.softmax(np.array(log))
    mean = mass @ np.array(means)
    second = np.array(covariances) + np.einsum("gi,gj->gij", means, means)
    covariance = np.einsum("g,gij->ij", mass, second) - np.outer(mean, mean)
    slope = PRICE.std() / X.std()
    turn = np.array([[slope, 0.0], [-slope * X.mean(), PRICE.std()]])
    mean = turn @ mean + [0.0, PRICE.mean()]
    sd = np.sqrt(np.diag(turn @ covariance @ turn.T))
    draws = model.inference_.samples.position
    flat = np.stack([draws["coefficient"][..., 0].ravel(), draws["intercept"].ravel()], axis=1)
    ess = model.inference_.table["ess"].to_numpy()[:2]
    assert model.converged_ and ess.min() > 400
    assert np.all(gaps(flat, mean, sd, 0.5 * ess) < 5.0)
    # Negative control: the target's mean forgotten.
    assert gaps(flat - [0.0, PRICE.mean()], mean, sd, 0.5 * ess).max() > 5.0
    middle, spread, bounds = model.predict(X[:5, None], return_std=True, interval=0.9)
    width = stats.norm.ppf(0.95) * spread
    np.testing.assert_allclose(bounds, np.stack([middle - width, middle + width], 1), rtol=0.01)


@pytest.mark.slow
def test_a_group_term_finds_groups_as_far_apart_as_they_are():
    rng = np.random.default_rng(0)
    plane = np.repeat([f"N{k}" for k in range(20)], 10)
    effect = np.repeat(3.0 * rng.normal(size=20), 10)
    frame = pd.DataFrame({"plane": plane, "x": rng.normal(size=200)})
    frame["delay"] = 5.0 + 2.0 * frame["x"] + effect + rng.normal(size=200)
    model = learn.LinearRegressor("delay ~ x + (1 | plane)", random_state=0).fit(frame)
    table = model.summary()
    assert model.converged_
    assert abs(table["mean"]["x"] - 2.0) < 5 * table["sd"]["x"]
    assert abs(table["mean"]["residual sd"] - 1.0) < 5 * table["sd"]["residual sd"]
    assert abs(table["mean"]["sd of plane"] - 3.0) < 5 * table["sd"]["sd of plane"]
    effects = model.posterior_["posterior"]["plane_effect"]
    gap = effects - effects.mean("plane")
    found = gap.mean(("chain", "draw")).sel(plane=[f"N{k}" for k in range(20)]).to_numpy()
    assert np.corrcoef(found, effect[::10])[0, 1] > 0.95
    _, known = model.predict(frame[:2], return_std=True)
    _, new = model.predict(frame[:2].assign(plane="other"), return_std=True)
    assert np.all(known < 1.5) and np.all(new > 2.0)


@pytest.mark.slow
def test_pipelines_and_cross_validation():
    """Folds of 66 and 67 rows have one program."""
    model = make_pipeline(StandardScaler(), learn.LogisticClassifier(random_state=0))
    scores = cross_val_score(model, X[:, None], LABEL, cv=3)
    assert scores.shape == (3,) and scores.mean() > 0.6


@pytest.mark.slow
def test_a_fit_that_does_not_converge_warns_with_the_cause():
    model = learn.LogisticClassifier(random_state=0, accuracy=1e-4, max_seconds=1e-3)
    with pytest.warns(learn.NotConvergedWarning, match="NOT converged: .*max_seconds"):
        model.fit(pd.DataFrame({"age": X}), LABEL)
    assert not model.converged_ and model.verdict_.startswith("NOT converged")


FRAME = pd.DataFrame({"age": X, "kind": np.where(X > 50, "old", "young"), "y": LABEL})
DAYS = pd.date_range("2013-01-01", periods=100)


@pytest.mark.parametrize(
    ("model", "x", "y", "message"),
    [
        (learn.LinearRegressor(), FRAME[["age"]].assign(age=np.nan), PRICE, "NaN in column 'age'"),
        (learn.LinearRegressor(), FRAME[["age"]].assign(day=DAYS), PRICE, "'day' holds times"),
        (learn.LinearRegressor(), FRAME[["age", "kind"]].assign(day=DAYS.date), PRICE,
         "'day' holds times"),
        (learn.LinearRegressor("y ~ age + day"), FRAME.assign(day=DAYS), None, "'day' holds times"),
        (learn.LinearRegressor(), FRAME[[]], PRICE, "X has no columns"),
        (learn.LinearRegressor(), FRAME[["age", "age"]], PRICE,
         "several columns of the name 'age'"),
        (learn.LinearRegressor("y ~ age"), FRAME[["age", "age"]], PRICE,
         "several columns of the name 'age'"),
        (learn.LinearRegressor(), FRAME[["age"]].assign(kind=[1, "a"] * 50), PRICE,
         "column 'kind' is neither all numbers nor all text: row 1 holds 'a'"),
        (learn.LinearRegressor(), FRAME[["age"]].assign(kind=[[1]] * 100), PRICE, "row 0 holds"),
        (learn.LinearRegressor(), X[:, None], PRICE[:-1], "inconsistent numbers of samples"),
        (learn.LinearRegressor(), X, PRICE, "Expected 2D array"),
        (learn.LinearRegressor(), X[:, None], np.ones(100), "the target is constant"),
        (learn.LinearRegressor(), X[:, None], LABEL, "see LogisticClassifier"),
        (learn.LinearRegressor(accuracy=0.0), X[:, None], PRICE, "accuracy must be positive"),
        (learn.LogisticClassifier(), X[:, None], np.full(100, "yes"), "one class only, 'yes'"),
        (learn.PoissonRegressor(), X[:, None], -PRICE, "y must be counts"),
        (learn.LinearRegressor(), X[:, None], DAYS, "y holds times"),
        (learn.LinearRegressor("day ~ age"), FRAME.assign(day=DAYS), None, "y holds times"),
        (learn.MLPRegressor(), X[:, None], pd.Series(DAYS), "y holds times"),
        (learn.LogisticClassifier(), X[:, None], pd.Series(LABEL, dtype="string").mask(X == X[3]),
         "y contains NaN in row 3"),
        (learn.MLPClassifier(), X[:, None], [None, *LABEL[1:]], "y contains NaN in row 0"),
        (learn.LogisticClassifier(), X[:, None], pd.Series([7, *LABEL[1:]], dtype=object),
         r"text and other labels, 7 in row 0 and .* in row 1. Try y.astype\(str\)"),
        (learn.LinearRegressor(), FRAME[["age"]] * 1e-200, PRICE,
         "column 'age' has numbers too small.* Try other units: divide it by"),
        (learn.LinearRegressor(), FRAME[["age"]] * 1e300, PRICE, "'age' has numbers too large"),
        (learn.LinearRegressor(), X[:, None], PRICE * 1e-200, "the target has numbers too small"),
        (learn.LinearRegressor("y ~ 0"), FRAME.assign(y=PRICE), None, "nothing to fit. Try"),
        (learn.LogisticClassifier("y ~ wage"), FRAME, None, "wage"),
        (learn.LogisticClassifier("~ age"), FRAME, None, "a formula with a target"),
        (learn.LogisticClassifier("y ~ age + (age | kind)"), FRAME, None, "not supported"),
        (learn.LogisticClassifier("kind ~ age + (1 | y)"), FRAME.assign(kind=list("abcd") * 25),
         None, "groups are supported for two classes"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(model, x, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(x, y)


def test_an_array_is_refused_where_a_frame_with_text_was_fitted():
    check_table(X[:, None], None)
    with pytest.raises(TypeError, match="new rows must be a pandas DataFrame"):
        check_table(X[:, None], FrameDesign(FRAME))


@pytest.mark.parametrize("design", [None, FrameDesign(FRAME[["kind"]])])
def test_text_is_refused_by_name_where_numbers_were_fitted(design):
    check_table(FRAME[["age"]], design, ["age"])
    with pytest.raises(TypeError, match="column 'age' had numbers in fit, and now holds text"):
        check_table(FRAME[["age"]].assign(age="q"), design, ["age"])


@pytest.mark.parametrize("unit", [1e-15, 1.0, 1e15])
def test_an_interval_is_the_same_in_any_unit(unit):
    eta = unit * RNG.normal(size=(500, 1))
    law = LINEAR.law(eta, {"residual_sd": np.full((500, 1), unit)})
    mean, sd = eta.mean(axis=0), np.sqrt(unit**2 + eta.var(axis=0))
    found = central_interval(law, 0.9, mean, sd)
    level = law.cdf(found[..., None].reshape(1, 2)).mean(axis=0)
    np.testing.assert_allclose(level, [0.05, 0.95], rtol=1e-6)


@pytest.mark.parametrize("family", [POISSON, NEGATIVE_BINOMIAL])
@pytest.mark.parametrize("centre", [1.0, 40.0, 1000.0])
def test_intervals_of_counts_are_quantiles_however_large(family, centre):
    """Rates that overflow are held at e^340; those of draws differ by many powers of ten."""
    eta = centre + 0.1 * centre * np.linspace(-2.0, 2.0, 201)[:, None]
    law = family.law(eta, {"dispersion": np.full((201, 1), 0.1)})
    mean = law.mean().mean(axis=0)
    sd = np.sqrt(law.var().mean(axis=0) + law.mean().var(axis=0))
    found = central_interval(law, 0.9, mean, sd)[0]
    assert np.isfinite(found).all()
    below = 1.0 + 1e-8 if centre > 1.0 else 0.0  # nine figures, or exact
    for q, bound in zip((0.05, 0.95), found, strict=True):
        assert law.cdf(np.array([bound])).mean() >= q
        less = bound - 1.0 if centre == 1.0 else bound / below
        assert law.cdf(np.array([less])).mean() < q + 1e-6


@pytest.mark.parametrize("rows", [slice(None), [0, 3]])
def test_groups_of_mixed_types_have_their_own_effects(rows):
    groups = np.array([1, "new", 1, "old"] * 25, object)
    model = learn.LinearRegressor("y ~ 1 + (1 | g)")
    frame = pd.DataFrame({"g": groups, "y": PRICE})
    found: Any = model._rows(*model._read(frame, None), None, None)
    assert found.group[1] == [1, "new", "old"] and found.groups.tolist()[:4] == [0, 1, 0, 2]
    model._rows_, model._seed = found, 0
    model._latents = np.arange(3.0).reshape(1, 1, 3)
    effects = model._of_groups(groups[rows], np.ones(1), slice(None))(slice(None))
    np.testing.assert_array_equal(effects[0], found.groups[rows])


@pytest.mark.slow
@pytest.mark.parametrize("right", ["1", "0 + (1 | kind)"])
def test_a_model_without_columns_has_the_rest(right):
    """New rows have neither the target nor columns that the formula does not use."""
    frame = FRAME.assign(y=PRICE, kind=np.arange(100) % 20)
    model = learn.LinearRegressor(f"y ~ {right}", random_state=0, verbose=False).fit(frame)
    assert model.converged_ and model.coef_.shape == (0,)
    assert model.summary().index[-1] in ("residual sd", "sd of kind")
    mean, bounds = model.predict(frame[["kind"]], interval=0.9)
    assert model.n_features_in_ == ("kind" in right)
    inside = (bounds[:, 0] < PRICE) & (PRICE < bounds[:, 1])
    assert 0.8 < inside.mean() < 1.0 and abs(mean.mean() - PRICE.mean()) < 0.2 * PRICE.std()
    told: Any = loo(model.posterior_)
    assert np.isfinite(told.elpd)


def test_settings_of_rows_are_checked():
    model = learn.LinearRegressor()
    with pytest.raises(ValueError, match="offset must have a number for each of 100 rows, not 3"):
        model.fit(X[:, None], PRICE, offset=np.zeros(3))
    with pytest.raises(ValueError, match="zero in every row|non-zero"):
        model.fit(X[:, None], PRICE, sample_weight=np.zeros(100))
    with pytest.raises(TypeError, match="a formula takes its columns from a pandas DataFrame"):
        learn.LinearRegressor("y ~ x").fit(X[:, None], PRICE)
