"""Q found from drift, diffusion and density, against the Q that the drift was made with.

In one and two dimensions Q is unique and must come back; in three the drift must.
"""

from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import ergodax as ex
from ergodax.verify import affine_step, stationary_law
from ergodax.verify.curl import METHODS as METHODS_OF
from ergodax.verify.curl import Constant, curl
from ergodax.verify.curl_methods import by_fourier, by_line_integrals, interpolant
from ergodax.verify.equation import Equation
from ergodax.verify.grid import Axis, mesh, tabulate
from ergodax.verify.table import tabulated

from . import theory

pytestmark = pytest.mark.usefixtures("x64")

METHODS = ("fourier", "closed form")
SPIN = np.array([[0.0, 1.1, 0.4], [-1.1, 0.0, 0.7], [-0.4, -0.7, 0.0]])


def drift_of(diffusion, q, potential, t=1.0):
    """-(D + Q) grad H + T div(D + Q)."""

    def total(z):
        return diffusion(z) + q(z)

    def drift(z):
        gamma = jnp.einsum("ijj->i", jax.jacfwd(total)(z))
        return t * gamma - total(z) @ jax.grad(potential)(z)

    return drift


def skew(*below):
    """A skew matrix from its entries below the diagonal."""
    d = {1: 2, 3: 3}[len(below)]
    lower = jnp.zeros((d, d)).at[np.tril_indices(d, -1)].set(jnp.stack(below))
    return lower - lower.T


# --- Linear equations ----------------------------------------------------------------------


def random_linear(d, t, seed=0):
    """A stable drift, a diffusion and a precision that go together, and their Q."""
    rng = np.random.default_rng(seed)
    a, b, q = rng.standard_normal((3, d, d))
    precision, diffusion, q = a @ a.T / d + np.eye(d), b @ b.T / d + 0.1 * np.eye(d), q - q.T
    centre, rate = rng.standard_normal(d), (diffusion + q) @ precision
    equation = (
        lambda z: -jnp.asarray(rate) @ (z - centre),
        lambda z: jnp.asarray(diffusion),
        lambda z: 0.5 * (z - centre) @ jnp.asarray(precision) @ (z - centre),
    )
    return equation, q, (centre, t * np.linalg.inv(precision), diffusion)


@pytest.mark.parametrize("t", [1.0, 0.4])
@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_linear_in_any_dimension(d, t):
    equation, q, _ = random_linear(d, t)
    found = curl(*equation, dimension=d, temperature=t)
    assert found.method == "linear" and found.drift_error < 1e-10
    np.testing.assert_allclose(found(jnp.zeros(d)).matrix, q, atol=1e-10)


@pytest.mark.slow
def test_the_known_process():
    rate, covariance = jnp.array([[1.0, 2.0], [-1.0, 3.0]]), np.array([[1.1, -0.05], [-0.05, 0.65]])
    precision = jnp.asarray(np.linalg.inv(covariance))
    equation = (
        lambda z: -rate @ z,
        lambda z: jnp.array([1.0, 2.0]),
        lambda z: 0.5 * z @ precision @ z,
    )
    for method in ("auto", *METHODS):
        found = curl(*equation, dimension=2, method=method, points=96)
        at = np.random.default_rng(1).standard_normal((20, 2))
        matrices = tabulate(lambda z: found(z).matrix, at)  # noqa: B023
        expected = np.broadcast_to([[0.0, 1.25], [-1.25, 0.0]], (20, 2, 2))
        np.testing.assert_allclose(matrices, expected, atol=1e-8)


@pytest.mark.parametrize("method", ("linear", *METHODS))
def test_underdamped_langevin(method):
    """(x, r) with k = m = 1: Q_21 = +1. D is singular."""
    found = curl(
        lambda z: jnp.stack([z[1], -z[0] - 0.7 * z[1]]),
        lambda z: jnp.array([0.0, 0.7]),
        lambda z: 0.5 * z @ z,
        dimension=2,
        method=method,
    )
    matrix = np.asarray(found(jnp.array([0.5, -1.0])).matrix)
    np.testing.assert_allclose(matrix, [[0.0, -1.0], [1.0, 0.0]], atol=1e-8)


