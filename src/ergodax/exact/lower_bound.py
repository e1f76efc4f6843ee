"""Lower bounds of likelihoods, and what the likelihoods exceed them by."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ergodax.data.arrays import take
from ergodax.target.posterior import Posterior


class LowerBound(eqx.Module):
    """Functions B_i with 0 < B_i <= L_i whose product over all rows costs no pass over them."""

    @abc.abstractmethod
    def log_bounds(self, position: PyTree, rows: Int[Array, " n"]) -> Float[Array, " n"]:
        """log B_i of these rows, at a position as the kernels hold it."""

    @abc.abstractmethod
    def log_bound_sum(self, position: PyTree) -> Float[Array, ""]:
        """The sum of log B_i over all rows, up to a constant."""


class Excess(eqx.Module):
    """log(L_i / B_i), which is never negative if the bounds are bounds."""

    posterior: Posterior
    bound: LowerBound

    def __call__(
        self, position: PyTree, rows: Int[Array, " n"]
    ) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
        """The excess of each of these rows, at least 0, and whether its bound holds."""
        rows = jnp.minimum(rows, self.posterior.num_data - 1)
        likelihoods = self.posterior.log_likelihoods(position, take(self.posterior.data, rows))
        gap = likelihoods - self.bound.log_bounds(position, rows).astype(likelihoods.dtype)
        rounding = jnp.finfo(gap.dtype).eps ** 0.5 * (1.0 + jnp.abs(likelihoods))
        return jnp.maximum(gap, 0.0), gap >= -rounding
