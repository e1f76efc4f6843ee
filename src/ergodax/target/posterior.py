"""A posterior: a prior, the likelihood of one example, and the data."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.data.arrays import as_data, needs_memory, num_rows
from ergodax.data.source import Source, stacked
from ergodax.target.base import AbstractTarget, returned
from ergodax.target.base import refusal as _refusal
from ergodax.transform import as_constraints, log_jacobian


class Posterior(AbstractTarget):
    """The posterior of N independent examples.

    U(position) = -log_prior(position) - sum over i of log_likelihood(position, example_i).
    The likelihood is of ONE example; mapping over a batch, and the factor N/n that makes a
    batch speak for the whole data, are done here and nowhere else.

    Args:
        log_prior: position -> scalar, up to a constant; `lambda w: 0` for a flat prior.
        log_likelihood: (position, example) -> scalar, up to a constant; `example` has the
            structure of `data` without the leading axis.
        data: arrays, or any tree of them, with one leading axis of length N in common; or a
            source such as ex.data.npy, which is read while a chain runs.
        batched: whether log_likelihood takes a batch of n examples and returns shape (n,).
            For likelihoods that are faster so; the default maps the single-example one.
        constraints: of the position's leaves, by name, by path ("effects.sd") or as a tree like
            the top of the position: {"sigma": ex.transform.positive}. Samplers then move in
            unconstrained numbers. The functions, starts and draws have constrained values, and
            log_prior is their density; its Jacobian is added here.

    Raises:
        ValueError: empty data, leading axes that disagree, NaN or infinity in the data.
        TypeError: a function that can't be called, a constraint that is no transform, or data that
            are not numbers.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> x = jnp.array([0.5, -0.3, 1.2])
        >>> posterior = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> posterior.num_data
        3
    """

    log_prior: Callable[[PyTree], Float[Array, ""] | float]
    log_likelihood: Callable[[PyTree, PyTree], Any]
    data: PyTree
    batched: bool = eqx.field(static=True)
    constraints: Any = eqx.field(static=True, repr=False)  # with a `freeze`, or None

    def __init__(
        self,
        log_prior: Callable[[PyTree], Float[Array, ""] | float],
        log_likelihood: Callable[[PyTree, PyTree], Any],
        data: PyTree,
        *,
        batched: bool = False,
        constraints: Any = None,
    ) -> None:
        for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
            if not callable(function):
                raise TypeError(f"{name} must be a function, not {function!r}.")
        self.log_prior = log_prior
        self.log_likelihood = log_likelihood
        self.data = as_data(data)
        self.batched = batched
        self.constraints = as_constraints(constraints)

    @property
    def num_data(self) -> int:
        """N, the number of examples."""
        return num_rows(self.data)

    @property
    def evaluations(self) -> int:
        """N."""
        return self.num_data

    def _potential_as_checked(self, position: PyTree) -> Float[Array, ""]:
        """Of two rows where the data are a source."""
        if not isinstance(self.data, Source):
            return self.potential(position)
        rows = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), stacked(self.data.example, 2))
        return self.potential_on(position, rows)

    def log_likelihoods(self, position: PyTree, batch: PyTree) -> Float[Array, " n"]:
        """The log-likelihood of each example of a batch.

        Raises:
            TypeError: the user's function returns the wrong shape.
        """
        position = tree.thaw(position)
        n = num_rows(batch)
        if self.batched:
            values = returned("log_likelihood", self.log_likelihood(position, batch))
            if jnp.shape(values) != (n,):
                raise _refusal(
                    f"log_likelihood with batched=True must return one number for each of the {n} "
                    f"examples, shape ({n},), not shape {jnp.shape(values)}."
                )
            return values
        values = jax.vmap(self.log_likelihood, in_axes=(None, 0))(position, batch)
        returned("log_likelihood", values)
        if jnp.shape(values) != (n,):
            raise _refusal(
                "log_likelihood must return a scalar for ONE example, not shape "
                f"{jnp.shape(values)[1:]}. Sum over the example's own axes, or pass batched=True "
                "if the function takes a whole batch and returns one number for each example."
            )
        return values

    def potential_on(self, position: PyTree, batch: PyTree) -> Float[Array, ""]:
        """The unbiased estimate of U from a batch of n: -log_prior - (N/n) sum log_likelihood."""
        prior = self.prior(position)
        likelihood = jnp.sum(self.log_likelihoods(position, batch))
        return -prior - (self.num_data / num_rows(batch)) * likelihood

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U(position) of the whole data, in memory; costs N evaluations."""
        if isinstance(self.data, Source):
            raise _refusal(needs_memory("the potential", "ex.find_mode for its minimum"))
        return self.potential_on(position, self.data)

    def prior(self, position: PyTree) -> Float[Array, ""]:
        """log_prior at a position as the samplers hold it, and the log Jacobian of its constraints.

        A constant is in the position's dtype.

        Raises:
            TypeError: the user's function returns the wrong shape.
        """
        value = returned("log_prior", self.log_prior(tree.thaw(position)))
        if jnp.shape(value) != ():
            raise _refusal(
                f"log_prior must return a scalar, not shape {jnp.shape(value)}. "
                "Sum over the dimensions, as in jnp.sum(...)."
            )
        if isinstance(value, int | float) or jnp.issubdtype(jnp.result_type(value), jnp.integer):
            value = jnp.asarray(value).astype(tree.result_dtype(position))  # a flat prior: 0
        return value + log_jacobian(position)

    def prior_and_gradient(self, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
        """log_prior and its gradient (not of the potential: the sign is the prior's own)."""
        return jax.value_and_grad(self.prior)(position)

    def prior_gradient(self, position: PyTree) -> PyTree:
        """The gradient of log_prior alone."""
        return self.prior_and_gradient(position)[1]

    def per_example_gradients(self, position: PyTree, batch: PyTree) -> PyTree:
        """The score of each example: the gradient of its log-likelihood, unscaled."""
        return self.likelihoods_and_scores(position, batch)[1]

    def likelihoods_and_scores(
        self, position: PyTree, batch: PyTree
    ) -> tuple[Float[Array, " n"], PyTree]:
        """The log-likelihood of each example of a batch and its gradient, leading axis n."""

        def one(position: PyTree, example: PyTree) -> Float[Array, ""]:
            single = jax.tree.map(lambda x: x[None], example)
            return self.log_likelihoods(position, single)[0]

        return jax.vmap(jax.value_and_grad(one), in_axes=(None, 0))(position, batch)
