"""Parameters in units that follow from others: the same law, and scales of 1 everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex
from ergodax import tree
from ergodax.tune import Coordinates, nuts
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import error_table
from ergodax.tune.dependence import conditional_scales
from ergodax.tune.doubts import lost_in_rounding
from ergodax.tune.nuts import warm_up
from ergodax.tune.reparametrisation import (
    ConditionalScales,
    ReparametrisedTarget,
    reparametrised,
)
from ergodax.tune.whitening import as_given

GROUPS, ROWS = 6, 8
RNG = np.random.default_rng(20261121)
MEANS = RNG.normal(1.0, 0.5, GROUPS) + RNG.normal(0.0, ROWS**-0.5, GROUPS)


def hierarchy(position, theta):
    """U of means of groups with effects theta; mu, tau and the rows' sigma unknown."""
    sigma = jnp.exp(position["log_sigma"])
    log = norm.logpdf(position["mu"], 0.0, 5.0) + norm.logpdf(position["log_tau"], 0.0, 2.0)
    log += norm.logpdf(position["log_sigma"], 0.0, 0.5)
    return -log - norm.logpdf(MEANS, theta, sigma / jnp.sqrt(float(ROWS))).sum()


def centred(position):
    """U of effects themselves."""
    prior = norm.logpdf(position["theta"], position["mu"], jnp.exp(position["log_tau"])).sum()
    return hierarchy(position, position["theta"]) - prior


def not_centred(position):
    """U of effects in units of their sd."""
    theta = position["mu"] + jnp.exp(position["log_tau"]) * position["theta"]
    return hierarchy(position, theta) - norm.logpdf(position["theta"]).sum()


def likely(count, *, are_centred, tau=(-0.5, 0.7), sigma=0.2):
    """Scales at random, and effects as they are given these, so that fits see typical places."""
    log_tau, log_sigma = RNG.normal(tau[0], tau[1], count), RNG.normal(0.0, sigma, count)
    mu = RNG.normal(1.0, 0.3, count)
    tau, precision = np.exp(log_tau)[:, None], ROWS * np.exp(-2.0 * log_sigma)[:, None]
    variance = 1.0 / (precision + tau**-2.0)
    mean = variance * (precision * MEANS + mu[:, None] * tau**-2.0)
    theta = mean + np.sqrt(variance) * RNG.standard_normal((count, GROUPS))
    effects = theta if are_centred else (theta - mu[:, None]) / tau
    # In the order of a raveled position: log_sigma, log_tau, mu, theta.
    return np.hstack([np.stack([log_sigma, log_tau, mu], axis=1), effects])


LIKE = {"log_sigma": 0.0, "log_tau": 0.0, "mu": 0.0, "theta": np.zeros(GROUPS)}


def some_scales(rng, d=6):
    """A map of the last three components of six, with all that one may have."""
    changed = np.arange(d) >= 3
    levels = np.where(changed, rng.normal(size=(2, d)), -np.log(2.0))
    arrays = (
        levels,
        changed[:, None] * rng.normal(size=(2, d, 2)),
        changed * rng.normal(size=(2, d)),
        changed[:, None] * rng.normal(size=(3, d, 3)),
    )
    indices = np.array([0, 1]), np.array([0, 0, 0, 2, 1, 2]), np.array([1, 2])
    return ConditionalScales(*(jnp.asarray(x) for x in (*indices, *arrays)))


