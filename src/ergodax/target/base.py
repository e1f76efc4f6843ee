"""A target is a potential U: the density is proportional to exp(-U / temperature)."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree


class AbstractTarget(eqx.Module):
    """Anything with a potential."""

    @abc.abstractmethod
    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U(position), minus the log density up to a constant."""

    @property
    def evaluations(self) -> int:
        """Likelihoods of single examples that one potential costs; 1 where there are no data."""
        return 1

    def value_and_gradient(self, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
        """U(position) and its gradient, in one pass."""
        return jax.value_and_grad(self.potential)(position)

    def gradient(self, position: PyTree) -> PyTree:
        """The gradient of U, in the structure of `position`."""
        return jax.grad(self.potential)(position)

    def _potential_as_checked(self, position: PyTree) -> Float[Array, ""]:
        """A number with the shape and dtype of U, and its errors."""
        return self.potential(position)

    def check(self, position: PyTree) -> None:
        """Fail with the argument's name where the potential can't be evaluated.

        Raises:
            ValueError: the target's functions reject the shapes.
            TypeError: they do not return a floating-point scalar.
        """
        try:
            out = jax.eval_shape(lambda x: self._potential_as_checked(x), position)
        except (TypeError, ValueError, LookupError) as error:
            if getattr(error, "ergodax", False):
                raise
            shapes = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", position)
            raise ValueError(
                f"the target can't be evaluated at this position, whose leaves are {shapes}: "
                f"{str(error).splitlines()[0]} Check the position's shapes against the data's."
            ) from error
        if out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
            raise TypeError(
                f"the potential must return one floating-point number, not {out.dtype} of shape "
                f"{out.shape}. Sum over the dimensions, as in jnp.sum(...)."
            )


class Target(AbstractTarget):
    """A target given by its potential.

    Args:
        potential: function position -> scalar U; the density is proportional to exp(-U).

    Raises:
        TypeError: not a function.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
        >>> float(target.potential(jnp.ones(2)))
        1.0
    """

    function: Callable[[PyTree], Float[Array, ""]]

    def __init__(self, potential: Callable[[PyTree], Float[Array, ""]]) -> None:
        if not callable(potential):
            raise TypeError(f"potential must be a function of the position, not {potential!r}.")
        self.function = potential

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U(position)."""
        return self.function(tree.thaw(position))
