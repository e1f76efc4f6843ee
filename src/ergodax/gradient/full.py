"""Gradients from the whole target: exact, or with Gaussian noise of known law added."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import Estimate, Estimated, GradientEstimator, check_estimator
from ergodax.gradient.batches import check_resident
from ergodax.recipe.operators import Operator, as_operator
from ergodax.target.base import AbstractTarget


class FullGradient(GradientEstimator):
    """The gradient of U itself, from all N examples where there are data.

    Args:
        target: a Target, Posterior or analytic target.

    Raises:
        TypeError: not a target, or a posterior of a source.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> found, _ = ex.FullGradient(model).estimate(jax.random.key(0), None, jnp.float32(1.0))
        >>> round(float(found.gradient), 4), int(found.evaluations)  # 101 m - 100
        (1.0, 100)
    """

    target: AbstractTarget

    def __init__(self, target: AbstractTarget) -> None:
        self.target = check_target(target)
        check_resident(target, "FullGradient", "ex.Minibatch or ex.ControlVariate")

    def init(self, key: PRNGKeyArray, position: PyTree) -> None:
        """Nothing to remember; checks that the target can be evaluated at `position`."""
        self.target.check(position)

    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> Estimated:
        """The exact gradient; `key` is not used."""
        potential, gradient = self.target.value_and_gradient(position)
        cost = jnp.int32(self.target.evaluations)
        return Estimate(gradient, potential, evaluations=cost), state


class NoisyGradient(GradientEstimator):
    """grad U(position) + N(0, V), with V constant or a function of the position.

    Args:
        target: any target.
        covariance: V as a number (a multiple of I), a vector (its diagonal), a matrix, an
            operator, or a function of the position that returns one of these.

    Raises:
        TypeError: not a target.
        ValueError: a covariance that is not positive semidefinite.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> gradient = ex.NoisyGradient(target, 0.5)  # as if by batches
        >>> keys = jax.random.split(jax.random.key(0), 4_000)
        >>> one = lambda key: gradient.estimate(key, None, jnp.zeros(2))[0].gradient
        >>> bool(jnp.all(abs(jax.vmap(one)(keys).var(axis=0) - 0.5) < 0.1))
        True
    """

    target: AbstractTarget
    covariance: Operator | Callable[[PyTree], Any]

    def __init__(self, target: AbstractTarget, covariance: Any) -> None:
        self.target = check_target(target)
        if not callable(covariance):
            covariance = as_operator(covariance, "covariance").factorise("covariance")
        self.covariance = covariance

    def init(self, key: PRNGKeyArray, position: PyTree) -> None:
        """Nothing to remember; checks that the target can be evaluated at `position`."""
        self.target.check(position)

    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> Estimated:
        """The exact gradient plus fresh noise, with its covariance."""
        covariance = self.covariance
        if not isinstance(covariance, Operator):
            covariance = as_operator(covariance(tree.thaw(position)), "covariance")
        potential, gradient = self.target.value_and_gradient(position)
        noise = covariance.sqrt_mv(tree.normal_like(key, position))
        noisy = tree.add(gradient, noise)
        return Estimate(noisy, potential, covariance, jnp.int32(1)), state


def check_target(target: Any, name: str = "target") -> AbstractTarget:
    """Accept a target. Raises: TypeError: something else."""
    if not isinstance(target, AbstractTarget):
        raise TypeError(f"{name} must be an ex.Target or ex.Posterior, not {target!r}.")
    return target


def exact_gradient(gradient: Any, user: str, instead: str) -> FullGradient:
    """A FullGradient as it is, and that of a target or posterior. Raises: TypeError: neither."""
    if isinstance(gradient, FullGradient):
        return gradient
    if isinstance(gradient, AbstractTarget):
        return FullGradient(gradient)
    raise TypeError(
        f"{user} needs the exact gradient, not {type(check_estimator(gradient)).__name__}: its "
        f"Metropolis test is wrong with a noisy one. Try ex.FullGradient(target), or {instead}."
    )
