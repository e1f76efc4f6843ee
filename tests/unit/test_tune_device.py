"""Where an inference computes: on the quicker device, by the time of gradients."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

device = importlib.import_module("ergodax.tune.device")
inferring = importlib.import_module("ergodax.tune.infer")
CHAINS = 3


def model():
    """A normal law from which rows were drawn."""
    rows = np.random.default_rng(0).normal(1.0, 1.0, (400, 2)).astype(np.float32)
    return ex.Posterior(
        lambda mean: -0.5 * jnp.sum(mean**2),
        lambda mean, row: -0.5 * jnp.sum((row - mean) ** 2),
        rows,
    )


@pytest.fixture
def times(monkeypatch):
    """Seconds of a gradient on the accelerator and on the host, in that order of calls."""
    given, steps = [], []

    def told(target, chains, count):
        steps.append(count)
        device._gradients(target, chains, jnp.int32(1))  # it runs where it is
        return given.pop(0)

    monkeypatch.setattr(device, "_seconds", told)
    return given, steps


def quicker(target):
    return device._quicker(target, jnp.zeros(2), CHAINS, jax.devices()[0])


def test_the_host_is_chosen_where_its_gradients_take_less_time(times):
    given, _ = times
    given += [4e-4, 1e-3, 1e-4]
    found = quicker(model())
    assert found is not None
    assert (found.seconds, found.slower) == (1e-4, 4e-4)
    assert str(found).startswith("a gradient takes 0.1 ms there, and 0.4 ms on ")
    given += [1e-4, 1e-3, 4e-4]
    assert quicker(model()) is None


def test_a_host_that_takes_far_longer_is_not_timed_further(times):
    given, steps = times
    given += [1e-5, 1e-2]  # one gradient there takes longer than all on the accelerator
    assert quicker(model()) is None
    assert steps == [device.STEPS, 1]
    given += [1e-9]  # in which no host reads 3 kB
    assert quicker(model()) is None
    assert steps[2:] == [device.STEPS]


def test_a_model_that_can_not_leave_the_accelerator_stays_there(times):
    given, _ = times
    given += [4e-4]

    def potential(x):
        if jax.config.jax_default_device is not None:
            raise ValueError("arrays of several devices")
        return jnp.sum(x**2)

    assert quicker(ex.Target(potential)) is None


def test_without_an_accelerator_nothing_is_timed(times, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert device.quicker_host(model(), jnp.zeros(2), CHAINS) is None
    assert times[1] == []


def test_a_host_that_jax_was_told_to_leave_out_is_not_asked(times, monkeypatch):
    def no_such_device(*_, **__):
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", no_such_device)
    assert device.quicker_host(model(), jnp.zeros(2), CHAINS) is None
    assert times[1] == []


@pytest.mark.slow
def test_infer_computes_where_it_says(monkeypatch):
    host = device.Quicker(jax.devices()[0], 1e-4, 4e-4)
    monkeypatch.setattr(inferring, "quicker_host", lambda *_: host)
    result = ex.infer(model(), jnp.zeros(2), key=jax.random.key(0), progress=False)
    first = result.account.decisions[0]
    assert (first.what, first.chosen) == ("device", "the host's processor")
    assert jax.config.jax_default_device is None
    # In closed form: the mean is n / (n + 1) of the rows' mean, the variance 1 / (n + 1).
    rows = np.random.default_rng(0).normal(1.0, 1.0, (400, 2))
    off = np.abs(result.table["mean"] - rows.mean(axis=0) * 400 / 401) * np.sqrt(401)
    assert off.max() < 5 * result.table["error"].max()


def test_gradients_are_timed_in_a_loop():
    chains = jnp.ones((CHAINS, 2))
    assert device._seconds(model(), chains, 2) > 0.0
    moved = device._gradients(model(), chains, jnp.int32(5))
    np.testing.assert_array_equal(moved, chains)


def test_accelerators_multiply_in_full_precision(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with device.full_precision():
        assert jax.config.jax_default_matmul_precision == "highest"
    with jax.default_matmul_precision("tensorfloat32"), device.full_precision():
        assert jax.config.jax_default_matmul_precision == "tensorfloat32"
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with device.full_precision():
        assert jax.config.jax_default_matmul_precision is None
