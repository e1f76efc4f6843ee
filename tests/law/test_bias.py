"""Measured biases against exact ones; a wrong order and a wrong coupling are seen."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.diagnostics.bias import Coupled, Halved, coupled

FALSE_ALARM = 5.0  # standard errors: 6e-7 a comparison
PRECISION = np.array([[2.0, 0.5], [0.5, 1.0]])
H = 0.3


def gaussian():
    return ex.targets.gaussian(jnp.zeros(2), jnp.asarray(np.linalg.inv(PRECISION)))


def sgld(step_size):
    return ex.sgld(ex.FullGradient(gaussian()), step_size)


def baoab(step_size):
    return ex.langevin(ex.FullGradient(ex.targets.double_well(height=0.25)), step_size)


def measured(**more):
    options = {"burn_in": 50, "progress": False, "key": jax.random.key(3)} | more
    num_steps = options.pop("num_steps", 20_000)
    return ex.diagnostics.bias(sgld, jnp.zeros(2), H, num_steps, **options)


def exact_sd(step_size):
    """Of SGLD with exact gradients: Lambda^-1 (I - h Lambda / 2)^-1."""
    covariance = np.linalg.inv(PRECISION) @ np.linalg.inv(np.eye(2) - 0.5 * step_size * PRECISION)
    return np.sqrt(np.diag(covariance))


def sds(report, column):
    return report.table[column].xs("sd", level=1).to_numpy()


def test_bias_of_the_sd_is_the_exact_one(x64):
    report = measured()
    difference = exact_sd(H) - exact_sd(H / 2)
    # With order 1 the bias of the finer run is taken to be the difference of the two.
    error = sds(report, "bias_error")
    assert np.all(np.abs(sds(report, "bias") - difference) < FALSE_ALARM * error)
    assert np.all(sds(report, "bias") > 20 * error)  # it does see it
    means = report.table.xs("mean", level=1)
    assert np.all(np.abs(means["bias"]) < FALSE_ALARM * means["bias_error"])
    extrapolated = 2.0 * exact_sd(H / 2) - exact_sd(H)
    assert np.all(
        np.abs(sds(report, "extrapolated") - extrapolated) < FALSE_ALARM * sds(report, "error")
    )


def test_worst_bounds_the_true_bias_of_the_finer_run(x64):
    report = measured()
    truth = np.sqrt(np.diag(np.linalg.inv(PRECISION)))
    true_bias = np.max((exact_sd(H / 2) - truth) / truth)
    assert 0.8 * true_bias < report.worst() < 1.5 * true_bias


def test_common_numbers_shrink_the_error(x64):
    alone = measured(couple=False)
    assert np.all(sds(alone, "bias_error") > 5 * sds(measured(), "bias_error"))


def test_a_wrong_order_gives_another_bias(x64):
    wrong = measured(order=2)
    difference = exact_sd(H) - exact_sd(H / 2)
    assert np.all(np.abs(sds(wrong, "bias") - difference) > 20 * sds(wrong, "bias_error"))


def test_second_order_of_baoab_on_the_double_well(x64):
    """E x^2: 1.03855838 at h = .25, 1.04102592 at .125, exact 1.04179730."""
    report = ex.diagnostics.bias(
        baoab,
        jnp.zeros(1),
        0.25,
        30_000,
        key=jax.random.key(5),
        order=2,
        function=lambda x: {"square": x**2},
        burn_in=100,
        progress=False,
    )
    row = report.table.xs("mean", level=1).iloc[0]
    assert abs(row["bias"] - (1.03855838 - 1.04102592) / 3.0) < FALSE_ALARM * row["bias_error"]
    assert abs(row["extrapolated"] - 1.0418484) < FALSE_ALARM * row["error"]
    assert row["bias_error"] < row["mcse"] / 3.0


def test_batch_bias_extrapolates_to_the_full_gradient(x64):
    """Conjugate regression, h = .02: variance .1302600701 for n = 2 of 5, .1252446184 for n = 5."""
    x, y = np.array([1, 2, -1, 0.5, 1.5]), np.array([1.2, 1.7, -0.8, 0.1, 2.0])
    posterior = ex.Posterior(
        lambda w: -(w**2) / 8.0, lambda w, e: -0.5 * (e[1] - e[0] * w) ** 2, (x, y)
    )

    def kernel(batch_size):
        return ex.sgld(ex.Minibatch(posterior, batch_size), 0.02)

    report = ex.diagnostics.batch_bias(
        kernel,
        jnp.asarray(0.97),
        1,
        40_000,
        key=jax.random.key(0),
        num_data=5,
        burn_in=100,
        progress=False,
    )
    assert (report.samples.info.evaluations == 1 + 2).all(), "a step of each chain, no more"
    assert (report.coarse, report.fine) == (1, 2)
    row = report.table.xs("sd", level=1).iloc[0]
    assert abs(row["estimate"] - np.sqrt(0.1302600701)) < FALSE_ALARM * row["mcse"]
    # The variance is linear in 1/n - 1/N; what is extrapolated is the sd, so to second order.
    variance = 0.1302600701 + (0.1302600701 - 0.1252446184) * 5 / 3  # at n = 1
    difference = np.sqrt(variance) - np.sqrt(0.1302600701)
    bias = (1 - 2 / 5) / 1.0 * difference
    assert abs(row["bias"] - bias) < FALSE_ALARM * row["bias_error"] + 0.1 * bias
    assert row["bias"] > 10 * row["bias_error"]


def test_each_coupled_chain_has_its_own_law(x64):
    """The coarse chain with the fine one's numbers is a chain of its own kernel."""
    kernel = Coupled(sgld(H), sgld(H / 2), 2)
    state = kernel.init(jax.random.key(0), jnp.ones(2))
    keys = jax.random.split(jax.random.key(1), 20_000)
    moved, _ = jax.vmap(kernel.step, (0, None))(keys, state)
    noise = (
        np.asarray(moved.coarse.position) - (np.eye(2) - H * PRECISION) @ np.ones(2)
    ) / np.sqrt(2.0 * H)
    error = np.abs(np.cov(noise.T) - np.eye(2))
    assert np.all(error < 6.0 * np.sqrt(2.0 / len(keys)))
    assert np.all(np.abs(noise.mean(0)) < 5.0 / np.sqrt(len(keys)))


