"""Draws of heavy tails: what they have not seen is in the error, and the cause is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune import heavy_tails
from ergodax.tune.decisions import error_table

CHAINS = 4


@pytest.mark.parametrize(("degrees", "right"), [(2.2, 70), (3.0, 88), (1e9, 88)])
def test_the_error_of_an_sd_holds_the_truth_where_squares_have_no_variance(degrees, right):
    """By 100 runs each of independent draws, of which 95 should hold it; with 2.2 some 82 do."""
    rng = np.random.default_rng(4)
    truth = np.sqrt(degrees / (degrees - 2.0))
    held = without = 0
    for _ in range(100):
        x = rng.standard_t(degrees, (CHAINS, 500, 1)).astype(np.float32)
        row = error_table(ex.Samples(x, None, None)).iloc[0]
        unseen = float(heavy_tails.unseen_spread(x)[0])
        off = abs(row["sd"] - truth) / row["sd"]
        held += off < 1.96 * row["mcse_sd"]
        without += off < 1.96 * (row["mcse_sd"] - unseen)
        assert degrees < 1e9 or unseen == 0.0
    assert held >= right
    assert degrees > 1e2 or without < right - 4, "the control: without what was not seen"


@pytest.mark.parametrize("law", ["standard_exponential", "laplace"])
def test_light_tails_have_been_seen(law):
    rng = np.random.default_rng(5)
    draws = np.stack([getattr(rng, law)(size=(CHAINS, 500)) for _ in range(50)], axis=-1)
    shares = [heavy_tails.unseen_spread(draws[..., k : k + 1])[0] for k in range(50)]
    assert max(shares) < 0.05 and np.median(shares) < 0.01


@pytest.mark.slow
def test_an_inference_of_heavy_tails_is_not_called_converged_too_soon():
    """Student's law with 2.2 degrees of freedom, by NUTS: 2,000 draws show an sd of 2.2 of 3.3."""
    target = ex.Target(lambda x: 0.5 * 3.2 * jnp.sum(jnp.log1p(x**2 / 2.2)))
    for number in range(2):
        result = ex.infer(
            target, jnp.zeros(1), key=jax.random.key(number), max_seconds=60.0, progress=False
        )
        row = result.table.iloc[0]
        off = abs(row["sd"] - np.sqrt(11.0)) / np.sqrt(11.0)
        assert not result.converged or off < 0.1, str(result)
        assert result.converged or "tails" in result.verdict(), str(result)


def test_tails_without_a_variance_are_told_and_others_are_not():
    """By 100 runs each: Student's law with 1 degree of freedom has no variance, with 3 it has."""
    rng = np.random.default_rng(2)
    for degrees, found in ((1, 100), (3, 0), (1e9, 0)):
        draws = rng.standard_t(degrees, (100, CHAINS, 2_000))
        shapes = np.array([heavy_tails.heavy_tail(each) for each in draws])
        assert abs(np.sum(shapes > 0) - found) <= 10
        assert not found or np.median(shapes[shapes > 0]) == pytest.approx(1.0, abs=0.1)
    draws[:, 0, :200] = 2.65  # of the draws that are all but normal
    assert not any(heavy_tails.heavy_tail(each) for each in draws), "a chain that stands still"
    assert heavy_tails.heavy_tail(np.zeros((CHAINS, 100))) == 0.0
    assert heavy_tails.heavy_tail(rng.standard_cauchy((CHAINS, 8))) == 0.0, "too few"


def test_tails_that_take_many_draws_are_told():
    """By 100 runs each: the kurtosis of exp(N(0, 1)) is 114, that of a normal law 3."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((100, CHAINS, 500))
    heavy = [heavy_tails.slow_tails("x", each, 0.05) for each in np.exp(normal)]
    assert sum(map(bool, heavy)) > 60 and "x are so heavy" in max(heavy)
    assert not any(heavy_tails.slow_tails("x", each, 0.05) for each in normal)
    assert not heavy_tails.slow_tails("x", normal[0], 1e-3), "they are too few, for another reason"
    assert heavy_tails.slow_tails("x", np.zeros((CHAINS, 100)), 0.05) == ""


def rare(rng, draws=10_000):
    """Two normal laws, 3 of 1,000 draws of the second, 12 sds away; and which is of which."""
    second = (rng.random((CHAINS, draws)) < 0.003).astype(int)
    return rng.standard_normal(second.shape) + 12.0 * second, second


@pytest.mark.parametrize(("share", "width"), [(0.03, 10.0), (0.01, 30.0)])
def test_a_narrow_law_within_a_wide_one_is_no_heavy_tail(share, width):
    """Though it looks like one where the one goes over into the other, of which the control is."""
    rng, shape = np.random.default_rng(6), (40, CHAINS, 2_000 if share < 0.02 else 500)
    wide = rng.random(shape) < share
    mixed = rng.standard_normal(shape) * np.where(wide, width, 1.0)
    assert sum(heavy_tails.heavy_tail(draws) > 0.0 for draws in mixed) <= 1
    tails = [heavy_tails._tail(np.abs(draws)) for draws in mixed]
    assert sum(tail is not None and tail.shape - 2.0 * tail.error > 0.5 for tail in tails) >= 30
    cauchy = rng.standard_cauchy(shape)
    assert sum(heavy_tails.heavy_tail(draws) > 0.0 for draws in cauchy) >= 20


def test_a_rare_mode_is_no_heavy_tail():
    """Neither where it is known, nor where it lies beyond a gap. The control: Cauchy's tails."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        x, modes = rare(rng)
        for known in (modes, None):
            assert heavy_tails.heavy_tail(x, known) == 0.0
            assert heavy_tails.unseen_spread(x[..., None], known)[0] < 0.02
            assert heavy_tails.slow_tails("x", x, 1e-3, known) == ""
        heavy = rng.standard_cauchy(x.shape)
        assert heavy_tails.heavy_tail(heavy) > 0.5
        assert heavy_tails.heavy_tail(heavy + 12.0 * modes, modes) > 0.5


def test_one_chain_that_stays_far_out_is_no_mode():
    """Draws beyond a gap, of one chain; of two they are another mode's."""
    rng = np.random.default_rng(7)
    x = rng.standard_cauchy((CHAINS, 2_000))
    top = 3.0 * np.abs(x).max()
    x[0, :40] = top + 0.01 * rng.random(40)
    tail = heavy_tails._tail(np.abs(x))
    assert tail is not None and tail.shape > 0.5
    assert "are so heavy" in heavy_tails.slow_tails("x", x, 0.05)
    x[1, :40] = top + 0.01 * rng.random(40)
    assert heavy_tails._tail(np.abs(x)) is None and heavy_tails.heavy_tail(x) == 0.0
    assert heavy_tails.slow_tails("x", x, 0.05) == ""


@pytest.mark.slow
def test_an_inference_with_a_rare_known_mode_tells_of_no_tails():
    w, mean = 0.003, jnp.array([12.0, 0.0])
    log = lambda x, m: -0.5 * jnp.sum((x - m) ** 2)  # noqa: E731
    parts = lambda x: (jnp.log(1 - w) + log(x, 0.0), jnp.log(w) + log(x, mean))  # noqa: E731
    target = ex.Target(lambda x: -jnp.logaddexp(*parts(x)))
    settings = {"key": jax.random.key(0), "max_seconds": 60.0, "progress": False}
    result = ex.infer(target, jnp.zeros(2), **settings)
    row = result.table.iloc[0]
    assert "tails" not in result.verdict(), str(result)
    assert abs(row["sd"] / 1.1957 - 1.0) < 4.0 * row["mcse_sd"], str(result)
