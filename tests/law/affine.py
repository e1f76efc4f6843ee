"""The exact stationary law of a chain on a Gaussian target: x+ = A x + B xi + c.

A, B and c are read off the kernel's own step. The covariance then solves the discrete
Lyapunov equation S = A S A^T + B B^T and the mean is (I - A)^-1 c.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.linalg import solve_discrete_lyapunov

import ergodax as ex

from . import normals


class Step(NamedTuple):
    """One step, x+ = matrix x + noise xi + shift, and which rows belong to which variable."""

    matrix: np.ndarray
    noise: np.ndarray
    shift: np.ndarray
    rows: dict[str, np.ndarray]

    @property
    def radius(self) -> float:
        """The spectral radius; the chain is stable below 1."""
        return float(np.abs(np.linalg.eigvals(self.matrix)).max())


class Law(NamedTuple):
    """Stationary mean and covariance of a chain."""

    mean: np.ndarray
    covariance: np.ndarray
    rows: dict[str, np.ndarray]

    def cov(self, a: str = "position", b: str | None = None) -> np.ndarray:
        """The covariance of variable a with variable b."""
        return self.covariance[np.ix_(self.rows[a], self.rows[b or a])]


def variables(state: ex.State) -> dict:
    """What a step carries on: the position, the auxiliary variables, the gradient if it is kept.

    A kept gradient carries its noise into the next step, so it belongs to the linear state.
    """
    kept = {} if state.estimate is None else {"gradient": state.estimate.gradient}
    return {"position": state.position, **state.auxiliary, **kept}


def replaced(state: ex.State, values: dict) -> ex.State:
    """The state with these variables."""
    values = dict(values)
    position = values.pop("position")
    estimate = state.estimate
    if "gradient" in values:
        estimate = eqx.tree_at(lambda e: e.gradient, estimate, values.pop("gradient"))
    return ex.State(position, values, state.gradient, estimate, state.step)


@eqx.filter_jit
def _derivatives(kernel, position):
    state = normals.start(kernel, position)
    flat, unravel = ravel_pytree(variables(state))

    def step(x, xi):
        with normals.dealt(xi):
            new, _ = kernel.step(normals.key(), replaced(state, unravel(x)))
        return ravel_pytree(variables(new))[0]

    x, xi = jnp.zeros_like(flat), jnp.zeros(normals.count(kernel, state))
    matrix, noise = jax.jacfwd(step, argnums=(0, 1))(x, xi)
    keys = jax.random.split(normals.key())
    elsewhere = jax.random.normal(keys[0], x.shape), jax.random.normal(keys[1], xi.shape)
    shift = step(x, xi)
    error = matrix @ elsewhere[0] + noise @ elsewhere[1] + shift - step(*elsewhere)
    places = unravel(jnp.arange(flat.size, dtype=flat.dtype))
    rows = {name: ravel_pytree(value)[0] for name, value in places.items()}
    return matrix, noise, shift, error, rows


def linear_step(kernel: ex.Kernel, position) -> Step:
    """Read A, B and c off a step, and check at a random state that it is affine."""
    out = jax.tree.map(np.asarray, _derivatives(kernel, jax.tree.map(jnp.asarray, position)))
    matrix, noise, shift, error, rows = out
    np.testing.assert_allclose(error, 0.0, atol=1e-9, err_msg="the step is not affine")
    return Step(matrix, noise, shift, {name: row.astype(int) for name, row in rows.items()})


def stationary(kernel: ex.Kernel, position) -> Law:
    """The stationary law of the chain that the kernel makes."""
    step = linear_step(kernel, position)
    assert step.radius < 1.0, f"unstable: spectral radius {step.radius}"
    covariance = solve_discrete_lyapunov(step.matrix, step.noise @ step.noise.T)
    mean = np.linalg.solve(np.eye(len(step.shift)) - step.matrix, step.shift)
    return Law(mean, covariance, step.rows)


def assert_covariance(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-10) -> None:
    """Equal up to `tolerance` of the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())
