"""Input that was accepted and wrong, or ended in another library's traceback."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from conformance.run import untyped

TARGET = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
FULL = ex.FullGradient(TARGET)
FACTOR = jnp.ones((1, 3))
BIG = 1_700_000_000_000 + np.arange(100)

MASSES = {
    "langevin": lambda m: ex.langevin(FULL, 0.1, mass=m),
    "sghmc": lambda m: ex.sghmc(FULL, 0.1, mass=m),
    "hmc": lambda m: ex.hmc(FULL, 0.1, mass=m),
    "nogin": lambda m: ex.nogin(ex.NoisyGradient(TARGET, 0.1), 0.1, mass=m),
    "sgnht": lambda m: ex.sgnht(FULL, 0.1, mass=m),
}


@pytest.mark.parametrize("name", MASSES)
def test_a_low_rank_mass_needs_a_positive_base(name):
    with pytest.raises(ValueError, match=r"mass must be positive definite.*base=1.0"):
        MASSES[name](ex.LowRank(FACTOR))
    with pytest.raises(ValueError, match="base of mass must not be negative"):
        MASSES[name](ex.LowRank(FACTOR, -1.0))
    MASSES[name](ex.LowRank(FACTOR, 0.5))


@pytest.mark.parametrize("value", [np.inf, np.array([1.0, np.inf]), np.diag([1.0, np.inf])])
def test_an_infinite_mass(value):
    with pytest.raises(ValueError, match="mass must be finite"):
        ex.hmc(FULL, 0.1, mass=value)


def test_a_low_rank_preconditioner_may_be_singular_and_not_negative():
    ex.sgld(FULL, 0.1, preconditioner=ex.LowRank(FACTOR))
    with pytest.raises(ValueError, match="base of preconditioner must not be negative"):
        ex.sgld(FULL, 0.1, preconditioner=ex.LowRank(FACTOR, -1.0))


@pytest.mark.parametrize("option", ["decay", "damping"])
def test_numbers_that_are_text(option):
    given: dict[str, Any] = {option: "1"}
    with pytest.raises(TypeError, match=f"{option} must be a number, not '1'"):
        ex.psgld(FULL, 0.1, **given)


@pytest.mark.parametrize("make", [ex.sgld, ex.sghmc, ex.langevin])
def test_a_step_that_is_zero_in_the_position_s_precision(make, key):
    start = {"a": jnp.ones(2), "b": jnp.ones(2, jnp.float16)}
    target = ex.FullGradient(
        ex.Target(lambda p: jnp.sum(p["a"] ** 2) + jnp.sum(p["b"]).astype("f"))
    )
    with pytest.raises(ValueError, match=r"step_size=1e-09 is zero in float16.*float32"):
        ex.sample(make(target, 1e-9), start, 5, key=key, progress=False)
    samples = ex.sample(make(target, 0.01), start, 5, key=key, progress=False)
    assert (samples.position["b"][:, -1] != 1.0).all()


# --- Integers that would wrap around --------------------------------------------------------


@pytest.mark.parametrize("data", [BIG, -BIG, (np.ones(100), BIG)])
def test_large_integers_in_memory(data):
    with pytest.raises(ValueError, match="integers too large for int32, such as -?17.*enable_x64"):
        ex.Posterior(lambda w: 0.0, lambda w, e: 0.0, data)


def test_small_integers_of_a_large_kind_are_kept():
    data = np.array([2**31 - 1, -(2**31)])
    posterior = ex.Posterior(lambda w: 0.0, lambda w, e: 0.0, data)
    np.testing.assert_array_equal(posterior.data, data)
    with pytest.raises(ValueError, match="too large for uint32"):
        ex.Posterior(lambda w: 0.0, lambda w, e: 0.0, np.array([2**32], np.uint64))


def test_large_integers_in_double_precision(x64):
    posterior = ex.Posterior(lambda w: 0.0, lambda w, e: 0.0, BIG)
    np.testing.assert_array_equal(posterior.data, BIG)


def test_large_integers_that_an_iterator_yields(key):
    source = ex.data.stream(lambda: iter([BIG]), num_rows=100, block_rows=50)
    with pytest.raises(ValueError, match="integers too large for int32, such as 17"):
        source.read(np.zeros(2, np.uint32), 0)


def test_large_integers_in_a_given_batch(key):
    posterior = ex.Posterior(lambda w: 0.0, lambda w, e: -((w - e.astype("f")) ** 2), np.arange(8))
    kernel = ex.sgld(ex.Minibatch(posterior, 2), 0.1)
    with pytest.raises(ValueError, match="batch has integers too large for int32"):
        untyped(kernel).step(key, kernel.init(key, jnp.float32(0.0)), batch=BIG)


# --- Files ------------------------------------------------------------------------------------


def test_rows_without_columns(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 0)))
    with pytest.raises(ValueError, match="x.npy has rows without numbers"):
        ex.data.npy(tmp_path / "x.npy")


def test_a_store_of_draws_whose_structure_is_deep(tmp_path, key):
    ex.sample(
        ex.sgld(FULL, 0.1), jnp.ones(2), 5, key=key, progress=False,
        checkpoint=ex.Checkpoint(store=tmp_path / "draws"),
    )  # fmt: skip
    path = tmp_path / "draws" / "zarr.json"
    facts = json.loads(path.read_text())
    depth = 2_000 * '{"list": [' + '{"value": 1}' + 2_000 * "]}"
    for structure in (depth, json.dumps({"exec": 1}), json.dumps({"array": 9})):
        facts["attributes"]["structure"] = structure
        path.write_text(json.dumps(facts))
        with pytest.raises(ex.CheckpointError, match="draws"):
            ex.Samples.load(tmp_path / "draws")


def test_data_nested_too_deeply():
    deep = np.ones(3)
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TypeError, match="data must be a tree of arrays"):
        ex.Posterior(lambda w: 0.0, lambda w, e: 0.0, deep)
