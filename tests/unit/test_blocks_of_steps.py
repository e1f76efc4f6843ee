"""Loops whose number of turns is in the program, as accelerators take them: the same draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver import loop, run

KEY = jax.random.key(3)
LENGTHS = [
    {"num_steps": 2 * loop.BLOCK + 5},
    {"num_steps": 60, "thin": 10, "burn_in": loop.BLOCK + 7},
    {"num_steps": 4 * (loop.BLOCK + 3), "thin": loop.BLOCK + 3, "burn_in": 2},
    {"num_steps": 34, "thin": 2},
]


@pytest.mark.parametrize("num_chains", [1, 3])
def test_blocks_take_the_steps_of_one_loop(monkeypatch, num_chains):
    target = ex.targets.gaussian(jnp.zeros(2), jnp.array([[2.0, 1.0], [1.0, 3.0]]))
    kernel = ex.sghmc(ex.FullGradient(target), 0.1, 1.0)

    def draws(lengths):
        options = {"key": KEY, "num_chains": num_chains, "progress": False} | lengths
        return ex.sample(kernel, jnp.ones(2), **options).position

    plain = [draws(lengths) for lengths in LENGTHS]
    jax.clear_caches()  # what has been traced knows nothing of the change
    for module in (loop, run):
        monkeypatch.setattr(module, "asks_host", lambda: True)
    assert not _same(plain[0], draws(LENGTHS[0] | {"key": jax.random.key(4)}))  # the control
    for lengths, expected in zip(LENGTHS, plain, strict=True):
        assert _same(draws(lengths), expected)
    jax.clear_caches()


def test_a_draw_that_was_begun_is_finished(monkeypatch):
    """Where steps of a draw have been taken, their number is not in the program."""
    kernel = ex.sgld(ex.FullGradient(ex.targets.gaussian(jnp.zeros(1), jnp.eye(1))), 0.1)
    options = {"key": KEY, "progress": False, "thin": 7}
    whole = ex.sample(kernel, jnp.ones(1), 70, **options).position
    jax.clear_caches()
    for module in (loop, run):
        monkeypatch.setattr(module, "asks_host", lambda: True)
    calls, draw = [], run.Run._draw

    def in_parts(self, draws, taken):
        calls.append(taken)
        if taken == 0 and len(calls) == 1:
            self._advance(3)
            taken = 3
        draw(self, draws, taken)

    monkeypatch.setattr(run.Run, "_draw", in_parts)
    assert _same(ex.sample(kernel, jnp.ones(1), 70, **options).position, whole)
    assert calls
    jax.clear_caches()


def _same(one, other):
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-5, atol=1e-6))
