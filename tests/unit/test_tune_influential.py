"""Rows of great influence: which they are, and that the posterior without them in batches is it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import hessian_coordinates
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.estimator import LONGEST_STEP, SMALLEST_BATCH, choose_estimator
from ergodax.tune.influential import (
    set_apart,
    squares_of_remainders,
    without_influential_rows,
)
from ergodax.tune.whitening import posterior_in

pytestmark = pytest.mark.usefixtures("x64")
SIZE, SELDOM = 20_000, 10
RARE = np.arange(0, SIZE, SIZE // SELDOM)  # rows in which the second column is 1


def logistic(*, is_rare, batched=False, log_prior=None):
    """Two columns, of which the second is 1 in few rows, or a number in all."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZE, 2))
    if is_rare:
        x[:, 1] = 0.0
        x[RARE, 1] = 1.0
    y = (rng.random(SIZE) < 1.0 / (1.0 + np.exp(-x @ [0.5, -1.5]))).astype(float)

    def log_likelihood(w, row):
        line = row[0] @ w
        return row[1] * line - jax.nn.softplus(line)

    prior = log_prior or (lambda w: -0.5 * jnp.sum(w**2))
    return ex.Posterior(prior, log_likelihood, (x, y), batched=batched)


def looked_at(posterior, deadline=None, step=LONGEST_STEP):
    """What is made of it in its whitened coordinates, these, and what was told."""
    log, mode = DecisionLog(), ex.find_mode(posterior, jnp.zeros(2)).position
    coordinates = hessian_coordinates(mode, np.asarray(jax.hessian(posterior.potential)(mode)))
    points = np.random.default_rng(1).normal(size=(16, 2))
    squares = squares_of_remainders(posterior, coordinates, points, deadline)
    made, smallest = without_influential_rows(posterior, coordinates, squares, log, step)
    return made, smallest, coordinates, log


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("prior", [None, lambda w: 0, lambda w: jnp.asarray(0)])
def test_the_law_is_the_same_and_batches_lack_the_rows(batched, prior):
    posterior = logistic(is_rare=True, batched=batched, log_prior=prior)
    rows = np.array([3, 500, SIZE - 1])
    apart, at = set_apart(posterior, rows), jnp.array([0.3, -0.7])
    for one, other in zip(
        apart.value_and_gradient(at), posterior.value_and_gradient(at), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    values = np.array(posterior.log_likelihoods(at, posterior.data))
    assert (values != 0.0).all()
    expected = float(posterior.prior(at)) + values[rows].sum()
    np.testing.assert_allclose(apart.prior(at), expected, rtol=1e-12)
    values[rows] = 0.0
    np.testing.assert_array_equal(apart.log_likelihoods(at, apart.data), values)


def test_rows_of_a_rare_column_are_set_apart():
    posterior = logistic(is_rare=True)
    apart, smallest, coordinates, log = looked_at(posterior)
    assert set(RARE) <= set(np.flatnonzero(apart.data[0]))
    assert apart.data[0].sum() <= 2 * SELDOM
    assert [decision.what for decision in log.decisions] == ["influential rows"]
    noise = [noise_of(each, coordinates) for each in (posterior, apart)]
    assert noise[1] < 0.05 * noise[0]
    assert smallest >= SMALLEST_BATCH


def test_short_steps_bear_rows_that_long_ones_do_not():
    numbers = []
    for step in (1.0, 0.25, 0.02, 1e-6):
        made, smallest, _, log = looked_at(logistic(is_rare=True), step=step)
        apart = isinstance(made.data[0], jax.Array) and made.data[0].dtype == bool
        numbers.append(int(made.data[0].sum()) if apart else 0)
        told = [decision.chosen for decision in log.decisions]
        assert [text.split(",")[0] for text in told] == [str(numbers[-1]) if apart else "none"]
        assert smallest >= SMALLEST_BATCH
    assert numbers[0] >= numbers[1] >= numbers[2] >= numbers[3] == 0
    assert numbers[0] > 0


def noise_of(posterior, coordinates):
    """Of a batch of one, order 2, measured on all rows."""
    inner, points = (
        posterior_in(posterior, coordinates),
        jax.random.normal(jax.random.key(3), (8, 2)),
    )
    plan = choose_estimator(inner, posterior.data, points, smallest_batch=1)
    return plan.noise * plan.batch_size


def test_without_time_for_a_pass_all_stays_as_it_is():
    posterior = logistic(is_rare=True)
    assert looked_at(posterior, Deadline.after(0.0))[0] is posterior


def test_of_equal_rows_none_is():
    posterior = logistic(is_rare=False)
    made, smallest, _, log = looked_at(posterior)
    assert made is posterior
    assert smallest == SMALLEST_BATCH
    assert not log.decisions


def test_a_likelihood_that_is_not_finite_somewhere_is_left_alone():
    def log_likelihood(w, row):
        return jnp.where(row[0][1] * w[1] > -5.0, -0.5 * (row[0] @ w) ** 2, -jnp.inf)

    posterior = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), log_likelihood, logistic(is_rare=True).data
    )
    assert looked_at(posterior)[0] is posterior
