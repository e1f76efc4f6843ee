"""What the adaptive samplers compute in a step: V, Gamma and the scores' covariance."""

import itertools
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import control_flow, tree
from ergodax.sampler.preconditioned import psgld, sgfs
from law import normals

module = sys.modules[psgld.__module__]  # the package has the function under its name

N, SIZE, DECAY, DAMPING = 12, 4, 0.7, 0.1
X = np.random.default_rng(0).normal(size=(N, 3))
POINT = np.array([0.4, -0.3, 0.8])


def posterior(*, separable=False):
    def likelihood(w, x):
        return -jnp.sum(jnp.cosh(w - x)) if separable else -jnp.cosh(w @ x) - jnp.sum(w**4)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), likelihood, X)


def adapted(gradient, moment, **options):
    """A kernel and a state whose V has a past."""
    options = {"adaptation_steps": None, "decay": DECAY, "damping": DAMPING} | options
    kernel = psgld(gradient, 0.1, **options)
    with normals.dealt(None):
        state = kernel.init(jax.random.key(0), jnp.asarray(POINT))
    state = ex.State(
        state.position, {"second_moment": moment}, state.gradient, None, jnp.int32(1000)
    )
    return kernel, state


def gamma_of_step(gradient, moment, signs, key) -> np.ndarray:
    """(x+ with Gamma - x+ without) / (h T): read off two steps without noise."""
    moved = []
    for correction in (True, False):
        kernel, state = adapted(gradient, moment, correction=correction, temperature=2.0)
        dealt_signs = mock.patch.object(tree, "rademacher_like", lambda *_: jnp.asarray(signs))
        with normals.dealt(None), dealt_signs:
            moved.append(kernel.step(key, state)[0].position)
    return np.asarray(moved[0] - moved[1]) / (0.1 * 2.0)


def exact_gamma(gradient, moment, key) -> np.ndarray:
    """The diagonal of the metric's Jacobian, for the batch that a step with this key draws."""
    key_gradient = jax.random.split(key, 3)[0]

    def metric(x):
        mean = gradient.estimate(key_gradient, None, x)[0].gradient / N
        return 1.0 / (DAMPING + jnp.sqrt(DECAY * moment + (1.0 - DECAY) * mean**2))

    return np.diagonal(jax.jacfwd(metric)(jnp.asarray(POINT)))


SIGNS = [np.array(signs) for signs in itertools.product([1.0, -1.0], repeat=3)]


@pytest.mark.slow
def test_gamma_of_a_separable_gradient_is_exact_for_each_probe(key, x64):
    gradient, moment = ex.Minibatch(posterior(separable=True), SIZE), jnp.array([0.2, 1.0, 3.0])
    expected = exact_gamma(gradient, moment, key)
    assert np.abs(expected).min() > 1e-3
    for signs in SIGNS[::3]:
        actual = gamma_of_step(gradient, moment, signs, key)
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("replace", [True, False])
def test_gamma_is_exact_in_the_mean_over_all_probes(replace, key, x64):
    gradient, moment = ex.Minibatch(posterior(), SIZE, replace), jnp.array([0.2, 1.0, 3.0])
    expected = exact_gamma(gradient, moment, key)
    each = np.stack([gamma_of_step(gradient, moment, signs, key) for signs in SIGNS])
    np.testing.assert_allclose(each.mean(axis=0), expected, rtol=1e-9)
    assert np.abs(each - expected).max() > 1e-2, "the probes are not exact one by one"
    other = exact_gamma(gradient, moment, jax.random.key(5))
    assert np.abs(each.mean(axis=0) - other).max() > 1e-4, "another batch has another Gamma"


def test_gamma_by_hand(x64):
    """U = cosh(x) with weight w: -w g^2 m m' / sqrt(V), m = sinh(x) and m' = cosh(x)."""
    x, w = 0.5, 0.25
    v = 0.75 * 2.0 + w * np.sinh(x) ** 2
    g = 1.0 / (DAMPING + np.sqrt(v))
    by_hand = -w * g**2 * np.sinh(x) * np.cosh(x) / np.sqrt(v)
    ours = module.divergence(jnp.array(g), jnp.array(v), jnp.sinh(x), jnp.cosh(x), jnp.array(w))
    np.testing.assert_allclose(ours, by_hand, rtol=1e-12)

    def metric(y):
        return 1.0 / (DAMPING + np.sqrt(0.75 * 2.0 + w * np.sinh(y) ** 2))

    np.testing.assert_allclose(by_hand, (metric(x + 1e-5) - metric(x - 1e-5)) / 2e-5, rtol=1e-6)


