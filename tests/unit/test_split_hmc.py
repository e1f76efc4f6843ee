"""The nested leapfrog: reversible, symplectic, of second order; and what split HMC counts.

Each property stands beside an integrator that lacks it.
"""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

import ergodax as ex
from ergodax.integrator import hamiltonian
from ergodax.integrator.hamiltonian import leapfrog, nested_leapfrog
from ergodax.recipe.operators import as_definite

pytestmark = pytest.mark.usefixtures("x64")

MASS = as_definite(np.array([[1.0, 0.3], [0.3, 2.0]]), "mass")
Z = np.array([0.4, -0.9, 0.8, 0.5])  # position and momentum


def gentle(x):
    """Two minima along one coordinate, coupled to the other."""
    return 0.25 * (x[0] ** 2 - 1.0) ** 2 + 0.5 * (x[1] - 0.3 * x[0] ** 2) ** 2


def steep(x):
    return 2.0 * jnp.log(jnp.cosh(5.0 * (x[0] + x[1])))


def nothing(x):
    return 0.0 * jnp.sum(x)


def carried(z, slow=gentle, fast=steep, *, h=0.1, mass=MASS, steps=5, inner=4):
    """(x, r) at the end of a trajectory."""
    x, r = jnp.split(z, 2)
    slow, fast = jax.value_and_grad(slow), jax.value_and_grad(fast)
    x, r, _ = nested_leapfrog(slow, fast, x, r, (slow(x), fast(x)), mass, h, steps, inner)
    return jnp.concatenate([x, r])


def lame(z, slow=gentle, fast=steep, *, h=0.1, **options):
    """The same with a whole kick at the beginning of each step and none at its end."""
    x, r = jnp.split(jnp.asarray(z), 2)
    z = carried(jnp.concatenate([x, r - 0.5 * h * jax.grad(slow)(x)]), slow, fast, h=h, **options)
    x, r = jnp.split(z, 2)
    return jnp.concatenate([x, r + 0.5 * h * jax.grad(slow)(x)])


def euler(value_and_gradient, x, r, start, mass, h, num_steps):
    """Stands in for the inner leapfrog: position and momentum move at once."""
    for _ in range(num_steps):
        x, r = x + h * mass.solve(r), r - h * start[1]
        start = value_and_gradient(x)
    return x, r, start


