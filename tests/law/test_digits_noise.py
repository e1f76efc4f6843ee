"""How much quieter the gradient is on real data: sevens against nines, at stationarity."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.learn import families, regression, tables
from ergodax.recipe.operators import Scalar

MNIST = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist.npz"
BATCH, CHAINS, STEPS = 100, 8, 400

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MNIST.exists(), reason="shared data are not here"),
]


@pytest.fixture(scope="module")
def problem():
    """The posterior of 129 coefficients, its mode, and the inverse of the Hessian there."""
    train = tables.read_npz(MNIST, "x_train", "y_train", ("7", "9"))
    (train,) = tables.varying([train], 128)
    rows = regression.Rows(train.features, train.target, train.names, classes=train.classes)
    model = regression.regression(rows, families.LOGISTIC, 10.0)
    posterior = model.posterior
    mode = ex.find_mode(posterior, model.init).position
    covariance = np.linalg.inv(np.asarray(jax.hessian(posterior.potential)(mode), np.float64))
    return posterior, mode, covariance


def trace(gradient, problem, key):
    """The trace of the gradient's covariance, at the last positions of preconditioned SGLD."""
    _, mode, covariance = problem
    scores = ex.ScoreCovariance(gradient, "scalar", rows="all", chunk=1018)
    preconditioner = jnp.asarray(covariance, jnp.float32)
    kernel = ex.sgld(gradient, 0.05, preconditioner=preconditioner)
    samples = ex.sample(kernel, mode, STEPS, key=key, num_chains=CHAINS, thin=STEPS, progress=False)
    last = samples.final_state

    def measure(key, state, position):
        inner = ex.tree.freeze(position)
        start = scores.init(key, inner)
        start = type(start)(state, start.covariance, start.weight, start.step)
        covariance = scores.estimate(key, start, inner)[0].covariance
        assert isinstance(covariance, Scalar)
        return covariance.value

    keys = jax.random.split(key, CHAINS)
    values = jax.jit(jax.vmap(measure))(keys, last.gradient, last.position)
    return float(jnp.mean(values)) * mode.size


def test_control_variates_and_snapshots_are_ten_times_quieter(problem, key):
    posterior, mode, _ = problem
    period = posterior.num_data // BATCH
    estimators = {
        "plain": ex.Minibatch(posterior, BATCH),
        "control variates": ex.ControlVariate(posterior, BATCH, mode),
        "order 2": ex.ControlVariate(posterior, BATCH, mode, order=2),
        "snapshots": ex.SVRG(posterior, BATCH, period),
    }
    traces = {name: trace(gradient, problem, key) for name, gradient in estimators.items()}
    gains = {name: traces["plain"] / value for name, value in traces.items()}
    print(gains)  # shown by pytest -rA
    assert max(gains["control variates"], gains["snapshots"]) > 10
    assert min(gains["control variates"], gains["snapshots"], gains["order 2"]) > 5
