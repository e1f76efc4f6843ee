"""Why draws may be wrong: each reason is seen, and none where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex
from ergodax.tune import Coordinates
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.doubts import doubt_of_draws, improper_direction, stops_near
from ergodax.tune.start import find_start

KEY = jax.random.key(3)
NORMAL = ex.Posterior(
    lambda x: -0.5 * jnp.sum(x**2), lambda x, row: 0.0 * jnp.sum(x) * row, jnp.ones(10)
)


def draws(scale=1.0):
    return scale * np.random.default_rng(0).normal(size=(4, 100, 2)).astype(np.float32)


def doubt(positions, potentials=(0.0,), posterior=NORMAL):
    return doubt_of_draws(posterior, positions, np.asarray(potentials), key=KEY)


def test_right_draws_raise_no_doubt():
    assert doubt(draws()) == ""


def test_draws_where_batches_saw_no_density():
    assert "edge" in doubt(draws(), [0.0, np.inf])


def test_draws_that_are_too_wide():
    assert "few rows decide" in doubt(draws(2.0))


def test_draws_where_all_rows_see_no_density():
    wall = ex.Posterior(
        lambda x: -0.5 * jnp.sum(x**2) + jnp.where(x[0] > 0, 0.0, -jnp.inf),
        lambda x, row: 0.0 * jnp.sum(x) * row,
        jnp.ones(10),
    )
    assert "density of all rows is zero" in doubt(draws(), posterior=wall)


UNIT = Coordinates(jnp.zeros(2), jnp.eye(2))


@pytest.mark.parametrize(
    ("potential", "named"),
    [
        (lambda x: 0.5 * x[0] ** 2 + 0.0 * x[1], "position[1]"),
        (lambda x: 0.5 * (x[0] + x[1]) ** 2, "position[0], position[1]"),
        (lambda x: 0.5 * jnp.sum(x**2), ""),
        (lambda x: jnp.sum(jnp.log1p(x**2)), ""),  # Cauchy: far, but an integral
        (lambda x: 0.5 * x[0] ** 2 + 0.5 * jnp.log1p(x[1] ** 2), "position[1]"),  # 1 / |x|: none
    ],
)
def test_a_direction_without_an_integral_is_named(potential, named):
    turned = UNIT
    if named == "position[0], position[1]":  # as the curvature tells it
        turned = Coordinates(jnp.zeros(2), jnp.array([[1e3, 1.0], [-1e3, 1.0]]))
    assert improper_direction(ex.Target(potential), jnp.zeros(2), jnp.zeros(2), turned) == named


def test_an_edge_near_the_draws_is_seen():
    places = jnp.ones((4, 2))
    assert not stops_near(NORMAL, UNIT, places, key=KEY)
    edge = ex.Target(lambda x: jnp.sum(x - jnp.log(x)))
    assert stops_near(edge, UNIT, places, key=KEY)


def test_a_proper_density_of_degenerate_coordinates_is_not_called_improper():
    """Where the density has no bound, the curvature's scales are those of no distance."""
    proper = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
    tiny = Coordinates(jnp.zeros(2), jnp.float32(1e-9) * jnp.eye(2))
    assert improper_direction(proper, jnp.zeros(2), jnp.zeros(2), tiny) == ""
    flat = ex.Target(lambda x: 0.5 * x[0] ** 2)
    assert improper_direction(flat, jnp.zeros(2), jnp.zeros(2), tiny) == "position[1]"


def test_a_density_that_ends_is_proper():
    """Infinite at every length that is looked at: no difference of infinities is taken for flat."""
    box = ex.Target(lambda x: jnp.where(jnp.all(jnp.abs(x) < 1.0), 0.0, jnp.inf))
    assert improper_direction(box, jnp.zeros(2), jnp.zeros(2), UNIT) == ""


