"""Control variates: unbiased by enumeration, silent at the centre, and of the order promised."""

from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data import Batching
from ergodax.data.arrays import take
from ergodax.gradient import control_variate
from unit import enumerated
from unit.enumerated import CENTRES, SIZE, N, curved, flat, on_every_batch, position

pytestmark = pytest.mark.usefixtures("x64")
CASES = [("flat", 1, False), ("flat", 2, True), ("tree", 1, True), ("tree", 2, False)]


def about(kind="flat", order=1, replace=False):
    return ex.ControlVariate(curved(), SIZE, position(kind, CENTRES), replace, order=order)


@pytest.mark.parametrize("kind, order, replace", CASES)
def test_unbiased_over_every_batch(kind, order, replace):
    at = position(kind)
    estimates, _ = on_every_batch(about(kind, order, replace), None, at, replace)
    enumerated.assert_unbiased(estimates, at)
    assert enumerated.covariance(estimates).max() > 1e-5, "one batch is not exact"


class Misprint(eqx.Module):
    """A formula in circulation: the correction has the wrong sign, and the prior is left out."""

    right: ex.ControlVariate
    batching: Batching

    @property
    def target(self):
        return self.right.target

    def estimate(self, key, state, position):
        rows, _ = self.batching.draw(key, None, N, SIZE)
        here, there = (
            self.target.per_example_gradients(x, take(self.target.data, rows))
            for x in (position, self.right.expansion.centre)
        )
        known = self.target.gradient(self.right.expansion.centre)
        gradient = known + N / SIZE * jnp.sum(here - there, axis=0)
        return ex.Estimate(gradient, self.target.potential(position)), state


def test_the_misprint_is_biased():
    at, centre = position("flat"), position("flat", CENTRES)
    wrong = Misprint(about(), about().batching)
    estimates, _ = on_every_batch(wrong, None, at, False)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        enumerated.assert_unbiased(estimates, at)
    here, there = (flat(curved().gradient(x)) for x in (at, centre))
    slope = [flat(curved().prior_gradient(x)) for x in (at, centre)]
    expected = there - (here - there) - (slope[0] - slope[1])
    np.testing.assert_allclose(enumerated.mean(estimates)[0], expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("kind, order, replace", CASES)
def test_the_covariance_is_that_of_every_batch(kind, order, replace):
    estimator = about(kind, order, replace)
    enumerated.assert_covariance_is_known(estimator, None, position(kind), replace)


@pytest.mark.slow
@pytest.mark.parametrize("kind, order", [("flat", 1), ("tree", 2)])
def test_the_gradient_is_that_of_the_potential(kind, order, key):
    enumerated.assert_gradient_of_potential(about(kind, order), None, position(kind), key)


@pytest.mark.parametrize("order", [1, 2])
def test_no_noise_at_the_centre(order):
    centre = position("flat", CENTRES)
    estimates, _ = on_every_batch(about(order=order), None, centre, False)
    enumerated.assert_unbiased(estimates, centre)
    assert np.ptp(estimates.gradient, axis=0).max() == 0.0 == np.ptp(estimates.potential)


@pytest.mark.parametrize("order", [1, 2])
def test_how_the_noise_falls_towards_the_centre(order):
    """The gradient's deviation as the distance to the power `order`, the potential's one more."""
    centre, away = position("flat", CENTRES), jnp.array([0.6, -0.5, 0.3])

    def deviations(distance):
        estimates, _ = on_every_batch(about(order=order), None, centre + distance * away, False)
        return np.array([estimates.gradient.std(axis=0)[0], estimates.potential.std()])

    rate = np.log2(deviations(2e-3) / deviations(1e-3))
    np.testing.assert_allclose(rate, [order, order + 1], atol=0.02)


def test_second_order_is_exact_where_the_likelihood_is_quadratic():
    posterior = ex.Posterior(
        lambda w: -jnp.sum(jnp.cosh(w)),
        lambda w, e: -0.5 * (e[1] - e[0] @ w) ** 2,
        (enumerated.X, enumerated.Y),
    )
    at = jnp.array([3.0, -2.0])
    estimator = ex.ControlVariate(posterior, SIZE, jnp.zeros(2), order=2)
    estimates, _ = on_every_batch(estimator, None, at, False)
    potential, gradient = posterior.value_and_gradient(at)
    shape = estimates.gradient.shape
    np.testing.assert_allclose(
        estimates.gradient, jnp.broadcast_to(gradient[None], shape), rtol=1e-12
    )
    np.testing.assert_allclose(estimates.potential, potential, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
def test_the_pass_over_the_data_in_chunks(order):
    whole = about(order=order).expansion
    np.testing.assert_allclose(whole.score, -flat(_likelihood_gradient()), rtol=1e-12)
    for chunk in (1, 2, 3, 5):
        # A constant of the module is no argument of the compiled pass.
        with mock.patch.object(control_variate, "CHUNK", chunk):
            parts = about(order=order).expansion
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), whole, parts)
    if whole.hessian is not None:
        values = lambda x: jnp.sum(curved().log_likelihoods(x, curved().data))  # noqa: E731
        expected = jax.hessian(values)(position("flat", CENTRES))
        np.testing.assert_allclose(whole.hessian.matrix, expected, rtol=1e-12)


