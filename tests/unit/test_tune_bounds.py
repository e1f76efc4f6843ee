"""Mass nearer to a bound than a dtype tells: how much it is, and that it is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune.bounds import End, ends_of, moved, piled_up, share_beyond

ACCURACY, DRAWS = 0.05, 8_000
UNIT = ex.transform.interval(0.0, 1.0)
INSIDE = ex.Target(lambda p: jnp.sum(p), constraints=UNIT)


def beta(b, dtype, rng):
    """Draws of Beta(1, b) as a chain leaves them: at the end there are b times too few."""
    end = ends_of(UNIT, dtype)[1]
    distance = rng.random(2 * DRAWS) ** (1.0 / b)
    kept = distance[(distance > end.unit) | (rng.random(2 * DRAWS) < b)][:DRAWS]
    last = np.asarray(UNIT.forward(jnp.full((), np.inf, dtype)))
    return np.minimum((1.0 - kept).astype(dtype), last).reshape(4, -1), end


@pytest.mark.parametrize("b", [0.05, 0.1, 0.2])
def test_the_share_that_is_cut_off_is_known_by_the_draws_before_it(b):
    x, end = beta(b, np.float32, np.random.default_rng(0))
    assert share_beyond(x.ravel(), end) == pytest.approx(end.unit**b, rel=0.4)


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1e-6, 1.0])
def test_a_share_is_found_in_any_unit_without_a_warning(unit):
    """Of a positive number in double precision the unit is so small that no float has the ratio."""
    x = np.repeat([1.0, 10.0, 300.0, 1e9], [1, 30, 100, 869]) * unit
    beyond = 30 / 1_000 * 30 / (100 - 30)  # m r / (1 - r)
    assert share_beyond(x, End(0.0, unit)) == pytest.approx(beyond / (beyond + 0.999))
    assert share_beyond(np.linspace(0.5, 9.0, 1_000), End(0.0, 5e-324)) == 0.0


@pytest.mark.parametrize(("b", "told"), [(0.05, True), (0.1, True), (0.5, False), (2.0, False)])
def test_mass_at_a_bound_is_told_where_it_is_not_negligible(b, told):
    target, _ = ex.target.unconstrained(INSIDE, jnp.float32(0.5))
    for seed in range(20):
        x, _ = beta(b, np.float32, np.random.default_rng(seed))
        assert bool(piled_up(target, x, ACCURACY)) == told
    mirrored = (1.0 - x.astype(np.float64)).astype(np.float32)
    assert piled_up(target, mirrored, ACCURACY) == "", "at 0 floats are dense"


def test_without_bounds_nothing_is_told():
    x, _ = beta(0.05, np.float32, np.random.default_rng(0))
    assert piled_up(ex.Target(lambda p: jnp.sum(p)), x, ACCURACY) == ""


def test_a_share_moves_mean_and_sd_as_draws_at_the_bound_do():
    x = np.random.default_rng(1).normal(size=10_000)
    with_them = np.concatenate([x, np.full(2_500, 3.0)])
    mean, sd = with_them.mean() - x.mean(), with_them.std() / x.std() - 1.0
    assert moved(x, 3.0, 0.2) == pytest.approx(max(abs(mean / x.std()), abs(sd)), rel=1e-6)


def test_the_ends_are_what_the_map_tells_from_the_bounds():
    low, high = ends_of(UNIT, np.float32)
    assert low.unit < 1e-37 and high == End(1.0, 2.0**-24)
    assert ends_of(ex.transform.interval(1000.0), np.float32) == [End(1000.0, 2.0**-14)]
    below_zero = ends_of(ex.transform.interval(-1.0, 0.0), np.float32)
    assert below_zero == [End(-1.0, 2.0**-24), End(0.0, low.unit)]
    assert ends_of(ex.transform.simplex, np.float32) == [End(0.0, low.unit)]


@pytest.mark.parametrize(("concentration", "told"), [(0.005, True), (0.2, False)])
def test_mass_of_a_simplex_nearer_to_zero_than_numbers_are_is_told(concentration, told):
    rng, tiny = np.random.default_rng(0), np.finfo(np.float32).tiny
    # log Gamma(a) = log Gamma(a + 1) + log(U) / a, which no float64 is too coarse for.
    logs = np.log(rng.gamma(concentration + 1.0, size=(DRAWS, 3)))
    logs += np.log(rng.random((DRAWS, 3))) / concentration
    shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
    x = np.maximum(shares, tiny).astype(np.float32).reshape(4, -1, 3)
    simplex = ex.Target(lambda p: jnp.sum(p), constraints=ex.transform.simplex)
    target, _ = ex.target.unconstrained(simplex, jnp.full(3, 1.0 / 3.0))
    assert ("piles up at its bound 0" in piled_up(target, x, ACCURACY)) == told


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "anew"), [(1.0, 0.05, True), (2.0, 2.0, False)])
def test_an_inference_with_mass_at_a_bound_is_not_called_converged(a, b, anew):
    potential = lambda p: (1.0 - a) * jnp.log(p) + (1.0 - b) * jnp.log1p(-p)  # noqa: E731
    target = ex.Target(potential, constraints=UNIT)
    settings = {"key": jax.random.key(0), "max_seconds": 60.0, "progress": False}
    result = ex.infer(target, jnp.array(0.3), **settings)
    assert result.converged != anew, str(result)
    assert ("piles up at its bound 1, closer to it than double" in result.verdict()) == anew
    assert any(decision.what == "anew" for decision in result.account.decisions) == anew
