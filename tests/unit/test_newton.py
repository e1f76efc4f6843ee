"""Newton's method: where it ends, against an iteration of its own in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

import ergodax as ex
from ergodax import tree
from ergodax.gradient.expansion import whole_hessian
from ergodax.target.mode import minimise
from ergodax.tune.descent import descent, newton

RNG = np.random.default_rng(5)
D = 8
TURN, _ = np.linalg.qr(RNG.normal(size=(D, D)))
X = RNG.normal(size=(1_500, D)) * np.geomspace(1e-2, 10.0, D) @ TURN.T
Y = (RNG.uniform(size=1_500) < special.expit(X @ RNG.normal(size=D))).astype(float)
START = np.zeros(D)
TREES = {"vector": lambda w: w, "dictionary": lambda w: {"a": w[:6].reshape(2, 3), "b": w[6:]}}


def flat(w):
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(w)])


def log_prior(w):
    return -0.005 * jnp.sum(flat(w) ** 2)


def log_likelihood(w, row):
    x, y = (z.astype(flat(w).dtype) for z in row)
    return jax.nn.log_sigmoid((2.0 * y - 1.0) * (x @ flat(w)))


def posterior(dtype=float):
    return ex.Posterior(log_prior, log_likelihood, (X.astype(dtype), Y.astype(dtype)))


def minimum(copies=1):
    """The minimum of the potential where each row is there so many times, and its Hessian."""
    w = np.zeros(D)
    for _ in range(50):
        p = special.expit(X @ w)
        hessian = copies * (X.T * (p * (1.0 - p))) @ X + 0.01 * np.eye(D)
        w = w - np.linalg.solve(hessian, copies * X.T @ (p - Y) + 0.01 * w)
    return w, hessian


@pytest.mark.slow
def test_it_finds_a_minimum_that_l_bfgs_does_not(x64):
    w, hessian = minimum()
    assert np.linalg.cond(hessian) > 1e4
    found = newton(posterior(), jnp.asarray(START), 30)
    assert found.converged and found.evaluations < 30
    off = np.sqrt((found.position - w) @ hessian @ (found.position - w))
    assert off < 1e-2, "in posterior standard deviations"
    other = descent(posterior(), jnp.asarray(START), 30)
    assert not other.converged
    assert np.sqrt((other.position - w) @ hessian @ (other.position - w)) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("kind", TREES)
def test_the_whole_hessian_is_that_of_the_potential(kind, x64):
    position = TREES[kind](jnp.asarray(RNG.normal(size=D)))
    vector, unravel = tree.ravel(position)
    exact = jax.hessian(lambda w: posterior().potential(unravel(w)))(vector)
    found = whole_hessian(posterior(), position)
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.slow
def test_it_starts_from_any_tree(x64):
    found = newton(posterior(), TREES["dictionary"](jnp.asarray(START)), 30)
    np.testing.assert_allclose(found.position, newton(posterior(), START, 30).position, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 100])
def test_single_precision_comes_to_an_end(copies):
    """Near the minimum the potential changes by less than its rounding; steps must not go on."""
    data = tuple(np.repeat(z, copies, axis=0).astype("f4") for z in (X, Y))
    model = ex.Posterior(log_prior, log_likelihood, data)
    found = newton(model, jnp.asarray(START, jnp.float32), 200)
    w, hessian = minimum(copies)
    off = np.sqrt((found.position - w) @ hessian @ (found.position - w))
    assert off < 0.2, "in posterior standard deviations"
    assert found.evaluations < 60


def rosenbrock(x):
    return optimize.rosen(x), optimize.rosen_der(x)


def rosen_hessian(x):
    return np.asarray(optimize.rosen_hess(x))


def test_rosenbrock_with_its_hessian():
    start, small = np.array([-1.2, 1.0, -0.5, 2.0]), lambda value: 1e-8
    found = minimise(rosenbrock, start, small, 100, 1e-16, rosen_hessian)
    assert found.converged and found.evaluations <= 60
    np.testing.assert_allclose(found.position, 1.0, atol=1e-8)
    few = found.iterations
    assert not minimise(rosenbrock, start, small, few, 1e-16).converged, "L-BFGS takes more"


def test_a_saddle_is_left():
    """Where the Hessian is not positive definite, a plain Newton step would lead to the saddle."""

    def double_well(x):
        return 0.25 * (x[0] ** 2 - 1.0) ** 2 + x[1] ** 2, np.array([x[0] ** 3 - x[0], 2.0 * x[1]])

    def hessian(x):
        return np.diag([3.0 * x[0] ** 2 - 1.0, 2.0])

    start = np.array([0.1, 1.0])
    assert start[0] - double_well(start)[1][0] / hessian(start)[0, 0] < 0.01
    found = minimise(double_well, start, lambda value: 1e-8, 50, 1e-16, hessian)
    assert found.converged
    np.testing.assert_allclose(found.position, [1.0, 0.0], atol=1e-7)


def test_there_is_a_hessian_for_each_evaluation_at_most():
    """Each is a pass over the data."""
    calls = []

    def hessian(x):
        calls.append(1)
        return rosen_hessian(x)

    found = minimise(rosenbrock, np.array([-1.2, 1.0]), lambda _: 1e-8, 100, 1e-16, hessian)
    assert found.converged and len(calls) <= found.evaluations