def test_a_chain_with_the_recovered_recipe_has_the_exact_law():
    """Euler-Maruyama: S = (I - h B) S (I - h B)^T + 2 h T D with the drift's own B."""
    h, t = 0.02, 0.4
    equation, q, (centre, covariance, diffusion) = random_linear(3, t)
    rate = (diffusion + q) @ np.linalg.inv(covariance) * t
    target = ex.FullGradient(ex.Target(equation[2]))

    def law(found):
        kernel = ex.euler_maruyama(found.recipe(), target, h, temperature=t)
        return affine_step(kernel, jnp.zeros(3)), stationary_law(kernel, jnp.zeros(3))

    found = curl(*equation, dimension=3, temperature=t)
    step, stationary = law(found)
    np.testing.assert_allclose(step.matrix, np.eye(3) - h * rate, atol=1e-12)
    np.testing.assert_allclose(step.covariance, 2 * h * t * diffusion, atol=1e-12)
    np.testing.assert_allclose(stationary.mean, centre, atol=1e-9)
    clean = np.eye(3) - h * rate
    expected = solve_discrete_lyapunov(clean, 2 * h * t * diffusion)
    theory.assert_covariance(stationary.covariance, expected)
    # A transposed Q has the same density in continuous time, but not at this h.
    turned = eqx.tree_at(lambda c: c.field, found, Constant(-jnp.asarray(q)))
    with pytest.raises(AssertionError, match="Not equal"):
        theory.assert_covariance(law(turned)[1].covariance, expected)


# --- Two dimensions, everything depends on the state ---------------------------------------


def quartic(z):
    return 0.5 * z @ z + 0.3 * z[0] * z[1] + z[0] ** 4 / 20.0


def dense(z):
    off = 0.25 * jnp.cos(z[0])
    rows = [jnp.stack([1.0 + z[1] ** 2 / 4.0, off]), jnp.stack([off, 1.0 + jnp.sin(z[1]) / 3.0])]
    return jnp.stack(rows)


def entry(z):
    return 0.7 + 0.5 * jnp.sin(z[0]) + 0.2 * z[1]


def plane(t=1.0, sign=1.0):
    return drift_of(dense, lambda z: sign * skew(entry(z)), quartic, t), dense, quartic


SQUARE = [Axis(-8.0, 8.0, 256)] * 2


def error(found, grid=SQUARE, level=1e-8):
    """The largest error of Q_21 at the centres where p > level (p integrates to 1)."""
    points = mesh(grid)
    density = np.exp(-tabulate(quartic, points))
    density /= density.sum() * grid[0].width * grid[1].width
    miss = tabulate(lambda z: found(z).matrix[1, 0] - entry(z), points)
    return np.abs(miss[density > level]).max()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_q_of_a_state_dependent_equation(method):
    found = curl(*plane(), dimension=2, method=method, grid=SQUARE)
    assert error(found) < (6e-7 if method == "fourier" else 3e-6)
    assert found.divergence_error < 1e-10 and found.skewness_error < 1e-12
    assert found.mean_current < 1e-12 and found.drift_error < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("method, t", [("fourier", 1.0), ("closed form", 0.5)])
def test_the_box_is_found(method, t):
    found = curl(*plane(t), dimension=2, method=method, temperature=t, points=160)
    assert found.drift_error < 1e-4
    assert error(found, level=1e-3) < 1e-7


def test_a_reversible_equation_has_no_curl():
    drift = drift_of(dense, lambda z: jnp.zeros((2, 2)), quartic)
    found = curl(drift, dense, quartic, dimension=2, method="closed form", points=96)
    assert found.skewness_error < 1e-12
    assert np.abs(tabulate(lambda z: found(z).matrix, np.ones((3, 2)))).max() < 1e-12


def test_the_moment_of_q():
    """The integral of Q_21 p is 0.7: minus the moments of the current."""
    table = tabulated(Equation(plane()[0], lambda z, v: dense(z) @ v, quartic), SQUARE)
    moment = METHODS_OF["fourier"](table)[1, 0].sum() * SQUARE[0].width ** 2
    np.testing.assert_allclose(moment, 0.7, atol=1e-10)


@pytest.mark.slow
def test_recipe_to_equation_and_back():
    """The drift of the recovered recipe, as Euler-Maruyama sees it, is the drift given."""
    t = 0.5
    drift, *_ = plane(t)
    found = curl(*plane(t), dimension=2, temperature=t, points=128)
    kernel = ex.euler_maruyama(
        found.recipe(), ex.FullGradient(ex.Target(quartic)), 1.0, temperature=t
    )
    recipe, target = kernel.recipe, ex.Target(quartic)

    def recovered(x):
        z = {"position": x}
        gradient = recipe.gradient(z, target.gradient(x))
        gamma = recipe.correction(z, jax.random.key(0))["position"]
        return recipe.drift(z, gradient)["position"] + t * gamma

    points = np.random.default_rng(2).standard_normal((50, 2))
    np.testing.assert_allclose(tabulate(recovered, points), tabulate(drift, points), atol=1e-7)


