"""A run that is stopped and resumed is the run that was not stopped, to the bit."""

import os
import signal
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver import run as driver
from ergodax.driver.progress import Clock

KEY = jax.random.key(5)
X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)


def log_prior(p):
    return -0.5 * jnp.sum(p["w"] ** 2)


def log_likelihood(p, x):
    return -0.5 * jnp.sum((x - p["w"]) ** 2)


def posterior(data=X, prior=log_prior):
    return ex.Posterior(prior, log_likelihood, data)


START = {"w": jnp.zeros(2, jnp.float32)}
KERNELS = {
    "sghmc with saga": lambda: ex.sghmc(ex.SAGA(posterior(), 5), 0.01, 1.0),
    "sgld with svrg": lambda: ex.sgld(ex.SVRG(posterior(), 5, 7), 0.001),
    "cyclical": lambda: ex.cyclical(ex.sgld, ex.Minibatch(posterior(), 5), 0.001, period=10),
    "nogin, covariance averaged": lambda: ex.nogin(
        ex.ScoreCovariance(ex.Minibatch(posterior(), 5), "diagonal", average=0.9), 0.05
    ),
}


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    """Several chunks, and files written after each, even in these short runs."""
    monkeypatch.setattr(Clock, "steps", lambda self: 8)


def sample(kernel, steps=50, start=START, **more):
    options: dict[str, Any] = dict(key=KEY, num_chains=2, thin=3, burn_in=5, progress=False)
    return ex.sample(kernel, start, steps, **(options | more))


def kept(folder, **more):
    return ex.Checkpoint(folder, every=1e-6, **more)


def same(a, b):
    arrays = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    assert all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in arrays)


class Killed(BaseException):
    """What happens to the process in these tests."""


def kill_after(monkeypatch, writes):
    """Die at the writing of a checkpoint; the draws before it are stored already."""
    real, count = driver.Checkpointer.write, iter(range(1000))

    def write(self, *args):
        if next(count) >= writes:
            raise Killed
        real(self, *args)

    monkeypatch.setattr(driver.Checkpointer, "write", write)


@pytest.mark.slow
@pytest.mark.parametrize("writes", [1, 2, 5])
@pytest.mark.parametrize("name", KERNELS)
def test_the_same_draws_as_uninterrupted(tmp_path, name, writes, monkeypatch):
    kernel = KERNELS[name]()
    whole = sample(kernel)
    with monkeypatch.context() as patch:
        kill_after(patch, writes)
        with pytest.raises(Killed):
            sample(kernel, checkpoint=kept(tmp_path / "run"))
    resumed = sample(kernel, checkpoint=kept(tmp_path / "run", resume=True))
    same(whole, resumed)
    stored = ex.Samples.load(tmp_path / "run" / "draws.zarr")
    same((whole.position, whole.info), (stored.position, stored.info))
    assert type(stored.info) is ex.Info and stored.final_state is None
    same(
        whole, sample(kernel, checkpoint=kept(tmp_path / "run", resume=True))
    )  # nothing left to do


@pytest.mark.slow
def test_a_finished_run_can_be_made_longer(tmp_path):
    kernel = KERNELS["sghmc with saga"]()
    sample(kernel, 31, checkpoint=kept(tmp_path / "run"))
    longer = sample(kernel, 50, checkpoint=kept(tmp_path / "run", resume=True))
    same(sample(kernel, 50), longer)
    with pytest.raises(ex.CheckpointError, match="has taken 55 steps, more than the 45"):
        sample(kernel, 40, checkpoint=kept(tmp_path / "run", resume=True))


@pytest.mark.slow
def test_resume_where_there_is_nothing_begins(tmp_path):
    kernel = KERNELS["sgld with svrg"]()
    same(sample(kernel), sample(kernel, checkpoint=kept(tmp_path / "run", resume=True)))


