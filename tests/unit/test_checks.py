"""One check of whole numbers for every argument, and of real ones; flat priors; exact gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from conformance.run import untyped
from ergodax.checks import real_number, whole_number
from ergodax.data import ShuffledEpochs
from ergodax.integrator import Thermostat

ROWS = np.random.default_rng(0).normal(size=(20, 2))


def posterior(prior=lambda w: -0.5 * jnp.sum(w**2)):
    return ex.Posterior(prior, lambda w, x: -0.5 * jnp.sum((x.astype(w.dtype) - w) ** 2), ROWS)


@pytest.mark.parametrize("three", [3, np.int64(3), np.uint8(3), jnp.int32(3), np.array(3)])
def test_whole_numbers(three):
    assert whole_number("n", three) == 3 and type(whole_number("n", three)) is int


@pytest.mark.parametrize(
    "value", [True, np.bool_(1), 3.0, np.float64(3), "3", None, np.ones(1, int)]
)
def test_not_whole(value):
    with pytest.raises(TypeError, match="n must be an integer, not .*Try 3."):
        whole_number("n", value, hint="Try 3.")


def test_whole_numbers_out_of_range():
    with pytest.raises(ValueError, match="n must be at least 2, not 1. Try 3."):
        whole_number("n", 1, at_least=2, hint="Try 3.")
    with pytest.raises(ValueError, match=r"n must be below 2\^31, not 2147483648"):
        whole_number("n", 2**31)
    assert whole_number("n", 2**40, below=None) == 2**40


def test_real_numbers():
    assert real_number("x", np.float32(0.5), above=0.0, below=1.0) == 0.5
    for value in ("1", True, None, np.ones(2)):
        with pytest.raises(TypeError, match="x must be a number"):
            real_number("x", value)
    for value in (0.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="x must be positive and finite"):
            real_number("x", value, above=0.0)
    with pytest.raises(ValueError, match="x must be at least 0 and below 1"):
        real_number("x", 1.0, at_least=0.0, below=1.0)


def test_numpy_integers_are_accepted():
    n, model = np.int64(2), posterior()
    full = ex.FullGradient(model)
    ex.hmc(full, 0.1, num_leapfrog_steps=n)
    ex.rmhmc(full, 0.1, lambda x: 1.0 + x**2, num_leapfrog_steps=n, max_iterations=n)
    ex.split_hmc(model, model, 0.1, num_leapfrog_steps=n, num_inner_steps=n)
    ex.sghmc(full, 0.1, resample_every=n)
    ex.cyclical(ex.sgld, full, 0.1, period=n)
    ex.replica_exchange(ex.sgld, full, 0.1, swap_every=n)
    ex.psgld(full, 0.1, adaptation_steps=n)
    inside = ex.sgld(ex.ScoreCovariance(ex.SVRG(model, n, n, chunk=n), refresh=n, chunk=n), 0.1)
    ex.online.accumulate(inside, after=n, every=n, moments=ex.online.Moments())


WRONG = {
    "thermostat": (lambda g: Thermostat(-1.0), ValueError, "thermal_mass must be positive"),
    "no friction": (lambda g: ex.sgnht(g, 0.1, 0.0), ValueError, "friction must be positive"),
    "clip": (lambda g: ex.sghmc(g, 0.1, clip=True), ValueError, "try compensate=True"),
    "friction": (lambda g: ex.sghmc(g, 0.1, jnp.ones(2)), TypeError, "friction must be one number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused(name):
    make, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        make(ex.FullGradient(posterior()))


ESTIMATORS = {
    "full": ex.FullGradient,
    "minibatch": lambda p: ex.Minibatch(p, 4),
    "control variate": lambda p: ex.ControlVariate(p, 4, jnp.full(2, 0.1)),
    "svrg": lambda p: ex.SVRG(p, 4, 2),
    "saga": lambda p: ex.SAGA(p, 4),
    "scores": lambda p: ex.ScoreCovariance(ex.Minibatch(p, 4)),
    "stratified": lambda p: ex.Stratified(ex.Minibatch(p, 4), 2),
}
FLAT = {"int": lambda w: 0, "float": lambda w: 0.0, "array": lambda w: jnp.int32(0)}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("flat", FLAT)
def test_a_flat_prior_is_a_prior_of_zeros(name, flat, key):
    def estimate(prior):
        estimator = ESTIMATORS[name](posterior(prior))
        state = estimator.init(key, jnp.zeros(2))
        return estimator.estimate(key, state, jnp.ones(2))[0]

    ours, zeros = estimate(FLAT[flat]), estimate(lambda w: 0.0 * jnp.sum(w))
    np.testing.assert_allclose(ours.gradient, zeros.gradient, rtol=1e-6)
    np.testing.assert_allclose(ours.potential, zeros.potential, rtol=1e-6)
    assert ours.potential.dtype == zeros.potential.dtype == np.float32


def test_exact_samplers_take_a_target(key):
    model = posterior()
    full, start = ex.FullGradient(model), jnp.zeros(2)
    for make in (ex.hmc, lambda g, h: ex.rmhmc(g, h, lambda x: 1.0 + 0.1 * x**2)):
        a, b = make(model, 0.1), make(full, 0.1)
        ours, theirs = (k.step(key, k.init(start))[0] for k in map(untyped, (a, b)))
        np.testing.assert_array_equal(ours.position, theirs.position)
    assert ex.split_hmc(full, model, 0.1).slow is model


def noisy():
    return ex.NoisyGradient(ex.targets.gaussian(jnp.zeros(2), jnp.eye(2)), 0.1)


FRICTIONS = {
    "sghmc": lambda f: ex.sghmc(noisy(), 0.1, f),
    "sghmc, dense mass": lambda f: ex.sghmc(noisy(), 0.1, f, mass=np.eye(2) + 0.1),
    "sgrhmc": lambda f: ex.sgrhmc(noisy(), 0.1, lambda x: 1.0 + x**2, f),
    "sgnht": lambda f: ex.sgnht(noisy(), 0.1, f),
    "ccadl": lambda f: ex.ccadl(noisy(), 0.1, f),
    "nogin": lambda f: ex.nogin(noisy(), 0.1, f),
    "langevin": lambda f: ex.langevin(noisy(), 0.1, f),
    "naive sgrhmc": lambda f: ex.counterexamples.naive_sgrhmc(noisy(), 0.1, lambda x: 1 + x**2, f),
    "nose_hoover": lambda f: ex.euler_maruyama(ex.dynamics.nose_hoover(f), noisy(), 0.1),
}


@pytest.mark.parametrize("name", FRICTIONS)
def test_friction_may_be_a_schedule(name, key):
    scheduled = FRICTIONS[name](ex.schedule.Phases([(1, 2.0), (None, 0.5)]))
    one, two = FRICTIONS[name](2.0), FRICTIONS[name](0.5)
    start = one.init(key, jnp.ones(2))
    first, _ = scheduled.step(key, scheduled.init(key, jnp.ones(2)))
    expected, _ = one.step(key, start)
    np.testing.assert_allclose(first.position, expected.position, rtol=1e-5)
    if name != "nose_hoover":  # whose energy is that of one friction
        second, _ = scheduled.step(key, first)
        expected, _ = two.step(key, expected)
        np.testing.assert_allclose(second.position, expected.position, rtol=1e-5)
        np.testing.assert_allclose(
            second.auxiliary["momentum"], expected.auxiliary["momentum"], rtol=1e-4
        )


@pytest.mark.parametrize("make", [ex.sgnht, ex.ccadl])
def test_another_thermal_mass_is_no_other_program(make, key):
    traces = []

    @eqx.filter_jit
    def step(kernel, state):
        traces.append(1)
        return kernel.step(key, state)[0]

    ends = []
    for mass in (1.0, 3.0):
        kernel = make(noisy(), 0.1, thermal_mass=mass)
        ends.append(step(kernel, kernel.init(key, jnp.ones(2))).auxiliary["thermostat"])
    assert len(traces) == 1 and ends[0] != ends[1]


# --- The key of init -----------------------------------------------------------------------


def test_init_without_a_key_where_nothing_is_drawn(key):
    start = jnp.ones(2)
    for make in (ex.sgld(ex.Minibatch(posterior(), 4), 0.1), ex.hmc(posterior(), 0.1)):
        kernel = untyped(make)
        with_key = kernel.init(key, start)
        for state in (
            kernel.init(start),
            kernel.init(position=start),
            kernel.init(None, start),
            kernel.init(start, key=key),
            kernel.init(key=key, position=start),
            kernel.init(key, position=start),
            jax.jit(kernel.init)(start),
            eqx.filter_jit(kernel.init)(start),
        ):
            jax.tree.map(np.testing.assert_array_equal, with_key, state)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ex.sghmc(ex.FullGradient(posterior()), 0.1),
        lambda: ex.langevin(ex.FullGradient(posterior()), 0.1),
        lambda: ex.sgld(ex.Minibatch(posterior(), 4, batching=ShuffledEpochs()), 0.1),
        lambda: ex.cyclical(ex.sghmc, ex.FullGradient(posterior()), 0.1, period=4),
    ],
)
def test_init_says_that_it_needs_a_key(make):
    with pytest.raises(TypeError, match=r"init needs a key here.*kernel.init\(jax.random.key"):
        make().init(jnp.ones(2))


def test_init_called_wrongly(key):
    kernel = untyped(ex.sgld(ex.FullGradient(posterior()), 0.1))
    for call in (
        lambda: kernel.init(),
        lambda: kernel.init(key),
        lambda: kernel.init(jnp.ones(2), key),
        lambda: kernel.init(key=key),
    ):
        with pytest.raises(TypeError, match="init needs a position"):
            call()
    with pytest.raises(TypeError, match="init takes a key and a position, not"):
        kernel.init(key, jnp.ones(2), position=jnp.ones(2))
