"""Runs over four devices. `test_devices` starts this file in a process that has them."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh

import ergodax as ex
from ergodax.cluster.meshes import mesh
from ergodax.driver import executor
from ergodax.driver.executor import Executor
from ergodax.driver.progress import Clock
from ergodax.gradient.sharded import Stratified

pytestmark = pytest.mark.skipif(jax.device_count() != 4, reason="run by test_devices.py")

KEY, D, N = jax.random.key(7), 3, 103
_RNG = np.random.default_rng(1)
X = _RNG.normal(size=(N, D)).astype(np.float32)
Y = (_RNG.random(N) < 0.5).astype(np.float32)
ROUNDING = 2e-6  # of positions of size 1, in the contracting chains below


def log_prior(p):
    return -0.5 * jnp.sum(p["w"] ** 2)


def log_likelihood(p, example):
    x, y = example
    return y * (x @ p["w"]) - jax.nn.softplus(x @ p["w"])


def posterior(data: Any = (X, Y)):
    return ex.Posterior(log_prior, log_likelihood, data)


def batch():
    return ex.Minibatch(posterior(), 8)


GAUSSIAN = ex.sghmc(ex.FullGradient(ex.targets.gaussian(jnp.zeros(D), jnp.ones(D))), 0.1, 1.0)
START = {"w": jnp.zeros(D, jnp.float32)}
SGHMC = ex.sghmc(batch(), 0.01, 1.0)
KERNELS = {"sghmc": SGHMC, "saga, in passes": ex.sgld(ex.SAGA(posterior(), 8), 0.01)}


def sample(kernel, steps=40, start=START, **more):
    options: dict[str, Any] = dict(key=KEY, num_chains=8, progress=False)
    return ex.sample(kernel, start, steps, **(options | more))


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def close(a, b):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=ROUNDING),
        a.position,
        b.position,
    )


@pytest.mark.parametrize("name", KERNELS)
def test_devices_change_nothing_but_rounding(name):
    alone = sample(KERNELS[name], thin=3, burn_in=5)
    close(sample(KERNELS[name], thin=3, burn_in=5, mesh=mesh(4)), alone)
    assert (alone.position["w"][0] != alone.position["w"][1]).any(), "chains are their own"


def test_chains_that_run_one_after_another():
    """As those do whose batches have 64 rows and columns."""
    x = np.random.default_rng(2).normal(size=(N, 64)).astype(np.float32)
    kernel = ex.sghmc(ex.Minibatch(posterior((x, Y)), 64), 0.01, 1.0)
    start = {"w": jnp.zeros(64, jnp.float32)}
    begun = executor.start(None, kernel, KEY, jax.tree.map(lambda v: v[None].repeat(8, 0), start))
    assert begun[-1].apart
    alone = sample(kernel, start=start)
    for devices in (1, 4):
        close(sample(kernel, start=start, mesh=mesh(devices)), alone)


def test_as_many_chains_a_device_are_the_same_bits():
    two = sample(SGHMC, num_chains=2)
    for devices in (1, 2, 4):
        more = sample(SGHMC, num_chains=2 * devices, mesh=mesh(devices))
        np.testing.assert_array_equal(more.position["w"][:2], two.position["w"])
        if devices == 2:
            four = more
    np.testing.assert_array_equal(more.position["w"][:4], four.position["w"])


def test_any_mesh_with_the_axis_will_do():
    start = jnp.zeros(D)
    ours = sample(GAUSSIAN, start=start, mesh=mesh(4))
    same(sample(GAUSSIAN, start=start, mesh=jax.make_mesh((4,), ("chains",))), ours)
    explicit = jax.make_mesh((1, 4), ("data", "chains"), axis_types=(AxisType.Explicit,) * 2)
    same(sample(GAUSSIAN, start=start, mesh=explicit), ours)


def test_chunks_starts_and_what_is_collected(monkeypatch):
    factor = jnp.float32(2.0)
    starts = {"w": jnp.arange(8.0 * D, dtype=jnp.float32).reshape(8, D) / 24}
    more: dict[str, Any] = dict(positions=starts, thin=2, collect=lambda p: factor * p["w"][:2])
    whole = sample(SGHMC, start=None, mesh=mesh(), **more)
    monkeypatch.setattr(Clock, "steps", lambda self: 7)
    same(sample(SGHMC, start=None, mesh=mesh(), **more), whole)
    alone = sample(SGHMC, start=None, **more)
    close(whole, alone)
    assert whole.position.shape == (8, 20, 2)


def test_the_compiled_loop_of_chains_has_no_communication():
    def text(kernel, where):
        on = Executor(kernel, None, where, 8)
        starts = {"w": jnp.zeros((8, D), jnp.float32)}
        keys, states, _ = on.start(KEY, starts)
        numbers = on._placed((jnp.int32(0), jnp.int32(9)))
        what = on.mesh, on.step, (keys, [], states), numbers
        return on.programs.advance.lower(*what).compile().compiled.as_text()

    collective = re.compile(r"all-reduce|all-gather|all-to-all|collective|send|recv")
    assert not collective.search(text(SGHMC, mesh(4)))
    shards = ex.sghmc(Stratified(batch(), 2), 0.01, 1.0)
    found = re.findall(r"%psum[^ ]* = .* all-reduce\(", text(shards, mesh(2, 2)))
    assert len(found) == 1, "one message a step, for value and gradient together"


def test_a_chain_that_diverges_is_found_where_it_is():
    starts = jnp.ones((8, D)).at[5].set(1e30)
    kernel = ex.sgld(ex.FullGradient(ex.Target(lambda x: jnp.sum(x**4))), 0.01)
    errors = []
    for where in (None, mesh()):
        with pytest.raises(ex.DivergenceError) as caught:
            sample(kernel, start=None, positions=starts, mesh=where)
        errors.append(caught.value)
    assert [e.chain for e in errors] == [5, 5] and errors[0].step == errors[1].step
    same(*(e.state.position for e in errors))


def test_a_run_is_resumed_on_other_devices(tmp_path):
    start = jnp.zeros(D)
    whole = sample(GAUSSIAN, 60, start)
    kept = ex.Checkpoint(tmp_path / "run", every=1e-6, resume=True)
    sample(GAUSSIAN, 20, start, mesh=mesh(4), checkpoint=kept)
    for steps, devices in ((40, None), (60, mesh(4))):
        with pytest.warns(UserWarning, match="the mesh .* may differ, by rounding"):
            sample(GAUSSIAN, steps, start, mesh=devices, checkpoint=kept)
    close(ex.Samples.load(tmp_path / "run" / "draws.zarr"), whole)
    assert not list(tmp_path.rglob("process-*")), "one process has no parts"


def test_streams_feed_every_device(tmp_path, monkeypatch):
    for name, rows in (("x", X), ("y", Y)):
        np.save(tmp_path / f"{name}.npy", rows)
    source = ex.data.npy(tmp_path / "x.npy", tmp_path / "y.npy", block_rows=32)
    kernel = ex.sghmc(ex.Minibatch(posterior(source), 8), 0.01, 1.0)
    monkeypatch.setattr(Clock, "steps", lambda self: 9)
    close(sample(kernel, 60, mesh=mesh()), sample(kernel, 60))


@pytest.mark.parametrize(
    "gradient, shapes",
    [
        (batch(), [(1, 4), (2, 2)]),
        (ex.ControlVariate(posterior(), 8, START, order=2), [(1, 2)]),
    ],
    ids=["minibatch", "control variate"],
)
def test_devices_share_the_rows_of_a_chain(gradient, shapes):
    kernel = ex.sghmc(Stratified(gradient, 4), 0.01, 1.0)  # 103 rows: unequal shards
    alone = sample(kernel)
    for shape in shapes:
        close(sample(kernel, mesh=mesh(*shape)), alone)


class NoiseOfItsOwn(ex.Kernel):
    """The fault: each device along "data" injects another noise."""

    kernel: Any

    @property
    def gradient(self):
        return self.kernel.gradient

    def init(self, key, position):
        return self.kernel.init(key, position)

    def step(self, key, state):
        return self.kernel.step(jax.random.fold_in(key, lax.axis_index("data")), state)


def test_noise_that_differs_between_the_shards_of_a_chain_is_refused():
    right = ex.sgld(Stratified(batch(), 4), 0.01)
    sample(right, mesh=mesh(2, 2))
    with pytest.raises(RuntimeError, match="must inject the same noise"):
        sample(NoiseOfItsOwn(right), mesh=mesh(2, 2))


def test_rows_are_where_their_device_is():
    on = Executor(ex.sgld(Stratified(batch(), 4), 0.1), None, mesh(2, 2), 2)
    on.start(KEY, {"w": jnp.zeros((2, D), jnp.float32)})
    kernel = on.step.kernel
    rows = jax.tree.leaves(kernel.gradient.shards.rows)[0]
    assert {s.data.shape[0] for s in rows.addressable_shards} == {2}
    others = [x for x in jax.tree.leaves(kernel) if getattr(x, "ndim", 0) and x.shape[0] > 4]
    assert not others, "no device has a second copy of the data"


WIDE = {"w": jnp.ones((64, 96)) / 8, "b": jnp.zeros(96), "v": jnp.ones((96, 50)) / 10}


def wide(mass: Any = 1.0):
    """A network of one hidden layer, whose matrices are large enough to be split."""

    def log_likelihoods(p, batch):
        x, y = batch
        found = jnp.tanh(x @ p["w"] + p["b"][None]) @ p["v"]
        return -0.5 * jnp.sum((y[:, None] - found) ** 2, axis=1)

    rows = np.random.default_rng(2).normal(size=(N, 64)).astype(np.float32)
    prior = lambda p: -0.5 * ex.tree.dot(p, p)  # noqa: E731
    posterior = ex.Posterior(prior, log_likelihoods, (rows, Y), batched=True)
    return ex.sghmc(Stratified(ex.Minibatch(posterior, 8), 2), 1e-3, 5.0, mass=mass)


@pytest.mark.parametrize("shape", [(1, 1, 4), (2, 1, 2), (1, 2, 2)])
def test_arrays_of_a_position_are_split(shape):
    mass = ex.Diagonal(jax.tree.map(lambda x: jnp.full(x.shape, 2.0), WIDE))
    more: dict[str, Any] = dict(steps=30, start=WIDE, num_chains=4, burn_in=5, thin=3)
    alone = sample(wide(mass), **more)
    close(sample(wide(mass), mesh=mesh(*shape), **more), alone)
    assert all((w[:, -1] != w[:, 0]).all() for w in alone.position.values())


def test_a_device_holds_its_part_of_states_draws_and_masses():
    mass = ex.Diagonal(jax.tree.map(lambda x: jnp.full(x.shape, 2.0), WIDE))
    on = Executor(wide(mass), None, mesh(1, 1, 4), 2)
    begin = jax.tree.map(lambda x: jnp.stack([x, x]), WIDE)
    keys, states, row = on.start(KEY, begin)
    buffer = on.buffer(row, 7)
    numbers = executor.loop.Stretch(jnp.int32(0), jnp.int32(7), None, jnp.int32(0), jnp.int32(0))
    found = on.draw((keys, [], states), numbers, buffer)
    for tree, least in ((states, 4), (found, 6), (on.step.kernel, 2)):
        arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
        matrices = [x for x in arrays if x.shape[-2:] in {(64, 96), (96, 50)}]
        assert len(matrices) >= least, "positions and momenta, draws too, or masses"
        for x in matrices:
            assert {4 * s.data.size for s in x.addressable_shards} == {x.size}, x.sharding


class WholeData(NoiseOfItsOwn):
    """A kernel that looks at all rows."""

    def step(self, key, state):
        self.gradient.target.potential(state.position)
        return self.kernel.step(key, state)


def plain():
    return ex.sgld(batch(), 0.01)


def split():
    return ex.sgld(Stratified(batch(), 2), 0.01)


WRONG = {
    "chains": (lambda: sample(plain(), num_chains=6, mesh=mesh(4)), ValueError, "num_chains=8"),
    "axes": (
        lambda: sample(plain(), mesh=Mesh(np.array(jax.devices()), ("x",))),
        ValueError,
        "must have the axis 'chains' and may have 'data' and 'parameters'",
    ),
    "data": (
        lambda: sample(plain(), mesh=mesh(2, 2)),
        ValueError,
        "Minibatch has none that are in shards",
    ),
    "shards": (lambda: sample(split(), mesh=mesh(1, 4)), ValueError, "Try shards=4"),
    "whole data": (
        lambda: sample(WholeData(split()), mesh=mesh(2, 2)),
        TypeError,
        "has only its shards",
    ),
    "too many": (lambda: mesh(5), ValueError, "there are 4"),
    "none": (lambda: mesh(1, 0), ValueError, "data=0"),
    "no parameters": (lambda: mesh(1, 1, 0), ValueError, "parameters=0"),
    "too many parameters": (lambda: mesh(2, 1, 4), ValueError, "times parameters=4 devices"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_says_why(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