def test_the_density_of_the_new_numbers_has_the_volume_of_the_map(x64):
    scales = some_scales(np.random.default_rng(1))
    quartic = ex.Target(lambda x: jnp.sum(x**4) + jnp.sum(jnp.sin(x)))
    target = reparametrised(quartic, scales)
    for z in np.random.default_rng(2).normal(size=(5, 6)):
        z = jnp.asarray(z)
        log_volume = jnp.linalg.slogdet(jax.jacfwd(scales)(z))[1]
        wanted = quartic.potential(scales(z)) - log_volume
        assert float(target.potential(z)) == pytest.approx(float(wanted), rel=1e-12)
        assert abs(float(log_volume)) > 1e-3  # the control: without it the law would be another
        assert np.allclose(scales.inverse(scales(z)), z, rtol=0, atol=1e-12)
        draws = jax.tree.map(lambda x: x[None, None], scales(z))
        assert np.allclose(target.constrain.inverse(draws)[0, 0], z, rtol=0, atol=1e-12)
        assert np.allclose(target.constrain(z), scales(z), rtol=0, atol=1e-12)
    far = jnp.full(6, 300.0)  # where one of the two terms of a precision is nothing
    assert np.isfinite(scales.moments(far)[1]).all()
    assert all(np.isfinite(x).all() for x in jax.jacfwd(scales.moments)(far))
    rows = np.random.default_rng(3).normal(size=(4, 6))
    assert np.allclose(target.numbers(target.originals(rows)), rows, rtol=0, atol=1e-12)


# The mean of an effect in units of its sd has a factor 1 / sigma besides, which no map here has: it
# is right where sigma is as it mostly is.
@pytest.mark.parametrize(("are_centred", "off_centre"), [(True, 2e-3), (False, 0.25)])
def test_effects_become_standard_normal_wherever_their_sd_is(x64, are_centred, off_centre):
    original = ex.Target(centred if are_centred else not_centred)
    draws = likely(200, are_centred=are_centred)
    scales = conditional_scales(original, LIKE, draws, np.random.default_rng(1))
    assert scales is not None and scales.changed.tolist() == 3 * [False] + GROUPS * [True]
    named, drivers = scales.told([*"sdm", *"abcdef"])
    assert named == "a, b, c and 3 more" and set(drivers.split(", ")) == {"d", "s"}
    target = reparametrised(original, scales)
    # Far from the draws, where effects are a thousand times narrower, and where they are free.
    for log_tau in (-7.0, -2.0, 0.0, 3.0):
        place = LIKE | {"log_tau": log_tau, "mu": 0.7}

        def of_effects(z, place=place):
            return target.potential(tree.freeze(place | {"theta": z}))

        z = jnp.asarray(np.random.default_rng(3).normal(size=GROUPS))
        assert np.allclose(jax.grad(of_effects)(z), z, rtol=0, atol=off_centre)
        assert np.allclose(jax.hessian(of_effects)(z), np.eye(GROUPS), rtol=0, atol=2e-3)


def test_effects_are_standard_normal_far_below_the_draws_of_the_fit(x64):
    """A mean a little off there was sds off in the neck: chains turned back before its end."""
    original = ex.Target(centred)
    draws = likely(200, are_centred=True, tau=(-2.0, 0.4), sigma=0.02)  # of chains on their way in
    scales = conditional_scales(original, LIKE, draws, np.random.default_rng(1))
    assert scales is not None
    rows, log_tau = likely(50, are_centred=True), -8.0
    z = RNG.standard_normal((len(rows), GROUPS))
    rows[:, 1] = log_tau
    rows[:, 3:] = rows[:, 2:3] + np.exp(log_tau) * z
    numbers = reparametrised(original, scales).numbers(rows)[:, 3:]
    factor = numbers.std() / z.std()
    assert 0.8 < factor < 1.25, "the scale follows over six in its logarithm"
    assert np.abs(numbers / factor - z).max() < 0.1


def test_a_scale_of_its_own_is_found_for_each():
    """x_i ~ N(0, exp(v_i)), every v_i another one: no component explains the scales of all."""

    def potential(p):
        return 0.5 * jnp.sum(p["v"] ** 2 + p["x"] ** 2 * jnp.exp(-p["v"]) + p["v"])

    v = RNG.standard_normal((200, 5))
    draws = np.hstack([v, np.exp(0.5 * v) * RNG.standard_normal((200, 5))])
    like = {"v": np.zeros(5, np.float32), "x": np.zeros(5, np.float32)}
    target = ex.Target(potential)
    scales = conditional_scales(target, like, draws, np.random.default_rng(1))
    assert scales is not None and scales.changed.tolist() == 5 * [False] + 5 * [True]
    assert scales.own[5:].tolist() == [0, 1, 2, 3, 4]
    total = scales.own_slopes[:, 5:].mean(axis=0)  # of log precision, in all
    assert np.allclose(total, -1.0, rtol=0, atol=0.02)


