"""The driver against a loop by hand: which states are kept, and with which keys."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver.progress import Clock
from ergodax.persist import draw_buffer

TARGET = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
KERNEL = ex.sgld(ex.FullGradient(TARGET), 0.1)
START = jnp.array([1.0, -2.0])


def by_hand(kernel, start, count: int, key, chain: int = 0) -> tuple[list, list, Any]:
    """The documented loop: chain keys by fold_in(key, chain), step keys by fold_in(., step)."""
    key_init, key_run = jax.random.split(key)
    state = kernel.init(jax.random.fold_in(key_init, chain), start)
    key_chain, positions, infos = jax.random.fold_in(key_run, chain), [], []
    for step in range(count):
        state, info = kernel.step(jax.random.fold_in(key_chain, step), state)
        positions.append(np.asarray(state.position))
        infos.append(info)
    return positions, infos, state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "thin", "burn_in"), [(6, 1, 0), (7, 2, 0), (11, 3, 4), (5, 5, 1)]
)
def test_draws_are_the_thinned_states_after_burn_in(steps, thin, burn_in, key):
    samples = ex.sample(KERNEL, START, steps, key=key, thin=thin, burn_in=burn_in)
    positions, infos, state = by_hand(KERNEL, START, burn_in + steps, key)
    last = [burn_in + (k + 1) * thin - 1 for k in range(steps // thin)]
    assert samples.position.shape == (1, steps // thin, 2)
    expected = np.stack([positions[t] for t in last])
    np.testing.assert_allclose(samples.position[0], expected, rtol=1e-5)
    potentials = [infos[t].potential for t in last]
    np.testing.assert_allclose(samples.info.potential[0], potentials, rtol=1e-5)
    # Steps beyond the last draw are still taken.
    assert int(samples.final_state.step[0]) == burn_in + steps
    np.testing.assert_allclose(samples.final_state.position[0], state.position, rtol=1e-5)


def test_a_chain_is_the_same_among_any_number_of_chains(key):
    one = ex.sample(KERNEL, START, 5, key=key)
    three = ex.sample(KERNEL, START, 5, key=key, num_chains=3)
    np.testing.assert_allclose(three.position[0], one.position[0], rtol=1e-5)
    positions, _, _ = by_hand(KERNEL, START, 5, key, chain=2)
    np.testing.assert_allclose(three.position[2], np.stack(positions), rtol=1e-5)
    assert len({chain.tobytes() for chain in three.position}) == 3
    assert (three.num_chains, three.num_draws) == (3, 5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 24, 100])
def test_the_draws_do_not_depend_on_the_size_of_the_buffer(size, key, monkeypatch):
    whole = ex.sample(KERNEL, START, 11, key=key, thin=2, burn_in=3, num_chains=2)
    monkeypatch.setattr(draw_buffer, "BYTES_ON_THE_DEVICE", size)
    monkeypatch.setattr(draw_buffer, "ROWS_AT_LEAST", 1)
    monkeypatch.setattr(Clock, "steps", lambda self: 3)
    pieces = ex.sample(KERNEL, START, 11, key=key, thin=2, burn_in=3, num_chains=2)
    jax.tree.map(np.testing.assert_array_equal, whole, pieces)


def test_raw_and_typed_keys_are_the_same():
    typed = ex.sample(KERNEL, START, 3, key=jax.random.key(7))
    raw = ex.sample(KERNEL, START, 3, key=jax.random.PRNGKey(7))
    np.testing.assert_array_equal(typed.position, raw.position)


def test_every_chain_from_its_own_start(key):
    starts = {"x": jnp.array([[100.0], [-100.0], [0.0]])}
    kernel = ex.sgld(ex.FullGradient(ex.Target(lambda p: 0.5 * jnp.sum(p["x"] ** 2))), 1e-3)
    samples = ex.sample(kernel, positions=starts, num_steps=2, key=key)
    np.testing.assert_allclose(samples.position["x"][:, 0], starts["x"], atol=1.0)


def test_collect_stores_what_it_returns(key):
    plain = ex.sample(KERNEL, START, 6, key=key, thin=2)
    kept = ex.sample(KERNEL, START, 6, key=key, thin=2, collect=lambda x: {"sum": x.sum()})
    assert set(kept.position) == {"sum"}
    np.testing.assert_allclose(kept.position["sum"], plain.position.sum(-1), rtol=1e-6)
    np.testing.assert_array_equal(kept.final_state.position, plain.final_state.position)


def test_a_second_run_compiles_nothing(key):
    traces = []

    def potential(x):
        traces.append(1)
        return 0.5 * jnp.sum(x**2)

    target = ex.Target(potential)
    for steps, size in ((20, 0.1), (20, 0.2), (35, 0.1)):
        before = len(traces)
        kernel = ex.sgld(ex.FullGradient(target), size)
        ex.sample(kernel, START, 20, key=jax.random.fold_in(key, steps), burn_in=steps)
        assert before == 0 or len(traces) == before
    assert traces


@dataclasses.dataclass
class Walk:
    """A user's kernel: no class of ours, not even hashable; its Info a plain dict."""

    scale: float

    @dataclasses.dataclass
    class State:
        position: Any
        count: Any

    def init(self, key, position):
        return Walk.State(position, jnp.int32(0))

    def step(self, key, state):
        noise = self.scale * jax.random.normal(key, state.position.shape)
        moved = Walk.State(state.position + noise, state.count + 1)
        return moved, {"length": jnp.sqrt(jnp.sum(noise**2))}


