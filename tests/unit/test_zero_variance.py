"""Control variates: mean zero by quadrature, exact on Gaussians, folds, noise, wrong calls."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.postprocess import gradients, zero_variance
from ergodax.stats.zero_variance import Basis, Data, _batch_sums, fit

PRECISION = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
COVARIANCE, MEAN = np.linalg.inv(PRECISION), np.array([1.0, -2.0, 0.5])


def slope(x):
    return (x - MEAN) @ PRECISION


def any_draws(chains=4, n=200, seed=0):
    """Of a law that has nothing to do with the target."""
    return np.random.default_rng(seed).uniform(-1.0, 3.0, size=(chains, n, 3)) ** 2


def data_of(x, g, values=None):
    values = np.zeros((len(x), 1)) if values is None else values
    return Data(x, g, values, np.zeros(len(x), int))


def weighted_mean(values, log_density):
    weight = np.exp(log_density - log_density.max())
    return np.einsum("n,nm->m", weight, values) / weight.sum()


def test_controls_of_the_double_well_have_mean_zero():
    """U = x^4 - 2 x^2, any centre and covariance; the printed U'' has mean 5.992945845541."""
    x = np.linspace(-4.0, 4.0, 4001)[:, None]
    u, g = x**4 - 2.0 * x**2, 4.0 * x**3 - 4.0 * x
    basis = Basis(np.array([0.3]), np.array([[0.7]]), 2, False)
    controls = basis.controls(data_of(x, g))
    np.testing.assert_allclose(controls, np.c_[0.7 * g, 0.7 - (x - 0.3) * 0.7 * g])
    np.testing.assert_allclose(weighted_mean(controls, -u[:, 0]), 0.0, atol=1e-12)
    printed = weighted_mean(12.0 * x**2 - 4.0, -u[:, 0])
    assert printed[0] == pytest.approx(5.992945845541, abs=1e-9)


@pytest.mark.parametrize("t", [1.0, 0.5])
def test_controls_of_the_banana_have_mean_zero(t):
    """U = x^4 / 10 + (4 (y + 1.2) - x^2)^2 / 2, with products, a dense and a diagonal Sigma."""
    x, y = (m.ravel() for m in np.meshgrid(np.linspace(-6, 6, 801), np.linspace(-4, 12, 1601)))
    inner = 4.0 * (y + 1.2) - x**2
    energy = x**4 / 10.0 + inner**2 / 2.0
    g = np.stack([0.4 * x**3 - 2.0 * x * inner, 4.0 * inner], axis=1) / t
    for spread in (np.array([[1.0, 0.4], [0.4, 0.3]]), np.array([1.0, 0.3])):
        basis = Basis(np.array([0.2, -0.9]), spread, 2, True)
        controls = basis.controls(data_of(np.stack([x, y], axis=1), g))
        assert controls.shape[1] == 5  # d (d + 3) / 2
        np.testing.assert_allclose(weighted_mean(controls, -energy / t), 0.0, atol=1e-9)


@pytest.mark.parametrize("folds, chains", [(2, 4), (3, 4), (2, 1), (5, 2)])
def test_means_of_a_gaussian_have_no_variance(folds, chains):
    x = any_draws(chains, 203)
    found = zero_variance(x, slope(x), folds=folds)
    np.testing.assert_allclose(found.mean, MEAN, atol=1e-9)
    np.testing.assert_allclose(found.series, np.broadcast_to(MEAN, x.shape), atol=1e-9)
    np.testing.assert_allclose(found.plain_mean, x.mean(axis=(0, 1)))
    assert found.num_features == 3 and (found.reduction > 1e12).all()
    assert found.names == ("position[0]", "position[1]", "position[2]")


@pytest.mark.parametrize("t", [1.0, 2.0])
def test_quadratic_functionals_of_a_gaussian_have_no_variance(t):
    """So the bias of the variance at a finite step size goes as well."""
    x = any_draws()
    found = zero_variance(x, slope(x), functions="variance", order=2, cross=True, temperature=t)
    np.testing.assert_allclose(found.mean, t * np.diag(COVARIANCE), rtol=1e-6)
    assert found.num_features == 9 and found.names[0] == "var position[0]"
    found = zero_variance(
        x, slope(x), functions=lambda z: z[0] * z[2] + z[1], order=2, cross=True, temperature=t
    )
    expected = t * COVARIANCE[0, 2] + MEAN[0] * MEAN[2] + MEAN[1]
    np.testing.assert_allclose(found.series, expected, atol=1e-5)
    assert found.names == ("f[0]",)


def test_coefficients_come_from_the_other_fold():
    """By hand, for a functional that is not in the span of the controls."""
    x = any_draws(2, 100)
    values = np.exp(-x[..., :1])
    found = zero_variance(x, slope(x), functions=lambda z: jnp.exp(-z[0]), folds=2)
    for here, there in ((0, 1), (1, 0)):
        train = data_of(x[there], slope(x[there]), values[there])
        train = train._replace(batch=np.arange(100) // round(100 ** (2 / 3)))
        basis = Basis.of(x[there], 1, cross=False, diagonal=False)
        coefficients = fit(train, basis)
        controls = basis.controls(data_of(x[here], slope(x[here])))
        np.testing.assert_allclose(found.series[here], values[here] - controls @ coefficients,
                                   rtol=1e-4)  # fmt: skip


def test_in_sample_regression_is_biased_and_cross_fitting_is_not():
    """x^2 under N(0, 1) with n draws of which all are used: the bias is -2 / n exactly."""
    n, repeats = 12, 20_000
    x = np.random.default_rng(0).normal(size=(repeats, n))

    def slopes(x):
        offset = x - x.mean(axis=1, keepdims=True)
        return np.sum(offset * x**2, axis=1) / np.sum(offset**2, axis=1)

    inside = np.mean(x**2, axis=1) - slopes(x) * x.mean(axis=1)
    halves = x[:, : n // 2], x[:, n // 2 :]
    crossed = [
        np.mean(a**2, axis=1) - slopes(b) * a.mean(axis=1) for a, b in (halves, halves[::-1])
    ]
    for found, bias in ((inside, -2.0 / n), (np.mean(crossed, axis=0), 0.0)):
        error = found.std() / np.sqrt(repeats)
        assert abs(found.mean() - 1.0 - bias) < 5.0 * error  # 6e-7
        assert error < 0.2 / n


ETA, V, LAMBDA = 0.01, 40.0, 3.0


@pytest.fixture(scope="module")
def noisy_chains():
    """SGLD on N(0, 1 / Lambda) with gradient noise V: draws and the chain's own gradients."""
    rng, chains, n = np.random.default_rng(0), 256, 4000
    state = rng.normal(size=chains) / np.sqrt(LAMBDA)
    x, g, xi = np.empty((3, chains, n))
    for t in range(n):
        x[:, t] = state
        g[:, t] = LAMBDA * state + np.sqrt(V) * rng.normal(size=chains)
        xi[:, t] = rng.normal(size=chains)
        state = state - ETA * g[:, t] + np.sqrt(2.0 * ETA) * xi[:, t]
    return x, g, xi, state


