"""What `ex.local` says and refuses: verdicts, masks, arguments, tables, pictures."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.local.law import local_law

Y = np.linspace(-1.0, 1.0, 30, dtype="float32")


def squared(w, y):
    return 0.5 * (y - w) ** 2


def estimate(loss=squared, weights: Any = 0.0, data=Y, **settings):
    return ex.local.learning_coefficient(
        loss,
        weights,
        data,
        **({"key": jax.random.key(0), "accuracy": 0.3, "max_seconds": 20.0} | settings),
    )


@pytest.fixture(scope="module")
def found():
    return estimate()


def test_the_verdict_comes_first_and_fits_80_columns(found):
    text = str(found)
    assert found.ok and text.startswith("KNOWN: local learning coefficient 0.")
    assert max(map(len, text.splitlines())) <= 80 and not found.remedy


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        ({"estimate": -1.0, "shortfall": 1.0}, "NEGATIVE", "Train on"),
        ({"estimate": -1.0}, "NEGATIVE", "within reach"),
        ({"estimate": np.nan}, "NOT FINITE", "not finite"),
        ({"acceptance": 0.0}, "NOT FINITE", "not finite"),
        ({"converged": False, "r_hat": 1.3}, "NOT CONVERGED", "localization=10"),
        ({"converged": False, "r_hat_distance": np.nan}, "NOT CONVERGED", "too small"),
        ({"error": 0.4, "estimate": 0.5}, "IMPRECISE", "max_seconds"),
    ],
)
def test_what_is_wrong_is_said(found, changes, verdict, says):
    other = dataclasses.replace(found, **changes)
    assert other.verdict == verdict and not other.ok
    assert str(other).startswith(verdict) and says in other.remedy
    assert max(map(len, str(other).splitlines())) <= 80


def test_weights_that_are_no_minimum():
    """At a maximum lambda-hat is negative; the shortfall says how much is lacking."""
    top = estimate(lambda w, y: -50.0 * jnp.cos(w - 3.14159) + 0.0 * y)
    assert top.verdict == "NEGATIVE"
    beside = estimate(weights=0.5)
    t = len(Y) / np.log(len(Y))
    # The minimum of the potential, which the localization draws back to 0.5.
    exact = t * 0.5 * (0.25 - (0.5 / (t + 1.0)) ** 2)
    assert beside.shortfall == pytest.approx(exact, rel=0.05)
    assert "not the minimum" in " ".join(str(beside).split())


def test_a_loss_that_is_not_finite():
    assert estimate(lambda w, y: jnp.log(w - 1.0) + y, max_seconds=2.0).verdict == "NOT FINITE"


@pytest.mark.parametrize(
    "loss", [lambda w, y: jnp.log(w - 1.0) + y, lambda w, y: jnp.sqrt(jnp.sum(w**2)) + y]
)
def test_nothing_is_run_from_weights_that_are_not_finite(loss):
    """A loss, or its gradient alone; before, all the time was used, and more."""
    lost = estimate(loss, max_seconds=100.0)
    assert lost.verdict == "NOT FINITE" and lost.evaluations == 0 and lost.seconds < 30.0
    assert "not finite" in str(lost)
    told = ex.local.susceptibilities(loss, 0.0, Y, key=jax.random.key(0), num_draws=40)
    assert not told.ok and told.coefficient.evaluations == 0


@pytest.mark.parametrize("seconds", [0.5, 1e-9])
def test_time_that_is_up(seconds):
    """Also before there is a step, which ended in a traceback on a slow machine."""
    assert not estimate(accuracy=1e-4, max_seconds=seconds).ok


def test_xarray_has_the_names_of_devinterp(found):
    table = found.to_xarray()
    assert {"llc_mean", "llc_std", "llc_trace", "loss_trace", "init_loss"} <= set(table)
    counted = table["llc_trace"].where(table["counted"], drop=True)
    assert float(counted.mean()) == pytest.approx(float(table["llc_mean"]), rel=1e-5)
    assert float(table["init_loss"]) == pytest.approx(np.mean(0.5 * Y**2), rel=1e-5)


def test_plot(found):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert len(found.plot().lines) == len(found.loss_trace) + 1


class Layers(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    activation: Callable = jnp.tanh

    def __call__(self, x):
        return self.second(self.activation(self.first(x)))


MODULE = Layers(*(eqx.nn.Linear(2, 2, key=jax.random.key(k)) for k in (0, 1)))


def modules_loss(model, row):
    return jnp.sum(model(row) ** 2)


@pytest.mark.parametrize(
    ("trainable", "count"),
    [
        (None, 12),
        ("first", 6),
        ("*bias", 4),
        (["first.bias", "second"], 8),
        (lambda name: name.endswith("weight"), 8),
        (
            jax.tree.map(lambda x: np.ndim(x) == 1, MODULE),
            4,
        ),  # a module of flags, which is callable
    ],
)
def test_parts_of_a_module(trainable, count):
    law = local_law(modules_loss, MODULE, np.ones((3, 2), "float32"), 1.0, 1.0, trainable)
    assert law.num_moving == count
    moved = jax.tree.map(lambda x: x + 0.5, law.centre)
    whole = law.posterior.log_likelihood.weights(moved)
    same = [
        bool(jnp.all(a == b))
        for a, b in zip(*(jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in (whole, MODULE)),
                        strict=True)
    ]  # fmt: skip
    sizes = [x.size for x in jax.tree.leaves(eqx.filter(MODULE, eqx.is_array))]
    assert sum(itertools.compress(sizes, np.logical_not(same))) == count


def test_entries_that_stay_are_not_sampled():
    """A mask of entries is what the entries by themselves are, in all that is told."""

    def at(w, y):
        return 0.5 * jnp.sum((w[:3] - y) ** 2)

    w, y = np.zeros((10, 10), "float32"), np.broadcast_to(Y[:, None], (30, 3))
    mask = np.arange(100).reshape(10, 10) < 3
    law = local_law(lambda w, y: at(w.ravel(), y), w, y, 1.0, 1.0, mask)
    assert [x.shape for x in jax.tree.leaves(law.centre)] == [(3,)] and law.num_moving == 3
    moved = law.posterior.log_likelihood.weights(jnp.arange(1.0, 4.0))
    np.testing.assert_array_equal(moved, np.where(mask, np.arange(1.0, 101.0).reshape(10, 10), w))
    masked = estimate(lambda w, y: at(w.ravel(), y), w, y, trainable=mask)
    parts = {"a": w.ravel()[:3], "b": w.ravel()[3:]}
    alone = estimate(lambda w, y: at(w["a"], y), parts, y, trainable="a")
    for name in ("estimate", "distance", "norm", "num_parameters", "acceptance"):
        assert getattr(masked, name) == pytest.approx(getattr(alone, name), rel=0.02), name


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"loss": 3}, TypeError, "loss_of_one_example"),
        ({"loss": lambda w, y: jnp.ones(2)}, TypeError, "scalar"),
        ({"loss": lambda w, y: (y - w)[None]}, TypeError, "loss_of_one.*float32 of shape .1,."),
        ({"loss": lambda w, y: (w, y)}, TypeError, "loss_of_one.* tuple. Return the loss alone"),
        ({"loss": lambda w, y: None}, TypeError, "loss_of_one_example returns None"),
        ({"loss": lambda w, y: w * float(y)}, ValueError, "loss_of_one.*jax.numpy"),
        ({"loss": lambda w, y: w * y[0]}, ValueError, r"loss_of_one.*of data, .*float32\[\]"),
        ({"weights": {"a": 1}}, TypeError, "floating-point"),
        ({"weights": jnp.zeros((), jnp.bfloat16)}, TypeError, "single precision"),
        ({"weights": {"a": 1.0, "b": jnp.float16(0)}}, TypeError, "float16"),
        ({"temperature": "log"}, ValueError, "log n"),
        ({"temperature": 0.0}, ValueError, "temperature"),
        ({"localization": 0.0}, ValueError, "localization"),
        ({"accuracy": -1.0}, ValueError, "accuracy"),
        ({"trainable": "b"}, ValueError, "trainable"),
        ({"weights": {"a": 1.0}, "trainable": 3.5}, TypeError, "trainable"),
        ({"weights": {"a": 1.0}, "trainable": {"b": True}}, TypeError, "trainable"),
        ({"by_n": [1]}, ValueError, "by_n"),
        ({"data": Y[:2]}, ValueError, "rows"),
        ({"num_chains": 0}, ValueError, "num_chains"),
        ({"batch_size": 0.5}, TypeError, "batch_size"),
        ({"key": 3}, TypeError, "key"),
    ],
)
def test_wrong_arguments_are_named(settings, error, says):
    with pytest.raises(error, match=says):
        estimate(**({"max_seconds": 5.0} | settings))


def test_queries_of_other_columns_are_named():
    data, queries = np.ones((5, 2), "float32"), np.ones((5, 3), "float32")
    with pytest.raises(ValueError, match=r"loss_of_one.* example of queries, .* are float32\[3\]"):
        ex.local.influence(
            lambda w, x: jnp.dot(w, x), np.ones(2), data, queries, key=jax.random.key(0)
        )
