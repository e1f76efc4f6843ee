"""Wrong calls of infer."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.
import jax
import jax.numpy as jnp

import ergodax as ex
from ergodax.tune.infer import infer
from unit.wrong_calls.case import Case


def run(target=None, init=None, **options):
    target = ex.Target(lambda x: 0.5 * jnp.sum(x**2)) if target is None else target
    init = jnp.zeros(2) if init is None else init
    return infer(target, init, **{"key": jax.random.key(0), "progress": False} | options)


def shapes():
    return run(ex.targets.gaussian(jnp.zeros(3), jnp.eye(3)), jnp.zeros(2))


CASES = {
    "target, a function": Case(lambda: run(jnp.sum), TypeError, ("target", "ex.Posterior")),
    "accuracy, zero": Case(lambda: run(accuracy=0.0), ValueError, ("accuracy", "0.0", "Try 0.05")),
    "num_chains, one": Case(lambda: run(num_chains=1), ValueError, ("num_chains", "at least 2")),
    "key, a number": Case(lambda: run(key=3), TypeError, ("key", "jax.random.key")),
    "init, integers": Case(
        lambda: run(init=jnp.zeros(2, int)), TypeError, ("init", "floating point", "Try")
    ),
    "init, infinite": Case(lambda: run(init=jnp.full(2, jnp.inf)), ValueError, ("init", "finite")),
    "init, too short": Case(shapes, ValueError, ("position", "[2]")),
}
