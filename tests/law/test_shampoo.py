"""The law of Shampoo's metric: Gamma on the line and by every probe, the frozen law, the roots.

In one dimension the metric is 1 / sqrt(V + damping^2), and the law of the chain without memory
solves an integral equation, as that of pSGLD does. No random number.
"""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import ergodax as ex
from ergodax.sampler.shampoo import Factors, inverse_root
from ergodax.verify import stationary_law

from . import normals
from .test_psgld import MOMENTS, Held, assert_first_order, moments_of_the_law, panels

DAMPING = 1.0
STEPS = (0.02, 0.01, 0.005)


# --- A 1 x 1 matrix on the double well, without memory -----------------------------------


@eqx.filter_jit
def mean_and_spread(kernel, points):
    """x+ = mean(x) + spread(x) xi, read off the step."""

    def image(x, xi):
        with normals.dealt(xi.reshape(1, 1, 1)):
            state = normals.start(kernel, x.reshape(1, 1))
            return kernel.step(normals.key(), state)[0].position[0, 0]

    mean, other = (jax.vmap(image, (0, None))(points, jnp.asarray(xi)) for xi in (0.0, 1.0))
    return mean, other - mean


def invariant_moments(kernel) -> np.ndarray:
    return moments_of_the_law(*mean_and_spread(kernel, jnp.asarray(panels()[0])))


def limit_moments(t, *, correction) -> np.ndarray:
    """Those of exp(-U / T), divided by the metric without the correction."""
    x, w = panels()
    w = w * np.exp(-0.25 * (x**2 - 1.0) ** 2 / t)
    if not correction:
        w = w * np.sqrt(DAMPING**2 + (x**3 - x) ** 2)
    return np.array([w @ f(x) for f in MOMENTS]) / w.sum()


def errors(t, *, correction, expected=None) -> np.ndarray:
    """At h = 0.02, 0.01 and 0.005, a row each."""
    if expected is None:
        expected = limit_moments(t, correction=correction)
    well = ex.FullGradient(ex.Target(lambda x: 0.25 * jnp.sum((x**2 - 1.0) ** 2)))
    options = {"decay": 0.0, "damping": DAMPING, "temperature": t, "correction": correction}
    found = []
    for h in STEPS:
        kernel = ex.shampoo_sgld(well, h, adaptation_steps=None, refresh=1, **options)
        zeros = Factors(jnp.zeros((1, 1)), jnp.zeros((1, 1)), None)
        kernel = Held(kernel, {"second_moment": zeros, "root": zeros}, jnp.int32(1_000_000))
        found.append(invariant_moments(kernel))
    return np.array(found) - expected


@pytest.mark.parametrize("correction", [True, False])
@pytest.mark.parametrize("t", [1.0, 2.0])
def test_the_law_tends_to_the_known_one(t, correction, x64):
    """exp(-U / T) with Gamma, exp(-U / T) / D without."""
    assert_first_order(errors(t, correction=correction))


def test_without_gamma_the_target_is_missed_by_far(x64):
    missed = errors(1.0, correction=False, expected=limit_moments(1.0, correction=True))
    assert missed[-1][0] > 0.3
    with pytest.raises(AssertionError, match="Not equal"):
        assert_first_order(missed)


# --- A 2 x 3 matrix: Gamma, the mean over all probes, is div D ---------------------------

START = np.array([[0.3, -1.0, 0.7], [1.2, 0.4, -0.6]])


def coupled(x):
    """A potential whose curvature differs from place to place and couples all entries."""
    return 0.5 * jnp.sum(x**2) + 0.25 * jnp.sum(jnp.sin(x @ x.T)) + 0.1 * jnp.sum(x) ** 2


def whole_metric(x, largest, before):
    """D at x as a 6 x 6 matrix, by SciPy, after one step's moments with weight 1 / 2."""
    g = np.asarray(jax.grad(coupled)(jnp.asarray(x)))
    power = scipy.linalg.fractional_matrix_power

    def side(before, new, per_gradient):
        matrix, rows = 0.5 * np.asarray(before) + 0.5 * new, len(new)
        share = rows / (rows + 2 * per_gradient)  # two gradients count
        matrix = (1 - share) * matrix + share * np.trace(matrix) / rows * np.eye(rows)
        return matrix + DAMPING**2 * np.eye(rows)

    left = side(before.left, g @ g.T / 3, 3)
    if largest < 3:
        return np.kron(power(left, -0.5), np.eye(3))
    return np.kron(power(left, -0.25), power(side(before.right, g.T @ g / 2, 2), -0.25))


