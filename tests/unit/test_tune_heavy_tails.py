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
