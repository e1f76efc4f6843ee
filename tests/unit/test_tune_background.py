"""Programs that are compiled in background threads: they are the ones that run."""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver import Samples
from ergodax.driver.sample import compile_draws
from ergodax.tune.background import (
    PILOT_DRAWS,
    POINTS,
    SCORES,
    Programs,
    is_short,
)
from ergodax.tune.decisions import DecisionLog, is_accurate
from ergodax.tune.estimator import Plan, choose_estimator
from ergodax.tune.host import on_device, some_rows
from ergodax.tune.influential import squares_of_remainders
from ergodax.tune.nuts_kernel import Nuts
from ergodax.tune.pilot import tune
from ergodax.tune.whitening import Coordinates, posterior_in

COMPILED: list[tuple[str, bool]] = []  # and whether by another thread than the first
TRACED: list[tuple[str, bool]] = []
AHEAD = {"jit(remainders_of_rows)", "jit(_measured)", "jit(_terms)"}
SIZE = 5_000


def note(event, duration_secs, **kwargs):
    function = str(kwargs.get("fun_name"))
    other = threading.current_thread() is not threading.main_thread()
    if "backend_compile" in event:
        COMPILED.append((function, other))
    if "jaxpr_trace" in event:
        TRACED.append((function, other))


jax.monitoring.register_event_duration_secs_listener(note)


def regression(size=SIZE):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(size, 2)).astype(np.float32)
    y = (rng.random(size) < 1.0 / (1.0 + np.exp(-x @ [0.5, -1.0]))).astype(np.float32)

    def log_likelihood(w, row):
        score = row[0] @ w
        return row[1] * score - jax.nn.softplus(score)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))


def compiled_by(call):
    before = len(COMPILED)
    call()
    return AHEAD & {function for function, _ in COMPILED[before:]}


def test_what_is_compiled_before_a_pilot_is_what_runs():
    posterior, key = regression(), jax.random.key(0)
    white = Coordinates(jnp.array([0.5, -1.0]), on_device(0.03 * np.eye(2), np.float32))
    inner, points = posterior_in(posterior, white), np.full((POINTS, 2), 0.5)
    programs = Programs(2)

    def ahead():
        programs.look(posterior, white)
        programs.wait()

    def measured():
        squares_of_remainders(posterior, white, points)
        rows = some_rows(posterior, key, SCORES)
        choose_estimator(inner, rows, on_device(points, np.float32))
        plan(8, 2).build(inner)

    compiled_by(ahead)
    [x.result() for x in programs.looks]
    assert compiled_by(measured) == set()


def test_what_fails_ahead_is_not_raised_there():
    """What needs it will fail again."""

    def log_likelihood(w, x):
        raise ArithmeticError("of the model")

    posterior = ex.Posterior(jnp.sum, lambda w, x: -0.5 * (w - x) @ (w - x), jnp.ones((9, 2)))
    broken = eqx.tree_at(lambda p: p.log_likelihood, posterior, log_likelihood)
    programs = Programs(2)
    white = Coordinates(jnp.zeros(2), jnp.eye(2))
    programs.guess(broken, jnp.zeros(2), jax.random.key(0))
    programs.look(broken, white)
    programs.wait()
    with pytest.raises(ArithmeticError, match="of the model"):
        squares_of_remainders(broken, white, np.zeros((POINTS, 2)))


def test_no_function_of_the_model_is_traced_by_another_thread():
    """In JAX 0.12 two threads that differentiate one function at a time end in a StoreException."""
    before = len(TRACED)
    ex.infer(regression(), jnp.zeros(2), key=jax.random.key(1), progress=False)
    mine = {function for function, other in TRACED[before:] if not other}
    others = {function for function, other in TRACED[before:] if other}
    model = {"start", "potential_and_gradient", "_derivatives", "_potentials", "_measured"}
    assert model <= mine and not model & others
    assert "_draw" in others, "other threads are seen"


def test_nuts_is_compiled_once_and_by_another_thread():
    before = len(COMPILED)
    result = ex.infer(regression(500), jnp.zeros(2), key=jax.random.key(2), progress=False)
    assert isinstance(result.tuned.kernel, Nuts)
    assert [other for function, other in COMPILED[before:] if function == "jit(_draw)"] == [True]


def test_draws_are_compiled_without_a_step():
    steps = []

    def potential(x):
        jax.debug.callback(lambda: steps.append(1))
        return 0.5 * jnp.sum(x**2)

    kernel = ex.sgld(ex.FullGradient(ex.Target(potential)), 0.1)
    positions, key = jnp.ones((2, 3)), jax.random.key(0)
    compile_draws(kernel, positions, key, None)
    jax.effects_barrier()
    assert not steps
    before = len(COMPILED)
    ex.sample(kernel, positions=positions, num_steps=2, key=key, progress=False)
    jax.effects_barrier()
    assert steps and "jit(_draw)" not in {function for function, _ in COMPILED[before:]}


def plan(batch_size, d=10):
    return Plan("ControlVariate, order 2", batch_size, 1.0, np.zeros(d), 0.0, {})


def test_quick_pilots_are_not_optimised():
    assert is_short(plan(8), 4, 10)
    assert not is_short(plan(512), 4, 10) and not is_short(plan(8), 4, 200)


@pytest.mark.slow
def test_no_draws_are_made_for_nothing_where_there_are_several_modes(monkeypatch):
    """Those of a pilot do not count there."""
    monkeypatch.setattr("ergodax.tune.pilot._Search.is_worth_more", lambda *_: pytest.fail("asked"))
    posterior = regression(50_000)
    mode = ex.find_mode(posterior, jnp.zeros(2)).position
    white = ex.tune.curvature_coordinates(posterior, mode, key=jax.random.key(1))
    options = {"key": jax.random.key(2), "accuracy": 0.02, "progress": False}
    tuned = tune(posterior, white, DecisionLog(), modes=[mode, mode], **options)
    assert tuned is not None and not tuned.piloted


@pytest.mark.slow
def test_the_pilot_makes_the_draws_that_a_smaller_error_needs():
    """At an accuracy of .02 the sampling's program was compiled too, and made no draw."""
    posterior = regression(50_000)
    mode = ex.find_mode(posterior, jnp.zeros(2)).position
    white = ex.tune.curvature_coordinates(posterior, mode, key=jax.random.key(1))
    log = DecisionLog()
    tuned = tune(posterior, white, log, key=jax.random.key(2), accuracy=0.02, progress=False)
    assert tuned is not None and tuned.bias is not None
    samples = tuned.bias.samples
    assert samples.num_draws > PILOT_DRAWS
    draws = Samples(samples.position["coarse"], samples.info, samples.final_state.coarse)
    assert is_accurate(ex.tune.error_table(draws, tuned.bias), 0.02)