@pytest.mark.parametrize("sd", [1e5, 1e8])
def test_a_density_that_is_wider_than_its_curvature_tells_is_proper(sd):
    capped = Coordinates(jnp.zeros(2), jnp.diag(jnp.array([1.0, 1024.0])))
    wide = ex.Target(lambda x: 0.5 * x[0] ** 2 + 0.5 * (x[1] / sd) ** 2)
    assert improper_direction(wide, jnp.zeros(2), jnp.zeros(2), capped) == ""


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_start_next_to_the_mode_tells_no_direction_of_its_own(scale):
    """Two normals, 4 sd apart: ten thousand steps from the start to the mode lead to the other."""
    target = ex.Target(
        lambda x: (
            -jnp.logaddexp(
                jnp.log(0.7) - 0.5 * jnp.sum((x / scale) ** 2),
                jnp.log(0.3) - 0.5 * jnp.sum((x / scale - jnp.array([4.0, 0.0])) ** 2),
            )
        )
    )
    mode = jnp.array([5e-4, 0.0]) * scale
    coordinates = Coordinates(mode, scale * jnp.eye(2))
    assert improper_direction(target, jnp.zeros(2), mode, coordinates) == ""


@pytest.mark.parametrize(("prior", "named"), [(0.0, "position[1]"), (0.1, "")])
def test_one_level_without_events_is_named(prior, named):
    """Log odds of two levels, of which the other has both; the search stopped on its way out."""

    def potential(w):
        both = jax.nn.softplus(w[0]) - 0.3 * w[0]
        return 100.0 * both + 5.0 * jax.nn.softplus(w[0] + w[1]) + prior * w[1] ** 2

    stopped, start = jnp.array([-0.85, -18.0]), jnp.zeros(2)
    hessian = jax.hessian(potential)(start)
    coordinates = Coordinates(start, jnp.linalg.inv(jnp.linalg.cholesky(hessian)).T)
    assert improper_direction(ex.Target(potential), start, stopped, coordinates) == named


@pytest.mark.parametrize("effects", [30, 1])
def test_a_mode_that_is_a_spike_without_mass_is_no_place_to_begin(effects):
    """30 effects whose sd may vanish: the density is exp(450) as high there, the volume exp(-900)
    as large. One effect is the control: the density has its mode where its mass is. Around the
    middle of the mass the curvature's law is too wide for some keys; its neighbours are not."""

    def potential(z):
        t, x = z["log_sd"], z["effects"]
        return 0.5 * t**2 + effects * t + 0.5 * jnp.sum(x**2) * jnp.exp(-2.0 * t)

    init = {"effects": jnp.full(effects, 0.1), "log_sd": jnp.float32(0.0)}
    target = ex.Target(potential)
    for key in jax.random.split(KEY, 6):
        log = DecisionLog()
        start = find_start(target, init, log, key, Deadline.never())
        if effects == 30:
            assert abs(float(start.place["log_sd"])) < 0.5, str(log)  # whose mean is 0, its sd 1
        else:
            assert float(start.place["log_sd"]) == pytest.approx(-1.0, abs=0.05), str(log)


def houses():
    """Ten levels about a mean, of sd 0.2, each with fifteen rows of sd 0.7: centred."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(10), 15)
    y = jnp.asarray(1.2 + 0.2 * rng.standard_normal(10)[group] + 0.7 * rng.standard_normal(150))

    def potential(z):
        tau, sigma = jnp.exp(z["log_tau"]), jnp.exp(z["log_sigma"])
        levels = -norm.logpdf(z["level"], z["mean"], tau).sum()
        rows = -norm.logpdf(y, z["level"][group], sigma).sum()
        priors = 0.5 * (tau**2 + sigma**2 + z["mean"] ** 2 / 4.0) - z["log_tau"] - z["log_sigma"]
        return levels + rows + priors

    return ex.Target(potential)


def test_levels_whose_sd_may_vanish_begin_where_the_mass_is():
    """The search ends in a spike of tau < 1e-2, where exp(-4) of the mass lies at most: the
    density of log tau falls off with tau."""
    init = {"level": jnp.linspace(-1.0, 1.0, 10), "mean": jnp.float32(1.0)}
    init |= {"log_tau": jnp.float32(0.1), "log_sigma": jnp.float32(0.4)}
    log = DecisionLog()
    start = find_start(houses(), init, log, KEY, Deadline.never())
    assert np.log(1e-2) < float(start.place["log_tau"]) < 0.0, str(log)
    assert start.typical and float(start.mode["log_tau"]) < np.log(1e-2)
