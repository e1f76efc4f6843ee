"""Learning coefficients of linear networks, against quadrature and HMC with exact gradients.

Within five errors, those of the references included.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from benchmarks.local import cases
from ergodax.local.law import local_law
from ergodax.local.rounds import sampled
from ergodax.tune.budget import Deadline

pytestmark = pytest.mark.slow
SIGMAS = 5.0


@pytest.mark.parametrize(("outputs", "exact"), [(2, 1.4966132), (3, 1.9202915)])
def test_a_product_of_two_layers(outputs, exact):
    """t E[|B A|^2 / 2] at t = 10^6, gamma = 1, by quadrature; (2, 3): lambda = 2, m = 2."""
    weights = {"a": jnp.zeros((2, 2)), "b": jnp.zeros((outputs, 2))}
    found = ex.local.learning_coefficient(
        lambda w, _: 0.5 * jnp.sum((w["b"] @ w["a"]) ** 2),
        weights,
        jnp.zeros(1),
        key=jax.random.key(0),
        temperature=1e-6,
        accuracy=0.12,
        max_seconds=100.0,
    )
    assert found.ok and abs(found.estimate - exact) < SIGMAS * found.mc_error


def test_reduced_rank_regression():
    """Beside HMC with exact gradients, whose settings were found by hand, on the same rows."""
    case = cases.linear_network((2, 2, 2), 1, 200)
    exact, error = case.reference()
    found = ex.local.learning_coefficient(
        case.loss, case.weights, case.data, key=jax.random.key(0), accuracy=0.1, max_seconds=100.0
    )
    assert found.ok
    assert abs(found.estimate - exact) < SIGMAS * np.hypot(found.mc_error, error)


def test_many_dimensions_need_few_draws():
    """10^4 parameters, and a step that suits the law, although it would be refused at w*."""
    case = cases.quadratic(10_000, 1e4, 10.0)
    law = local_law(case.loss, case.weights, case.data, case.temperature, case.localization)
    run = sampled(law, jax.random.key(0), 4, 0.05, Deadline.after(100.0))
    assert run.told.enough(0.05) and run.trace.energy.shape[1] < 200
    assert abs(run.told.mean - case.reference()[0]) < 0.02 * run.told.mean
