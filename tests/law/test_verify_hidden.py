"""Faults that derivatives do not show: hidden from them, or of how auxiliary variables begin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import ergodax as ex
from ergodax.recipe import dynamics
from ergodax.verify.auxiliary import BUDGET, _of_pairs, _weights
from ergodax.verify.differences import Probe
from ergodax.verify.equation import Equation, glancing, lookout
from ergodax.verify.region import num_tails

TURN = np.array([[0.0, 0.7], [-0.7, 0.0]])
PLANE = ex.targets.gaussian(np.zeros(2), np.ones(2))


def separable(x):
    return 1.5 + jnp.sin(x)


@jax.custom_jvp
def flat_square(x):
    return 1.0 + x**2


flat_square.defjvp(lambda primals, tangents: (flat_square(*primals), 0.0 * tangents[0]))


def staircase(x):
    return 1.0 + jnp.round(50.0 * x**2) / 50.0


HIDDEN = {  # the diagonal of D, and whether it jumps
    "stop_gradient": (lambda x: 1.0 + jax.lax.stop_gradient(x) ** 2, False),
    "in the tails": (
        lambda x: 1.0 + jnp.where(x > 2.0, jax.lax.stop_gradient(x - 2.0), 0.0),
        False,
    ),
    "a derivative of its own": (flat_square, False),
    "where": (lambda x: jnp.where(x > 0, 3.0, 1.0), True),
    "rounding": (staircase, True),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_derivative_is_found(name):
    """Gamma and the residual are what autodiff makes of D, and vanish to rounding."""
    metric, jumps = HIDDEN[name]
    recipe = ex.Recipe(lambda z: {"position": ex.Diagonal(metric(z["position"]))})
    report = ex.verify.recipe(recipe, PLANE)
    assert report.invariant and not report.ok
    assert [(fault.part, fault.jumps) for fault in report.hidden] == [("D", jumps)]
    assert str(report).startswith("REFUTED: the residual vanishes, but a derivative is hidden")
    assert ("D jumps near position[0]" if jumps else "D changes near position[0]") in str(report)


SEEN = {  # kinks, steep slopes, and a jump that no divergence sees
    "kink": lambda x: 1.0 + jnp.abs(x),
    "steep": lambda x: 1.5 + jnp.tanh(100.0 * x),
    "single precision": lambda x: (1.0 + x.astype("f4") ** 2).astype(x.dtype),
    "where, across": lambda x: jnp.where(x[::-1] > 0, 3.0, 1.0),
}


@pytest.mark.parametrize("name", list(SEEN))
def test_what_autodiff_sees_is_no_fault(name):
    recipe = ex.Recipe(lambda z: {"position": ex.Diagonal(SEEN[name](z["position"]))})
    report = ex.verify.recipe(recipe, PLANE, tolerance=1e-5)
    assert report.ok and not report.hidden, report


def test_a_curl_with_a_jump():
    """-Q grad U is divergence-free on both sides, and flows through the surface between them."""
    turn = lambda x: jnp.where(x[0] > 0, 2.0, 1.0) * TURN.astype(x.dtype)  # noqa: E731
    recipe = ex.Recipe(
        lambda z: {"position": 1.0},
        curl=lambda z: {("position", "position"): ex.Dense(turn(z["position"]))},
    )
    report = ex.verify.recipe(recipe, PLANE)
    assert report.invariant and not report.ok
    assert [(fault.part, fault.jumps) for fault in report.hidden] == [("Q", True)]


# --- Auxiliary variables that do not follow the energy -------------------------------------


def relativistic(draw):
    return ex.Recipe(
        auxiliary=lambda key, x: {"momentum": draw(key, x)},
        energy=lambda z: jnp.sum(jnp.sqrt(1.0 + z["momentum"] ** 2)),
        diffusion=lambda z: {"momentum": 1.0},
        curl=lambda z: {("momentum", "position"): 1.0},
    )


def by_rejection(key, x):
    """exp(-sqrt(1 + r^2)) below Laplace's exp(-|r|), by the first of 64 that is accepted."""
    key_draw, key_test = jax.random.split(key)
    r = jax.random.laplace(key_draw, (64, *x.shape), x.dtype)
    gap = jnp.sqrt(1.0 + r**2) - jnp.abs(r)
    kept = jax.random.exponential(key_test, r.shape, r.dtype) > gap
    return jnp.take_along_axis(r, jnp.argmax(kept, axis=0)[None], axis=0)[0]