def test_where_scales_depend_on_nothing_nothing_is_changed():
    d = 8
    factor = RNG.standard_normal((d, 3 * d))
    precision = jnp.asarray(factor @ factor.T, jnp.float32)
    normal = ex.Target(lambda x: 0.5 * x @ precision @ x)
    draws = RNG.multivariate_normal(np.zeros(d), np.linalg.inv(precision), 200)
    like, rng = np.zeros(d, np.float32), np.random.default_rng(1)
    assert conditional_scales(normal, like, draws, rng) is None
    x = jnp.asarray(RNG.standard_normal((100, d)), jnp.float32)
    logistic = ex.Target(lambda w: jnp.sum(jnp.logaddexp(0.0, x @ w)) + 0.5 * w @ w)
    assert conditional_scales(logistic, like, 0.2 * draws, rng) is None
    # One with two modes given the other: the square root of what it is next to, of either sign.
    x = RNG.standard_normal(200)
    valley = np.stack([x, 2.0 * x**2 + 0.3 * RNG.standard_normal(200)], axis=1)
    banana = ex.Target(lambda x: 0.5 * x[0] ** 2 + 0.5 * ((x[1] - 2.0 * x[0] ** 2) / 0.3) ** 2)
    assert conditional_scales(banana, np.zeros(2, np.float32), valley, rng) is None
    broken = ex.Target(lambda x: jnp.where(x[0] > 0.0, 0.5 * x @ x, jnp.nan))
    assert conditional_scales(broken, like, draws, rng) is None


def test_it_is_told_where_rounding_decides():
    """Effects of 1 that are narrower than a number of single precision tells apart."""
    draws = likely(200, are_centred=True)
    like = jax.tree.map(np.float32, LIKE)
    scales = conditional_scales(ex.Target(centred), like, draws, np.random.default_rng(1))
    assert scales is not None and set(scales.causes) == {0, 1}
    target, plain = reparametrised(ex.Target(centred), scales), Coordinates(like, jnp.eye(9))
    rows = target.numbers(draws)
    assert not target.lost(rows).any()
    assert lost_in_rounding(target, plain, _positions(rows)) == ""
    rows[:10, 1] = -17.0  # of log tau: 4e-8
    assert target.lost(rows).tolist() == 10 * [True] + 190 * [False]
    told = lost_in_rounding(target, plain, _positions(rows))
    assert "log_tau decreases" in told and "improper" in told
    assert lost_in_rounding(target.original, plain, _positions(rows)) == ""
    rows[:10, 1] = -13.0  # 2e-6: draws are told apart, but trajectories feel it
    assert lost_in_rounding(target, plain, _positions(rows)) == ""
    assert lost_in_rounding(target, plain, _positions(rows), diverged=True)
    rows[:10, 1] = -1.0
    assert lost_in_rounding(target, plain, _positions(rows), diverged=True) == ""


def _positions(rows):
    """Of one chain."""
    parts = dict(zip(LIKE, np.split(rows.astype(np.float32), [1, 2, 3], axis=1), strict=True))
    return {
        name: part[None] if name == "theta" else part[None, :, 0] for name, part in parts.items()
    }


