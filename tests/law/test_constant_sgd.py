"""Constant-step SGD: its covariance is the wanted one, by enumeration of every batch.

On least squares a step with a given batch is affine, so the second moments of the chain solve a
linear system whose coefficients are means over batches. No random number.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import affine_step

from . import batches

X = np.stack([np.ones(8), np.arange(8) / 4], axis=1)
Y = np.array([0.0, 1.0, 0.0, 2.0, -1.0, 3.0, -2.0, 6.0])
MODE = np.linalg.solve(X.T @ X, X.T @ Y)  # (-1/4, 11/7)
SIZE = 2
# MATH.md, K.5: the sandwich of these rows, entries 11, 12, 22.
SANDWICH = (0.637152777778, -1.080215419501, 2.420391966310)


def model(prior=0.0):
    return ex.Posterior(
        lambda w: -0.5 * prior * jnp.sum(w**2),
        lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2,
        (X, Y),
    )


def kernel(*, replace=True, posterior=None, mode=MODE, size=SIZE, **options):
    posterior = posterior or model()
    return ex.constant_sgd(ex.Minibatch(posterior, size, replace), mode, **options)


def law(chain, replace=True):
    """The mean and the covariance of the chain's stationary law, over every batch."""
    steps = []
    for rows in batches.every(len(X), SIZE, replace):
        one = eqx.tree_at(lambda k: k.gradient.batching, chain, batches.chosen(rows, replace))
        steps.append(affine_step(one, np.zeros(2)))
    matrices = np.array([s.matrix for s in steps])
    shifts = np.array([s.shift for s in steps])
    mean = np.linalg.solve(np.eye(2) - matrices.mean(axis=0), shifts.mean(axis=0))
    away = matrices @ mean + shifts - mean  # of the next place, from the mean
    entering = np.mean([s.covariance for s in steps], axis=0)
    entering = entering + np.einsum("bi,bj->ij", away, away) / len(steps)
    twice = np.mean([np.kron(a, a) for a in matrices], axis=0)
    moments = np.linalg.solve(np.eye(4) - twice, entering.ravel())
    return mean, moments.reshape(2, 2)


def entries(matrix):
    return np.array([matrix[0, 0], matrix[0, 1], matrix[1, 1]])


@pytest.mark.parametrize("h", [0.01, 0.1, None])
def test_the_covariance_is_the_sandwich_at_every_step(h, x64):
    mean, covariance = law(kernel(step_size=h))
    np.testing.assert_allclose(mean, MODE, atol=1e-12)
    np.testing.assert_allclose(entries(covariance), SANDWICH, rtol=1e-10)


def test_with_a_prior_and_batches_without_replacement(x64):
    hessian = X.T @ X + 0.7 * np.eye(2)
    mode = np.linalg.solve(hessian, X.T @ Y)
    scores = (Y - X @ mode)[:, None] * X
    scores -= scores.mean(axis=0)
    sandwich = np.linalg.solve(hessian, np.linalg.solve(hessian, scores.T @ scores).T)
    for wanted, name in ((sandwich, "sandwich"), (np.linalg.inv(hessian), "posterior")):
        for replace in (True, False):
            chain = kernel(replace=replace, posterior=model(0.7), mode=mode, covariance=name)
            mean, covariance = law(chain, replace)
            np.testing.assert_allclose(mean, mode, atol=1e-12)
            np.testing.assert_allclose(covariance, wanted, rtol=1e-10)


def test_any_covariance_may_be_wanted(x64):
    wanted = np.array([[0.5, 0.2], [0.2, 0.3]])
    chain = kernel(covariance=wanted, step_size=0.02)
    np.testing.assert_allclose(law(chain)[1], wanted, rtol=1e-10)


def test_control_noise_that_does_not_depend_on_the_place(x64):
    """Negative control: without the Hessians' spread the covariance is too large."""
    frozen = kernel(step_size=0.1)
    metric = np.linalg.inv(X.T @ X)
    scores = (Y - X @ MODE)[:, None] * X
    root = np.linalg.cholesky(metric @ scores.T @ scores @ metric)
    heat = np.full(2, 1.0 + len(X) / SIZE)
    frozen = eqx.tree_at(lambda k: (k.root, k.heat), frozen, (jnp.asarray(root), jnp.asarray(heat)))
    # MATH.md, K.5: h = .1 with W matched to frozen noise.
    expected = (0.686710659346, -1.140020757396, 2.520791195751)
    np.testing.assert_allclose(entries(law(frozen)[1]), expected, rtol=1e-10)


def test_the_largest_step_injects_no_noise_in_one_direction(x64):
    chain = kernel()
    h = float(chain.step_size(jnp.int32(0)))
    np.testing.assert_allclose(h, 2.0 / float(chain.heat.max()), rtol=1e-12)
    assert h < 2.0 / (1.0 + len(X) / SIZE), "the Hessians' spread leaves less than plain SGD's step"
    variance = 2.0 * h - h**2 * np.asarray(chain.heat)
    assert abs(variance.min()) < 1e-12 < variance.max()


def test_the_batch_of_all_rows_draws_independently(x64):
    chain = kernel(replace=False, size=8)
    assert float(chain.step_size(jnp.int32(0))) == 1.0
    step = affine_step(chain, np.zeros(2))
    np.testing.assert_allclose(step.matrix, 0.0, atol=1e-12)
    np.testing.assert_allclose(entries(step.covariance), SANDWICH, rtol=1e-10)


def test_a_step_that_is_too_large_stops_the_chain(x64):
    chain = kernel(step_size=0.5)
    with pytest.raises(ex.DivergenceError, match="gradient's noise alone"):
        ex.sample(chain, MODE, 10, key=jax.random.key(0), progress=False)


def test_bad_input():
    posterior = model()
    shuffled = ex.Minibatch(posterior, SIZE, batching=ex.data.ShuffledEpochs())
    for gradient in (shuffled, ex.FullGradient(posterior), 3):
        with pytest.raises(TypeError, match="independent batches"):
            ex.constant_sgd(gradient, MODE)
    with pytest.raises(ValueError, match="one of"):
        kernel(covariance="robust")
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        kernel(covariance=np.eye(3))
    with pytest.raises(ValueError, match="covariance is not positive definite"):
        kernel(covariance=-np.eye(2))
    for mode in (np.full(2, np.nan), np.zeros(3)):
        with pytest.raises(ValueError, match="^mode: "):
            kernel(mode=mode)
    flat = ex.Posterior(lambda w: 0.0, lambda w, row: -0.5 * (row[1] - w[0]) ** 2, (X, Y))
    with pytest.raises(ValueError, match="Hessian at the mode is not positive definite"):
        ex.constant_sgd(ex.Minibatch(flat, SIZE), MODE)
