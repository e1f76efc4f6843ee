"""Where an inference begins, and what is seen there that no draws can be right with."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.doubts import doubt_of_density
from ergodax.tune.infer import _with_cause
from ergodax.tune.start import NOISE, check_start, find_start, rounded

KEY = jax.random.key(0)


def doubt(potential, init):
    target = ex.Target(potential)
    start = find_start(target, init, DecisionLog(), KEY, Deadline.never())
    return doubt_of_density(target, init, start, key=KEY)


def test_a_level_of_a_few_rows_has_a_scale_though_most_samples_of_rows_have_none_of_it():
    """12 of 300,000 rows: 10,000 that stand for all have none of them two times in three."""
    level = np.zeros(300_000, np.float32)
    level[:12] = 1.0
    y = np.random.default_rng(0).random(300_000) < np.where(level, 0.7, 0.3)

    def log_likelihood(w, row):
        x, y = row
        log_odds = w[0] + w[1] * x
        return y * log_odds - jax.nn.softplus(log_odds)

    prior = lambda w: -0.005 * jnp.sum(w**2)  # noqa: E731
    model = ex.Posterior(prior, log_likelihood, (level, y.astype(np.float32)))
    for key in jax.random.split(KEY, 4):
        start = find_start(model, jnp.zeros(2), DecisionLog(), key, Deadline.never())
        assert start.typical and float(start.place[1]) != 0.0
        # 1 / sqrt(12 p (1 - p)) = 0.6; one row of it among those that stand for all makes it 0.4.
        assert 0.2 < start.coordinates.scales[1] < 2.0


@pytest.mark.parametrize(("constant", "told"), [(0.0, False), (1e5, False), (3e6, True)])
def test_a_potential_so_large_that_single_precision_rounds_it_is_noisy(constant, told):
    """Near places are rounded alike, so their differences do not tell it."""
    target = ex.Target(lambda x: 0.5 * jnp.sum(x**2) + constant)
    start = find_start(target, jnp.full(2, 0.1), DecisionLog(), KEY, Deadline.never())
    assert (start.noise > NOISE) == told


@pytest.mark.parametrize(("size", "told"), [(1e3, False), (1e6, True)])
@pytest.mark.parametrize("smooth", [True, False])
def test_large_terms_that_cancel_are_rounded_though_their_sum_is_small(size, told, smooth):
    y = np.random.default_rng(0).normal(size=300).astype(np.float32)
    terms = np.where(np.arange(300) % 2 == 0, size, -size).astype(np.float32)

    def potential(x):
        kink = 0.0 if smooth else 0.01 * jnp.sum(jnp.abs(x - y))
        return jnp.sum(0.5 * (x - y) ** 2 + terms) + kink

    target = ex.Target(potential)
    start = find_start(target, jnp.float32(0.1), DecisionLog(), KEY, Deadline.never())
    for key in jax.random.split(KEY, 5):
        found = rounded(target, start, few=True, key=key)
        assert ("rounding changes the potential" in found) == told


def test_a_step_in_the_density_is_no_rounding():
    target = ex.Target(lambda x: 0.5 * jnp.sum(x**2) + jnp.sum(jnp.where(x > 1.0, 2.0, 0.0)))
    start = find_start(target, jnp.full(1, 0.1), DecisionLog(), KEY, Deadline.never())
    assert rounded(target, start, few=True, key=KEY) == ""


def branch(x):
    """x^1.5 or x^2 / 2: the power has no gradient below 0, and jnp.where lets its NaN through."""
    return jnp.sum(jnp.where(x > 0.0, x**1.5, 0.5 * x**2))


def test_a_gradient_that_is_not_finite_where_the_density_is():
    told = doubt(
        lambda z: branch(z["a"]) + 0.5 * jnp.sum(z["b"] ** 2), {"a": 0.5, "b": jnp.ones(2)}
    )
    assert "respect to a is not finite" in told and "a = -" in told
    safe = lambda x: jnp.where(x > 0.0, jnp.where(x > 0.0, x, 1.0) ** 1.5, 0.5 * x**2)  # noqa: E731
    assert doubt(lambda x: jnp.sum(safe(x)), jnp.full(2, 0.5)) == "", "the control"
    edge = lambda x: jnp.where(x > 0.0, x - jnp.log(x), jnp.inf)  # noqa: E731
    assert doubt(lambda x: jnp.sum(edge(x)), jnp.full(2, 0.5)) == "", "the density is 0 there"
    with pytest.raises(ValueError, match="but its gradient is not finite"):
        check_start(ex.Target(branch), jnp.full(1, -0.5))
    with pytest.raises(ValueError, match="inside the support"):
        check_start(ex.Target(lambda x: jnp.sum(edge(x))), jnp.full(1, -0.5))


@pytest.mark.parametrize(
    "sign_is_wrong",
    [lambda x: -0.5 * jnp.sum(x**2), lambda x: -jnp.sum(jnp.logaddexp(x, -2.0 * x))],
)
def test_a_density_that_grows_without_end_is_told_by_its_sign(sign_is_wrong):
    assert "is its sign wrong" in doubt(sign_is_wrong, jnp.ones(3))
    assert doubt(lambda x: -sign_is_wrong(x), jnp.ones(3)) == ""


def test_without_a_curvature_at_the_mode_the_units_are_the_users():
    """exp(-|x|^4): a law far too narrow fits anywhere, and has no mass beside a wide one."""
    target = ex.Target(lambda x: jnp.sum(x**2) ** 2)
    start = find_start(target, jnp.zeros(10), DecisionLog(), KEY, Deadline.never())
    assert 0.1 < start.coordinates.scales.min() <= start.coordinates.scales.max() < 10.0


@pytest.mark.parametrize("dimension", [2, 9])
def test_a_density_without_a_bound_or_with_a_far_mode_does_not_grow_without_end(dimension):
    def funnel(z):  # which is highest where v falls for ever and the others are 0
        v, x = z[0], z[1:]
        return 0.02 * v**2 + x.size * v + 0.5 * jnp.sum(x**2) * jnp.exp(-2.0 * v)

    assert doubt(funnel, jnp.zeros(dimension)) == ""
    assert doubt(lambda x: 0.5 * jnp.sum((x - 1e6) ** 2), jnp.zeros(dimension)) == ""


def test_a_last_look_is_left_where_the_time_is_over(monkeypatch):
    looks = []
    infer = importlib.import_module("ergodax.tune.infer")
    monkeypatch.setattr(infer, "is_quick", lambda *_, **__: looks.append(1))
    target = ex.targets.gaussian(jnp.zeros(2), 1.0)
    result = ex.infer(target, jnp.zeros(2), key=KEY, max_seconds=0.0, progress=False)
    result = dataclasses.replace(result, converged=False)
    looks.clear()
    assert _with_cause(result, target, jnp.zeros(2), Deadline.after(0.0)) is result and not looks
    assert _with_cause(result, target, jnp.zeros(2), Deadline.after(60.0)) is result and looks


@pytest.mark.parametrize("init", [jnp.zeros(0), {"a": jnp.zeros(1), "b": jnp.zeros((0, 3))}])
def test_a_start_without_numbers_is_refused(init, key):
    target = ex.Target(lambda x: 0.5 * jnp.sum(ex.tree.ravel(x)[0] ** 2))
    with pytest.raises(ValueError, match=r"init.* has shape \(0.* Leave it out"):
        ex.infer(target, init, key=key)


def test_a_loop_without_a_gradient_is_told_in_our_words():
    """And one with a fixed number of steps is not."""

    def root(a, steps):  # by Newton's method
        return jax.lax.fori_loop(0, steps, lambda _, s: 0.5 * (s + a / s), jnp.ones_like(a))

    computed = lambda x: root(1.0 + x**2, jnp.where(x > 9.0, 9, 5))  # noqa: E731
    with pytest.raises(ValueError, match=r"while_loop.*Try jax.lax.scan.*custom_jvp") as told:
        check_start(ex.Target(computed), jnp.array(0.3))
    assert "Reverse-mode" in str(told.value.__cause__)
    check_start(ex.Target(lambda x: root(1.0 + x**2, 5)), jnp.array(0.3))
