"""A logistic posterior whose change of coordinates is done once, on its design matrix.

In coordinates w = centre + L u a linear model's scores are X w = X centre + (X L) u, so that a step
costs what it would without them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax.learn.tables import Table
from ergodax.target import Posterior
from ergodax.tune import Whitening


class GaussianPrior(eqx.Module):
    """log N(w; 0, scale^2 I), for w = centre + basis u."""

    scale: Float[Array, ""]
    centre: Float[Array, " d"]
    basis: Float[Array, "d d"] | None = None

    def __call__(self, u: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density up to a constant."""
        w = u if self.basis is None else self.centre + self.basis @ u
        return -0.5 * jnp.sum(w**2) / self.scale**2


def bernoulli(w: Float[Array, " d"], example: PyTree) -> Float[Array, ""]:
    """The log-likelihood of one (features, offset, label in {0, 1})."""
    x, offset, y = example
    logit = x @ w + offset
    return y * logit - jax.nn.softplus(logit)


def logistic_posterior(table: Table, prior_scale: float) -> Posterior:
    """The posterior of the coefficients w, with w ~ N(0, prior_scale^2 I).

    Args:
        table: standardised, with its intercept.
        prior_scale: standard deviation of each coefficient.
    """
    x = jnp.asarray(table.features, jnp.float32)
    y = jnp.asarray(table.target, jnp.float32)
    prior = GaussianPrior(jnp.asarray(prior_scale, x.dtype), jnp.zeros(x.shape[1], x.dtype))
    return Posterior(prior, bernoulli, (x, jnp.zeros_like(y), y))


def whitened(posterior: Posterior, whitening: Whitening) -> Posterior:
    """The same posterior in the coordinates u, w = centre + basis u."""
    x, _, y = posterior.data
    prior = GaussianPrior(posterior.log_prior.scale, whitening.centre, whitening.basis)  # pyright: ignore
    return Posterior(prior, bernoulli, (x @ whitening.basis, x @ whitening.centre, y))
