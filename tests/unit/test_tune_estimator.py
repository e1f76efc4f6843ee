"""The choice of an estimator, its noise, and what is predicted that it costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune import estimator
from ergodax.tune.estimator import COSTS, INFLATION, Plan, choose_estimator
from ergodax.tune.whitening import Coordinates, posterior_in
from unit.enumerated import CENTRES, SIZE, N, covariance, curved, on_every_batch, position

KEY = jax.random.key(4)


def points(d, scale=1.0, count=8):
    return scale * jax.random.normal(jax.random.key(1), (count, d))


def measured(at, name):
    """The covariance of one example's part, in the coordinates centred at the enumerated centre."""
    centred = Coordinates(position("flat", CENTRES), jnp.eye(3))
    inner = posterior_in(curved(), centred)
    return centred, inner, estimator._covariances(inner, inner.data, at[None, :])[name]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [name for name in COSTS if name != "FullGradient"])
def test_the_noise_is_that_of_every_batch(name):
    at = jnp.array([0.3, -0.5, 0.3])
    centred, inner, one = measured(at, name)
    # In coordinates rotated by its eigenvectors the covariance is diagonal, as `build` needs it.
    values, vectors = np.linalg.eigh(one)
    rotated = posterior_in(curved(), centred.moved(jnp.zeros(3), jnp.asarray(vectors)))
    built = Plan(name, SIZE, 0.1, values, values[-1], {}).build(rotated)
    estimates, _ = on_every_batch(built, None, jnp.asarray(vectors.T @ at), False)
    known = covariance(estimates)
    assert known[-1, -1] > 1e-6, "there is noise"
    claimed = np.diag(np.asarray(estimates.covariance.values)[0])
    np.testing.assert_allclose(claimed, known, atol=1e-9 * known.max())
    # The negative control: the number of examples in the wrong place.
    assert not np.allclose(claimed * N / (N - 1), known, rtol=1e-3)


