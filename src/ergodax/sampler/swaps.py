"""With what probability two replicas at different temperatures may exchange their places."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax.data.arrays import take
from ergodax.data.batching import WithoutReplacement
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior


def swap_probability(
    difference: Float[Array, "..."], variance: Float[Array, "..."], gap: Float[Array, "..."]
) -> Float[Array, "..."]:
    """min(1, exp(gap D - gap^2 variance / 2)), D the estimated difference: the penalty method.

    Over Gaussian noise of this variance in D, the mean A(D) of it obeys A(D) = e^(gap D) A(-D):
    swaps are in detailed balance as if the energies were exact.

    Args:
        difference: an estimate of U(x_i) - U(x_j).
        variance: of its noise.
        gap: 1 / T_i - 1 / T_j.
    """
    return jnp.exp(jnp.minimum(gap * difference - 0.5 * gap**2 * variance, 0.0))


def neighbours(num_replicas: int, number: Int[Array, ""]) -> Bool[Array, " pairs"]:
    """Which pairs (i, i + 1) make an attempt: even and odd i in turn; with two replicas the one.

    Args:
        num_replicas: R, at least 2.
        number: of the round, from 0.
    """
    pairs = jnp.arange(num_replicas - 1, dtype=jnp.int32)
    return pairs % 2 == (number % 2 if num_replicas > 2 else 0)


class Energies(eqx.Module):
    """Estimates U(x_i) - U(x_(i+1)) for the neighbouring pairs of R replicas.

    Attributes:
        target: the target.
        batch_size: how many examples an estimate is from; None for the exact U.
    """

    target: AbstractTarget
    batch_size: int | None = eqx.field(static=True)

    @property
    def evaluations(self) -> int:
        """Examples that are evaluated for each replica; 1 where there are no data."""
        whole = self.target.num_data if isinstance(self.target, Posterior) else 1
        return whole if self.batch_size is None else self.batch_size

    def differences(
        self, key: PRNGKeyArray, positions: PyTree
    ) -> tuple[Float[Array, " pairs"], Float[Array, " pairs"]]:
        """The differences, and the variances of their noise."""
        target, n = self.target, self.batch_size
        if isinstance(target, Posterior) and n is not None:
            rows, _ = WithoutReplacement().draw(key, None, target.num_data, n)
            return differences_on(target, positions, take(target.data, rows))
        exact = -jnp.diff(jax.vmap(target.potential)(positions))
        return exact, jnp.zeros_like(exact)


def differences_on(
    posterior: Posterior, positions: PyTree, batch: PyTree
) -> tuple[Float[Array, " pairs"], Float[Array, " pairs"]]:
    """U(x_i) - U(x_(i+1)) from one batch for all replicas, and the variances of the noise.

    With the batch in common, the noise is that of the examples' differences in log-likelihood
    alone: its variance is N (N - n) / n times theirs.

    Args:
        posterior: the target.
        positions: leading axis R.
        batch: n distinct rows of the data.
    """

    def at(position: PyTree) -> tuple[Array, Array]:
        prior = posterior.prior(position)
        return prior, posterior.log_likelihoods(position, batch)

    priors, likelihoods = jax.vmap(at)(positions)
    change = jnp.diff(likelihoods, axis=0)
    num_data, n = posterior.num_data, change.shape[1]
    factor = WithoutReplacement().noise_factor(num_data, n)
    variance = factor * jnp.var(change, axis=1, ddof=min(1, n - 1))
    return jnp.diff(priors) + num_data * jnp.mean(change, axis=1), variance


def energies_for(gradient: Any, batch_size: Any, *, correction: bool) -> Energies:
    """The energies that swaps are decided by.

    Args:
        gradient: the estimator; its target, and its batch size if it has one.
        batch_size: another batch size, or None.
        correction: whether the variance will be needed.

    Raises:
        TypeError: a batch size for a target without data, or an estimator without a target.
        ValueError: a batch of one example, whose variance is unknown.
    """
    target = getattr(gradient, "target", None)
    if not isinstance(target, AbstractTarget):
        raise TypeError(
            f"gradient must have a target, whose energies decide the swaps, and {gradient!r} has "
            "none. Try ex.Minibatch or ex.FullGradient."
        )
    if not isinstance(target, Posterior):
        if batch_size is not None:
            raise TypeError("swap_batch_size is for targets with data; here U is exact. Omit it.")
        return Energies(target, None)
    own = gradient
    while batch_size is None and own is not None:  # an estimator may wrap another
        batch_size, own = getattr(own, "batch_size", None), getattr(own, "gradient", None)
    if batch_size is None:
        return Energies(target, None)
    WithoutReplacement().check(target.num_data, batch_size)
    if int(batch_size) == target.num_data:
        return Energies(target, None)
    if batch_size == 1 and correction:
        raise ValueError(
            "the variance of a swap's noise can't be estimated from one example: "
            "try swap_batch_size=100."
        )
    return Energies(target, int(np.asarray(batch_size)))
