"""Constant-step SGD's kernel: what making it costs."""

import jax
import jax.numpy as jnp

import ergodax as ex
from tests.unit.test_traced import compilations


def test_a_second_kernel_needs_no_program():
    """The passes over the rows were compiled again for each kernel."""
    x, noise = jax.random.normal(jax.random.key(0), (2, 300))
    prior = lambda w: -0.5 * jnp.sum(w**2)  # noqa: E731
    score = lambda w, row: -0.5 * (row[1] - w[0] - w[1] * row[0]) ** 2  # noqa: E731

    def make(shift):
        posterior = ex.Posterior(prior, score, (x, x + noise + shift))
        return lambda: ex.constant_sgd(ex.Minibatch(posterior, 10), jnp.array([shift, 1.0]))

    one, other = make(0.0), make(1.0)
    one()
    assert compilations(one) == 0
    assert compilations(other) == 0