def linear(size, d):
    """In whitened coordinates: columns of x have mean square 1 / size."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(size, d)) / np.sqrt(size)

    def log_likelihood(u, row):
        return -0.5 * (row[1] - row[0] @ u) ** 2

    data = x.astype(np.float32), rng.normal(size=size).astype(np.float32)
    return ex.Posterior(lambda u: 0.0 * jnp.sum(u), log_likelihood, data)


def wide(size, d=2):
    """A posterior over which the scores of examples change as much as they differ."""
    rng = np.random.default_rng(2)

    def log_likelihood(u, x):
        return -jnp.sum(jnp.logaddexp(3.0 * (u - x), -3.0 * (u - x))) / size

    data = rng.normal(size=(size, d)).astype(np.float32)
    return ex.Posterior(lambda u: -0.5 * jnp.sum(u**2), log_likelihood, data)


def chosen(posterior, d, **options):
    rows = jax.tree.map(lambda x: x[:500], posterior.data)
    return choose_estimator(posterior, rows, points(d), **options)


def test_a_concentrated_posterior_takes_control_variates():
    plan = chosen(linear(20_000, 3), 3)
    assert plan.name == "ControlVariate, order 2"
    assert plan.step_size == estimator.LONGEST_STEP
    assert plan.noise < 1e-4, "the expansion of a quadratic is exact"
    assert plan.costs[plan.name] < 0.1 * plan.costs["FullGradient"]


def test_few_examples_take_the_full_gradient():
    plan = chosen(wide(9), 2)
    assert plan.name == "FullGradient" and plan.noise == 0.0 and plan.batch_size == 9


def test_a_wide_posterior_takes_plain_batches():
    plan = chosen(wide(50_000), 2)
    assert plan.name == "Minibatch"
    assert plan.costs["ControlVariate"] > plan.costs["Minibatch"]


def test_no_second_order_where_its_products_cost_too_much():
    d = estimator.LARGEST_SECOND_ORDER + 1
    plan = chosen(linear(4000, d), d)
    assert plan.costs["ControlVariate, order 2"] == np.inf
    assert plan.name != "ControlVariate, order 2"


@pytest.mark.parametrize("name", [name for name in COSTS if name != "FullGradient"])
def test_a_cost_grows_with_the_noise_and_the_heat_stays_small(name):
    total = 10_000
    found = [estimator._cheapest(total, top, name, 1.0) for top in np.geomspace(1e-12, 1e-2, 30)]
    costs, sizes, steps, noises = map(np.asarray, zip(*found, strict=True))
    assert np.all(np.diff(costs) >= 0)
    assert np.all(noises * steps / 2 <= INFLATION * (1 + 1e-9)) and np.all(steps <= 1.0)
    assert sizes.min() >= estimator.SMALLEST_BATCH and sizes.max() <= total // 2
    for top, n, noise in zip(np.geomspace(1e-12, 1e-2, 30), sizes, noises, strict=True):
        np.testing.assert_allclose(noise, total * (total - n) / n * top, rtol=1e-9)


def test_the_full_gradient_costs_more_the_more_data():
    costs = [estimator._cheapest(n, 0.0, "FullGradient", 1.0)[0] for n in (10, 1000, 10**6)]
    assert costs == sorted(costs) and costs[0] < costs[-1]


def test_no_batch_is_cheaper_than_the_one_chosen():
    total, top, name = 100_000, 1e-8, "ControlVariate"
    cost, n, h, _ = estimator._cheapest(total, top, name, 1.0)
    for other in 2 ** np.arange(3, 16):
        step = min(1.0, 2 * INFLATION / (total * (total - other) / other * top))
        assert cost <= (estimator.OVERHEAD + 2 * other) * 2 / step + 1e-9
    assert 8 <= n <= 2**15 and 0 < h <= 1


def test_a_shorter_longest_step_is_kept():
    plan = chosen(linear(20_000, 3), 3, longest_step=0.1)
    assert plan.step_size <= 0.1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_hardly_any_data(size):
    plan = chosen(wide(size), 2)
    assert 1 <= plan.batch_size <= size and np.isfinite(plan.costs["FullGradient"])
    plan.build(wide(size))


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTS)
def test_a_float32_position_stays_so_where_double_precision_is_on(name, x64):
    posterior, at = linear(100, 2), jnp.array([0.3, -0.1], jnp.float32)
    plan = Plan(name, 10, 0.1, np.ones(2), 1.0, {})
    built = plan.build(posterior, at.dtype)
    estimate, _ = built.estimate(KEY, built.init(KEY, at), at)
    assert estimate.gradient.dtype == jnp.float32
    kernel = ex.nogin(built, 0.1)
    state, _ = kernel.step(KEY, kernel.init(KEY, at))
    assert state.position.dtype == jnp.float32


def test_snapshots_never_pay():
    """SVRG by the same model, whatever the noise: why it is not among the estimators.

    At friction 1 a round posterior's draws at time t after a snapshot are at the mean square
    distance 2 (1 - rho(t)) d from it, where draws about a centre are at d.
    """
    total, omega = 1_000_000, np.sqrt(0.75)
    times = np.geomspace(1e-3, 30.0, 2_000)  # between snapshots, each of which is a pass
    middle = 0.5 * (times[1:] + times[:-1])
    rho = np.exp(-middle / 2) * (np.cos(omega * middle) + np.sin(omega * middle) / (2 * omega))
    distance = np.append(0.0, np.cumsum(2.0 * (1.0 - rho) * np.diff(times))) / times
    sizes = 2 ** np.arange(3, 19)[:, None]
    for ratio in np.geomspace(1e-5, 1e3, 81):
        top = ratio / total
        noise = total * (total - sizes) / sizes * top * distance
        h = np.minimum(1.0, 2 * INFLATION / np.maximum(noise, 1e-30))
        snapshots = ((estimator.OVERHEAD + 2 * sizes) * 2 / h + 2 * total / times).min()
        others = [
            estimator._cheapest(total, top, name, 1.0)[0] for name in COSTS if "2" not in name
        ]
        assert snapshots > 1.4 * min(others), (ratio, snapshots / min(others))