jax.tree_util.register_dataclass(Walk.State, ["position", "count"], [])


def test_a_users_own_kernel(key):
    walk = Walk(1.0)
    samples = ex.sample(walk, START, 6, key=key, thin=2, num_chains=2)
    positions, infos, _ = by_hand(walk, START, 6, key)
    np.testing.assert_allclose(samples.position[0], positions[1::2], rtol=1e-5)
    lengths = [info["length"] for info in infos[1::2]]
    np.testing.assert_allclose(samples.info["length"][0], lengths, rtol=1e-5)
    np.testing.assert_array_equal(samples.final_state.count, 6)
    # An object that changes must not run on a program compiled for what it was.
    walk.scale = 0.0
    still = ex.sample(walk, START, 4, key=key)
    np.testing.assert_array_equal(still.position[0], np.broadcast_to(START, (4, 2)))


def test_a_kernel_of_functions(key):
    """Any PyTree with the two methods, such as a named tuple of functions."""
    from ergodax.kernel import Methods

    samples = ex.sample(Methods(KERNEL.init, KERNEL.step), START, 3, key=key)
    np.testing.assert_array_equal(samples.position, ex.sample(KERNEL, START, 3, key=key).position)


def test_the_last_steps_make_no_draw_and_are_taken():
    """Seven steps and every third kept: the run ends after seven, not after six or more."""
    kernel = ex.sgld(ex.FullGradient(ex.targets.gaussian(np.zeros(1), np.ones(1))), 0.1)
    options = {"thin": 3, "key": jax.random.key(0), "progress": False}
    samples = ex.sample(kernel, np.zeros(1), 7, burn_in=2, **options)
    assert samples.num_draws == 2 and (samples.final_state.step == 9).all()


def test_every_leaf_of_positions_has_a_place_for_each_chain():
    target = ex.Target(lambda z: 0.5 * (jnp.sum(z["a"] ** 2) + jnp.sum(z["b"] ** 2)))
    kernel = ex.sgld(ex.FullGradient(target), 0.1)
    for b in (np.zeros((2, 1), np.float32), np.zeros((), np.float32)):
        with pytest.raises(ValueError, match="must have a leading axis of length"):
            positions = {"a": np.zeros((3, 1), np.float32), "b": b}
            ex.sample(
                kernel, positions=positions, num_steps=2, key=jax.random.key(0), progress=False
            )
