"""A target is a potential U: the density is proportional to exp(-U / temperature)."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.transform import Constraints, as_constraints, log_jacobian


class AbstractTarget(tree.Identified):
    """Anything with a potential; its methods can be compiled, as in `jax.jit(target.potential)`.

    One with `constraints` is a density of constrained values, and its methods take positions as
    `freeze` holds them: the potential is that of the unconstrained numbers, Jacobians included.
    """

    @abc.abstractmethod
    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U(position), minus the log density up to a constant."""

    def freeze(self, position: PyTree, name: str = "position") -> PyTree:
        """A user's position as the samplers hold it; `tree.thaw` undoes it.

        Raises:
            TypeError: a leaf is an integer, boolean or complex array.
            ValueError: a constraint for what the position does not have, or that it violates.
        """
        constraints = getattr(self, "constraints", None)
        return (tree if constraints is None else constraints).freeze(position, name)

    @property
    def evaluations(self) -> int:
        """Likelihoods of single examples that one potential costs; 1 where there are no data."""
        return 1

    def value_and_gradient(self, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
        """U(position) and its gradient, in one pass."""
        return jax.value_and_grad(self.potential)(position)

    def gradient(self, position: PyTree) -> PyTree:
        """The gradient of U, in the structure of `position`."""
        return self.value_and_gradient(position)[1]

    def _potential_as_checked(self, position: PyTree) -> Float[Array, ""]:
        """A number with the shape and dtype of U, and its errors."""
        return self.potential(position)

    def check(self, position: PyTree) -> None:
        """Fail with the argument's name where the potential can't be evaluated.

        Raises:
            ValueError: the target's functions reject the shapes.
            TypeError: they do not return a floating-point scalar.
        """
        out = evaluated(
            "the target can't be evaluated at this position",
            "Check the position's shapes against the data's.",
            lambda x: self._potential_as_checked(x),
            position,
        )
        if out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
            raise TypeError(
                f"the potential must return one floating-point number, not {out.dtype} of shape "
                f"{out.shape}. Sum over the dimensions, as in jnp.sum(...)."
            )


class Target(AbstractTarget):
    """A target given by its potential.

    Args:
        potential: function position -> scalar U; the density is proportional to exp(-U).
        constraints: of the position's leaves, by name: {"sigma": ex.transform.positive}; see
            `Posterior`.

    Raises:
        TypeError: not a function, or not a transform.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
        >>> float(target.potential(jnp.ones(2)))
        1.0
    """

    function: Callable[[PyTree], Float[Array, ""]]
    constraints: Constraints | None = eqx.field(static=True, repr=False, default=None)

    def __init__(
        self, potential: Callable[[PyTree], Float[Array, ""]], *, constraints: Any = None
    ) -> None:
        if not callable(potential):
            raise TypeError(f"potential must be a function of the position, not {potential!r}.")
        self.function, self.constraints = potential, as_constraints(constraints)

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U(position), less the log Jacobian of its constraints."""
        value = returned("potential", self.function(tree.thaw(position)))
        return value - log_jacobian(position)


def returned(name: str, value: Any) -> Any:
    """What a user's function of this name has returned.

    Raises:
        TypeError: that is nothing.
    """
    if value is None:
        refused = refusal(f"{name} returns None. Try ending it with `return` and the value.")
        raise refused
    return value


def evaluated(failure: str, advice: str, function: Callable[..., Any], *arguments: PyTree) -> Any:
    """What a user's function returns, with shapes and dtypes in place of arrays.

    Raises:
        ValueError: it fails, which `failure` says, with the shapes of the last argument; `advice`
            is what to do about it.
        TypeError: what it returned has been refused within.
    """
    try:
        return jax.eval_shape(function, *arguments)
    except (TypeError, ValueError, LookupError) as error:
        if getattr(error, "ergodax", False):
            raise
        if isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError):  # of tracing
            advice = (
                "Its functions must compute with jax.numpy, not NumPy, and have no float(), "
                "int(), bool() or `if` on values: try jnp.where or jax.lax.cond."
            )
        last = tree.bare(arguments[-1])
        shapes = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", last)
        raise ValueError(
            f"{failure}, whose leaves are {shapes}: {str(error).splitlines()[0].rstrip('.')}. "
            f"{advice}"
        ) from error


def refusal(message: str) -> TypeError:
    """An error that `AbstractTarget.check` lets through unchanged."""
    error = TypeError(message)
    error.ergodax = True  # pyright: ignore[reportAttributeAccessIssue]
    return error
