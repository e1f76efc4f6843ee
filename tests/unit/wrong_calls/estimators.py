"""Wrong calls of the estimators with control variates."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.

import jax.numpy as jnp
import numpy as np

import ergodax as ex
from unit.wrong_calls.case import Case
from unit.wrong_calls.library import START, full, posterior, run, target


def wide():
    """A posterior of more dimensions than a dense Hessian is made for."""
    return posterior(log_likelihood=lambda w, e: e[1] * jnp.sum(w))


CASES = {
    "control variate, a target": Case(
        lambda: ex.ControlVariate(target(), 2, START), TypeError, ("posterior", "ex.FullGradient")
    ),
    "control variate, batch size": Case(
        lambda: ex.ControlVariate(posterior(), 7, START), ValueError, ("batch_size=7", "6 rows")
    ),
    "control variate, order": Case(
        lambda: ex.ControlVariate(posterior(), 2, START, order=3), ValueError, ("order", "1 or 2")
    ),
    "control variate, no centre": Case(
        lambda: ex.ControlVariate(posterior(), 2, None), ValueError, ("centre", "nothing to sample")
    ),
    "control variate, whole numbers": Case(
        lambda: ex.ControlVariate(posterior(), 2, np.ones(2, int)), TypeError, ("centre", "float")
    ),
    "control variate, a centre unlike the data": Case(
        lambda: ex.ControlVariate(posterior(), 2, jnp.ones(3)), ValueError, ("centre", "shapes")
    ),
    "control variate, a centre far away": Case(
        lambda: ex.ControlVariate(posterior(), 2, jnp.full(2, 1e30)),
        ValueError,
        ("centre", "not finite", "ex.find_mode"),
    ),
    "control variate, a position unlike the centre": Case(
        lambda: run(ex.sgld(ex.ControlVariate(posterior(), 2, START), 0.1), jnp.ones(3)),
        ValueError,
        ("centre", "(2,)", "(3,)", "ex.find_mode"),
    ),
    "control variate, dimensions": Case(
        lambda: ex.ControlVariate(wide(), 2, jnp.zeros(2001), order=2),
        ValueError,
        ("order=2", "2001", "Try order=1"),
    ),
    "svrg, period": Case(
        lambda: ex.SVRG(posterior(), 2, 0), ValueError, ("period", "at least 1", "Try 3")
    ),
    "svrg, half a period": Case(
        lambda: ex.SVRG(posterior(), 2, 1.5), TypeError, ("period", "integer", "1.5")
    ),
    "svrg, chunk": Case(
        lambda: ex.SVRG(posterior(), 2, 3, chunk=0), ValueError, ("chunk", "at least 1")
    ),
    "svrg, a target": Case(lambda: ex.SVRG(target(), 2, 3), TypeError, ("posterior",)),
    "saga, memory": Case(
        lambda: run(ex.sgld(ex.SAGA(posterior(), 2, max_bytes=50), 0.1)),
        ValueError,
        ("72 bytes", "max_bytes=50", "ex.SVRG", "ex.ControlVariate"),
    ),
    "saga, no memory": Case(
        lambda: ex.SAGA(posterior(), 2, max_bytes=-1), ValueError, ("max_bytes", "at least 1")
    ),
    "saga, a target": Case(lambda: ex.SAGA(target(), 2), TypeError, ("posterior",)),
    "score covariance of all rows, no batches": Case(
        lambda: ex.ScoreCovariance(full(), rows="all"), TypeError, ("rows", "ex.Minibatch")
    ),
    "score covariance, batches of one": Case(
        lambda: ex.ScoreCovariance(ex.SAGA(posterior(), 1)),
        ValueError,
        ("batch_size", "at least 2"),
    ),
}
