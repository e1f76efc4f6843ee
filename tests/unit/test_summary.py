"""The summary table and the ArviZ export."""

from typing import Any

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.stats.summary import summarise


def make(position, info=None) -> ex.Samples:
    return ex.Samples(position, {} if info is None else info, {})


@pytest.fixture
def draws():
    noise = np.random.default_rng(0).normal(size=(4, 200, 3))
    return np.cumsum(noise, axis=1) * 0.05 + noise  # correlated


def test_columns_and_rows(draws):
    samples = make({"w": draws[..., :2], "b": draws[..., 2]})
    table = samples.summary()
    assert list(table.columns) == ["mean", "sd", "mcse", "ess", "r_hat"]
    assert list(table.index) == ["b", "w[0]", "w[1]"]


def test_values_are_numpys_and_arvizs(draws):
    table = make({"w": draws}).summary()
    flat = draws.reshape(-1, 3)
    np.testing.assert_allclose(table["mean"], flat.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(table["sd"], flat.std(axis=0, ddof=1), rtol=1e-12)
    tree = make({"w": draws}).to_arviz()
    library: Any = arviz_stats  # its functions are attached when it is imported
    for column, function, options in (
        ("mcse", library.mcse, {"method": "mean"}),
        ("ess", library.ess, {"method": "bulk"}),
        ("r_hat", library.rhat, {"method": "rank"}),
    ):
        reference = function(tree, **options)
        reference = reference.get("posterior", reference)["w"]
        np.testing.assert_allclose(table[column], reference, rtol=1e-10)


def test_the_table_sees_chains_that_disagree(draws):
    apart = make({"w": draws + np.arange(4.0)[:, None, None] * 10.0}).summary()
    assert (apart["r_hat"] > 1.5).all() and (apart["ess"] < 20).all()


def test_a_vector_without_a_name_is_called_position(draws):
    assert list(make(draws).summary().index) == ["position[0]", "position[1]", "position[2]"]
    assert set(make(draws).named()) == {"position"}


def test_matrices_are_labelled_by_row_and_column():
    table = make({"m": np.random.default_rng(1).normal(size=(2, 50, 2, 2))}).summary()
    assert list(table.index) == ["m[0, 0]", "m[0, 1]", "m[1, 0]", "m[1, 1]"]


def test_a_constant_has_no_r_hat_and_no_warning():
    table = make({"c": np.ones((2, 10))}).summary()
    assert table.loc["c", "sd"] == 0.0 and np.isnan(table.loc["c", "r_hat"])


def test_too_few_draws():
    with pytest.raises(ValueError, match="at least 4 draws a chain, not 3"):
        make(np.zeros((2, 3, 1))).summary()


def test_names_of_nested_leaves(draws):
    position = {"layers": [{"weight": draws}, (draws[..., 0], None)], "activation": jnp.tanh}
    assert set(make(position).named()) == {"layers.0.weight", "layers.1.0"}


def test_arviz_groups(key):
    kernel = ex.langevin(ex.FullGradient(ex.Target(lambda p: jnp.sum(p["x"] ** 2))), 0.1)
    samples = ex.sample(kernel, {"x": jnp.ones(3)}, 20, key=key, num_chains=2)
    tree = samples.to_arviz()
    assert set(tree.children) == {"posterior", "sample_stats"}
    assert tree["posterior"]["x"].dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(tree["posterior"]["x"], samples.position["x"])
    expected = {"step_size", "potential", "gradient_norm", "finite", "evaluations"}
    assert set(tree["sample_stats"].data_vars) == expected | {"kinetic_temperature"}


@pytest.mark.parametrize("info", [{}, None, jax.numpy.zeros((2, 10))])
def test_arviz_with_whatever_info_a_user_has(info):
    tree = ex.Samples({"x": np.zeros((2, 10))}, info, {}).to_arviz()
    assert "posterior" in tree.children
    assert ("sample_stats" in tree.children) == hasattr(info, "shape")


def test_one_chain_is_compared_with_itself():
    """A drifting chain has a large R-hat, a stationary one does not."""
    noise = np.random.default_rng(5).normal(size=(1, 2000, 1))
    assert make({"x": noise}).summary().loc["x[0]", "r_hat"] < 1.01
    drifting = noise + np.linspace(0, 3, 2000)[None, :, None]
    assert make({"x": drifting}).summary().loc["x[0]", "r_hat"] > 1.2


def test_four_draws_are_enough_and_three_are_not():
    assert len(summarise({"x": np.arange(8.0).reshape(2, 4)})) == 1
    with pytest.raises(ValueError, match="at least 4 draws a chain, not 3"):
        summarise({"x": np.arange(6.0).reshape(2, 3)})
