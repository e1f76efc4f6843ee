"""Constraints: maps and Jacobians against differentiation, volumes and exact draws.

The draws' means lie within six standard errors of what quadrature of the density gives (a false
alarm of 2e-9 a component), and those of the density without its Jacobian do not.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import transform

pytestmark = pytest.mark.usefixtures("x64")
EDGES = {
    "positive": transform.positive,
    "above": transform.interval(1.5),
    "below": transform.interval(upper=-2.0),
    "interval": transform.interval(2.0, 5.0),
    "simplex": transform.simplex,
    "ordered": transform.ordered,
    "correlation": transform.correlation,
}
POINT = np.array([0.3, -1.2, 0.5])  # of each: three intervals, four shares, three cuts, K = 3

# The value, and the logarithm of the Jacobian, computed by hand to ten digits.
BY_HAND = {
    "simplex": (POINT[:2], [0.19338292, 0.12652099, 0.68009609], -3.5466451027),
    "ordered": (POINT, [0.3, 0.60119421, 2.24991548], -0.7),
    "interval": (np.array(0.7), 4.0045633165, -0.4077598091),
    "correlation": (POINT, None, -2.1099774686),
}


def coordinates(name, x):
    """As many of the constrained numbers as there are unconstrained ones."""
    if name == "simplex":
        return x[..., :-1]
    if name == "correlation":
        i, j = np.tril_indices(x.shape[-1], -1)
        return x[..., i, j]
    return x


@pytest.mark.parametrize("name", BY_HAND)
def test_numbers_by_hand(name):
    y, value, jacobian = BY_HAND[name]
    found, y = EDGES[name], jnp.asarray(y)
    np.testing.assert_allclose(found.log_jacobian(y), jacobian, atol=1e-9)
    if value is not None:
        np.testing.assert_allclose(found.forward(y), value, atol=1e-7)


def test_a_correlation_matrix_by_hand():
    factor = transform.correlation.forward(jnp.asarray(POINT))
    below = coordinates("correlation", factor @ factor.T)
    np.testing.assert_allclose(below, [0.29131261, -0.83365461, 0.00129734], atol=1e-8)


@pytest.mark.parametrize("name", EDGES)
def test_the_jacobian_is_that_of_the_map(name):
    edge, point = EDGES[name], jnp.asarray(POINT)
    matrix = jax.jacobian(lambda y: coordinates(name, edge.forward(y)))(point)
    np.testing.assert_allclose(edge.log_jacobian(point), jnp.linalg.slogdet(matrix)[1], rtol=1e-10)


@pytest.mark.parametrize("name", EDGES)
def test_there_and_back_with_leading_axes_in_both_precisions(name):
    edge = EDGES[name]
    y = np.random.default_rng(0).normal(size=(2, 3, 6))
    x = edge.forward(jnp.asarray(y))
    assert edge.fault(np.asarray(x)) == ""
    np.testing.assert_allclose(edge.inverse(x), y, atol=1e-9)
    np.testing.assert_allclose(x[1, 2], edge.forward(jnp.asarray(y[1, 2])), atol=1e-12)
    rows = jax.vmap(edge.log_jacobian)(jnp.asarray(y.reshape(-1, 6)))
    np.testing.assert_allclose(edge.log_jacobian(jnp.asarray(y)), jnp.sum(rows), rtol=1e-10)
    single = edge.forward(jnp.asarray(y, jnp.float32))
    assert single.dtype == edge.inverse(single).dtype == jnp.float32
    np.testing.assert_allclose(edge.inverse(single), y, atol=1e-3)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", ["positive", "above", "below", "interval"])
def test_no_number_reaches_the_bound(name, dtype):
    edge, y = EDGES[name], jnp.asarray([-800.0, -40.0, 40.0, 800.0], dtype)
    assert edge.fault(np.asarray(edge.forward(y))) == ""
    assert np.isfinite(edge.inverse(edge.forward(y))).all()
    assert np.isfinite(edge.log_jacobian(y))


def test_values_next_to_a_bound_of_zero_have_all_their_digits():
    below_zero, y = transform.interval(-2.0, 0.0), jnp.asarray([30.0, 60.0], jnp.float32)
    near, slope = jax.vmap(jax.value_and_grad(below_zero.forward))(y)
    np.testing.assert_allclose(near, -2.0 * np.exp(-np.asarray(y, np.float64)), rtol=1e-5)
    np.testing.assert_allclose(slope, -near, rtol=1e-5)
    middle = jax.grad(below_zero.forward)(jnp.float32(0.0))
    np.testing.assert_allclose(middle, 0.5, rtol=1e-6)
    corner = transform.simplex.forward(jnp.asarray([200.0, 0.0], jnp.float32))
    assert transform.simplex.fault(np.asarray(corner)) == ""


def test_volumes():
    """The integral of the Jacobian is the volume of what the constraint allows."""
    line = np.linspace(-40.0, 40.0, 4001)
    for edge, volume in ((EDGES["interval"], 3.0), (transform.correlation, 2.0)):
        density = jax.vmap(lambda y, e=edge: jnp.exp(e.log_jacobian(y[None])))(jnp.asarray(line))
        np.testing.assert_allclose(np.trapezoid(density, line), volume, rtol=1e-6)
    plane = jnp.asarray(list(itertools.product(np.linspace(-40, 40, 201), repeat=2)))
    density = jax.vmap(lambda y: jnp.exp(transform.simplex.log_jacobian(y)))(plane)
    np.testing.assert_allclose(jnp.sum(density) * 0.4**2, 0.5, rtol=1e-6)


# A density of each constraint, and a function that draws from it exactly.
LAWS = {
    "positive": (lambda x: 2.0 * jnp.log(x) - x, lambda r, n: r.gamma(3.0, size=n)),
    "interval": (
        lambda x: jnp.log(x - 2.0) + 2.0 * jnp.log(5.0 - x),
        lambda r, n: 2.0 + 3.0 * r.beta(2.0, 3.0, size=n),
    ),
    "simplex": (
        lambda x: jnp.sum(jnp.array([1.0, 0.0, 2.0]) * jnp.log(x)),
        lambda r, n: r.dirichlet([2.0, 1.0, 3.0], size=n),
    ),
    "ordered": (
        lambda x: -0.5 * jnp.sum(x**2),
        lambda r, n: np.sort(r.normal(size=(n, 2)), axis=-1),
    ),
    "correlation": (lambda x: 0.0 * x[0, 0], lambda r, n: factors(r.uniform(-1.0, 1.0, size=n))),
}


def factors(correlations):
    """Cholesky factors of 2 x 2 correlation matrices."""
    zero, one = np.zeros_like(correlations), np.ones_like(correlations)
    rows = [one, zero, correlations, np.sqrt(1.0 - correlations**2)]
    return np.stack(rows, axis=-1).reshape(-1, 2, 2)


def by_quadrature(density, dimension):
    """Means of y and of its square under exp(density), by the trapezoidal rule."""
    count = 4001 if dimension < 2 else 201
    line = np.linspace(-30.0, 30.0, count)
    points = jnp.asarray(list(itertools.product(line, repeat=dimension)))
    weights = jax.nn.softmax(jax.vmap(density)(points))
    return weights @ jnp.concatenate([points, points**2], axis=1)


@pytest.mark.parametrize("name", LAWS)
def test_the_potential_is_that_of_unconstrained_draws(name):
    log_density, draw = LAWS[name]
    edge, rng, count = EDGES[name], np.random.default_rng(1), 40_000
    target = ex.Target(lambda x: -log_density(x), constraints=edge)
    draws = jnp.asarray(draw(rng, count))
    y = np.asarray(edge.inverse(draws)).reshape(count, -1)
    shape = edge.inverse(draws[0]).shape
    values = np.concatenate([y, y**2], axis=1)
    error = values.std(axis=0) / np.sqrt(count)

    def gap(jacobian):
        def density(y):
            held = ex.tree.Unconstrained(y.reshape(shape), edge)
            less = 0.0 if jacobian else transform.log_jacobian(held)
            return -target.potential(held) - less

        return np.abs(values.mean(axis=0) - by_quadrature(density, y.shape[1])) / error

    assert (gap(True) < 6).all()
    assert (gap(False) > 20).any(), "the density without its Jacobian is another one"


def test_the_jacobian_of_a_posterior_is_that_of_one_prior():
    """Whatever the batch: it is not scaled by N / n, and batches are unbiased by enumeration."""
    x = jnp.array([0.3, 1.1, 2.0, 0.7])

    def log_likelihood(p, x):
        return -x * p["rate"] + jnp.log(p["rate"])

    posterior = ex.Posterior(
        lambda p: -p["rate"], log_likelihood, x, constraints={"rate": transform.positive}
    )
    held = posterior.freeze({"rate": 0.8})
    whole = 4 * np.log(0.8) - 0.8 * (1.0 + float(jnp.sum(x))) + np.log(0.8)
    np.testing.assert_allclose(-posterior.potential(held), whole, rtol=1e-10)
    pairs = jnp.asarray(list(itertools.combinations(range(4), 2)))
    batches = jax.vmap(lambda rows: posterior.potential_on(held, x[rows]))(pairs)
    np.testing.assert_allclose(-jnp.mean(batches), whole, rtol=1e-10)
    np.testing.assert_allclose(jax.grad(posterior.prior)(held)["rate"].value, 1.0 - 0.8, rtol=1e-10)
