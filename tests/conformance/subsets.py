"""Models with the bounds that Metropolis tests on subsets of the data ask for."""

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
