"""Wrong calls of the Metropolis tests on subsets of the data, on parts and on surrogates."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.

import jax
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


def target():
    return ex.Target(lambda w: 0.5 * jnp.sum(w**2))


def split_hmc(slow=None, fast=None, step_size=0.1, **options):
    slow, fast = (target() if part is None else part for part in (slow, fast))
    return ex.split_hmc(slow, fast, step_size, **options)


def condense(of=None, centre=(0.0, 0.0), draws=((1.0, 0.0), (0.0, 1.0)), **options):
    centre, draws = (x if isinstance(x, dict) else jnp.asarray(x) for x in (centre, draws))
    return ex.exact.condense(of or posterior(), centre, draws, **{"most": 2, **options})


def hmc(target, **options):
    return ex.hmc(ex.FullGradient(target), 0.1, **options)


HOT = target()


def delayed(of=None, surrogate=None, inner=None, **options):
    surrogate = target() if surrogate is None else surrogate
    inner = hmc(surrogate) if inner is None else inner
    return ex.exact.delayed_acceptance(of or posterior(), surrogate, inner, **options)


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
    "split hmc, an estimator": Case(
        lambda: split_hmc(ex.NoisyGradient(target(), 1.0)),
        TypeError,
        ("slow", "ex.Target", "NoisyGradient"),
    ),
    "split hmc, a function": Case(
        lambda: split_hmc(fast=jnp.sum), TypeError, ("fast", "ex.Target", "ex.Posterior")
    ),
    "split hmc, step size": Case(
        lambda: split_hmc(step_size=0.0), ValueError, ("step_size", "0.0")
    ),
    "split hmc, outer steps": Case(
        lambda: split_hmc(num_leapfrog_steps=0), ValueError, ("num_leapfrog_steps", "at least 1")
    ),
    "split hmc, inner steps": Case(
        lambda: split_hmc(num_inner_steps=2.0), TypeError, ("num_inner_steps", "2.0")
    ),
    "split hmc, mass": Case(lambda: split_hmc(mass=-1.0), ValueError, ("mass", "negative")),
    "split hmc, temperature": Case(
        lambda: split_hmc(temperature=-1.0), ValueError, ("temperature", "-1.0")
    ),
    "split hmc, a position that one part does not take": Case(
        lambda: split_hmc(fast=ex.Target(lambda w: w["a"])).init(jax.random.key(0), jnp.ones(2)),
        ValueError,
        ("the target can't be evaluated at this position", "float32[2]"),
    ),
    "condense, no data": Case(lambda: condense(target()), TypeError, ("posterior", "ex.Posterior")),
    "condense, spread": Case(lambda: condense(spread=0.0), ValueError, ("spread", "positive")),
    "condense, spread, text": Case(lambda: condense(spread="1"), TypeError, ("spread", "'1'")),
    "condense, most": Case(lambda: condense(most=7), ValueError, ("most", "rows, 6", "7")),
    "condense, most, fraction": Case(lambda: condense(most=0.5), TypeError, ("most", "0.5")),
    "condense, keep": Case(
        lambda: condense(keep=np.array([6])), ValueError, ("keep", "0 to 5", "6")
    ),
    "condense, keep, negative": Case(
        lambda: condense(keep=np.array([-1])), ValueError, ("keep", "0 to 5", "-1")
    ),
    "condense, keep, weights": Case(
        lambda: condense(keep=np.ones(6)), TypeError, ("keep", "integers", "float64")
    ),
    "condense, centre": Case(
        lambda: condense(centre=np.zeros(3)), ValueError, ("position", "float32[3]")
    ),
    "condense, draws of another shape": Case(
        lambda: condense(draws=np.ones((4, 3))), ValueError, ("draws", "(4, 3)", "centre")
    ),
    "condense, draws of another tree": Case(
        lambda: condense(draws={"w": np.ones((4, 2))}), ValueError, ("draws", "like the centre")
    ),
    "condense, one draw": Case(
        lambda: condense(draws=np.ones((1, 2))), ValueError, ("draws", "at least 2", "16")
    ),
    "condense, draws not finite": Case(
        lambda: condense(draws=[[0.0, np.nan], [0.0, 1.0]]), ValueError, ("draws", "NaN", "Drop")
    ),
    "condense, no likelihood at the centre": Case(
        lambda: condense(ex.Posterior(jnp.sum, lambda w, e: jnp.log(w[0] - 1.0), X)),
        ValueError,
        ("not finite at the centre", "ex.find_mode"),
    ),
    "condensed, parts": Case(
        lambda: condense().split(np.array([2])), ValueError, ("steep", "0 to 1", "2")
    ),
    "delayed acceptance, an estimator": Case(
        lambda: delayed(ex.FullGradient(target())), TypeError, ("target", "ex.Target", "FullGrad")
    ),
    "delayed acceptance, surrogate": Case(
        lambda: delayed(surrogate=jnp.sum, inner=hmc(target())), TypeError, ("surrogate", "ex.T")
    ),
    "delayed acceptance, inner": Case(
        lambda: delayed(inner=ex.FullGradient(target())), TypeError, ("kernel", "init and step")
    ),
    "delayed acceptance, inner on the target": Case(
        lambda: delayed(inner=hmc(posterior())), ValueError, ("inner", "surrogate", "ex.hmc")
    ),
    "delayed acceptance, inner on another copy": Case(
        lambda: delayed(inner=hmc(target())), ValueError, ("inner", "surrogate", "ex.hmc")
    ),
    "delayed acceptance, inner too hot": Case(
        lambda: delayed(surrogate=HOT, inner=hmc(HOT, temperature=2.0)),
        ValueError,
        ("inner", "temperature 1", "2"),
    ),
    "delayed acceptance, condensed from another target": Case(
        lambda: delayed(posterior(), condense()), ValueError, ("target", "surrogate.posterior")
    ),
    "delayed acceptance, inner steps": Case(
        lambda: delayed(num_inner_steps=0), ValueError, ("num_inner_steps", "at least 1")
    ),
    "delayed acceptance, inner steps, fraction": Case(
        lambda: delayed(num_inner_steps=1.5), TypeError, ("num_inner_steps", "1.5")
    ),
}