@pytest.mark.slow
def test_the_text():
    text = str(curl(*plane(), dimension=2, points=64))
    assert "'fourier'" in text and "unique" in text and "drift recovered" in text


# --- Faults in the methods -----------------------------------------------------------------


def misprinted(table):
    """The line integrals with the opposite overall sign."""
    return -by_line_integrals(table)


def transposed(table):
    return np.swapaxes(by_fourier(table), 0, 1)


def zero_mode_left_out(table):
    with mock.patch("ergodax.verify.curl_methods.zero_mode", lambda table: np.zeros((2, 2))):
        return by_fourier(table)


@pytest.mark.parametrize("wrong", [misprinted, transposed])
def test_a_wrong_sign_is_refused(wrong):
    with mock.patch.dict(METHODS_OF, {"fourier": wrong}):
        with pytest.raises(ValueError, match="misses J"):
            curl(*plane(), dimension=2)


def test_without_the_zero_mode_q_explodes():
    """div(Q p) = J still holds, but Q grows like 1 / p in the tails."""
    table = tabulated(Equation(plane()[0], lambda z, v: dense(z) @ v, quartic), SQUARE)
    right, wrong = by_fourier(table)[1, 0], zero_mode_left_out(table)[1, 0]
    seen = table.density > 1e-8
    exact = tabulate(entry, mesh(SQUARE))
    for product, bounds in ((right, (0.0, 6e-7)), (wrong, (1e5, 1e6))):
        worst = np.abs(product / table.density - exact)[seen].max()
        assert bounds[0] <= worst < bounds[1], worst


# --- Three dimensions ----------------------------------------------------------------------


def wavy(z):
    return skew(-1.1 - 0.3 * jnp.sin(z[1]), -0.4 * jnp.cos(z[2]), -0.7 - 0.2 * z[0])


def solid(z):
    return 0.5 * z @ z + 0.2 * z[0] * z[1] + z[2] ** 4 / 20.0


def test_the_least_norm_in_three_dimensions_is_two_thirds():
    """At the origin, up to the mean over the box, which the zero mode shifts."""
    rate = jnp.asarray(np.eye(3) + SPIN)
    grid = [Axis(-8.0, 8.0, 48)] * 3
    table = tabulated(Equation(lambda z: -rate @ z, lambda z, v: v, lambda z: 0.5 * z @ z), grid)
    with mock.patch("ergodax.verify.curl_methods.zero_mode", lambda table: np.zeros((3, 3))):
        product = by_fourier(table)
    # The eight centres around the origin.
    middle = (slice(None), slice(None), *(slice(23, 25) for _ in range(3)))
    matrix = (product[middle] / table.density[middle[2:]]).mean(axis=(2, 3, 4))
    mean = SPIN * 2.0 / 3.0
    assert np.abs(matrix - mean).max() < 0.02
    assert np.abs(matrix - SPIN).max() > 0.3  # the naive expectation is wrong


@pytest.mark.slow
@pytest.mark.parametrize("points, error", [(48, 2e-3), (64, 3e-4)])
def test_fourier_in_three_dimensions(points, error):
    """Not the constant Q, but one that makes the same drift where p is not small."""
    linear = lambda z: -jnp.asarray(np.eye(3) + SPIN) @ z, lambda z: 1.0, lambda z: 0.5 * z @ z
    found = curl(*linear, dimension=3, method="fourier", points=points)
    np.testing.assert_allclose(found(jnp.zeros(3)).matrix, SPIN * 2.0 / 3.0, atol=1e-3)
    assert found.divergence_error < 1e-4 and found.drift_error < error
    assert found.tested == 1e-3 and "least L2 norm" in found.gauge
    far = np.asarray(found(jnp.full(3, 5.0)).matrix)
    assert np.isfinite(far).all() and np.abs(far).max() < 1.0


def test_line_integrals_in_three_dimensions():
    linear = lambda z: -jnp.asarray(np.eye(3) + SPIN) @ z, lambda z: 1.0, lambda z: 0.5 * z @ z
    found = curl(*linear, dimension=3, method="closed form", points=48)
    np.testing.assert_allclose(found(jnp.array([0.3, -1.0, 0.5])).matrix, SPIN, atol=1e-8)


