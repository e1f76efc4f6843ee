"""Networks in scikit-learn's convention: laws of what is sampled, units, streams, refusals."""

from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ergodax as ex
from ergodax import network, tree
from ergodax.learn import MLPClassifier, MLPRegressor, members
from ergodax.learn.members import PRIOR, measured_prior, sample_members
from ergodax.learn.modules import Perceptron, filled
from ergodax.tune.budget import Deadline
from tests.unit.test_traced import compilations

RNG = np.random.default_rng(2)
X = RNG.uniform(-2.0, 2.0, (80, 2))
NOISE = RNG.normal(size=80)
Y = 100.0 + 10.0 * np.sin(2.0 * X[:, 0]) + 3.0 * X[:, 1] + NOISE
LABELS = np.where(Y > 100.0, "high", "low")
QUICK = {"num_members": 2, "max_epochs": 200, "num_steps": 1000, "num_draws": 20, "random_state": 0}


def new(model: Any) -> Any:
    return clone(model)


@pytest.fixture(scope="module")
def regressor():
    return MLPRegressor((8, 8), **QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return MLPClassifier((8, 8), **QUICK).fit(X, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("aim", [1e-4, 3.0])
def test_the_members_have_the_law_of_a_linear_model(aim, key, monkeypatch):
    """Of a linear network with a known noise the posterior is normal."""
    monkeypatch.setattr(members, "FIRST", aim)
    monkeypatch.setattr(members, "LAST", aim)
    x = np.asarray(RNG.normal(size=(200, 3)) * [1.0, 2.0, 0.5], np.float32)
    y = np.asarray(x @ [1.0, -1.0, 0.5] + 0.5 * RNG.normal(size=200), np.float32)
    module = eqx.nn.Linear(3, 1, key=key)
    posterior = network.posterior(module, (x, y), network.likelihoods.Gaussian(0.5))
    starts = jax.tree.map(lambda w: jnp.stack([w] * 4), posterior.start)
    found = sample_members(
        posterior, starts, key=key, num_steps=10_000, num_draws=1000, batch_size=200,
        deadline=Deadline.never(),
    )  # fmt: skip
    design = np.column_stack([x, np.ones(200)])
    precision = design.T @ design / 0.25 + np.diag([3.0, 3.0, 3.0, 1.0])
    mean, covariance = np.linalg.solve(precision, design.T @ y / 0.25), np.linalg.inv(precision)
    weight, bias = (np.asarray(leaf).reshape(4000, -1) for leaf in jax.tree.leaves(found.flat))
    draws = np.column_stack([weight, bias])
    sd = np.sqrt(np.diag(covariance))
    error = np.abs(draws.mean(axis=0) - mean) / sd
    ratio = draws.std(axis=0) / sd
    right = (error < 0.2).all() and (np.abs(ratio - 1.0) < 0.15).all()
    assert right == (aim < 1.0)  # the negative control: steps that are too long
    assert aim / 10.0 < found.setting.energy_error < 10.0 * aim


def test_the_energy_error_that_is_told_is_that_of_the_draws_own_step(key, monkeypatch):
    measured, right = [], members._energy_error

    def watched(kernel, key, states):
        measured.append((kernel.step_size(jnp.int32(0)), right(kernel, key, states)))
        return measured[-1][1]

    monkeypatch.setattr(members, "_energy_error", watched)
    module = eqx.nn.Linear(2, 1, key=key)
    posterior = network.posterior(module, (X[:50, :2], Y[:50]), network.likelihoods.Gaussian(0.5))
    starts = jax.tree.map(lambda w: jnp.stack([w] * 2), posterior.start)
    found = sample_members(
        posterior, starts, key=key, num_steps=200, num_draws=10, batch_size=50,
        deadline=Deadline.never(),
    ).setting  # fmt: skip
    root = np.sqrt(ex.tree.size(found.scales))
    np.testing.assert_allclose(measured[-1][0], found.step * root, rtol=1e-5)
    assert found.energy_error == measured[-1][1]
    assert abs(measured[-2][0] / measured[-1][0] - 1.0) > 1e-3, "the last adjustment moved nothing"


@pytest.mark.parametrize(
    ("apart", "changed", "runs"),
    [
        (3.0, {}, 2),
        (0.0, {}, 1),  # they agree
        (3.0, {"num_steps": 500}, 1),  # so many were asked for
        (3.0, {"deadline": Deadline.after(0.0)}, 1),
        (3.0, {"little": 10}, 1),  # a run has visited more rows
    ],
)
def test_members_that_disagree_go_on_where_that_costs_little(
    apart, changed, runs, key, monkeypatch
):
    module = eqx.nn.Linear(2, 1, key=key)
    posterior = network.posterior(module, (X[:50, :2], Y[:50]), network.likelihoods.Gaussian(0.5))
    starts = jax.tree.map(lambda w: jnp.stack([w] * 4), posterior.start)
    asked, made = [], []

    def sampled(posterior, starts, *, num_draws, **settings):
        asked.append({"starts": starts, **settings})
        noise = np.random.default_rng(len(asked)).normal(size=(4, num_draws, 1, 1))
        moved = noise + apart * np.arange(4.0)[:, None, None, None]
        positions = jax.tree.map(
            lambda w: np.asarray(w)[:, None] + moved.reshape(4, -1, *[1] * (w.ndim - 1)), starts
        )
        made.append(members.Members(positions, members.Setting(None, 0.1 * len(asked), 1.0)))
        return made[-1]

    monkeypatch.setattr(members, "sample_members", sampled)
    monkeypatch.setattr(members, "LITTLE", changed.pop("little", members.LITTLE))
    settings: dict[str, Any] = {"num_steps": None, "deadline": Deadline.never(), **changed}
    found = members.settled_members(
        posterior, starts, key=key, num_draws=200, batch_size=50, **settings
    )
    assert len(asked) == runs
    assert {each["num_steps"] for each in asked} == {settings["num_steps"] or members.STEPS}
    assert found is made[-1]
    if runs == 2:
        assert asked[1]["setting"] is made[0].setting
        jax.tree.map(np.testing.assert_array_equal, asked[1]["starts"], made[0].last)


def steps_and_errors(growth, aim=2.0):
    """Of ten rounds with a variance that grows as h^6, and as h^30 near the largest stable step."""
    step, found = 0.1, []
    for _ in range(10):
        error = 1e3 * step**6 + (step / 0.2) ** 30
        growth = growth.after(step, error)
        found.append(error)
        step *= growth.factor(aim)
    return found


def test_a_step_finds_its_energy_error_where_that_is_steep(monkeypatch):
    assert steps_and_errors(members.Growth())[-3:] == pytest.approx([2.0] * 3, rel=0.05)
    monkeypatch.setattr(members, "LARGEST", 6.0)
    swings = steps_and_errors(members.Growth())[-3:]
    assert max(swings) > 20.0 * min(swings), "as if it grew as h^6"


def test_a_step_whose_error_is_lost_doubles_and_one_that_is_no_number_halves():
    assert members.Growth().after(0.1, 0.0).factor(2.0) == 2.0
    assert members.Growth().after(0.1, np.nan).factor(2.0) == 0.5
    assert members.Growth().after(0.1, 1.0).after(0.2, 0.0).factor(2.0) == 2.0
    assert members.Growth().after(0.1, np.nan).after(0.05, 2.0).factor(2.0) == 1.0


def test_a_perceptron_is_its_layers_one_after_another(key):
    module = Perceptron((2, 5, 4, 2), "tanh", key)
    x = np.asarray(X[:7], np.float32)
    found = x
    for number, layer in enumerate(module.layers):
        found = found @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        found = np.tanh(found) if number < 2 else found
    np.testing.assert_allclose(module(jnp.asarray(x)), found, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "expected"), [(1.5, 3.0), (0.1, 1.0)])
def test_the_prior_is_twice_as_wide_as_the_optimised_weights(size, expected, key):
    """And not narrower than what keeps the variance from layer to layer."""
    x, y = np.ones((5, 3), np.float32), np.ones(5, np.float32)
    module = Perceptron((3, 16, 1), "tanh", key)
    posterior = network.posterior(
        module, (x, y), network.likelihoods.Gaussian(0.5), PRIOR, batched=True
    )
    signs = tree.rademacher_like(key, tree.freeze(posterior.start))
    scaled = jax.tree.map(lambda w: size * w / (w.shape[-1] ** 0.5 if w.ndim == 2 else 1.0), signs)
    members = jax.tree.map(lambda w: jnp.stack([w, -w]), scaled)
    assert float(measured_prior(posterior, members).scale) == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_few_rows_do_not_leave_the_noise_anything():
    """With a prior of sd 4, which large tables want, predicted sds were many times the target's."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 10)) ** 3  # test rows lie far from each other
    y = x[:, 0] - np.abs(x[:, 1]) + 0.3 * rng.normal(size=300)
    settings = {"random_state": 0, "num_members": 2, "num_steps": 6_000}
    model = MLPRegressor(**settings).fit(x[:150], y[:150])
    wide = MLPRegressor(**settings, prior=PRIOR).fit(x[:150], y[:150])
    density, before = (m.log_density(x[150:], y[150:]).mean() for m in (model, wide))
    assert float(model.prior_.scale) < 3.0 and density > before + 0.2
    later = model.prior_
    model.partial_fit(x[150:], y[150:])
    assert model.prior_ is later


def test_answers_are_in_the_users_units(regressor):
    mean, sd, bounds = regressor.predict(X, return_std=True, interval=0.8)
    assert mean.shape == sd.shape == (80,) and bounds.shape == (80, 2)
    assert regressor.score(X, Y) > 0.9
    assert 0.3 < np.median(sd) < 4.0
    # density, interval and coverage are those of the mixture of the draws
    posterior, flat = regressor.network_posterior_, regressor.members_.flat
    draws = [jax.tree.map(lambda w, k=k: w[k], flat) for k in range(40)]
    outputs = np.stack([posterior.module(draw)(posterior.data[0]) for draw in draws]).astype(float)
    centre = Y.mean() + Y.std() * outputs[..., 0]
    width = Y.std() * (1e-3 + np.log1p(np.exp(outputs[..., 1])))
    np.testing.assert_allclose(mean, centre.mean(axis=0), rtol=1e-4)
    variance = (width**2).mean(axis=0) + centre.var(axis=0, ddof=1)
    np.testing.assert_allclose(sd, np.sqrt(variance), rtol=1e-3)
    density = np.log(stats.norm.pdf(Y, centre, width).mean(axis=0))
    np.testing.assert_allclose(regressor.log_density(X, Y), density, atol=1e-3)
    for column, level in ((0, 0.1), (1, 0.9)):
        below = stats.norm.cdf(bounds[:, column], centre, width).mean(axis=0)
        np.testing.assert_allclose(below, level, atol=1e-3)
    # No frequency among 80 rows is farther off, but once in a million (the DKW inequality).
    farthest = np.sqrt(np.log(2e6) / (2 * 80))
    assert regressor.calibration(X, Y).error < farthest
    assert regressor.calibration(X, Y + 2.0 * Y.std()).error > farthest  # the negative control


@pytest.mark.slow
def test_other_units_and_names_give_the_same_answer(regressor):
    frame = pd.DataFrame({"a": 1000.0 * X[:, 0], "b": X[:, 1] - 7.0})
    other = MLPRegressor((8, 8), **QUICK).fit(frame, 0.01 * Y + 5.0)
    np.testing.assert_allclose(other.predict(frame), 0.01 * regressor.predict(X) + 5.0, rtol=2e-2)
    assert list(other.feature_names_in_) == ["a", "b"]


@pytest.mark.slow
def test_classes_keep_their_names(classifier):
    assert classifier.prior_ is PRIOR
    assert classifier.classes_.tolist() == ["high", "low"]
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    assert classifier.score(X, LABELS) > 0.9
    chosen = np.log(probabilities[np.arange(80), (LABELS == "low").astype(int)])
    np.testing.assert_allclose(classifier.log_density(X, LABELS), chosen, atol=1e-4)
    assert classifier.calibration(X, LABELS).error < 0.3


@pytest.mark.slow
def test_the_verdict_says_what_was_measured(regressor):
    found = regressor.measured_
    assert np.isfinite(found.energy_error) and 0.9 < found.r_hat < 10.0
    rows = regressor.ensemble_.held_out
    posterior, members = regressor.network_posterior_, regressor.ensemble_.positions
    x, y = (part[rows] for part in posterior.data)
    expected = network.predict(posterior, members, x, y).log_density
    assert expected is not None
    np.testing.assert_allclose(found.held_out, expected.mean() - np.log(Y.std()), rtol=1e-5)
    assert f"{found.held_out:.3f}" in regressor.verdict_ and "R-hat" in regressor.verdict_


@pytest.mark.slow
def test_the_same_state_gives_the_same_draws(regressor):
    again = new(regressor).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))
    loaded = cloudpickle.loads(cloudpickle.dumps(regressor))
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))


@pytest.mark.slow
def test_rows_that_come_later_count(regressor):
    # the first rows know nothing of where x is above 0
    below = X[:, 0] < 0.0
    model = new(regressor).partial_fit(X[below], Y[below])
    before = np.abs(model.predict(X[~below]) - Y[~below]).mean()
    model.partial_fit(X[~below], Y[~below])
    after = np.abs(model.predict(X[~below]) - Y[~below]).mean()
    assert after < 0.5 * before
    assert len(model.network_posterior_.data[1]) == 80


@pytest.mark.slow
def test_rows_that_come_later_need_no_new_program():
    """Each call compiled all of its programs again."""
    model = MLPRegressor((8,), **QUICK | {"max_epochs": 5, "num_steps": 200})

    def learnt(first, last):
        model.partial_fit(X[first:last], Y[first:last]).predict(X, interval=0.9)

    learnt(0, 30)
    learnt(30, 40)
    assert compilations(lambda: learnt(40, 45)) == 0
    assert compilations(lambda: learnt(45, 60)) == 0
    assert jax.tree.leaves(model.members_.positions)[0].shape[:2] == (2, 20)


@pytest.mark.parametrize("rows", [40, 64])
def test_rows_of_weight_0_change_no_number(rows, key):
    module = Perceptron((2, 8, 2), "tanh", key)
    likelihood = network.likelihoods.HeteroscedasticGaussian()
    data = X[:rows].astype(np.float32), (Y[:rows] / 100.0).astype(np.float32)
    posterior = network.posterior(module, data, likelihood, batched=True)
    more = filled(posterior, 64)
    assert more.num_data == 64
    position = tree.freeze(posterior.start)
    for ours, theirs in zip(
        jax.tree.leaves(more.value_and_gradient(position)),
        jax.tree.leaves(posterior.value_and_gradient(position)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert filled(posterior, 63) is posterior, "a batch would have fewer rows that count"


@pytest.mark.slow
def test_classes_that_come_later_are_announced():
    model = MLPClassifier((8, 8), **QUICK)
    model.partial_fit(X[:40], LABELS[:40], classes=["high", "low", "none"])
    assert model.predict_proba(X).shape == (80, 3)
    assert model.partial_fit(X[40:], LABELS[40:]).score(X, LABELS) > 0.8
    with pytest.raises(ValueError, match="'other', which is none of"):
        model.partial_fit(X[:2], ["other", "low"])


@pytest.mark.slow
def test_in_a_pipeline(regressor):
    frame = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 0, "a", "b")})
    model = new(regressor).fit(frame, Y)
    assert model.predict(frame[:3]).shape == (3,)
    with pytest.raises(ValueError, match="'c'"):
        model.predict(pd.DataFrame({"x": [0.0], "kind": ["c"]}))
    scores = cross_val_score(make_pipeline(StandardScaler(), new(regressor)), X, X[:, 0], cv=2)
    assert (scores > 0.9).all()


@pytest.mark.slow
def test_any_module_by_all_rows_and_by_batches():
    def build(key):
        return eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=key)

    for module, rows in ((build, 80), (build(jax.random.key(0)), 40)):
        model = MLPRegressor(module=module, batch_size=rows, **QUICK).fit(X, Y)
        assert model.score(X, Y) > 0.8
        weight = jax.tree.leaves(model.ensemble_.positions)[0]
        assert not np.allclose(weight[0], weight[1])


@pytest.mark.slow
def test_a_module_of_flax():
    nnx = pytest.importorskip("flax.nnx")
    module = nnx.Sequential(
        nnx.Linear(2, 8, rngs=nnx.Rngs(0)), nnx.silu, nnx.Linear(8, 2, rngs=nnx.Rngs(1))
    )
    assert MLPClassifier(module=module, **QUICK).fit(X, LABELS).score(X, LABELS) > 0.9


@pytest.mark.slow
def test_time_that_is_short_ends_a_fit():
    model = MLPRegressor((8, 8), **QUICK | {"num_steps": 10**8, "max_seconds": 0.5}).fit(X, Y)
    assert np.isfinite(model.predict(X)).all()


def test_what_is_refused():
    with pytest.raises(ValueError, match="constant"):
        MLPRegressor(**QUICK).fit(X, np.ones(80))
    with pytest.raises(ValueError, match="one class only"):
        MLPClassifier(**QUICK).fit(X, ["a"] * 80)
    with pytest.raises(ValueError, match="NaN in column 'b'"):
        MLPRegressor(**QUICK).fit(pd.DataFrame({"a": X[:, 0], "b": np.nan}), Y)
    with pytest.raises(ValueError, match="activation"):
        MLPRegressor(activation="sine").fit(X, Y)
    with pytest.raises(TypeError, match="hidden_layer_sizes"):
        MLPRegressor(16).fit(X, Y)
    with pytest.raises(ValueError, match="num_steps"):
        MLPRegressor(num_steps=0).fit(X, Y)
    with pytest.raises(ValueError, match="see MLPClassifier"):
        MLPRegressor().fit(X, LABELS)
