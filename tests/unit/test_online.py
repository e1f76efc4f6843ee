"""Summaries kept during a run against the same computed from all its draws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import online
from ergodax.stats.accumulators import _every_other

GAUSSIAN = ex.targets.gaussian(jnp.array([1.0, -2.0]), jnp.array([[2.0, 0.6], [0.6, 0.5]]))


def fold(accumulator, values):
    """The summary of vectors of shape (chains, draws, d)."""

    def chain(values):
        start = accumulator.init(values[0])
        return jax.lax.scan(lambda s, v: (accumulator.update(s, v), None), start, values)[0]

    return accumulator.result(jax.jit(jax.vmap(chain))(values))


def draws(chains, count, shift=0.0, scale=1.0, seed=0):
    normal = np.random.default_rng(seed).normal(size=(chains, count, 2))
    return (shift + scale * normal).astype(np.float32)


@pytest.mark.parametrize("count", [2, 63, 64, 65, 1000])
@pytest.mark.parametrize("chains", [1, 3])
def test_mean_and_variance_are_those_of_the_draws(count, chains):
    values = draws(chains, count, shift=100.0)
    found = fold(online.Moments(8), values)
    flat = values.reshape(-1, 2).astype(np.float64)
    np.testing.assert_allclose(found["mean"], flat.mean(0), rtol=1e-7)
    np.testing.assert_allclose(found["variance"], flat.var(0, ddof=1), rtol=1e-5)


def test_sums_lose_no_digits_over_a_million_steps():
    """Plain single-precision sums lose the third digit of the mean of 0, 1, 0, 1, ... + 1000."""
    pattern = 1000.0 + jnp.arange(2, dtype=jnp.float32)
    values = jnp.broadcast_to(jnp.tile(pattern, 2**20)[None, :, None], (1, 2**21, 1))
    found = fold(online.Moments(), values)
    np.testing.assert_allclose(found["mean"], 1000.5, rtol=1e-9)
    np.testing.assert_allclose(found["variance"], 0.25, rtol=1e-6)
    naive = jax.jit(lambda x: jax.lax.fori_loop(0, x.size, lambda i, s: s + x[i], jnp.float32(0)))
    assert abs(float(naive(values[0, :, 0])) / 2**21 - 1000.5) > 1, "the control has the fault"


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_standard_error_by_batch_means(correlation):
    """For an AR(1) the variance of the mean of n is (1 + a) / (1 - a) / n in the long run.

    64 to 128 batch means of 4 chains: the relative error of the variance is normal with a standard
    deviation of at most sqrt(2 / 128) = .125; six of them.
    """
    noise = draws(4, 20_000, seed=3)
    scale = np.sqrt(1 - correlation**2)

    def step(x, e):
        x = correlation * x + scale * e
        return x, x

    chain = lambda e: jax.lax.scan(step, e[0], e)[1]  # noqa: E731
    values = jax.jit(jax.vmap(chain))(noise)
    found = fold(online.Moments(64), values)
    exact = (1 + correlation) / (1 - correlation) / 80_000
    np.testing.assert_allclose(found["mcse"] ** 2 / exact, 1.0, atol=0.75)
    np.testing.assert_allclose(found["ess"], found["variance"] / found["mcse"] ** 2)


PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_quantiles_without_bias(scale):
    """The mean over 40 sequences of the distance to the sample quantile, in standard deviations.

    One sequence of 20,000 has .004 at .95 and a bias of .002 that falls with its length; so the
    mean of 80 (two components) is off by .002 and six times .0005 at most. With the lag computed
    as a difference, whose ties rounding decides one way, it is .014.
    """
    values = draws(40, 20_000, scale=scale)
    found = fold(online.Quantiles(PROBABILITIES), values)["quantiles"]
    exact = np.quantile(values, PROBABILITIES, axis=1).mean(axis=1)
    assert np.abs((found.T - exact) / scale).mean(axis=1).max() < 0.005


def test_quantiles_of_few_values_are_in_order():
    found = fold(online.Quantiles((0.25, 0.5, 0.75)), draws(1, 40))["quantiles"]
    assert (np.diff(found, axis=1) > 0).all()


@pytest.mark.slow
def test_the_sampler_is_untouched_and_no_draw_is_needed(key):
    inside = ex.langevin(ex.FullGradient(GAUSSIAN), 0.3, 1.0)
    kernel = online.accumulate(
        inside, after=100, moments=online.Moments(), quantiles=online.Quantiles((0.1, 0.9))
    )
    options: dict[str, Any] = dict(key=key, num_chains=3, burn_in=100, progress=False)
    plain = ex.sample(inside, jnp.zeros(2), 4000, **options)
    kept = ex.sample(kernel, jnp.zeros(2), 4000, thin=4000, **options)
    np.testing.assert_allclose(kept.position[:, -1], plain.position[:, -1], rtol=1e-5)
    found = kernel.results(kept)
    flat = plain.position.reshape(-1, 2).astype(np.float64)
    np.testing.assert_allclose(found["moments"]["mean"], flat.mean(0), rtol=1e-4)
    np.testing.assert_allclose(found["moments"]["variance"], flat.var(0, ddof=1), rtol=1e-4)
    exact = np.quantile(flat, (0.1, 0.9), axis=0).T
    np.testing.assert_allclose(found["quantiles"]["quantiles"], exact, atol=0.15)


@pytest.mark.slow
def test_every_third_position_after_the_tenth_step(key):
    inside = ex.sgld(ex.FullGradient(GAUSSIAN), 0.3)
    kernel = online.accumulate(inside, after=10, every=3, moments=online.Moments())
    samples = ex.sample(kernel, jnp.zeros(2), 100, key=key, num_chains=2, progress=False)
    counted = samples.position[:, 12::3].reshape(-1, 2).astype(np.float64)
    mean = kernel.results(samples)["moments"]["mean"]
    np.testing.assert_allclose(mean, counted.mean(0), rtol=1e-5)


def test_results_have_the_structure_of_the_function(key):
    kernel = online.accumulate(
        ex.sgld(ex.FullGradient(ex.Target(lambda p: 0.5 * jnp.sum(p["a"] ** 2))), 0.1),
        function=lambda p: {"square": p["a"] ** 2, "sum": jnp.sum(p["a"])},
        moments=online.Moments(),
    )
    samples = ex.sample(kernel, {"a": jnp.ones(3)}, 200, key=key, progress=False)
    mean = kernel.results(samples)["moments"]["mean"]
    squares = samples.position["a"].astype(np.float64) ** 2
    np.testing.assert_allclose(mean["square"], squares.mean((0, 1)), rtol=1e-4)
    assert mean["sum"].shape == ()


def test_bad_calls():
    kernel = ex.sgld(ex.FullGradient(GAUSSIAN), 0.1)
    with pytest.raises(ValueError, match="at least one accumulator"):
        online.accumulate(kernel)
    with pytest.raises(TypeError, match="moments must be an accumulator"):
        online.accumulate(kernel, moments=3)
    with pytest.raises(ValueError, match="after must be at least 0"):
        online.accumulate(kernel, after=-1, moments=online.Moments())
    with pytest.raises(ValueError, match="every must be at least 1"):
        online.accumulate(kernel, every=0, moments=online.Moments())
    with pytest.raises(ValueError, match="even and at least 8"):
        online.Moments(7)
    for probabilities in ((), (0.5, 0.5), (0.9, 0.1), (0.0,), (1.0,)):
        with pytest.raises(ValueError, match="probabilities must ascend"):
            online.Quantiles(probabilities)


def test_what_rounding_left_of_a_sum_is_part_of_it():
    """0 + 1 + 2^-25: the last term is lost in single precision."""
    values = np.array([0.0, 1.0, 2.0**-25], np.float32).reshape(1, 3, 1)
    found = fold(online.Moments(8), values)
    assert found["mean"][0] == (1.0 + 2.0**-25) / 3.0


def test_markers_move_as_the_parabola_says():
    """Jain and Chlamtac's P^2, written out for one marker: up, down, and to the line's place."""
    for behind, step in ((1.5, 1), (-1.5, -1)):
        heights, places = np.array([0.0, 1.0, 4.0, 6.0, 9.0]), np.array([0, 2, 5, 8, 11])
        late = np.array([0.0, 0.0, behind, 0.0, 0.0])
        q, n = heights[1:4], places[1:4]
        expected = q[1] + step / (n[2] - n[0]) * (
            (n[1] - n[0] + step) * (q[2] - q[1]) / (n[2] - n[1])
            + (n[2] - n[1] - step) * (q[1] - q[0]) / (n[1] - n[0])
        )
        column = lambda x, dtype: jnp.asarray(x, dtype)[:, None]  # noqa: E731
        new, moved, rest = _every_other(
            1, column(heights, "f4"), column(places, "i4"), column(late, "f4")
        )
        np.testing.assert_allclose(new[:, 0], [0.0, 1.0, expected, 6.0, 9.0], rtol=1e-6)
        assert moved[:, 0].tolist() == [0, 2, 5 + step, 8, 11]
        np.testing.assert_allclose(rest[:, 0], late - step * (np.arange(5) == 2), rtol=1e-6)


def test_markers_begin_where_they_should_be_at_the_ends():
    """And, of symmetric probabilities, as far before their places as behind them."""
    behind = np.asarray(online.Quantiles((0.1, 0.5, 0.9)).init(jnp.zeros(1)).behind[:, 0])
    np.testing.assert_allclose(behind[[0, -1]], 0.0, atol=1e-6)
    np.testing.assert_allclose(behind, -behind[::-1], atol=1e-6)