def test_numbers_that_need_a_shorter_step_are_given_up(monkeypatch):
    scales = some_scales(np.random.default_rng(1))
    monkeypatch.setattr(nuts, "conditional_scales", lambda *given: scales)
    target, rng = ex.Target(lambda x: 0.5 * jnp.sum(x**2)), np.random.default_rng(2)
    plain = Coordinates(jnp.zeros(6), 2.0 * jnp.eye(6))
    starts = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32)
    chains = nuts._Chains(target, plain, starts, 6, Deadline.never(), 0.8)
    chains.step = 0.5
    assert chains.reparametrise(rng.normal(size=(4, 50, 6)), rng)
    other = chains.target
    assert isinstance(other, ReparametrisedTarget) and chains.acceptance == nuts.CAREFUL

    def ends():
        rows = chains.coordinates.flats_at(np.asarray(chains.ends, np.float64))
        now = chains.target
        return now.originals(rows) if isinstance(now, ReparametrisedTarget) else rows

    numbers, changed = other.numbers(2.0 * np.asarray(starts)), scales.changed
    near = np.where(changed, np.clip(numbers, -nuts.FARTHEST, nuts.FARTHEST), numbers)
    assert np.abs(numbers - near).max() > 0.1
    same = other.originals(near)
    assert np.allclose(ends(), same, rtol=0, atol=1e-4), "chains are where they were, or near"
    chains.step = 0.45
    assert not chains.is_worse()
    chains.step = 0.35
    assert chains.is_worse()
    chains.give_up(rng.normal(size=(4, 50, 6)))
    assert chains.target is target and chains.acceptance == 0.8 and not chains.is_worse()
    assert np.allclose(ends(), same, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_neals_funnel_is_sampled_whole_and_not_without_it():
    target = ex.Target(
        lambda p: p["v"] ** 2 / 18 + 0.5 * jnp.sum(p["x"] ** 2 * jnp.exp(-p["v"]) + p["v"])
    )
    like = {"v": np.float32(0.0), "x": np.zeros(9, np.float32)}
    plain = Coordinates(like, jnp.eye(10))
    starts = jax.random.normal(jax.random.key(1), (4, 10))
    off, error = {}, {}
    for reparametrise in (True, False):
        warm = warm_up(target, plain, starts, key=jax.random.key(2), reparametrise=reparametrise)
        assert warm.target is not None
        samples = ex.sample(
            warm.kernel,
            positions=warm.ends,
            num_steps=4_000,
            key=jax.random.key(3),
            progress=False,
            collect=as_given(warm.target, warm.coordinates),
        )
        v = error_table(ex.Samples({"v": samples.position["v"]}, None, None)).iloc[0]
        off[reparametrise] = max(
            abs(v["mean"]) / (3.0 * v["mcse_mean"]), abs(v["sd"] - 3.0) / (3.0 * v["mcse_sd"])
        )
        error[reparametrise] = max(v["mcse_mean"], v["mcse_sd"])
    # Mean and sd of v within 5 errors: two false alarms in a million.
    assert off[True] < 5.0 and error[True] < 0.02
    # The control: as many steps of NUTS in the numbers of the model know far less, or are wrong.
    assert off[False] > 5.0 or error[False] > 5.0 * error[True]


@pytest.mark.parametrize("standing", [True, False])
def test_chains_that_stand_still_in_a_neck_do_not_hide_it(standing, monkeypatch):
    """Two chains of four have not moved, with effects far from their law; else they are as others.

    The negative control: with all of them in, nothing would be found.
    """
    like, rng = jax.tree.map(np.float32, LIKE), np.random.default_rng(1)
    draws = likely(200, are_centred=True).reshape(4, 50, -1)
    if standing:
        draws[:2] = draws[:2, :1]
        draws[:2, :, 1], draws[:2, :, 3:] = -6.0, 3.0 * RNG.standard_normal(GROUPS)
    target, ends = ex.Target(centred), jnp.asarray(draws[:, -1], jnp.float32)

    def found():
        chains = nuts._Chains(target, Coordinates(like, jnp.eye(9)), ends, 6, Deadline.never(), 0.8)
        return chains, chains.reparametrise(draws, rng)

    chains, changed = found()
    assert changed and isinstance(chains.target, ReparametrisedTarget)
    assert set(chains.target.causes) == {0, 1}
    assert chains.target.constrain.scales.changed.sum() >= GROUPS - 1
    assert np.abs(np.asarray(chains.ends)).max() < 10.0, "all begin within reach"
    if standing:
        monkeypatch.setattr(nuts, "STILL", 0.0)
        assert not found()[1]
