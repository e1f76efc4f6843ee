"""The middle of the mass: exact for normal laws, and in no spike of a hierarchy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree
from ergodax.target.constrained import unconstrained
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.descent import descent, potential_at
from ergodax.tune.modes import _log_volume
from ergodax.tune.start import find_start
from ergodax.tune.variational import middle_of_mass
from ergodax.tune.whitening import flattened

KEY = jax.random.key(0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_that_of_a_correlated_normal_law_is_its_mean(scale):
    mean, rng = np.array([3.0, -2.0, 1.0]), np.random.default_rng(1)
    factor = np.tril(rng.standard_normal((3, 3))) + 2.0 * np.eye(3)
    precision = factor @ factor.T

    def potential(x):
        offset = x / scale - mean
        return 0.5 * offset @ precision @ offset, precision @ offset / scale

    for start in (np.zeros(3), scale * np.array([40.0, 40.0, -40.0])):
        found, found_sds = middle_of_mass(potential, start, np.full(3, scale), key=KEY)
        sds = scale / np.sqrt(np.diag(precision))  # of a component, the others being fixed
        assert np.all(np.abs(found - scale * mean) < 0.2 * sds)
        assert np.all(np.abs(np.log(found_sds / sds)) < np.log(2.0))  # of 16 draws' sds


def districts_and_schools():
    """Effects of 30 schools in 6 districts, centred, and where to begin."""
    rng = np.random.default_rng(3)
    district = np.repeat(np.arange(6), 5)
    effects = rng.normal(0.0, 0.8, 6)[district] + rng.normal(0.0, 0.5, 30)
    school = np.repeat(np.arange(30), 8)
    y = 2.0 + effects[school] + rng.standard_normal(240)

    def log_normal(x, mean, sd):
        return jnp.sum(-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd))

    def potential(p):
        log = -0.5 * (p["district_sd"] ** 2 + p["school_sd"] ** 2 + p["sigma"] ** 2)
        log += log_normal(p["mu"], 0.0, 5.0)
        log += log_normal(p["districts"], p["mu"], p["district_sd"])
        log += log_normal(p["schools"], p["districts"][district], p["school_sd"])
        return -log - log_normal(jnp.asarray(y, float), p["schools"][school], p["sigma"])

    scales = ("district_sd", "school_sd", "sigma")
    target = ex.Target(potential, constraints={name: ex.transform.positive for name in scales})
    init = dict.fromkeys(scales, jnp.ones(()))
    init |= {"mu": jnp.zeros(()), "districts": jnp.zeros(6), "schools": jnp.zeros(30)}
    return unconstrained(target, init)


def test_the_mode_of_nested_effects_is_a_spike_and_the_start_is_beside_it(x64):
    target, init = districts_and_schools()
    frozen = tree.freeze(init)
    start = find_start(target, init, DecisionLog(), KEY, Deadline.never())
    sd = float(jnp.exp(start.place["school_sd"]))
    assert start.typical and 0.3 < sd < 1.0  # the posterior's mean is 0.55, its sd 0.12
    # The control: the mode is far away, and the density there far higher.
    mode = descent(target, frozen, 500)
    here = potential_at(target, frozen, flattened(start.place))[0]
    assert mode.potential < here - 100.0


def test_two_thousand_effects_have_no_mode_where_their_sd_vanishes(x64):
    """Where no matrix is kept: the spike is no place to begin, nor a mode."""
    rng, count = np.random.default_rng(5), 2_000
    group = np.repeat(np.arange(count), 5)
    y = jnp.asarray(1.0 + 0.4 * rng.standard_normal(count)[group] + rng.standard_normal(5 * count))

    def potential(p):
        tau, offsets = jnp.exp(p["log_tau"]), p["a"] - p["mu"]
        prior = 0.5 * (tau**2 + jnp.sum(offsets**2) / tau**2) + (count - 1) * p["log_tau"]
        return prior + 0.5 * jnp.sum((y - p["a"][group]) ** 2) + 0.5 * (p["mu"] / 5.0) ** 2

    target = ex.Target(potential)
    init = {"log_tau": jnp.zeros(()), "mu": jnp.zeros(()), "a": jnp.zeros(count)}
    start = find_start(target, init, DecisionLog(), KEY, Deadline.never())
    assert start.typical and np.exp(start.place["log_tau"]) == pytest.approx(0.4, abs=0.1)
    spike = start.place | {"log_tau": jnp.asarray(-20.0), "a": jnp.full(count, start.place["mu"])}
    assert potential(spike) < potential(start.place) - 1e4, "it is far higher"
    u = start.coordinates.of_rows(jax.tree.map(lambda x: x[None], spike))
    lost = _log_volume(target, start.coordinates, u[0])
    assert lost < float(potential(spike) - potential(start.place)) - 20.0, "and narrower by more"


def test_it_ends_in_time_and_where_nothing_is_finite():
    ones = np.ones(2)
    for potential, deadline in (
        (lambda x: (np.nan, x), Deadline.never()),
        (lambda x: (float(0.5 * x @ x), x), Deadline.after(0.0)),
    ):
        middle, sds = middle_of_mass(potential, ones, ones, key=KEY, deadline=deadline)
        assert np.all(middle == ones) and np.all(sds == ones)