def flipped(z):
    return z * jnp.repeat(jnp.array([1.0, -1.0]), z.size // 2)


def way_back(integrator):
    """How far from the start it comes back to, with the momentum flipped at the end."""
    return float(jnp.max(jnp.abs(flipped(integrator(flipped(integrator(Z)))) - Z)))


def test_it_is_reversible():
    assert way_back(carried) < 1e-13
    assert way_back(lame) > 1e-2


def unsymplectic(integrator):
    """How far J^T S J is from S, and the determinant of J from 1."""
    jacobian = np.asarray(jax.jacfwd(integrator)(jnp.asarray(Z)))
    form = np.kron([[0.0, 1.0], [-1.0, 0.0]], np.eye(2))
    return np.abs(jacobian.T @ form @ jacobian - form).max(), abs(np.linalg.det(jacobian) - 1.0)


@pytest.mark.slow
def test_it_preserves_volume():
    assert max(unsymplectic(carried)) < 1e-12
    with mock.patch.object(hamiltonian, "leapfrog", euler):
        assert min(unsymplectic(carried)) > 1e-2


def order(integrator):
    """Slopes of the error at time 1/2 of an oscillator whose potential is split in two."""
    slow, fast = (lambda x, k=k: 0.5 * k * jnp.sum(x**2) for k in (4.0, 5.0))
    exact = linalg.expm(0.5 * np.array([[0.0, 1.0], [-9.0, 0.0]]))
    unit, errors = as_definite(1.0, "mass"), []
    for n in (8, 16, 32, 64):
        step = lambda z, n=n: integrator(  # noqa: E731
            z, slow, fast, h=0.5 / n, mass=unit, steps=n, inner=2
        )
        errors.append(np.abs(np.asarray(jax.jacfwd(step)(jnp.zeros(2))) - exact).max())
    return np.log2(np.divide(errors[:-1], errors[1:]))


def test_it_is_of_second_order():
    slopes = order(carried)
    assert (np.abs(slopes - 2.0) < 0.1).all(), slopes
    slopes = order(lame)
    assert (np.abs(slopes - 1.0) < 0.2).all(), slopes


@pytest.mark.parametrize(
    "slow, fast, h, steps", [(gentle, nothing, 0.1, 5), (nothing, steep, 0.025, 20)]
)
def test_with_one_part_alone_it_is_leapfrog(slow, fast, h, steps):
    whole = jax.value_and_grad(lambda x: slow(x) + fast(x))
    x, r = jnp.split(jnp.asarray(Z), 2)
    x, r, _ = leapfrog(whole, x, r, whole(x), MASS, h, steps)
    np.testing.assert_allclose(carried(Z, slow, fast), jnp.concatenate([x, r]), rtol=1e-13)


def test_with_both_parts_it_is_not():
    whole = jax.value_and_grad(lambda x: gentle(x) + steep(x))
    x, r = jnp.split(jnp.asarray(Z), 2)
    x, r, _ = leapfrog(whole, x, r, whole(x), MASS, 0.1, 5)
    assert float(jnp.max(jnp.abs(carried(Z) - jnp.concatenate([x, r])))) > 1e-2


@pytest.mark.slow
def test_evaluations_are_those_of_both_parts():
    """Of data, N for each outer step; of a function without data, one for each inner step."""
    data = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * (x - w[0]) ** 2, jnp.ones(30)
    )
    assert data.evaluations == 30 and ex.Target(steep).evaluations == 1
    for parts, expected in (
        ((data, ex.Target(steep)), 3 * (30 + 7 * 1)),
        ((ex.Target(steep), data), 3 * (1 + 7 * 30)),
    ):
        kernel = ex.split_hmc(*parts, 0.01, num_leapfrog_steps=3, num_inner_steps=7)
        info = ex.sample(kernel, jnp.zeros(2), 3, key=jax.random.key(0), progress=False).info
        np.testing.assert_array_equal(info.evaluations, expected)


@pytest.mark.slow
def test_info_is_of_the_whole_potential():
    kernel = ex.split_hmc(ex.Target(gentle), ex.Target(steep), 0.2, num_inner_steps=4)
    draws = ex.sample(kernel, jnp.zeros(2), 40, key=jax.random.key(0), progress=False)
    whole = jax.vmap(jax.value_and_grad(lambda x: gentle(x) + steep(x)))
    potential, gradient = whole(jnp.asarray(draws.position[0]))
    assert 0 < draws.info.accepted.sum() < 40
    np.testing.assert_allclose(draws.info.potential[0], potential, rtol=1e-12)
    norms = jnp.linalg.norm(gradient, axis=1)
    np.testing.assert_allclose(draws.info.gradient_norm[0], norms, rtol=1e-10)


def test_the_cost_is_that_of_all_inner_steps():
    """3 steps of a slow gradient of 5 rows, each with 4 of a fast one of 2."""
    parts = [
        ex.Posterior(
            lambda w: -0.5 * jnp.sum(w**2),
            lambda w, x: -0.5 * jnp.sum((w - x) ** 2),
            np.arange(float(rows)),
        )
        for rows in (5, 2)
    ]
    slow, fast = parts
    kernel = ex.split_hmc(slow, fast, 0.1, num_leapfrog_steps=3, num_inner_steps=4)
    _, info = kernel.step(jax.random.key(1), kernel.init(jax.random.key(0), jnp.zeros(2)))
    assert int(info.evaluations) == 3 * (5 + 4 * 2)