@pytest.mark.slow
def test_a_state_dependent_equation_in_three_dimensions():
    diffusion = lambda z: jnp.eye(3) * (1.0 + 0.2 * jnp.tanh(z[1]))  # noqa: E731
    found = curl(drift_of(diffusion, wavy, solid), diffusion, solid, dimension=3)
    assert found.method == "closed form" and "div S = 0" in found.gauge
    assert found.divergence_error < 1e-5 and found.drift_error < 0.05


# --- One dimension, and what has no Q ------------------------------------------------------


def test_one_dimension_has_no_curl():
    found = curl(
        lambda z: z - z**3, lambda z: 1.0, lambda z: 0.25 * (z[0] ** 2 - 1) ** 2, dimension=1
    )
    np.testing.assert_array_equal(found(jnp.ones(1)).matrix, [[0.0]])
    assert found.drift_error < 1e-12


REFUSED = {
    "another density": ((lambda z: -z - z**3, lambda z: 1.0, quartic), {}, "not stationary"),
    "Gamma dropped": (
        (lambda z: -(dense(z) + skew(entry(z))) @ jax.grad(quartic)(z), dense, quartic),
        {},
        "not stationary",
    ),
    "T forgotten": (plane(0.5), {}, "not stationary"),
    "a linear equation of another temperature": (
        (lambda z: -z, lambda z: 2.0, lambda z: 0.5 * z @ z),
        {},
        "not stationary",
    ),
    "another centre": (
        (lambda z: -z - 1.0, lambda z: 1.0, lambda z: 0.5 * z @ z),
        {},
        "same centre",
    ),
    "a torus": (
        (lambda z: jnp.array([1.0, 0.0]), lambda z: 1.0, lambda z: 0.0 * z[0]),
        {"grid": [Axis(0.0, 1.0, 32)] * 2},
        "On a torus there is no Q",
    ),
    "no density": (
        (lambda z: jnp.array([1.0, 0.0]), lambda z: 1.0, lambda z: 0.0 * z[0]),
        {},
        "does not decay",
    ),
    "a box that cuts": (plane(), {"grid": [Axis(-4.0, 4.0, 64)] * 2}, "box cuts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    equation, options, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        curl(*equation, dimension=2, **options)


# --- In JAX --------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_can_be_transformed():
    found = curl(*plane(), dimension=2, points=128)
    points = jnp.asarray(np.random.default_rng(3).standard_normal((6, 2)))
    q = jax.jit(jax.vmap(lambda z: found(z).matrix[1, 0]))(points)
    np.testing.assert_allclose(q, jax.vmap(entry)(points), atol=1e-6)
    slope = jax.vmap(jax.grad(lambda z: found(z).matrix[1, 0]))(points)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(entry))(points), atol=1e-4)


def test_the_spline_is_of_sixth_order():
    def miss(points):
        axis = Axis(0.0, 6.0, points)
        values = np.sin(axis.centres)[:, None]
        spline = interpolant(values, np.ones(points, bool), [axis])
        at = np.linspace(2.0, 4.0, 101)[:, None]
        field = tabulate(
            lambda z: jnp.stack([spline(z)[0], jax.grad(lambda x: spline(x)[0])(z)[0]]), at
        )
        return np.abs(field - np.concatenate([np.sin(at), np.cos(at)], axis=1)).max(axis=0)

    orders = np.log2(miss(40) / miss(80))
    assert orders[0] > 5.7 and orders[1] > 4.7


def test_beyond_what_is_known_the_nearest_value_holds():
    axis = Axis(-4.0, 4.0, 64)
    spline = interpolant(axis.centres[:, None], np.abs(axis.centres) < 2.0, [axis])
    far = [float(spline(jnp.array([x]))[0]) for x in (3.5, 4.0, 100.0)]
    np.testing.assert_allclose(far, axis.centres[np.abs(axis.centres) < 2.0].max(), atol=1e-4)
    assert float(jax.grad(lambda z: spline(z)[0])(jnp.array([50.0]))[0]) == 0.0


def test_in_one_dimension_q_is_nothing_and_skew():
    found = curl(lambda z: -(z**3), lambda z: 1.0, lambda z: 0.25 * z @ z * (z @ z), dimension=1)
    assert found(jnp.array([0.3])).matrix.tolist() == [[0.0]] and found.skewness_error == 0.0