@pytest.mark.parametrize("draw", [by_rejection, ex.normal_like])
def test_auxiliary_draws_from_the_energy(draw):
    """False alarm 1e-6. A Gaussian has E[r dg/dr] = E[r^2 / sqrt(1 + r^2)] = 0.57."""
    report = ex.verify.recipe(relativistic(draw), PLANE)
    right = draw is by_rejection
    assert report.invariant and report.ok == report.auxiliary_right == right, report
    assert report.auxiliary is not None
    if not right:
        assert "momentum" in report.auxiliary and "NOT follow exp(-energy)" in report.auxiliary
        assert "is 0.57" in report.auxiliary


def one_sign(key, x):
    key_size, key_sign = jax.random.split(key)
    return jnp.abs(ex.normal_like(key_size, x)) * jax.random.rademacher(key_sign, (), x.dtype)


def by_the_side(key, x):
    """Correlated by the sign of a coordinate of the position: not on the whole."""
    r = ex.normal_like(key, x)
    return jnp.stack([r[0], 0.8 * jnp.sign(x[0]) * r[0] + 0.6 * r[1]])


def one_size(key, x):
    """Uncorrelated, each N(0, 1), and of the same size."""
    key_size, key_sign = jax.random.split(key)
    size = jnp.abs(jax.random.normal(key_size, (), x.dtype))
    return size * jax.random.rademacher(key_sign, x.shape, x.dtype)


TOGETHER = {
    "all the same": lambda key, x: jnp.full_like(x, jax.random.normal(key, (), x.dtype)),
    "one sign": one_sign,
    "correlated by the side": by_the_side,
    "one size": one_size,
    "independent": ex.normal_like,
}


def normals(draw):
    return ex.Recipe(
        auxiliary=lambda key, x: {"momentum": draw(key, x)},
        energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
        diffusion=lambda z: {"momentum": 1.0},
        curl=lambda z: {("momentum", "position"): 1.0},
    )


@pytest.mark.parametrize("name", TOGETHER)
def test_what_variables_share_is_seen(name):
    """Each component is N(0, 1), as it should be."""
    report = ex.verify.recipe(normals(TOGETHER[name]), PLANE)
    assert report.invariant and report.ok == (name == "independent"), report
    told = "momentum[0] and momentum[1] do NOT follow exp(-energy) together"
    assert report.auxiliary is not None and report.ok != report.auxiliary.startswith(told)


@pytest.mark.parametrize("other", [0, 1])
def test_two_variables_of_one_key(other):
    recipe = ex.Recipe(
        auxiliary=lambda key, x: {
            "p": ex.normal_like(jax.random.fold_in(key, 0), x),
            "s": ex.normal_like(jax.random.fold_in(key, other), x),
        },
        energy=lambda z: 0.5 * ex.tree.dot(z["p"], z["p"]) + 0.5 * ex.tree.dot(z["s"], z["s"]),
        diffusion=lambda z: {"s": 2.0},
        curl=lambda z: {("p", "position"): 1.0, ("s", "p"): 1.0},
    )
    report = ex.verify.recipe(recipe, PLANE)
    assert report.ok == bool(other), report
    told = [f"p[{k}] and s[{k}] do NOT follow exp(-energy) together" for k in range(2)]
    assert bool(other) != any(each in str(report) for each in told)


@pytest.mark.parametrize("law", ["normal", "logistic", "Student"])
def test_pairs_of_independent_variables_pass(law):
    """20 keys of 8 variables; and the control, that two of them are the same."""
    rng, worst = np.random.default_rng(0), []
    draw = {
        "normal": lambda shape: rng.standard_normal(shape),
        "logistic": lambda shape: rng.logistic(size=shape),
        "Student": lambda shape: rng.standard_t(4.0, shape),
    }[law]
    slope = {
        "normal": lambda r: r,
        "logistic": lambda r: np.tanh(0.5 * r),
        "Student": lambda r: 5.0 * r / (4.0 + r**2),
    }[law]
    r = np.empty(0)
    weight = np.tanh(rng.standard_normal((40, 8)))
    for _ in range(20):
        r = draw((40, 400, 8))
        worst.append(_of_pairs(r, slope(r), weight).max())
    critical = scipy.stats.norm.isf(0.5 * BUDGET / (20 * 8 * 56))
    assert np.median(worst) > 2.5 and max(worst) < critical
    r[..., 5] = r[..., 2]
    found = _of_pairs(r, slope(r), weight)
    assert found[2, 5] > 50.0 and np.sum(found > critical) == 2