def _apart(kernel):
    """How far coupled SGLD is from its exact law after one step, in standard errors."""
    state = kernel.init(jax.random.key(0), jnp.zeros(2))
    keys = jax.random.split(jax.random.key(1), 20_000)
    moved = jax.jit(jax.vmap(kernel.step, (0, None)))(keys, state)[0]
    found = np.cov(np.hstack([moved.coarse.position, moved.fine.position]).T)
    one, damped = np.eye(2), np.eye(2) - H / 2 * PRECISION  # of a fine step
    between = H * (one + damped)
    exact = np.block([[2 * H * one, between.T], [between, H * (one + damped @ damped)]])
    scale = np.diag(exact)
    error = np.sqrt((exact**2 + np.outer(scale, scale)) / len(keys))
    return np.max(np.abs(found - exact) / error)


def halved(make_kernel, step_size, shared=True):
    kernel = coupled(make_kernel, step_size, shared)
    assert isinstance(kernel, Halved)
    return kernel


def test_one_program_for_both_has_the_law_of_two(x64, monkeypatch):
    gradient = ex.FullGradient(gaussian())
    kernel = halved(lambda h: ex.sgld(gradient, h), H)
    assert _apart(kernel) < FALSE_ALARM and _apart(kernel.pair) < FALSE_ALARM
    mixed = ex.tree.mixed_normals
    monkeypatch.setattr(ex.tree, "mixed_normals", lambda key, weights: mixed(key, abs(weights)))
    assert _apart(kernel) > 4 * FALSE_ALARM, "fine steps with the same noise"


@pytest.mark.parametrize(("shared", "temperature"), [(True, 1e-30), (False, 1.0)])
def test_one_program_has_the_batches_and_keys_of_two(x64, shared, temperature):
    """Only the normal numbers that are shared are other ones: of no weight at no temperature."""
    posterior = ex.Posterior(
        lambda w: -(w**2) / 8.0, lambda w, x: -0.5 * (x - w) ** 2, np.arange(20.0)
    )
    gradient = ex.Minibatch(posterior, 2)
    make = lambda h: ex.langevin(gradient, h, temperature=temperature)  # noqa: E731
    one = halved(make, 0.1, shared)
    state = one.init(jax.random.key(0), jnp.asarray(1.0))
    alone = one.pair.init(jax.random.key(0), jnp.asarray(1.0))
    for number in range(5):
        key = jax.random.key(number)
        (state, info), (alone, of_two) = one.step(key, state), one.pair.step(key, alone)
        np.testing.assert_allclose(state.coarse.position, alone.coarse.position, rtol=1e-10)
        np.testing.assert_allclose(state.fine.position, alone.fine.position, rtol=1e-10)
        assert info.evaluations == of_two.evaluations == 6
    assert abs(float(state.fine.position - state.coarse.position)) > 1e-3


