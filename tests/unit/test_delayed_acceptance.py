"""What delayed acceptance accepts, counts, reports and keeps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver import run as driver
from ergodax.driver.progress import Clock
from ergodax.kernel import Info
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.surrogate import NO_TIME, tune_surrogate

KEY = jax.random.key(3)
DATA = np.random.default_rng(0).normal(1.0, 1.0, size=40).astype("f4")


def log_prior(p):
    return -0.5 * jnp.sum(p["w"] ** 2)


def log_likelihood(p, x):
    gap = p["w"] - x.astype(p["w"].dtype)
    return -jnp.sum(jnp.logaddexp(gap, -gap))


POSTERIOR = ex.Posterior(log_prior, log_likelihood, DATA)
START = {"w": jnp.ones(2)}


def gaussian(p):
    return 10.0 * jnp.sum((p["w"] - 1.0) ** 2)


def hmc(target, h: Any = 0.2):
    return ex.hmc(ex.FullGradient(target), h, num_leapfrog_steps=3)


def kernel(surrogate=None, target: Any = POSTERIOR, **options):
    surrogate = ex.Target(gaussian) if surrogate is None else surrogate
    return ex.exact.delayed_acceptance(target, surrogate, hmc(surrogate), **options)


def run(kernel, steps=40, start=START, **options):
    return ex.sample(kernel, start, steps, key=KEY, progress=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("num_inner_steps", [1, 3])
def test_the_target_as_its_own_surrogate_is_always_accepted(num_inner_steps):
    """The chain is then that of the inner kernel, and the test has nothing to say."""
    info = run(kernel(POSTERIOR, num_inner_steps=num_inner_steps)).info
    assert info.accepted.all() and (info.acceptance == 1.0).all()


@pytest.mark.slow
def test_another_constant_changes_nothing():
    """U* is known up to a constant only."""
    raised = ex.Target(lambda p: gaussian(p) + 100.0)
    one, two = run(kernel()), run(kernel(raised))
    np.testing.assert_array_equal(one.info.accepted, two.info.accepted)
    np.testing.assert_allclose(one.info.acceptance, two.info.acceptance, rtol=1e-3)


@pytest.mark.slow
def test_acceptance_is_that_of_the_change_of_the_correction(x64):
    """Found from the states before and after, where the proposal was accepted."""
    start = {"w": jnp.ones(2, jnp.float64)}
    draws = run(kernel(), 200, start)
    w = np.concatenate([start["w"][None], draws.position["w"][0]])
    at = lambda u: np.asarray(jax.vmap(u)({"w": jnp.asarray(w)}))  # noqa: E731
    correction = at(POSTERIOR.potential) - at(gaussian)
    accepted = draws.info.accepted[0]
    assert 20 < accepted.sum() < 180
    expected = np.exp(-np.maximum(np.diff(correction), 0.0))
    np.testing.assert_allclose(draws.info.acceptance[0][accepted], expected[accepted], rtol=1e-9)
    np.testing.assert_array_equal(w[1:][~accepted], w[:-1][~accepted])


@pytest.mark.slow
def test_evaluations_are_those_of_the_inner_steps_and_the_test():
    """Three gradients of the surrogate for each inner step, and a potential of the target."""
    assert (run(kernel(num_inner_steps=4)).info.evaluations == 4 * 3 * 1 + 40).all()
    condensed = ex.exact.condense(POSTERIOR, START, {"w": 1.0 + jnp.eye(2)}, most=7)
    assert (run(kernel(condensed)).info.evaluations == 3 * 7 + 40).all()


def test_a_proposal_that_is_not_finite_is_rejected():
    walled = ex.Target(lambda p: jnp.where(p["w"][0] > 1.2, jnp.nan, jnp.sum(p["w"] ** 2)))
    draws = run(kernel(target=walled), 200)
    assert (draws.position["w"][..., 0] <= 1.2).all()
    assert 0 < draws.info.accepted.sum() < 200 and draws.info.finite.all()


@pytest.mark.slow
def test_the_state_is_of_the_position_kept():
    """A rejected proposal leaves neither a gradient nor a correction behind."""
    state = run(kernel(), 60, num_chains=8).final_state
    inner, correction, _ = state.gradient
    np.testing.assert_array_equal(inner.position["w"], state.position["w"])
    position = {"w": jnp.asarray(state.position["w"])}
    again = jax.vmap(lambda p: POSTERIOR.potential(p) - gaussian(p))(position)
    np.testing.assert_allclose(correction, again, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(
        inner.estimate.gradient["w"], 20.0 * (position["w"] - 1.0), rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("condensed", [False, True])
def test_the_potential_is_that_of_the_position_kept(condensed):
    few = ex.exact.condense(POSTERIOR, START, {"w": 1.0 + jnp.eye(2)}, most=7)
    draws = run(kernel(few if condensed else None), 60)
    exact = jax.vmap(POSTERIOR.potential)({"w": jnp.asarray(draws.position["w"][0])})
    if condensed:
        exact = exact - POSTERIOR.potential(START) - log_prior(START)
    assert condensed or 0 < draws.info.accepted.sum() < 60
    np.testing.assert_allclose(draws.info.potential[0], exact, rtol=1e-5, atol=1e-4)


def test_a_schedule_goes_on_where_a_proposal_is_rejected():
    """The step size must not depend on what was accepted."""
    surrogate = ex.Target(gaussian)
    falling = hmc(surrogate, ex.schedule.Polynomial(0.4, offset=1.0, power=0.5))
    info = run(ex.exact.delayed_acceptance(POSTERIOR, surrogate, falling)).info
    assert 0 < info.accepted.sum() < 40
    assert (np.diff(info.step_size[0]) < 0.0).all()


@pytest.mark.slow
def test_thinned_draws_are_every_third():
    whole, thinned = run(kernel(), 42), run(kernel(), 42, thin=3)
    np.testing.assert_array_equal(whole.position["w"][:, 2::3], thinned.position["w"])


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_bit(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    monkeypatch.setattr(Clock, "steps", lambda self: 8)
    options = {"num_chains": 2, "thin": 3, "burn_in": 5}
    whole = run(kernel(), **options)
    write, written = driver.Checkpointer.write, []

    def write_twice(self, *args):
        written.append(1)
        (die if len(written) > 2 else write)(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(driver.Checkpointer, "write", write_twice)
        with pytest.raises(Killed):
            run(kernel(), checkpoint=ex.Checkpoint(tmp_path / "run", every=1e-6), **options)
    again = ex.Checkpoint(tmp_path / "run", every=1e-6, resume=True)
    resumed = run(kernel(), checkpoint=again, **options)
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)


class Still:
    """A kernel by hand without a temperature: it goes a tenth of the way to 0."""

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        position = {"w": 0.9 * state.position["w"]}
        state = ex.State(position, {}, None, None, state.step + 1)
        none, one = jnp.float32(0.0), jnp.int32(1)
        return state, Info(none, gaussian(position), none, jnp.array(True), one)


@pytest.mark.parametrize("accepts", [True, False])
def test_an_inner_kernel_by_hand_and_the_potential_of_where_it_ends(accepts):
    """The potential told is the target's at the position kept: U(x') - V(x') + V(x') = U(x')."""
    target = ex.Target(lambda p: (1.0 if accepts else -1e3) * jnp.sum(p["w"] ** 2))
    made = ex.exact.delayed_acceptance(target, ex.Target(gaussian), Still())
    start = made.init(jax.random.key(0), START)
    state, info = made.step(jax.random.key(1), start)
    moved = bool((state.position["w"] != START["w"]).all())
    assert info.potential == pytest.approx(float(target.potential(state.position)), rel=1e-5)
    assert moved or not accepts


def test_no_surrogate_is_made_when_the_time_is_up():
    """On 100,000 groups it began 83 s after its end, with the curvature of all of them."""

    def never(*_):
        raise AssertionError("this would have cost time")

    log, posterior = DecisionLog(), ex.Posterior(never, never, DATA)
    late = Deadline.after(0.0)
    assert tune_surrogate(posterior, START, log, KEY, progress=False, deadline=late) is None
    assert NO_TIME in str(log)