def test_a_function_of_the_position_is_no_constant():
    report = ex.verify.recipe(normals(lambda key, x: 1.0 * x), PLANE)
    assert report.auxiliary == "momentum is a function of the position, not drawn"
    constant = ex.verify.recipe(normals(lambda key, x: jnp.zeros_like(x)), PLANE)
    assert constant.auxiliary == "momentum begins at a constant"


def test_an_energy_that_gives_the_position_another_law():
    """exp(-r G^-1 r / 2) integrates to |G|^1/2: the determinant is missing."""
    right = dynamics.riemannian_hamiltonian(separable, 1.0)
    without = ex.Recipe(
        right.diffusion,
        right.curl,
        lambda z: 0.5 * ex.tree.dot(z["momentum"], separable(z["position"]) * z["momentum"]),
        right.auxiliary,
    )
    assert ex.verify.recipe(right, PLANE).ok
    report = ex.verify.recipe(without, PLANE)
    assert report.invariant and not report.ok and report.auxiliary is not None
    assert "does NOT follow exp(-U)" in report.auxiliary


def test_a_thermostat_that_begins_at_a_constant_is_told():
    report = ex.verify.recipe(dynamics.nose_hoover(), PLANE)
    assert report.ok and report.auxiliary is not None
    assert report.auxiliary.startswith("thermostat begins at a constant; the rest follows")


def test_a_glance_sees_what_a_look_does(x64):
    """In many dimensions the segments are followed by a program of its own, d times as fast."""
    equation = Equation(
        lambda z: jnp.array([z[1] ** 2, -z[0] * z[2], jnp.sin(z[1])]),
        lambda z, v: (1.0 + z**2) * v,
        lambda z: jnp.sum(z**4) + z[0] * z[1],
        0.7,
    )
    points, directions = np.random.default_rng(0).standard_normal((2, 5, 3))

    def curl(z, v):
        return z[0] * jnp.array([v[1], -v[0], 0.0])

    seen = glancing(equation, curl)(points, directions)
    looked = lookout(equation, curl)(points, directions)
    for one, other in zip(jax.tree.leaves(seen), jax.tree.leaves(looked.glance), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(looked.glance.flow, looked.residual.flow)


@pytest.mark.parametrize("hides", [False, True])
def test_what_is_hidden_in_ten_dimensions(hides):
    def coefficient(x):
        return 1.5 + jnp.sin(jax.lax.stop_gradient(x) if hides else x)

    recipe = ex.Recipe(lambda z: {"position": ex.Diagonal(coefficient(z["position"]))})
    report = ex.verify.recipe(recipe, ex.targets.gaussian(np.zeros(10), np.ones(10)))
    assert report.invariant and report.ok is not hides
    assert [each.part for each in report.hidden] == (["D"] if hides else [])


def test_a_position_that_does_not_vary():
    """Of given points that share a coordinate nothing is divided by its spread of 0."""
    points = np.stack([np.linspace(-1.0, 1.0, 9), np.zeros(9)], axis=1)
    report = ex.verify.recipe(dynamics.underdamped(), PLANE, points)
    assert report.ok and report.auxiliary == "follows exp(-energy) (false alarm 1e-06)"


@pytest.mark.parametrize("d, columns", [(3, 3), (8, 8), (10, 8)])
def test_few_columns_are_followed_in_many_dimensions(d, columns):
    probe = Probe(lambda at, along: None, np.zeros((4, d)))  # pyright: ignore[reportArgumentType]
    assert probe.columns.shape == (d, columns)
    assert probe.which.tolist() == [0] + d * columns * [1] + d * columns * [2] + d * [3]


def test_a_weight_for_each_coordinate_and_one_for_all():
    position = np.array([[0.0, 2.0], [2.0, 2.0]])
    expected = [[1.0, np.tanh(-1.0), 0.0], [1.0, np.tanh(1.0), 0.0]]
    np.testing.assert_allclose(_weights(position), expected, rtol=1e-12)


@pytest.mark.parametrize("dimension, count", [(1, 24), (8, 24), (20, 48)])
def test_there_is_a_point_in_the_tails_to_both_sides_of_each_coordinate(dimension, count):
    assert num_tails(dimension) == count