@pytest.mark.slow
def test_an_existing_run_is_not_overwritten(tmp_path):
    kernel = KERNELS["sgld with svrg"]()
    sample(kernel, checkpoint=kept(tmp_path / "run"))
    with pytest.raises(ex.CheckpointError, match="resume=True"):
        sample(kernel, checkpoint=kept(tmp_path / "run"))
    sample(kernel, checkpoint=kept(None, store=tmp_path / "draws"))
    with pytest.raises(ex.CheckpointError, match="choose another folder"):
        sample(kernel, checkpoint=kept(None, store=tmp_path / "draws"))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ex.Checkpoint(), ValueError, "needs a folder"),
        (lambda: ex.Checkpoint(store="draws", resume=True), ValueError, "resume=True needs folder"),
        (lambda: ex.Checkpoint("run", every=0.0), ValueError, "every must be positive"),
        (lambda: ex.Checkpoint("run", every=float("nan")), ValueError, "every must be positive"),
    ],
)
def test_a_checkpoint_says_what_it_needs(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.slow
def test_a_store_of_its_own(tmp_path):
    kernel = KERNELS["sgld with svrg"]()
    whole = sample(kernel, checkpoint=kept(tmp_path / "run", store=tmp_path / "draws"))
    assert not (tmp_path / "run" / "draws.zarr").exists()
    same(whole.position, ex.Samples.load(tmp_path / "draws").position)


def minibatch(step_size=0.001, batch=5, **changes):
    return ex.sgld(ex.Minibatch(posterior(**changes), batch), step_size)


OTHER = X.copy()
OTHER[17, 1] += 1e-3
SHIFT = jnp.float32(1.0)
CHANGES = {
    "data": (lambda: minibatch(data=OTHER), {}, "kernel.gradient.target.data"),
    "prior": (lambda: minibatch(prior=lambda p: 2.0 * log_prior(p)), {}, "the program of a step"),
    "step size": (lambda: minibatch(0.002), {}, "step_size.value (0.001 then, 0.002 now)"),
    "batch size": (lambda: minibatch(batch=6), {}, "the program of a step"),
    "key": (minibatch, {"key": jax.random.key(6)}, "key"),
    "thin": (minibatch, {"thin": 2}, "thin (3 then, 2 now)"),
    "burn-in": (minibatch, {"burn_in": 6}, "burn_in (5 then, 6 now)"),
    "chains": (minibatch, {"num_chains": 3}, "the number of chains (2 then, 3 now)"),
    "start": (minibatch, {"start": {"w": jnp.ones(2, jnp.float32)}}, "position"),
    "collect": (minibatch, {"collect": lambda p: p["w"] ** 2}, "the program of a step"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_another_run_is_refused_with_what_changed(tmp_path, name):
    make, options, text = CHANGES[name]
    sample(minibatch(), checkpoint=kept(tmp_path / "run"))
    with pytest.raises(ex.CheckpointError, match="these have changed") as caught:
        sample(make(), checkpoint=kept(tmp_path / "run", resume=True), **options)
    assert text in str(caught.value)


@pytest.mark.slow
def test_a_constant_inside_a_function_counts(tmp_path):
    def prior_about(centre):
        return lambda p: -0.5 * jnp.sum((p["w"] - centre) ** 2)

    sample(minibatch(prior=prior_about(jnp.zeros(2))), checkpoint=kept(tmp_path / "run"))
    with pytest.raises(ex.CheckpointError, match="these have changed"):
        other = minibatch(prior=prior_about(jnp.ones(2)))
        sample(other, checkpoint=kept(tmp_path / "run", resume=True))
    again = minibatch(prior=prior_about(jnp.zeros(2)))  # another function of the same meaning
    sample(again, checkpoint=kept(tmp_path / "run", resume=True))


@pytest.mark.slow
def test_a_damaged_chunk_is_named(tmp_path):
    kernel = minibatch()
    sample(kernel, checkpoint=kept(tmp_path / "run"))
    chunk = tmp_path / "run" / "draws.zarr" / "posterior" / "w" / "c" / "0" / "0" / "0"
    data = bytearray(chunk.read_bytes())
    data[40] ^= 1
    chunk.write_bytes(bytes(data))
    for look in (
        lambda: ex.Samples.load(tmp_path / "run" / "draws.zarr"),
        lambda: sample(kernel, checkpoint=kept(tmp_path / "run", resume=True)),
    ):
        with pytest.raises(ex.CheckpointError, match="posterior/w/c/0/0/0 is damaged"):
            look()


def test_draws_without_their_checkpoint_are_not_gone_on_with(tmp_path):
    kernel = minibatch()
    sample(kernel, checkpoint=kept(tmp_path / "run"))
    for file in (tmp_path / "run").glob("checkpoint*"):
        file.unlink()
    with pytest.raises(ex.CheckpointError, match="no checkpoint to go on from"):
        sample(kernel, checkpoint=kept(tmp_path / "run", resume=True))


def test_a_checkpoint_without_its_draws_is_not_gone_on_with(tmp_path):
    kernel = minibatch()
    sample(kernel, checkpoint=kept(tmp_path / "run"))
    (tmp_path / "run" / "draws.zarr").rename(tmp_path / "elsewhere")
    with pytest.raises(ex.CheckpointError, match="Restore the folder"):
        sample(kernel, checkpoint=kept(tmp_path / "run", resume=True))


@pytest.mark.parametrize("what", ["draws", "checkpoint"])
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, what):
    kernel, count = minibatch(), iter(range(100))
    owner, name = {
        "draws": (driver.DrawBuffer, "flush"), "checkpoint": (driver.Checkpointer, "write")
    }[what]  # fmt: skip
    real = getattr(owner, name)

    def fail(self, *args):
        if next(count) == 3:
            raise OSError(28, "No space left on device")
        return real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(ex.StorageError, match="No space left.*resume=True") as caught:
            sample(kernel, checkpoint=kept(tmp_path / "run"))
    whole, drawn = sample(kernel), caught.value.samples
    assert 0 < drawn.num_draws < whole.num_draws
    same(drawn.position, whole.without(0).position["w"][:, : drawn.num_draws])
    same(whole, sample(kernel, checkpoint=kept(tmp_path / "run", resume=True)))


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises((ex.StorageError, ex.CheckpointError)):
        sample(minibatch(), checkpoint=kept(tmp_path / "file" / "run"))


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_run_with_its_draws(tmp_path, monkeypatch, number, saved):
    kernel, count = minibatch(), iter(range(100))
    real = driver.Run._draw

    def draw(self, *args):
        if next(count) == 2:
            os.kill(os.getpid(), number)
        real(self, *args)

    before = signal.getsignal(number)
    folder = kept(tmp_path / "run") if saved else None
    with monkeypatch.context() as patch:
        patch.setattr(driver.Run, "_draw", draw)
        with pytest.raises(ex.Interrupted, match="stopped at step") as caught:
            sample(kernel, checkpoint=folder)
    assert caught.value.signal == number and signal.getsignal(number) is before
    whole, part = sample(kernel), caught.value.samples
    assert 0 < part.num_draws < whole.num_draws
    same(part.position["w"], whole.position["w"][:, : part.num_draws])
    if saved:
        same(whole, sample(kernel, checkpoint=kept(tmp_path / "run", resume=True)))


def test_sampling_in_a_thread_leaves_signals_alone():
    kernel, found = minibatch(), []
    thread = threading.Thread(target=lambda: found.append(sample(kernel)))
    thread.start()
    thread.join()
    same(found[0], sample(kernel))


class Doomed(ex.Kernel):
    """Fails at its 30th step."""

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        position = jax.tree.map(
            lambda x: jnp.where(state.step == 30, jnp.nan, x + 1), state.position
        )
        return ex.State(position, {}, None, None, state.step + 1), {}


def test_a_divergence_keeps_the_draws_before_it(tmp_path):
    with pytest.raises(ex.DivergenceError) as caught:
        sample(Doomed(), checkpoint=kept(None, store=tmp_path / "draws"))
    drawn = caught.value.samples.position["w"]
    np.testing.assert_array_equal(drawn[0, :, 0], 5 + 3 * np.arange(1, 9))
    same(drawn, ex.Samples.load(tmp_path / "draws").position["w"])


@pytest.mark.slow
def test_other_surroundings_are_told(tmp_path, monkeypatch):
    """Flags of the compiler, another number of devices: the law stays, the last bits may not."""
    sample(minibatch(), 10, checkpoint=kept(tmp_path / "run"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with pytest.warns(UserWarning, match="XLA_FLAGS .not set then, --xla.* from step"):
        sample(minibatch(), 20, checkpoint=kept(tmp_path / "run", resume=True), mesh=ex.mesh())
