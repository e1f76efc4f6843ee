"""Wrong calls of the Metropolis tests on subsets of the data."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.

import jax.numpy as jnp
import numpy as np

import ergodax as ex
from unit.wrong_calls.case import Case

X, Y = np.ones((6, 2), "f4"), np.array([0, 1, 0, 1, 1, 0], "f4")


def likelihood(w, example):
    x, y = example
    return -jnp.logaddexp(0.0, -(2.0 * y - 1.0) * (x @ w))


def posterior():
    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), likelihood, (X, Y))


def confidence(*args, **options):
    options = {"batch_size": 2, **options}
    return ex.exact.confidence(*(args or (posterior(), 0.1, ex.exact.LogisticRange(X))), **options)


def austerity(**options):
    return ex.exact.austerity(posterior(), 0.1, **{"batch_size": 2, **options})


def firefly(bound=None, **options):
    bound = ex.exact.LogisticBound(X, Y) if bound is None else bound
    return ex.exact.firefly(posterior(), 0.1, bound, **options)


def tuna(lipschitz=(1.0,) * 6, **options):
    return ex.exact.tuna(posterior(), 0.1, lipschitz, **options)


CASES = {
    "confidence, no data": Case(
        lambda: confidence(ex.Target(jnp.sum), 0.1, jnp.sum), TypeError, ("posterior", "ex.hmc")
    ),
    "confidence, bound": Case(
        lambda: confidence(posterior(), 0.1, 3.0), TypeError, ("bound", "3.0", "LogisticRange")
    ),
    "confidence, delta": Case(lambda: confidence(delta=1.0), ValueError, ("delta", "1.0")),
    "confidence, delta, text": Case(lambda: confidence(delta="0.1"), TypeError, ("delta", "0.1")),
    "confidence, inequality": Case(
        lambda: confidence(inequality="chernoff"),
        ValueError,
        ("inequality", "chernoff", "serfling"),
    ),
    "confidence, batch": Case(
        lambda: confidence(batch_size=7), ValueError, ("batch_size=7", "6 rows")
    ),
    "confidence, growth": Case(lambda: confidence(growth=0.5), ValueError, ("growth", "growth=2")),
    "confidence, growth, text": Case(lambda: confidence(growth="2"), TypeError, ("growth", "'2'")),
    "confidence, covariance": Case(
        lambda: confidence(covariance=-np.eye(2)), ValueError, ("covariance", "positive")
    ),
    "confidence, step size": Case(
        lambda: confidence(posterior(), -0.1, ex.exact.LogisticRange(X)),
        ValueError,
        ("step_size", "-0.1"),
    ),
    "austerity, epsilon": Case(lambda: austerity(epsilon=0.7), ValueError, ("epsilon", "1/2")),
    "austerity, one row": Case(
        lambda: austerity(batch_size=1), ValueError, ("batch_size", "at least 2")
    ),
    "firefly, bound": Case(lambda: firefly(3.0), TypeError, ("bound", "3.0", "LogisticBound")),
    "firefly, candidates": Case(
        lambda: firefly(candidates=0.0), ValueError, ("candidates", "positive")
    ),
    "firefly, capacity": Case(lambda: firefly(capacity=0), ValueError, ("capacity", "at least 1")),
    "firefly, leapfrog steps": Case(
        lambda: firefly(num_leapfrog_steps=1.5), TypeError, ("num_leapfrog_steps", "1.5")
    ),
    "bound, three classes": Case(
        lambda: ex.exact.LogisticBound(X, Y + np.arange(6) % 3), ValueError, ("labels", "-1 and +1")
    ),
    "bound, labels that do not fit": Case(
        lambda: ex.exact.LogisticBound(X, Y[:5]), ValueError, ("labels", "(6,)", "(5,)")
    ),
    "bound, centre": Case(
        lambda: ex.exact.LogisticBound(X, Y, centre=np.zeros(3)),
        ValueError,
        ("centre", "2 features"),
    ),
    "bound, no matrix": Case(
        lambda: ex.exact.LogisticBound(Y, Y), TypeError, ("features", "(N, d)")
    ),
    "tuna, constants that do not fit": Case(
        lambda: tuna((1.0, 2.0)), ValueError, ("lipschitz", "(6,)", "(2,)")
    ),
    "tuna, negative constants": Case(
        lambda: tuna(-np.ones(6)), ValueError, ("lipschitz", "not negative")
    ),
    "tuna, distance": Case(lambda: tuna(distance=2.0), TypeError, ("distance", "2.0")),
    "tuna, chi": Case(lambda: tuna(chi=0.0), ValueError, ("chi", "positive")),
    "tuna, block size": Case(lambda: tuna(block_size=0), ValueError, ("block_size", "at least 1")),
}