@pytest.mark.parametrize("largest", [3, 2])
def test_gamma_is_the_divergence_of_the_metric(largest, x64, monkeypatch):
    target = ex.FullGradient(ex.Target(coupled))
    options = {"decay": 0.5, "damping": DAMPING, "adaptation_steps": None, "refresh": 1}
    root = np.random.default_rng(0).normal(size=(3, 3))
    right = None if largest < 3 else jnp.asarray(root @ root.T)
    before = Factors(jnp.array([[1.0, 0.3], [0.3, 0.5]]), right, None)
    kernels = [
        ex.shampoo_sgld(target, 0.1, largest=largest, correction=c, **options)
        for c in (True, False)
    ]

    @eqx.filter_jit
    def move(kernel, probe):
        """Where a step goes whose random signs are `probe`."""
        monkeypatch.setattr(ex.tree, "rademacher_like", lambda key, like: probe)
        state = kernel.init(jax.random.key(0), jnp.asarray(START))
        held = state.auxiliary | {"second_moment": before}
        state = eqx.tree_at(lambda s: s.auxiliary, state, held)
        state = eqx.tree_at(lambda s: s.step, state, jnp.int32(1_000_000))
        with normals.dealt(jnp.zeros(6)):
            return kernel.step(jax.random.key(1), state)[0].position

    signs = [np.reshape(s, (2, 3)) for s in itertools.product([-1.0, 1.0], repeat=6)]
    moves = [move(kernels[0], jnp.asarray(s)) for s in signs]
    gamma = (np.mean(moves, axis=0) - move(kernels[1], jnp.asarray(signs[0]))) / 0.1

    divergence, eps = np.zeros(6), 1e-5
    for j in range(6):
        shift = np.zeros(6)
        shift[j] = eps
        shift = shift.reshape(2, 3)
        up, down = (whole_metric(START + s, largest, before) for s in (shift, -shift))
        divergence += (up - down)[:, j] / (2 * eps)
    np.testing.assert_allclose(gamma.ravel(), divergence, rtol=1e-6, atol=1e-8)
    assert np.abs(divergence).max() > 0.01


# --- Frozen: SGLD with this preconditioner ------------------------------------------------


def frozen(h, matrix, position):
    """A chain on a normal law whose metric was learned in ten steps."""
    target = ex.FullGradient(ex.Target(lambda x: 0.5 * x.ravel() @ matrix @ x.ravel()))
    kernel = ex.shampoo_sgld(target, h, damping=0.1, adaptation_steps=10, refresh=3)
    state = kernel.init(jax.random.key(0), position)
    step = jax.jit(kernel.step)
    for i in range(12):
        state, _ = step(jax.random.key(i), state)
    root = state.auxiliary["root"]
    metric = np.kron(np.asarray(root.left @ root.left), np.asarray(root.right @ root.right))
    return metric, Held(kernel, state.auxiliary, state.step)


def test_the_frozen_law_is_that_of_a_constant_preconditioner(x64):
    a = np.random.default_rng(1).normal(size=(6, 6))
    matrix = jnp.asarray(a @ a.T + np.eye(6))
    for h in (0.1, 0.01):
        metric, kernel = frozen(h, matrix, jnp.ones((2, 3)))
        law = stationary_law(kernel, jnp.zeros((2, 3)))
        step = np.eye(6) - h * metric @ np.asarray(matrix)
        expected = scipy.linalg.solve_discrete_lyapunov(step, 2.0 * h * metric)
        np.testing.assert_allclose(law.cov(), expected, rtol=1e-8, atol=1e-10)
    with pytest.raises(AssertionError):  # control: another power
        wrong = scipy.linalg.solve_discrete_lyapunov(step, 2.0 * h * scipy.linalg.sqrtm(metric))
        np.testing.assert_allclose(law.cov(), wrong, rtol=1e-2)


# --- The roots ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [4, 8])
@pytest.mark.parametrize("kind", ["generic", "repeated eigenvalues", "rank one"])
def test_the_derivative_of_a_root(order, kind, x64):
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    matrix = {
        "generic": a @ a.T,
        "repeated eigenvalues": np.eye(4),
        "rank one": a[:, :1] @ a[:, :1].T,
    }
    at, along = jnp.asarray(matrix[kind]), jnp.asarray(b + b.T)
    root = functools.partial(inverse_root, damping=jnp.asarray(0.3), order=order)
    value, change = jax.jvp(lambda x: root(x), (at,), (along,))
    power = np.linalg.matrix_power(np.asarray(value), order)
    np.testing.assert_allclose(power @ (np.asarray(at) + 0.3 * np.eye(4)), np.eye(4), atol=1e-8)
    # d (R^order) = -R^order dA R^order, with R^order = (A + damping)^-1.
    total = sum(
        np.linalg.matrix_power(value, i) @ change @ np.linalg.matrix_power(value, order - 1 - i)
        for i in range(order)
    )
    np.testing.assert_allclose(total, -power @ np.asarray(along) @ power, rtol=1e-7, atol=1e-9)


def test_shapes_of_the_factors():
    target = ex.FullGradient(ex.Target(lambda p: ex.tree.dot(p, p)))
    kernel = ex.shampoo_sgld(target, 0.1, largest=4)
    position = {"bias": jnp.ones(3), "conv": jnp.ones((2, 2, 3)), "wide": jnp.ones((5, 2)),
                "huge": jnp.ones((5, 6)), "number": jnp.ones(())}  # fmt: skip
    root = kernel.init(jax.random.key(0), position).auxiliary["root"]
    shapes = {k: jax.tree.map(jnp.shape, (f.left, f.right, f.square)) for k, f in root.items()}
    assert shapes == {
        "bias": (None, None, (3,)), "conv": ((4, 4), (3, 3), None),
        "wide": (None, (2, 2), None), "huge": (None, None, (5, 6)), "number": (None, None, ()),
    }  # fmt: skip
