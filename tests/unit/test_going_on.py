"""`sample(state=)`: a run in two parts is the run in one, to the bit."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver.progress import Clock
from ergodax.driver.sample import _first_step

KEY = jax.random.key(9)
X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)


def posterior(data: Any = X):
    return ex.Posterior(
        lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        lambda p, x: -0.5 * jnp.sum((x - p["w"]) ** 2),
        data,
    )


START = {"w": jnp.zeros(2, jnp.float32)}
POSTERIOR = posterior()
BATCH = ex.Minibatch(POSTERIOR, 5)
KERNELS: dict[str, Any] = {
    "sghmc with saga": ex.sghmc(ex.SAGA(POSTERIOR, 5), 0.01, 1.0),
    "sgld with svrg": ex.sgld(ex.SVRG(POSTERIOR, 5, 7), 0.001),
    "cyclical": ex.cyclical(ex.sgld, BATCH, 0.001, period=10),
    "nogin": ex.nogin(ex.ScoreCovariance(BATCH, "diagonal", average=0.9), 0.05),
    "accumulated": ex.online.accumulate(ex.sgld(BATCH, 0.001), mean=ex.online.Moments()),
    "replicas": ex.replica_exchange(ex.sghmc, BATCH, 0.01, friction=1.0, swap_every=3),
    "a stream": ex.sghmc(
        ex.Minibatch(posterior(ex.data.stream(lambda: iter([X]), num_rows=60, block_rows=15)), 5),
        0.01,
        1.0,
    ),
}


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(Clock, "steps", lambda self: 8)


def sample(kernel, steps, position=None, **more):
    options: dict[str, Any] = dict(key=KEY, thin=3, progress=False) | more
    return ex.sample(kernel, position, steps, **options)


def same(a, b):
    arrays = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    assert all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in arrays)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_with_the_same_key_it_is_the_uninterrupted_run(name):
    kernel = KERNELS[name]
    whole = sample(kernel, 51, START, num_chains=2, burn_in=4)
    first = sample(kernel, 21, START, num_chains=2, burn_in=4)
    second = sample(kernel, 30, state=first.final_state)
    for part in ("position", "info"):
        parts = [getattr(run, part) for run in (first, second)]
        same(jax.tree.map(lambda *x: np.concatenate(x, 1), *parts), getattr(whole, part))
    same(second.final_state, whole.final_state)
    np.testing.assert_array_equal(second.final_state.step, 55)


@pytest.mark.slow
def test_with_another_key_the_draws_are_others():
    kernel = KERNELS["cyclical"]
    first = sample(kernel, 21, START, num_chains=3)
    a, b = (sample(kernel, 21, state=first.final_state, key=jax.random.key(k)) for k in (1, 2))
    assert a.num_chains == 3 and (a.position["w"] != b.position["w"]).all()
    np.testing.assert_array_equal(a.info.step_size, b.info.step_size)


@pytest.mark.slow
def test_states_from_a_file_and_on_a_mesh(tmp_path):
    kernel = KERNELS["nogin"]
    first = sample(kernel, 21, START, num_chains=2)
    whole = sample(kernel, 30, state=first.final_state)
    loaded = ex.Samples.load(first.save(tmp_path / "first.zarr")).final_state
    same(sample(kernel, 30, state=loaded), whole)
    same(sample(kernel, 30, state=first.final_state, mesh=ex.mesh()), whole)


@pytest.mark.slow
def test_it_can_be_killed_and_resumed(tmp_path):
    kernel = KERNELS["sghmc with saga"]
    state = sample(kernel, 21, START, num_chains=2).final_state
    where: dict[str, Any] = dict(state=state, checkpoint=ex.Checkpoint(tmp_path / "run"))
    whole = sample(kernel, 30, state=state)
    sample(kernel, 12, **where)
    where["checkpoint"] = ex.Checkpoint(tmp_path / "run", resume=True)
    same(sample(kernel, 30, **where), whole)
    with pytest.raises(ex.CheckpointError, match="first step"):
        sample(kernel, 30, START, num_chains=2, checkpoint=where["checkpoint"])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Place:
    position: Any


class Walk:
    """A kernel whose states do not count their steps."""

    def init(self, key, position):
        return Place(position)

    def step(self, key, state):
        return Place(state.position + jax.random.normal(key, (2,))), {}


def test_a_state_that_does_not_count_begins_at_step_0():
    first = sample(Walk(), 5, jnp.zeros(2), thin=1)
    again = sample(Walk(), 5, state=first.final_state, thin=1)
    np.testing.assert_allclose(again.position - first.position[:, -1:], first.position, rtol=1e-5)


@pytest.mark.slow
def test_what_can_not_be_gone_on_from_says_why(tmp_path):
    kernel = KERNELS["a stream"]
    samples = sample(kernel, 9, START, num_chains=2)
    state = samples.final_state
    with pytest.raises(ValueError, match="no position or positions with it"):
        sample(kernel, 9, START, state=state)
    with pytest.raises(ValueError, match="num_chains=3, but state has 2 chains"):
        sample(kernel, 9, state=state, num_chains=3)
    with pytest.raises(TypeError, match="samples.final_state"):
        sample(kernel, 9, state=START)
    with pytest.raises(ValueError, match="Pass the kernel that it is from"):
        sample(KERNELS["cyclical"], 9, state=state)
    with pytest.raises(ValueError, match="one for each chain"):
        sample(kernel, 9, state=jax.tree.map(lambda x: x[0], state))
    with pytest.raises(ValueError, match="NaN or infinite"):
        sample(Walk(), 9, state=Place(jnp.full((2, 2), jnp.nan)))
    loaded = ex.Samples.load(samples.save(tmp_path / "samples.zarr")).final_state
    with pytest.raises(ValueError, match="rows of a stream"):
        sample(kernel, 9, state=loaded)


@pytest.mark.slow
def test_the_number_of_chains_is_that_of_the_positions():
    kernel = KERNELS["nogin"]
    starts = {"w": jnp.ones((3, 2))}
    assert sample(kernel, 6, positions=starts).num_chains == 3
    with pytest.raises(ValueError, match="num_chains=2.*shape is .3, 2."):
        sample(kernel, 6, positions=starts, num_chains=2)
    with pytest.raises(ValueError, match="one for each chain"):
        sample(kernel, 6, positions={"w": jnp.float32(1.0)})
    with pytest.raises(ValueError, match="'b'"):
        sample(kernel, 6, positions={"a": jnp.ones((3, 2)), "b": jnp.ones((2, 2))})


def test_the_first_step_is_the_number_that_the_states_have_taken():
    for steps, first in (([3, 5], 5), ([0.5, 2.0], 0), (3, 0)):
        state = types.SimpleNamespace(step=jnp.asarray(steps))
        assert _first_step(state) == first
    assert _first_step(jnp.zeros(3)) == 0