def long_run(series):
    """n times the variance of the chains' means."""
    return series.mean(axis=1).var(ddof=1) * series.shape[1]


def test_noise_does_not_attenuate_the_coefficients(noisy_chains):
    """(2 / eta + V) / Lambda^2 = 26.7 plain; V / Lambda^2 = 4.4; with naive regression 23.1.

    256 chains give each to within 45 %, 1e-6 of the time less well (chi squared).
    """
    x, g, *_ = noisy_chains
    naive = np.cov(x.ravel(), g.ravel())[0, 1] / g.var()
    left = (1.0 / LAMBDA - naive) ** 2 * 2.0 / ETA + V / LAMBDA**2
    assert left == pytest.approx(23.1, abs=0.3)
    found = zero_variance(x[..., None], g[..., None])
    for series, expected in (
        (x, (2.0 / ETA + V) / LAMBDA**2),
        (x - naive * g, left),
        (found.series[..., 0], V / LAMBDA**2),
    ):
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 255) / 255
        assert low < long_run(series) / expected < high
    assert 4.0 < found.reduction[0] < 9.0  # exact: 6
    effective = found.coefficients[0, 0] * x.var()
    assert effective == pytest.approx(1.0 / LAMBDA, rel=0.1)


def test_the_mean_gradient_of_sgld_telescopes(noisy_chains):
    """mean g = (x_0 - x_n) / (eta n) + sqrt(2 / eta) mean xi: order 1 has no bias of its own."""
    x, g, xi, last = noisy_chains
    right = (x[:, 0] - last) / (ETA * x.shape[1]) + np.sqrt(2.0 / ETA) * xi.mean(axis=1)
    np.testing.assert_allclose(g.mean(axis=1), right, atol=1e-11)


