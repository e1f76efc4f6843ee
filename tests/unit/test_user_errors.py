"""Code of the user's that fails in the middle of a run loses no draw, and the error says where."""

import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

START, KEY = jnp.zeros(2), jax.random.key(0)
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


def posterior(data):
    return ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((x - w) ** 2), data
    )


@pytest.mark.parametrize(
    "error", [KeyError, *(pytest.param(e, marks=pytest.mark.slow) for e in (RuntimeError, OSError))]
)
def test_an_iterator_that_fails(error):
    def run(fails_at):
        passes = iter(range(1_000))

        def batches():
            if next(passes) == fails_at:
                raise error("the queue is gone")
            yield ROWS

        data = ex.data.stream(batches, num_rows=40, block_rows=20)
        kernel = ex.sgld(ex.Minibatch(posterior(data), 5), 1e-3)
        return ex.sample(kernel, START, 200, key=KEY)

    with pytest.raises(ex.StorageError, match=r"step \d+, where .*the queue is gone") as caught:
        run(fails_at=6)
    assert isinstance(caught.value.__cause__, error)
    drawn = caught.value.samples.position
    assert drawn.shape[1] > 0
    np.testing.assert_array_equal(drawn, run(fails_at=-1).position[:, : drawn.shape[1]])


def failing_kernel(fails_at, calls):
    """SGLD whose target asks Python for its gradient, which fails at one call."""

    def gradient(x):
        calls.append(1)
        if len(calls) == fails_at:
            raise ZeroDivisionError("the simulator crashed")
        return np.asarray(x)

    @jax.custom_jvp
    def potential(x):
        return 0.5 * jnp.sum(x**2)

    @potential.defjvp
    def rule(primals, tangents):
        found = jax.pure_callback(
            gradient, jax.ShapeDtypeStruct((2,), jnp.float32), *primals, vmap_method="sequential"
        )
        return potential(*primals), found @ tangents[0]

    return ex.sgld(ex.FullGradient(ex.Target(potential)), 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("chains", [1, 2])
def test_a_callback_of_the_model_that_fails(chains, tmp_path):
    whole = ex.sample(failing_kernel(0, []), START, 200, key=KEY, num_chains=chains)
    calls = []
    folder = tmp_path / "run"
    with pytest.raises(ex.CallbackError, match="the simulator crashed") as caught:
        ex.sample(
            failing_kernel(150 * chains, calls), START, 200, key=KEY, num_chains=chains,
            checkpoint=ex.Checkpoint(folder),
        )  # fmt: skip
    drawn = caught.value.samples.position
    assert 0 < drawn.shape[1] == caught.value.step < 150
    np.testing.assert_array_equal(drawn, whole.position[:, : drawn.shape[1]])
    assert f"steps {caught.value.step} to " in str(caught.value)


def test_a_callback_of_collect_that_fails():
    calls = []

    def watch(x):
        calls.append(1)
        if len(calls) == 120:
            raise KeyError("no such table")
        return np.float32(np.sum(x))

    def collect(x):
        return jax.pure_callback(watch, jax.ShapeDtypeStruct((), jnp.float32), x)

    kernel = ex.sgld(ex.FullGradient(ex.targets.gaussian(jnp.zeros(2), 1.0)), 0.1)
    with pytest.raises(ex.CallbackError, match="no such table") as caught:
        ex.sample(kernel, START, 200, key=KEY, collect=collect)
    whole = ex.sample(kernel, START, 200, key=KEY).position.sum(-1)
    drawn = caught.value.samples.position
    assert 0 < drawn.shape[1] < 120
    np.testing.assert_allclose(drawn, whole[:, : drawn.shape[1]], rtol=1e-5)


SCRIPT = """
import atexit, signal, threading, time
import jax, jax.numpy as jnp
import ergodax as ex

atexit.register(print, "tidied up")
kernel = ex.sgld(ex.FullGradient(ex.targets.gaussian(jnp.zeros(2), 1.0)), 0.1)


def tell():
    default = signal.getsignal(signal.SIGTERM)
    while signal.getsignal(signal.SIGTERM) is default:
        time.sleep(0.01)
    print("running", flush=True)


threading.Thread(target=tell, daemon=True).start()
ex.sample(kernel, jnp.zeros(2), 10**9, thin=10**5, key=jax.random.key(0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_ends_as_by_its_signal(number):
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "running\n"  # before, a signal ends it at once
        script.send_signal(number)
        out, err = script.communicate(timeout=60)
    assert script.returncode == -number
    assert "tidied up" in out and "stopped at step" in err