def _likelihood_gradient():
    centre, posterior = position("flat", CENTRES), curved()
    return ex.tree.add(posterior.gradient(centre), posterior.prior_gradient(centre))


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
def test_evaluations(order, key):
    """Counted as the program runs; a Hessian's product counts as one."""
    estimator = about(order=order)
    estimate, _ = estimator.estimate(key, None, position("flat"))
    assert int(estimate.evaluations) == (order + 1) * SIZE
    assert estimator.set_up_evaluations == (N if order == 1 else N * (1 + 3))
    wrapped = ex.ScoreCovariance(estimator, "dense", rows="all")
    state = wrapped.init(key, position("flat"))
    estimate, _ = wrapped.estimate(key, state, position("flat"))
    assert int(estimate.evaluations) == (order + 1) * (SIZE + N)


def test_a_mode_is_a_centre(key):
    mode = ex.find_mode(curved(), position("tree"))
    given = ex.ControlVariate(curved(), SIZE, mode)
    same = ex.ControlVariate(curved(), SIZE, mode.position)
    jax.tree.map(np.testing.assert_array_equal, given.expansion, same.expansion)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", [1, 2])
def test_the_dtype_of_the_position_is_kept(order, dtype, key):
    at = ex.tree.map_leaves(lambda x: x.astype(dtype), position("tree"))
    estimator = about("tree", order)
    for estimate in (estimator.estimate, lambda *a: estimator.estimate_with_scores(*a)[::2]):
        found, _ = estimate(key, None, at)
        assert {x.dtype.name for x in jax.tree.leaves((found.gradient, found.potential))} == {dtype}


def test_another_centre_needs_no_new_program(key):
    traces = []

    @eqx.filter_jit
    def estimate(estimator, key, at):
        traces.append(1)
        return estimator.estimate(key, None, at)

    posterior = curved()
    for centre in (jnp.zeros(3), jnp.ones(3)):
        estimate(ex.ControlVariate(posterior, SIZE, centre), key, position("flat"))
    assert len(traces) == 1


@pytest.mark.slow
def test_many_chains_with_compensation(key):
    estimator = ex.ScoreCovariance(about(), "dense", rows="all")
    samples = ex.sample(ex.nogin(estimator, 0.05), position("flat"), 50, key=key, num_chains=3)
    assert samples.position.shape == (3, 50, 3) and np.isfinite(samples.position).all()


ERRORS = {
    "order": (lambda: about(order=3), "order must be 1 or 2, not 3"),
    "dimension": (
        lambda: ex.ControlVariate(
            ex.Posterior(lambda w: -w @ w, lambda w, x: -x * w @ w, np.ones(3)),
            1,
            np.zeros(2001),
            order=2,
        ),
        "d = 2001 is more than 2000. Try order=1",
    ),
    "a centre unlike the data": (
        lambda: ex.ControlVariate(curved(), SIZE, {"a": np.zeros(2)}),
        "centre: the target can't be evaluated",
    ),
    "a centre that is not finite": (
        lambda: ex.ControlVariate(curved(), SIZE, np.full(3, 1e9)),
        "centre: .* not finite there. Try what ex.find_mode",
    ),
    "a position unlike the centre": (
        lambda: about("flat").init(jax.random.key(0), position("tree")),
        "centre must be like the position, but its shapes are",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_is_refused(name):
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        call()