def test_large_states_are_not_copied(monkeypatch):
    gradient = ex.FullGradient(gaussian())
    kernel = halved(lambda h: ex.langevin(gradient, h), H)
    state = kernel.init(jax.random.key(0), jnp.zeros(2))
    copies = "select_n" in str(jax.make_jaxpr(kernel.step)(jax.random.key(0), state))
    monkeypatch.setattr(sys.modules["ergodax.diagnostics.bias"], "MOST_COPIED", 7)
    assert copies
    same = jax.make_jaxpr(kernel.step)(jax.random.key(0), state)
    assert str(same) == str(jax.make_jaxpr(kernel.pair.step)(jax.random.key(0), state))


def test_other_data_or_another_sampler_has_a_program_of_its_own():
    data = np.arange(30_000.0, dtype=np.float32)

    def anew(h):
        model = ex.Posterior(lambda w: -(w**2), lambda w, x: -((x - w) ** 2), data.copy())
        return ex.sgld(ex.Minibatch(model, 2), h)

    gradient = ex.FullGradient(gaussian())
    other = lambda h: (ex.sgld if h < H else ex.langevin)(gradient, h)  # noqa: E731
    fixed = ex.sgld(gradient, H)
    for make in (anew, other, lambda h: fixed):
        assert isinstance(coupled(make, H), Coupled)


class Twice(ex.Kernel):
    """Two steps of a kernel in a loop."""

    kernel: Any

    def init(self, key, position):
        return self.kernel.init(key, position)

    def step(self, key, state):
        one = lambda state, key: self.kernel.step(key, state)  # noqa: E731
        state, infos = jax.lax.scan(one, state, jax.random.split(key))
        return state, jax.tree.map(lambda x: x[-1], infos)


@pytest.mark.parametrize("copied", [10_000, 0])
def test_a_sampler_that_draws_in_a_loop_is_told_to_run_alone(monkeypatch, copied):
    monkeypatch.setattr(sys.modules["ergodax.diagnostics.bias"], "MOST_COPIED", copied)
    gradient = ex.FullGradient(gaussian())
    make = lambda h: Twice(ex.sgld(gradient, h))  # noqa: E731
    settings = {"key": jax.random.key(0), "progress": False}
    with pytest.raises(ValueError, match="couple=False"):
        ex.diagnostics.bias(make, jnp.zeros(2), H, 100, **settings)
    ex.diagnostics.bias(make, jnp.zeros(2), H, 100, couple=False, **settings)
    leak = []
    leaks = ex.Target(lambda x: leak.append(x) or 0.5 * jnp.sum((x + leak[0]) ** 2))
    make = lambda h: Twice(ex.sgld(ex.FullGradient(leaks), h))  # noqa: E731
    with pytest.raises(jax.errors.UnexpectedTracerError):  # the model's own fault
        ex.diagnostics.bias(make, jnp.zeros(2), H, 100, couple=False, **settings)


@pytest.mark.parametrize("coarse", [ex.langevin, ex.sgld])
def test_samplers_that_draw_differently_are_refused(coarse):
    target = ex.FullGradient(ex.targets.gaussian(jnp.zeros(2), jnp.eye(2)))
    other = ex.splitting("OBABO", target, 0.1)  # two normal trees a step
    kernel = Coupled(coarse(target, 0.1), other)
    state = kernel.init(jax.random.key(0), jnp.zeros(2))
    with pytest.raises(ValueError, match="normal trees were asked for"):
        kernel.step(jax.random.key(1), state)


def test_bad_settings():
    with pytest.raises(ValueError, match="step_size"):
        ex.diagnostics.bias(sgld, jnp.zeros(2), 0.0, 10, key=jax.random.key(0))
    with pytest.raises(ValueError, match="order"):
        ex.diagnostics.bias(sgld, jnp.zeros(2), 0.1, 10, key=jax.random.key(0), order=0)
    with pytest.raises(ValueError, match="batch_size"):
        ex.diagnostics.batch_bias(sgld, jnp.zeros(2), 6, 10, key=jax.random.key(0), num_data=10)


def test_the_report_prints():
    report = measured(num_chains=2)
    assert str(report).startswith("0.3 against 0.15;") and "position[0]" in str(report)


def test_few_draws_that_were_asked_for_are_no_timeout():
    report = measured(num_steps=20, burn_in=0, max_seconds=1e3)
    assert report.samples.num_draws == 20
    # Of first order the coarser run is off by twice as much, and by their difference more.
    table = report.table
    np.testing.assert_allclose(table["bias_coarse"], 2.0 * table["bias"], rtol=1e-6)
    with pytest.raises(ValueError, match="at least 4 draws a chain, not 2"):
        _ = measured(num_steps=2, burn_in=0).table
