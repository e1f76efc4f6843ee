"""Targets that JAX can differentiate in reverse mode alone, or only once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.target.reverse import ReverseTarget, forward_too

CENTRE = np.array([1.0, -2.0])


def quartic(x):
    off = x - jnp.asarray(CENTRE, x.dtype)
    return jnp.sum(off**4) + 0.5 * jnp.sum(off**2) + x[0] * x[1]


@jax.custom_vjp
def slope(x):
    return jax.grad(quartic)(x)


@jax.custom_vjp
def reversed_only(x):
    """As the solver of an ODE, whose adjoint is another ODE's solution."""
    return quartic(x)


slope.defvjp(lambda x: (slope(x), x), lambda x, c: jax.jvp(jax.grad(quartic), (x,), (c,))[1:])
reversed_only.defvjp(lambda x: (quartic(x), x), lambda x, c: (c * slope(x),))


def value_outside(x):
    """NumPy's, as a simulator's would be."""
    off = x.astype(np.float64) - CENTRE
    with np.errstate(over="ignore"):  # where infer looks far out
        return np.asarray(np.sum(off**4) + 0.5 * np.sum(off**2) + x[0] * x[1], x.dtype)


def slope_outside(x):
    off = x.astype(np.float64) - CENTRE
    with np.errstate(over="ignore"):
        return np.asarray(4.0 * off**3 + off + x[::-1], x.dtype)


def called(function, shape, x):
    like = jax.ShapeDtypeStruct(shape, x.dtype)
    return jax.pure_callback(lambda x: function(np.asarray(x)), like, x, vmap_method="sequential")


@jax.custom_vjp
def outside(x):
    return called(value_outside, (), x)


outside.defvjp(lambda x: (outside(x), x), lambda x, c: (c * called(slope_outside, x.shape, x),))


@pytest.mark.parametrize(
    ("function", "exact", "error"), [(reversed_only, True, 1e-12), (outside, False, 1e-7)]
)
def test_hessians_of_what_has_no_forward_mode(x64, function, exact, error):
    position = jnp.array([0.3, -1.1])
    target = ex.Target(function)
    with pytest.raises((TypeError, ValueError)):
        jax.jit(jax.hessian(target.potential))(position)
    mended = forward_too(target, position)
    assert isinstance(mended, ReverseTarget) and mended.exact == exact
    found = jax.jit(jax.hessian(mended.potential))(position)
    np.testing.assert_allclose(found, jax.hessian(quartic)(position), rtol=error)
    value, slope = jax.jit(jax.value_and_grad(mended.potential))(position)
    np.testing.assert_allclose(value, quartic(position))
    np.testing.assert_allclose(slope, jax.grad(quartic)(position))


def test_other_targets_stay_as_they_are():
    target = ex.Target(quartic)
    assert forward_too(target, jnp.ones(2)) is target


@pytest.mark.slow
@pytest.mark.parametrize("function", [reversed_only, outside])
def test_infer_takes_them(function):
    """Means by quadrature, since the two numbers depend on each other through their product."""
    result = ex.infer(ex.Target(function), jnp.zeros(2), key=jax.random.key(0), progress=False)
    assert result.converged and "in reverse mode" in str(result)
    grid = np.stack(np.meshgrid(*[np.linspace(-5.0, 5.0, 401)] * 2, indexing="ij"), axis=-1)
    density = np.exp(-np.asarray(jax.vmap(jax.vmap(quartic))(jnp.asarray(grid))))
    mean = np.tensordot(density / density.sum(), grid, axes=2)
    assert (np.abs(result.table["mean"] - mean) < 0.2 * result.table["sd"]).all()
