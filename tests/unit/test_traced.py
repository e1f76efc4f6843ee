"""Functions written at the call: one compiled program for all that do the same, and no mix-up."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver import cpu_fusion
from ergodax.driver.compile import one_of, traced

KERNEL = ex.sgld(ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2))), 0.1)
START = jnp.array([1.0, -2.0])
VECTOR = jax.ShapeDtypeStruct((2,), jnp.float32)
ONE, OTHER = np.array([[1, 2], [1, 3]], np.float32)
COMPILED: list[str] = []


def note(event, duration_secs, **kwargs):
    if "backend_compile" in event:
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(note)


def sample(kernel: Any = KERNEL, **more):
    return ex.sample(kernel, START, 6, key=jax.random.key(1), progress=False, **more)


def compilations(call) -> int:
    before = len(COMPILED)
    call()
    return len(COMPILED) - before


def test_a_function_written_at_the_call_is_compiled_once():
    def run(factor):
        return sample(collect=lambda w: factor * w, num_chains=2)

    assert compilations(lambda: run(2.0)) > 0
    assert compilations(lambda: run(2.0)) == 0
    assert compilations(lambda: run(3.0)) > 0, "another number is another program"


@pytest.mark.parametrize("bound", ["data", "start", "both", "key", "collect"])
def test_arrays_bound_to_a_device_need_no_more_programs(bound):
    """Each program was compiled again when the arrays that were not bound came back from it."""

    def run(places):
        def put(name, x):
            names = ("data", "start") if bound == "both" else (bound,)
            return jax.device_put(x, places) if name in names else x

        data = put("data", jnp.ones((50, 2)))
        model = ex.Posterior(jnp.sum, lambda w, x: -0.5 * jnp.sum((w - x) ** 2), data)
        kernel = ex.sgld(ex.Minibatch(model, 5), 1e-3)
        start = put("start", jnp.zeros(2))
        two, settings = put("collect", jnp.full(2, 2.0)), {"thin": 2, "progress": False}
        settings["collect"] = lambda w: two * w
        samples = ex.sample(kernel, start, 3_000, key=put("key", jax.random.key(1)), **settings)
        key, state = put("key", jax.random.key(2)), samples.final_state
        ex.sample(kernel, state=state, num_steps=9_000, key=key, **settings)
        return samples.position

    jax.clear_caches()
    plain = compilations(lambda: run(None))
    jax.clear_caches()
    assert compilations(lambda: run(jax.devices()[0])) <= plain + 1  # the look at bound data
    np.testing.assert_array_equal(run(None), run(jax.devices()[0]))


def test_other_numbers_of_a_search_are_the_same_program():
    target = ex.Target(lambda x: jnp.sum(jnp.cosh(x - 1.0)))

    def find(**settings):
        mode = ex.find_mode(target, START, **settings)
        np.testing.assert_allclose(mode.position, np.ones(2), atol=0.1)
        assert int(mode.iterations) <= settings.get("max_iterations", 500)

    assert compilations(find) > 0
    for settings in ({"tolerance": 1e-3}, {"max_iterations": 9}, {"max_iterations": 400}):
        assert compilations(lambda settings=settings: find(**settings)) == 0


def test_other_rates_and_lengths_of_a_networks_baselines_are_the_same_programs():
    module = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    data = jnp.ones((40, 2)), jnp.ones(40)
    posterior = ex.network.posterior(module, data, ex.network.likelihoods.Gaussian(0.5))
    quiet: Any = {"key": jax.random.key(1), "progress": False}

    def swag(rate):
        return ex.network.swag(posterior, posterior.start, rate=rate, epochs=20, **quiet)

    law = swag(0.01)
    assert compilations(lambda: swag(0.02)) == 0
    drawn = compilations(lambda: law.sample(jax.random.key(2), 3))
    assert drawn <= 1 and compilations(lambda: law.sample(jax.random.key(3), 3)) == 0

    def ensemble(epochs):
        ex.network.deep_ensemble(posterior, posterior.start, epochs=epochs, **quiet)

    ensemble(20)
    assert compilations(lambda: ensemble(30)) == 0


def test_arrays_closed_over_are_arguments():
    def run(shift):
        return sample(collect=lambda w: w - shift).position

    plain, ones = sample().position, jnp.ones(2)
    run(ones)
    for k in range(3):
        shift = jnp.array([k, 0.5])
        assert compilations(lambda shift=shift: run(shift)) == 0
        np.testing.assert_allclose(run(shift), plain - np.asarray(shift), rtol=1e-6)


@pytest.mark.slow
def test_functions_of_other_numbers_are_not_confused():
    plain = sample().position
    for factor in (2.0, 2.5, np.float32(-1.0), -0.0, 0.0):
        found = sample(collect=lambda w: factor * w).position  # noqa: B023
        np.testing.assert_array_equal(found, np.float32(factor) * plain)
        assert (np.signbit(found) == np.signbit(np.float32(factor) * plain)).all()


def inside(numbers):
    """A function whose constants lie in a compiled function within it."""
    inner = jax.jit(lambda w: w + numbers)
    return lambda w: inner(w)


def branch(number):
    return lambda w: jax.lax.cond(w[0] > 0, lambda: w, lambda: number * w)


def calls_back(function):
    return lambda w: jax.pure_callback(function, VECTOR, w)


def negative(w):
    return -w


@pytest.mark.parametrize(
    "make, one, same, other",
    [
        (inside, ONE, ONE.copy(), OTHER),
        (branch, 2.0, 2.0, 3.0),
        (calls_back, negative, negative, lambda w: -w),
        (lambda count: lambda w: w[:count], 1, 1, 2),
        (lambda name: lambda w: {name: w}, "a", "a", "b"),
        (lambda rest: lambda w: (w, ex.tree.Static(rest)), "a", "a", "b"),
        (lambda f: f, jax.nn.softplus, lambda w: jax.nn.softplus(w), jax.nn.relu),
    ],
    ids=["array inside", "branch", "callback", "parameter", "structure", "static", "derivative"],
)
def test_programs_are_equal_if_and_only_if_they_do_the_same(make, one, same, other):
    program = traced(make(one), VECTOR).program
    equal = traced(make(same), VECTOR).program
    assert program == equal and hash(program) == hash(equal)
    assert program != traced(make(other), VECTOR).program


@pytest.mark.slow
def test_an_array_that_changes_in_place_counts():
    shift = np.zeros(2, np.float32)
    plain = sample().position
    np.testing.assert_array_equal(sample(collect=lambda w: w + shift).position, plain)
    shift += 1
    np.testing.assert_array_equal(sample(collect=lambda w: w + shift).position, plain + 1)
    inner = inside(shift)
    before = sample(collect=inner).position
    shift += 1
    after = sample(collect=inside(shift)).position
    np.testing.assert_allclose(after, before + 1, rtol=1e-6)


@dataclasses.dataclass
class Walk:
    """A plain object, which nothing but its identity tells apart from others."""

    scale: float
    drift: jax.Array

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        noise = self.scale * jax.random.normal(key, (2,))
        return ex.State(state.position + noise + self.drift, {}, None, None, state.step + 1), {}


def test_a_kernel_of_a_plain_class_is_compiled_once():
    zero, one = jnp.zeros(2), jnp.ones(2)
    first = sample(Walk(0.5, zero))
    assert compilations(lambda: sample(Walk(0.5, one))) == 0
    np.testing.assert_array_equal(first.position, sample(Walk(0.5, zero)).position)
    drifted = sample(Walk(0.5, one)).position - first.position
    np.testing.assert_allclose(drifted[0, :, 0], np.arange(1, 7), rtol=1e-5)
    assert compilations(lambda: sample(Walk(0.25, zero))) > 0
    start = np.asarray(START)
    half = start + 0.5 * (first.position - start)
    np.testing.assert_allclose(sample(Walk(0.25, zero)).position, half, rtol=1e-5)


def test_arrays_of_numpy_are_not_weakly_typed():
    assert not one_of(np.zeros((2, 3), np.float32)).weak_type


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of CPUs")
def test_the_first_version_of_jax_that_understands(monkeypatch):
    """0.12; and what this one understands, later ones of its kind do."""
    for version, expected in (((0, 11, 9), False), ((0, 12, 0), True), ((0, 99, 0), True)):
        monkeypatch.setattr(jax, "__version_info__", version)
        assert cpu_fusion.understood.__wrapped__() is expected