def test_where_the_gradient_is_zero_the_step_is_finite(key):
    gradient = ex.FullGradient(ex.Target(lambda x: jnp.sum(x**2)))
    kernel = psgld(gradient, 0.1, damping=1.0)
    state, _ = kernel.step(key, kernel.init(key, jnp.zeros(3)))
    assert bool(jnp.all(jnp.isfinite(state.position)))
    np.testing.assert_array_equal(state.auxiliary["second_moment"], 0.0)


def test_v_is_the_mean_square_of_the_gradient_per_example(key, x64):
    """RMSprop's average divided by 1 - decay^t, frozen after three steps."""
    gradient = ex.FullGradient(posterior())
    kernel = psgld(gradient, 1e-3, decay=DECAY, adaptation_steps=3)
    state = kernel.init(key, jnp.asarray(POINT))
    average, evaluations = np.zeros(3), []
    for t in range(1, 6):
        if t <= 3:
            mean = np.asarray(gradient.target.gradient(state.position)) / N
            average = DECAY * average + (1.0 - DECAY) * mean**2
        state, info = kernel.step(jax.random.fold_in(key, t), state)
        expected = average / (1.0 - DECAY ** min(t, 3))
        np.testing.assert_allclose(state.auxiliary["second_moment"], expected, rtol=1e-12)
        evaluations.append(int(info.evaluations))
    assert evaluations == [2 * N, 2 * N, 2 * N, N, N], "Gamma costs a gradient, while there is one"


def test_frozen_chains_together_do_not_compute_gamma():
    """Mapped over chains the condition stays one; a plain `cond` becomes both of its branches."""
    kernel = psgld(ex.FullGradient(ex.Target(jnp.sum)), 0.1, adaptation_steps=3)
    keys = jax.random.split(jax.random.key(0), 2)
    states = jax.vmap(kernel.init, (0, None))(keys, jnp.ones(3))

    def has_condition() -> bool:
        step = jax.vmap(lambda k, s: kernel.step(k, s))
        return "cond[" in str(jax.make_jaxpr(step)(keys, states))

    assert has_condition()
    with mock.patch.object(control_flow, "_in_any_chain", lambda flag: flag):
        assert not has_condition()


# --- SGFS -----------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", [True, False])
def test_the_estimate_with_scores_is_the_estimate(replace, key, x64):
    gradient, point = ex.Minibatch(posterior(), SIZE, replace), jnp.asarray(POINT)
    one, _ = gradient.estimate(key, None, point)
    two, scores, state = gradient.estimate_with_scores(key, None, point)
    np.testing.assert_allclose(two.gradient, one.gradient, rtol=1e-12)
    np.testing.assert_allclose(two.potential, one.potential, rtol=1e-12)
    np.testing.assert_allclose(scores, gradient.per_example_gradients(key, None, point))
    assert int(two.evaluations) == SIZE and state is None


def test_the_noise_factor_makes_the_covariance_of_a_batch_unbiased(x64):
    """Over all batches, against the covariance of the gradient itself."""
    scores = np.asarray(posterior().per_example_gradients(jnp.asarray(POINT), jnp.asarray(X)))[:5]
    for replace in (True, False):
        target = ex.Posterior(jnp.sum, lambda w, x: w @ x, X[:5])
        factor = ex.Minibatch(target, 2, replace).noise_factor
        ways = itertools.product(range(5), repeat=2)
        rows = list(ways if replace else itertools.combinations(range(5), 2))
        gradients = np.stack([-5.0 * scores[list(r)].mean(axis=0) for r in rows])
        estimates = np.mean([np.cov(scores[list(r)].T) for r in rows], axis=0)
        np.testing.assert_allclose(factor * estimates, np.cov(gradients.T, ddof=0), rtol=1e-10)


