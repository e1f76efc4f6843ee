"""Temperature: exact values at hand-made draws, parts, centres, text and wrong calls."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.diagnostics import temperature

TARGET = ex.targets.gaussian(np.zeros(2), np.array([1.0, 0.25]))  # precision 1 and 4


def draws(chains=4, n=2000, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return (scale * rng.normal(size=(chains, n, 2)) * np.array([1.0, 0.5])).astype(np.float32)


def test_the_centre_of_a_chain_is_the_mean_of_the_others():
    """Of the definition, by a loop."""
    x = draws(3, 50)
    found = temperature(x, TARGET)["configurational"].mean
    expected = 0.0
    for c in range(3):
        centre = np.delete(x, c, axis=0).mean(axis=(0, 1))
        expected += np.mean((x[c] - centre) * x[c] * np.array([1.0, 4.0])) / 3
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_centre_of_half_a_chain_is_the_mean_of_its_other_half():
    x = draws(1, 50)
    expected = 0.0
    for half, other in ((x[0, :25], x[0, 25:]), (x[0, 25:], x[0, :25])):
        expected += np.mean((half - other.mean(axis=0)) * half * np.array([1.0, 4.0])) / 2
    assert temperature(x, TARGET)["configurational"].mean == pytest.approx(expected, rel=1e-5)


def test_the_band_is_of_both_sides_and_shared_by_all_parts():
    """Of 8,000 independent draws: the normal quantiles, of 5 % and of 5 % in 3 parts."""
    one = temperature(draws(), TARGET, level=0.95)["configurational"]
    assert one.margin / one.error == pytest.approx(1.95996, rel=2e-3)
    three = temperature(draws(), TARGET, level=0.95, by="component")["configurational"]
    assert three.margin / three.error == pytest.approx(2.39398, rel=2e-3)


@pytest.mark.parametrize("by", ["total", "leaf", "component"])
def test_exact_draws_have_the_temperature_and_hotter_ones_have_not(by):
    good = temperature(draws(), TARGET, by=by)
    assert good.ok and str(good).startswith("Right temperature")
    assert good["configurational"].mean == pytest.approx(1.0, abs=0.06)
    hot = temperature(draws(scale=1.2), TARGET, by=by)
    assert not hot.ok and str(hot).startswith("WRONG") and "OUTSIDE" in str(hot)
    assert temperature(draws(scale=1.2), TARGET, temperature=1.44, by=by).ok


def test_a_component_shows_what_the_sum_hides():
    """One too hot by 20 %, the other too cold: equipartition fails, the total is right."""
    x = draws() * np.sqrt(np.array([1.2, 0.8], np.float32))
    assert temperature(x, TARGET).ok
    report = temperature(x, TARGET, by="component")
    assert not report.ok
    assert not report["configurational position[0]"].ok
    assert report.worst.name.startswith("configurational position")


def test_leaves_of_a_tree_have_names():
    x = draws()
    tree = {"a": x[..., 0], "b": x[..., 1:]}
    target = ex.Target(lambda z: 0.5 * z["a"] ** 2 + 2.0 * jnp.sum(z["b"] ** 2))
    names = [check.name for check in temperature(tree, target, by="leaf").checks]
    assert names == ["configurational", "configurational a", "configurational b"]
    names = [check.name for check in temperature(tree, target, by="component").checks]
    assert names[-1] == "configurational b[0]"


def test_a_long_list_of_components_is_cut():
    target = ex.targets.gaussian(np.zeros(9), np.ones(9))
    x = np.random.default_rng(0).normal(size=(2, 100, 9)).astype(np.float32)
    text = str(temperature(x, target, by="component"))
    assert "9 parts in all, 0 of them outside" in text and text.count("band") == 6


def test_a_fresh_batch_leaves_the_mean_and_widens_the_band():
    noisy = ex.NoisyGradient(TARGET, 25.0)
    exact = temperature(draws(), TARGET)["configurational"]
    found = temperature(draws(), noisy, key=jax.random.key(1))["configurational"]
    assert abs(found.mean - exact.mean) <= 5.0 * found.error
    assert found.error > 2.0 * exact.error


@pytest.mark.slow
def test_kinetic_temperature_is_that_of_info():
    kernel = ex.langevin(ex.FullGradient(TARGET), 0.1)
    samples = ex.sample(
        kernel, np.zeros(2), 500, key=jax.random.key(0), num_chains=4, progress=False
    )
    report = temperature(samples)
    assert len(report.checks) == 1
    assert report["kinetic"].mean == pytest.approx(samples.info.kinetic_temperature.mean())
    both = temperature(samples, TARGET, thin=10, expected={"kinetic": 0.9})
    assert both["kinetic"].expected == 0.9 and both["configurational"].expected == 1.0
    assert both["kinetic"].margin > report["kinetic"].margin  # shared between two


def test_a_chain_that_stands_still_is_not_ok():
    assert not temperature(np.ones((2, 100, 2), np.float32), TARGET).ok


def test_wrong_calls():
    x = draws(2, 20)
    wrongs: list[dict[str, Any]] = [
        {"temperature": 0.0}, {"by": "row"}, {"thin": 0}, {"level": 1.0}
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            temperature(x, TARGET, **wrong)
    with pytest.raises(ValueError, match="gradient must be given"):
        temperature(x)
    with pytest.raises(ValueError, match="kinetic"):
        temperature(x, TARGET, expected={"kinetic": 1.0})
    with pytest.raises(ValueError, match="key must be given"):
        temperature(x, ex.NoisyGradient(TARGET, 1.0))
    with pytest.raises(ValueError, match="chunk"):
        temperature(x, TARGET, chunk=0)


def test_standard_errors_and_resolution_at_another_temperature():
    """Of the definition: (mean - expected) / error; the narrowest margin relative to T."""
    report = temperature(draws(scale=1.2), TARGET, temperature=2.0, by="component")
    for check in report.checks:
        assert check.excess == pytest.approx((check.mean - 2.0) / check.error, rel=1e-12)
    assert f"{report.worst.excess:+.1f} standard errors" in str(report)
    margins = [check.margin for check in report.checks]
    assert report.resolution == pytest.approx(min(margins) / 2.0, rel=1e-12)
