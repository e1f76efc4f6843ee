"""`verify.stationary_law`: closed forms, two routes to one law, and what it must refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import AffineStep, Axis, affine_step, stationary_law, transition_law

from . import faults, normals
from .problems import line

pytestmark = pytest.mark.usefixtures("x64")

EXACT = ex.FullGradient(line())


def wavy(x):
    return (1.0 - jnp.cos(1.0 + 5.0 * x)) ** 2


def random_step(n):
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, n))
    matrix *= 0.9 / np.abs(np.linalg.eigvals(matrix)).max()
    root = rng.normal(size=(n, 2))  # singular for n > 2
    return AffineStep(matrix, root @ root.T, rng.normal(size=n))


@pytest.mark.parametrize("n", [1, 3, 100])
def test_an_affine_step_leaves_its_law_as_it_is(n):
    step = random_step(n)
    law = stationary_law(step)
    moved = step.matrix @ law.covariance @ step.matrix.T + step.covariance
    scale = np.abs(law.covariance).max()
    np.testing.assert_allclose(moved, law.covariance, atol=1e-10 * scale)
    np.testing.assert_allclose(step.matrix @ law.mean + step.shift, law.mean, atol=1e-9)
    wrong = stationary_law(step._replace(matrix=step.matrix.T)).covariance
    assert n == 1 or np.abs(wrong - law.covariance).max() > 1e-2 * scale


def test_numbers_make_a_step_too():
    law = stationary_law(AffineStep(0.8, 0.36, 1.0))  # pyright: ignore
    np.testing.assert_allclose([law.mean[0], law.cov()[0, 0]], [5.0, 1.0])


def test_a_kernel_whose_step_falls_is_read_off_at_its_first():
    step = affine_step(falling(), np.zeros(1))
    np.testing.assert_allclose(step.matrix, [[0.9]], atol=1e-12)


def test_the_step_of_a_kernel_is_read_off():
    """Semi-implicit SGHMC: r+ = (1 - h) r - h x + sqrt(2 h) xi, x+ = x + h r+."""
    h = 0.1
    step = affine_step(ex.sghmc(EXACT, h), np.zeros(1))
    x, r = (int(step.rows[name][0]) for name in ("position", "momentum"))
    np.testing.assert_allclose(step.matrix[r, [x, r]], [-h, 1.0 - h], atol=1e-12)
    np.testing.assert_allclose(step.matrix[x, [x, r]], [1.0 - h**2, h * (1.0 - h)], atol=1e-12)
    assert step.noise is not None
    np.testing.assert_allclose(step.noise[[x, r], 0], np.sqrt(2 * h) * np.array([h, 1.0]))
    wrong = faults.Planted(ex.sghmc(EXACT, h), normals.scaled_by(1.001))
    assert np.abs(affine_step(wrong, np.zeros(1)).covariance - step.covariance).max() > 1e-4


def on_the_line(kernel, axes=Axis(-7.0, 7.0, 141), **options):  # noqa: B008
    law = stationary_law(kernel, np.zeros(1), grid=axes, **options)
    return law.mean(lambda z: z[0] ** 2)


PHASE = 2 * (Axis(-6.5, 6.5, 61),)
ROUTES = {
    "SGLD": (lambda: ex.sgld(EXACT, 0.1), Axis(-7.0, 7.0, 141)),
    "SGLD, noisy": (lambda: ex.sgld(ex.NoisyGradient(line(), 2.0), 0.1), Axis(-7.0, 7.0, 141)),
    "BAOAB": (lambda: ex.langevin(EXACT, 0.3), PHASE),
    "SGHMC": (lambda: ex.sghmc(EXACT, 0.3), PHASE),
}


@pytest.mark.parametrize("name", ROUTES)
def test_both_routes_lead_to_one_law(name):
    make, axes = ROUTES[name]
    expected = stationary_law(make(), np.zeros(1)).cov()[0, 0]
    assert on_the_line(make(), axes) == pytest.approx(expected, abs=2e-6)
    planted = faults.Planted(make(), normals.scaled_by(1.0001))
    assert on_the_line(planted, axes) != pytest.approx(expected, abs=2e-5)


def moments(law):
    return [law.mean(lambda z, k=k: z[0] ** k) for k in (1, 2, 4)]


def test_a_law_that_is_not_normal():
    """Against quadrature of the transition density, whose error is rounding."""
    h, axis = 0.05, Axis(-4.0, 4.0, 200)
    well = ex.targets.double_well(0.25)
    expected = transition_law(lambda z: z - z**3, lambda z: 1.0, h, axis, gradient_noise=wavy)
    law = stationary_law(ex.sgld(ex.NoisyGradient(well, wavy), h), np.zeros(1), grid=axis)
    np.testing.assert_allclose(moments(law), moments(expected), atol=2e-6)
    later = law.evolve(np.maximum(law.stationary(), 0.0), 3)
    np.testing.assert_allclose(later.sum() * axis.width, 1.0, atol=1e-6)
    clean = stationary_law(ex.sgld(ex.FullGradient(well), h), np.zeros(1), grid=axis)
    assert np.abs(np.subtract(moments(clean), moments(expected))).max() > 1e-2


def test_a_function_on_a_grid():
    """The eigenvector of a given transition is that of its linear system."""
    axis = Axis(-4.0, 4.0, 100)
    known = transition_law(lambda z: z - z**3, lambda z: 1.0, 0.1, axis)
    found = stationary_law(known.step, grid=axis)
    np.testing.assert_allclose(found.weights, known.weights, atol=1e-12)
    guess = np.ones(100)
    np.testing.assert_allclose(
        stationary_law(known.step, grid=axis, guess=guess).weights, known.weights, atol=1e-12
    )


class Looping(ex.Kernel):
    """Draws its numbers in a loop, so that one number would stand for three."""

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        def one(x, key):
            return 0.5 * x + ex.normal_like(key, x), None

        x, _ = jax.lax.scan(one, state.position, jax.random.split(key, 3))
        return ex.State(x, {}, None, None, state.step + 1), None


def minibatch():
    posterior = ex.Posterior(
        lambda x: -0.5 * jnp.sum(x**2), lambda x, y: -0.5 * jnp.sum((x - y) ** 2), np.arange(9.0)
    )
    return ex.sgld(ex.Minibatch(posterior, 2), 0.01)


def falling():
    return ex.sgld(EXACT, ex.schedule.Polynomial(0.1, 10.0, 0.5))


WELL = ex.FullGradient(ex.targets.double_well(0.25))
LINE = Axis(-4.0, 4.0, 40)
REFUSED = {
    "is not affine": lambda: stationary_law(ex.sgld(WELL, 0.05), np.zeros(1)),
    "draws other random": lambda: stationary_law(minibatch(), np.zeros(1)),
    "not normal": lambda: stationary_law(minibatch(), np.zeros(1), grid=LINE),
    "in a loop": lambda: stationary_law(Looping(), np.zeros(1)),
    "unstable: .* radius 1.5": lambda: stationary_law(ex.sgld(EXACT, 2.5), np.zeros(1)),
    "noisy gradient": lambda: stationary_law(
        ex.langevin(ex.NoisyGradient(line(), 1.0), 0.1), np.zeros(1), grid=(LINE, LINE)
    ),
    "grid loses": lambda: stationary_law(
        ex.sgld(EXACT, 0.1), np.zeros(1), grid=Axis(-1.0, 1.0, 40)
    ),
    "grid has 1 axes": lambda: stationary_law(ex.sghmc(EXACT, 0.1), np.zeros(1), grid=LINE),
    "changes along the chain": lambda: stationary_law(falling(), np.zeros(1)),
    "changes along the chain: with": lambda: stationary_law(falling(), np.zeros(1), grid=LINE),
    "covariance must be symmetric": lambda: stationary_law(
        AffineStep(0.5 * np.eye(2), np.array([[1.0, 1.0], [0.0, 1.0]]))
    ),
    "square, of one size": lambda: stationary_law(AffineStep(np.eye(2), np.eye(3))),
    "position is missing": lambda: stationary_law(ex.sgld(EXACT, 0.1)),
    "grid is missing": lambda: stationary_law(lambda p: p),  # pyright: ignore
    "shape of the grid": lambda: stationary_law(lambda p: p, grid=LINE, guess=np.ones(3)),
    "order must be": lambda: stationary_law(ex.sgld(EXACT, 0.1), np.zeros(1), grid=LINE, order=41),
}


@pytest.mark.parametrize("message", REFUSED)
def test_it_is_refused(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


def test_what_is_no_step_is_refused():
    with pytest.raises(TypeError, match="step must be a kernel"):
        stationary_law(0.5, grid=LINE)  # pyright: ignore