@pytest.mark.parametrize("batching", [ex.data.ShuffledEpochs(), ex.data.Neighbours()])
def test_other_schemes_draw_distinct_rows(batching):
    gradient = ex.Minibatch(posterior(), SIZE, batching=batching)
    assert gradient.noise_factor == N * (N - SIZE) / SIZE


@pytest.mark.parametrize("structure", ["dense", "diagonal"])
def test_the_information_is_the_mean_of_the_batches_covariances(structure, key, x64):
    gradient = ex.Minibatch(posterior(), SIZE)
    kernel = sgfs(gradient, 1e-3, structure=structure)
    state, seen = kernel.init(key, jnp.asarray(POINT)), []
    for t in range(4):
        step_key = jax.random.fold_in(key, t)
        scores = gradient.per_example_gradients(jax.random.split(step_key)[0], None, state.position)
        seen.append(np.cov(np.asarray(scores).T))
        state, info = kernel.step(step_key, state)
        assert int(info.evaluations) == SIZE
    expected = np.mean(seen, axis=0)
    expected = expected if structure == "dense" else np.diagonal(expected)
    np.testing.assert_allclose(state.auxiliary["information"], expected, rtol=1e-12)


@pytest.mark.parametrize("structure", ["dense", "diagonal"])
def test_a_step_of_sgfs_by_hand(structure, key, x64):
    """Two coordinates, T = 2, with the normal numbers dealt."""
    gradient, h, t = ex.Minibatch(posterior(), SIZE, replace=True), 0.02, 2.0
    d0 = np.array([0.5, 1.0, 2.0])
    kernel = sgfs(gradient, h, preconditioner=d0, structure=structure, temperature=t)
    xi = np.array([0.3, -1.2, 0.7])
    with normals.dealt(jnp.asarray(xi)):
        state = kernel.init(key, jnp.asarray(POINT))
        new, _ = kernel.step(key, state)
    key_gradient = jax.random.split(key)[0]
    estimate, _ = gradient.estimate(key_gradient, None, jnp.asarray(POINT))
    s = np.cov(np.asarray(gradient.per_example_gradients(key_gradient, None, state.position)).T)
    s = s if structure == "dense" else np.diag(np.diagonal(s))
    gamma_n = N + N * N / SIZE / t
    nu = np.sqrt(2.0 * t / (h * d0)) * xi
    move = 2.0 * np.linalg.solve(gamma_n * s + np.diag(2.0 / (h * d0)), nu - estimate.gradient)
    np.testing.assert_allclose(new.position, POINT + move, rtol=1e-10)


# --- Errors ---------------------------------------------------------------------------------


def full():
    return ex.FullGradient(posterior())


def batches(n=SIZE):
    return ex.Minibatch(posterior(), n)


ERRORS = {
    "decay": (lambda: psgld(full(), 0.1, decay=1.0), "decay must be at least 0 and below 1"),
    "damping": (lambda: psgld(full(), 0.1, damping=0.0), "damping must be positive"),
    "adaptation": (lambda: psgld(full(), 0.1, adaptation_steps=0), "adaptation_steps must be at"),
    "batch of one": (lambda: sgfs(batches(1), 0.1), "batch_size must be at least 2"),
    "structure": (lambda: sgfs(batches(), 0.1, structure="full"), "structure must be one of"),
    "T = 0": (lambda: sgfs(batches(), 0.1, temperature=0.0), "temperature must be positive"),
    "singular": (
        lambda: sgfs(batches(), 0.1, preconditioner=np.array([1.0, 0.0, 1.0])),
        "preconditioner must be positive",
    ),
    "singular matrix": (
        lambda: sgfs(batches(), 0.1, preconditioner=np.ones((3, 3))),
        "preconditioner must be positive",
    ),
    "matrix for a diagonal": (
        lambda: sgfs(batches(), 0.1, preconditioner=np.eye(3), structure="diagonal"),
        "Try structure='dense'",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_value_out_of_range_is_refused(name):
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_sgfs_needs_scores():
    with pytest.raises(TypeError, match=r"FullGradient does not give.*Try ex\.Minibatch"):
        sgfs(full(), 0.1)