def test_hopeless_noise_does_no_harm():
    """Draws without correlation and V = 1000 Lambda: the factor shrinks to nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 2000, 1))
    found = zero_variance(x, x + np.sqrt(1000.0) * rng.normal(size=x.shape))
    assert 0.8 < found.reduction[0] < 1.2


def test_coefficients_from_gradients_of_another_run():
    x, other = any_draws(2, 400), any_draws(1, 60, seed=1)
    rng = np.random.default_rng(0)
    noisy = slope(x) + 0.3 * rng.normal(size=x.shape)
    found = zero_variance(x, noisy, fit_on=(other, slope(other)))
    # What is left is the noise alone: Sigma_target times it, whatever the law of the draws.
    left = found.series.reshape(-1, 3) - MEAN
    np.testing.assert_allclose(left, -(noisy - slope(x)).reshape(-1, 3) @ COVARIANCE, atol=1e-7)


def test_trees_and_text():
    x = any_draws().astype(np.float32)
    draws = {"a": x[..., 0], "b": x[..., 1:]}
    tree = {"a": slope(x)[..., 0], "b": slope(x)[..., 1:]}
    found = zero_variance(draws, tree)
    assert found.names == ("a", "b[0]", "b[1]")
    np.testing.assert_allclose(found.mean, MEAN, atol=1e-4)
    assert "3 control variates" in str(found) and "plain" in str(found)
    assert list(found.table().index) == ["a", "b[0]", "b[1]"]
    diagonal = zero_variance(draws, tree, order=2, diagonal=True)
    np.testing.assert_allclose(diagonal.mean, MEAN, atol=1e-4)
    assert diagonal.num_features == 6


def test_too_many_features_are_said():
    x = any_draws(2, 30)
    with pytest.warns(UserWarning, match="9 control variates are fitted on"):
        zero_variance(x, slope(x), order=2, cross=True)


def test_wrong_calls():
    x = any_draws(2, 100)
    wrongs: list[dict[str, Any]] = [
        {"order": 3}, {"cross": True}, {"folds": 1}, {"temperature": 0.0},
        {"functions": "median"}, {"functions": 3.0},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            zero_variance(x, slope(x), **wrong)
    with pytest.raises(ValueError, match="gradients must be at every draw"):
        zero_variance(x, slope(x)[:, ::2])


TRACED = []


def potential(z):
    TRACED.append(None)
    return 0.5 * jnp.sum(z["w"] ** 2) * z["scale"](2.0) + jnp.sum(z["b"] ** 4)


def position(n):
    w, b = np.random.default_rng(n).normal(size=(2, 3, n, 2)).astype(np.float32)
    return {"w": w, "b": b[..., 0], "scale": np.sqrt}


def test_gradients_at_draws_of_any_number_share_a_program():
    """Leaves that are no arrays stay where they are."""
    target = ex.Target(potential)
    found = gradients(position(50), target)
    np.testing.assert_allclose(found["w"], np.sqrt(2.0) * position(50)["w"], rtol=1e-6)
    np.testing.assert_allclose(found["b"], 4.0 * position(50)["b"] ** 3, rtol=1e-5)
    assert found["scale"] is np.sqrt
    traced = len(TRACED)
    other = gradients(position(90), target)
    assert other["b"].shape == (3, 90) and len(TRACED) == traced
    np.testing.assert_allclose(other["b"], 4.0 * position(90)["b"] ** 3, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_each_draw_has_a_batch_of_its_own(chunk):
    """The noise is independent from draw to draw, and its mean is 0."""
    target = ex.targets.gaussian(np.zeros(1), np.ones(1))
    x = np.zeros((2, 200, 1), np.float32)
    noise = gradients(x, ex.NoisyGradient(target, 1.0), key=jax.random.key(0), chunk=chunk)
    assert len(np.unique(noise)) == 400
    assert abs(noise.mean()) < 5.0 / np.sqrt(400) and 0.6 < noise.std() < 1.4
    with pytest.raises(ValueError, match="key must be given"):
        gradients(x, ex.NoisyGradient(target, 1.0))


def test_batches_over_epochs_go_on_from_draw_to_draw():
    scores = np.arange(8.0, dtype=np.float32)
    posterior = ex.Posterior(lambda z: 0.0 * z, lambda z, f: f * z, scores)
    estimator = ex.Minibatch(posterior, 2, batching=ex.data.ShuffledEpochs())
    x = np.zeros((1, 8), np.float32)
    found = gradients(x, estimator, key=jax.random.key(0), chunk=1)
    np.testing.assert_allclose(found.reshape(2, 4).sum(axis=1), -4.0 * scores.sum())


@pytest.mark.parametrize("diagonal", [False, True])
def test_surrogates_are_the_controls_of_a_gaussian(diagonal):
    """Of the mean and covariance that the draws have, far from 0."""
    x = any_draws(1, 50)[0] + 10.0
    basis = Basis.of(x, 2, cross=True, diagonal=diagonal)
    spread = np.diag(x.var(axis=0)) if diagonal else np.cov(x.T, ddof=0)
    data = data_of(x, (x - x.mean(axis=0)) @ np.linalg.inv(spread))
    np.testing.assert_allclose(basis.surrogates(data), basis.controls(data), rtol=1e-9, atol=1e-9)


def test_a_direction_without_a_gradient_has_no_part():
    """Its control variate is 0 throughout; the others are as they are without it."""
    x = any_draws(2, 200)
    g = (x - MEAN) * np.array([2.0, 1.0, 0.0])
    found = zero_variance(x, g, diagonal=True)
    np.testing.assert_allclose(found.mean[:2], MEAN[:2], atol=1e-9)
    assert np.isfinite(found.mean).all()


def test_sums_over_stretches_wherever_their_numbers_begin():
    """Deviations from the mean of 3: -2, -1 and 3, 0."""
    values = np.array([[1.0], [2.0], [6.0], [3.0]])
    for first in (0, 1, 5):
        batch = first + np.array([0, 0, 1, 1])
        np.testing.assert_allclose(_batch_sums(values, batch), [[-3.0], [3.0]])
