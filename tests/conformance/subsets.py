"""Models with the bounds, the parts and the surrogates that some Metropolis tests ask for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from conformance.positions import DATA, DIMENSION, START, flat, log_prior, minibatch

FEATURES = np.random.default_rng(2).normal(size=(20, DIMENSION))
LABELS = np.arange(20) % 2


def model() -> ex.Posterior:
    """The normal model of every other row of the registry."""
    return minibatch().target


def spread(position: Any, proposal: Any) -> Any:
    """The range over the rows of the change of the log-likelihood, (s' - s) (y - (s + s') / 2)."""
    change = jnp.sum(flat(proposal)) - jnp.sum(flat(position))
    return jnp.abs(change) * jnp.asarray(np.ptp(DATA), change.dtype)


def nothing_left(position: Any, proposal: Any, centre: Any) -> Any:
    """Taylor polynomials of second order are exact for this model."""
    return jnp.zeros((), flat(position).dtype)


def distance(position: Any, proposal: Any) -> Any:
    """|s' - s| (1 + |s + s'| / 2), for constants 1 + |y|."""
    old, new = jnp.sum(flat(position)), jnp.sum(flat(proposal))
    return jnp.abs(new - old) * (1.0 + 0.5 * jnp.abs(new + old))


def log_likelihood(position: Any, example: Any) -> Any:
    w = flat(position)
    x, y = (z.astype(w.dtype) for z in example)
    return jax.nn.log_sigmoid((2.0 * y - 1.0) * (x @ w))


def logistic() -> ex.Posterior:
    return ex.Posterior(log_prior, log_likelihood, (FEATURES, LABELS))


def confidence(h: float, **options: Any) -> ex.Kernel:
    return ex.exact.confidence(model(), h, spread, batch_size=4, **options)


def confidence_with_proxies(h: float) -> ex.Kernel:
    return ex.exact.confidence(model(), h, nothing_left, batch_size=4, centre=START)


def firefly(h: float, **options: Any) -> ex.Kernel:
    centre = options.pop("centre", None)
    bound = ex.exact.LogisticBound(FEATURES, LABELS, centre=centre)
    return ex.exact.firefly(logistic(), h, bound, **options)


def tuna(h: float, **options: Any) -> ex.Kernel:
    return ex.exact.tuna(model(), h, 1.0 + np.abs(DATA), distance=distance, **options)


def half(position: Any) -> Any:
    """The potential of the normal model, estimated from every second row."""
    return model().potential_on(position, jnp.asarray(DATA[::2]))


def quartic(position: Any) -> Any:
    return 0.01 * jnp.sum(flat(position) ** 4)


def half_and_quartic(position: Any) -> Any:
    return half(position) + quartic(position)


def split_hmc(h: float, **options: Any) -> ex.Kernel:
    slow, fast = ex.Target(half), ex.Target(quartic)
    return ex.split_hmc(slow, fast, h, num_leapfrog_steps=2, num_inner_steps=3, **options)


def hmc_on_a_surrogate(h: float) -> ex.Kernel:
    surrogate = ex.Target(half)
    inner = ex.hmc(ex.FullGradient(surrogate), h, num_leapfrog_steps=3)
    return ex.exact.delayed_acceptance(model(), surrogate, inner)


def split_hmc_on_a_surrogate(h: float, **options: Any) -> ex.Kernel:
    surrogate = ex.Target(half_and_quartic)
    return ex.exact.delayed_acceptance(model(), surrogate, split_hmc(h), **options)
