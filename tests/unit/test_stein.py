"""The kernel Stein discrepancy: worked example, definition, quadrature, enumeration of batches."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import ergodax as ex
from ergodax.diagnostics import kernel_stein_discrepancy
from ergodax.diagnostics.stein import _signs, stein_matrix
from ergodax.stats.estimators import effective_size

POINTS = np.array([-1.0, 0.0, 2.0])[None, :, None]


def ksd(x, g, **options):
    return kernel_stein_discrepancy(x, gradients=g, num_resamples=10, **options)


@pytest.mark.parametrize("block", [1, 2, 1024])
def test_three_points_of_a_normal(block, x64):
    """k0 = [[2, -.53033009, -.97081924], [., 1, -.48299068], [., ., 5]]."""
    found = stein_matrix(*(jnp.asarray(s * POINTS[0]) for s in (1, -1, 1, -1)))
    rows = [
        [2.0, -0.53033009, -0.97081924],
        [-0.53033009, 1.0, -0.48299068],
        [-0.97081924, -0.48299068, 5.0],
    ]
    np.testing.assert_allclose(found, rows, atol=1e-8)
    v, u = (ksd(POINTS, POINTS, statistic=s, block=block) for s in "vu")
    assert v.squared == pytest.approx(0.44796889, abs=1e-8)
    assert v.value == pytest.approx(0.66930478, abs=1e-8)
    assert u.squared == pytest.approx(-0.66138000, abs=1e-8)
    assert u.value == 0.0 and "KSD^2" in str(u)


@pytest.mark.parametrize("c, b", [(1.0, -0.5), (1.7, -0.3), (0.6, -0.8)])
def test_the_definition_by_differentiation(c, b, x64):
    """k0 = s.t k + s.grad_y k + t.grad_x k + sum_i d_xi d_yi k, in three dimensions."""
    rng = np.random.default_rng(0)
    x, s, y, t = jnp.asarray(rng.normal(size=(4, 5, 3)))

    def kernel(x, y):
        return (c**2 + jnp.sum((x - y) ** 2)) ** b

    def definition(x, s, y, t):
        along_x, along_y = jax.grad(kernel, (0, 1))(x, y)
        mixed = jnp.trace(jax.jacfwd(jax.grad(kernel, 0), 1)(x, y))
        return s @ t * kernel(x, y) + s @ along_y + t @ along_x + mixed

    each = jax.vmap(jax.vmap(definition, (None, None, 0, 0)), (0, 0, None, None))
    np.testing.assert_allclose(stein_matrix(x, s, y, t, c, b), each(x, s, y, t), rtol=1e-10)


@pytest.mark.parametrize("c, b", [(1.0, -0.5), (2.0, -0.25)])
def test_its_mean_is_zero(c, b, x64):
    """Over y of the double well, for any x."""

    def potential(y):
        return 0.25 * (y**2 - 1.0) ** 2

    for x in (-1.3, 0.2, 3.0):
        point = jnp.array([[x]])

        def integrand(y, point=point, x=x):
            at = jnp.array([[y]])
            k0 = stein_matrix(point, x - point**3, at, at - at**3, c, b)
            return float(k0[0, 0]) * np.exp(-potential(y))

        assert abs(integrate.quad(integrand, -7.0, 7.0, limit=200)[0]) < 1e-8


def test_blocks_do_not_matter():
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 3, 50, 4))
    whole = ksd(x, g).squared
    for block in (7, 64, 149):
        assert ksd(x, g, block=block).squared == pytest.approx(whole, rel=1e-4)


def test_temperature_scales_the_scores(x64):
    x, g = np.random.default_rng(0).normal(size=(2, 1, 9, 2))
    assert ksd(x, 3.0 * g, temperature=3.0).squared == pytest.approx(ksd(x, g).squared)


@pytest.mark.parametrize("whitening", ["dense", "diagonal"])
def test_whitening_makes_the_scale_of_the_positions_vanish(whitening, x64):
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 2, 30, 3))
    a = np.diag([0.01, 1.0, 100.0])
    if whitening == "dense":
        a = a @ (np.eye(3) + 0.5 * np.triu(np.ones((3, 3))))
    here = ksd(x, g, whitening=whitening).squared
    there = ksd(x @ a.T, g @ np.linalg.inv(a), whitening=whitening).squared
    assert there == pytest.approx(here, rel=1e-9)


SCORES = np.array([[1.0, 0.0], [2.0, 1.0], [4.0, -1.0], [7.0, 2.0]])


@pytest.mark.parametrize("statistic", ["u", "v"])
def test_batches_leave_it_unbiased(statistic, x64):
    """Enumerated: every point has each of the six batches of two rows of four.

    The "v" statistic needs a second, independent gradient for its diagonal.
    """
    x = np.array([[0.3, -0.2], [1.0, 0.5]])
    batches = [SCORES[list(rows)] for rows in itertools.combinations(range(4), 2)]
    noisy = [x - 2.0 * rows.sum(axis=0) for rows in batches]  # N / n = 2
    exact = x - SCORES.sum(axis=0)

    def matrix(g):
        return np.asarray(stein_matrix(*map(jnp.asarray, (x, -g, x, -g))))

    pairs = itertools.product(range(6), repeat=2)
    cross = [matrix(np.stack([noisy[i][0], noisy[j][1]]))[0, 1] for i, j in pairs]
    assert np.mean(cross) == pytest.approx(matrix(exact)[0, 1], rel=1e-12)
    if statistic == "v":
        posterior = ex.Posterior(lambda z: -0.5 * z @ z, lambda z, f: f @ z, SCORES)
        options = {"statistic": "v", "num_resamples": 1}
        truth = kernel_stein_discrepancy(x[None], posterior, **options).squared
        values = [
            kernel_stein_discrepancy(
                np.repeat(x[None], 200, 0), ex.Minibatch(posterior, 2),
                key=jax.random.key(k), **options,
            ).squared
            for k in range(5)
        ]  # fmt: skip
        # 400 points of two kinds: the mean over all pairs is that of the two points.
        error = np.std(values, ddof=1) / np.sqrt(5)
        assert abs(np.mean(values) - truth) < 15.0 * error
        diagonal = np.mean([np.sum(g**2, axis=1) for g in noisy]) - np.mean(np.sum(exact**2, 1))
        assert diagonal > 20.0  # what one batch alone would add to each diagonal term


def autoregression(rho, chains, n, key):
    rng = np.random.default_rng(key)
    x = rng.normal(size=(chains, n, 2))
    x[:, 1:] *= np.sqrt(1.0 - rho**2)
    for t in range(1, n):
        x[:, t] += rho * x[:, t - 1]
    return x


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_p_values_of_the_right_law_are_not_small(rho):
    """Of 20 runs at most 7 below 0.05: P(Binomial(20, 0.05) > 7) = 3e-6."""
    runs = [autoregression(rho, 4, 100, k) for k in range(20)]
    small = [
        kernel_stein_discrepancy(x, gradients=x, num_resamples=200).p_value < 0.05 for x in runs
    ]
    assert sum(small) <= 7


@pytest.mark.parametrize("fault", [lambda x: 1.2 * x, lambda x: x + 0.2])
def test_the_wrong_law_is_seen(fault):
    x = fault(np.random.default_rng(0).normal(size=(4, 500, 2)))
    found = kernel_stein_discrepancy(x, gradients=x)
    assert found.p_value < 0.002 and found.squared > 3.0 * found.error > 0.0


@pytest.mark.parametrize("statistic", ["u", "v"])
def test_the_error_is_the_spread_over_runs(statistic):
    """Of 60 runs the spread is known to 9 %: four times that is 36 %."""
    rng = np.random.default_rng(0)
    runs = [rng.normal(size=(2, 50, 2)) + 1.0 for _ in range(60)]
    found = [ksd(x, x, statistic=statistic) for x in runs]
    spread = np.std([each.squared for each in found], ddof=1)
    assert np.median([each.error for each in found]) == pytest.approx(spread, rel=0.36)


def test_draws_are_thinned_evenly():
    x = np.arange(24.0).reshape(2, 12, 1)
    found = ksd(x, x, num_draws=8)
    assert found.num_draws == 8
    kept = x[:, [0, 4, 7, 11]]
    assert found.squared == pytest.approx(ksd(kept, kept).squared)


def test_wrong_calls():
    x = np.zeros((1, 5, 2))
    for wrong in ({"c": 0.0}, {"power": -1.0}, {"statistic": "w"}, {"num_draws": 1},
                  {"temperature": 0.0}, {"whitening": "all"}, {"whitening": np.eye(3)},
                  {"whitening": np.diag([1.0, -1.0])}):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ksd(x, x, **wrong)
    with pytest.raises(ValueError, match="and not both"):
        kernel_stein_discrepancy(x)
    with pytest.raises(ValueError, match="gradients must have the shape"):
        ksd(x, x[..., :1])


def test_without_a_key_it_is_that_of_key_0():
    x = np.random.default_rng(3).normal(size=(2, 40, 2))
    plain, zero, one = (
        kernel_stein_discrepancy(x, gradients=x, num_resamples=400, key=key).p_value
        for key in (None, jax.random.key(0), jax.random.key(1))
    )
    assert plain == zero and plain != one, "one is the control: the key matters"


def test_signs_change_eight_times_as_rarely_as_draws_do():
    """With probability 1 / (8 tau + 1) a step, tau being draws per effective draw; 5 sd."""
    rng, x = np.random.default_rng(0), np.zeros((2, 400, 1))
    for n in range(1, 400):
        x[:, n] = 0.8 * x[:, n - 1] + rng.normal(size=(2, 1))
    signs = _signs(jax.random.key(0), x, 500).reshape(2, 400, 500)
    changed = signs[:, 1:] != signs[:, :-1]
    expected = 1.0 / (8.0 * 800 / np.min(effective_size(x)) + 1.0)
    assert abs(changed.mean() - expected) < 5.0 * np.sqrt(expected / changed.size)
    alone = rng.normal(size=(2, 400, 1))
    signs = _signs(jax.random.key(0), alone, 500).reshape(2, 400, 500)
    assert abs((signs[:, 1:] != signs[:, :-1]).mean() - 0.5) < 5.0 * np.sqrt(0.25 / changed.size)
