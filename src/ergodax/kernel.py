"""The contract of every sampler: `init` makes a State, `step` makes the next one.

A State holds what the next step needs and nothing else; Info is for whoever watches. The
driver knows only this contract, so a user's own kernel needs nothing from this library
but the two methods.
"""

import abc
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.graph import depends_on

P = ParamSpec("P")
K = TypeVar("K", bound="Kernel")


class State(eqx.Module):
    """What the next step of a sampler needs.

    Attributes:
        position: the parameters, any tree of floating-point arrays.
        auxiliary: the other variables by name: {"momentum": ...}, {"thermostat": ...}, or {}.
        gradient: the state of the gradient estimator.
        estimate: the gradient at `position` where the next step begins with it, else None.
        step: how many steps have been taken.
    """

    position: PyTree
    auxiliary: dict[str, PyTree]
    gradient: PyTree
    estimate: Any
    step: Int[Array, ""]


class Info(eqx.Module):
    """What a step has to tell; a field that means nothing for a sampler is None.

    Attributes:
        step_size: the step size h of this step.
        potential: the estimate of U that this step used, the whole data's; NaN where it made none.
        gradient_norm: the Euclidean norm of the gradient estimate that this step used, likewise.
        kinetic_temperature: r^T M^-1 r / d at the end of the step; its mean is the temperature.
        finite: whether the new position is finite.
        evaluations: gradients or likelihoods of single examples that this step computed.
        acceptance: probability of acceptance, for samplers with a Metropolis test.
        accepted: whether the proposal was accepted, likewise.
        feasible: False where the step does not have the law it should, because noise compensation
            asked for a negative variance or a bound did not hold; `sample` stops there, and says
            what the kernel's attribute `infeasible` says.
        sampling: False in the exploring stage of a cycle, whose positions are not draws.
        clipped: True where it did and the sampler was told to inject none instead.
        weight: what the new position counts for in averages; None where all count alike.
    """

    step_size: Float[Array, ""]
    potential: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    finite: Bool[Array, ""]
    evaluations: Int[Array, ""]
    kinetic_temperature: Float[Array, ""] | None = None
    acceptance: Float[Array, ""] | None = None
    accepted: Bool[Array, ""] | None = None
    feasible: Bool[Array, ""] | None = None
    sampling: Bool[Array, ""] | None = None
    clipped: Bool[Array, ""] | None = None
    weight: Float[Array, ""] | None = None


def report_step(estimate: Any, position: PyTree, step_size: Array, **more: Any) -> Info:
    """The Info of a step, from the estimate that it used and where it came to."""
    fields: dict[str, Any] = {
        "step_size": step_size,
        "potential": estimate.potential,
        "gradient_norm": tree.norm(estimate.gradient),
        "finite": tree.all_finite(position),
        "evaluations": estimate.evaluations,
    }
    return Info(**(fields | more))


class Kernel(tree.Identified):
    """A Markov kernel: `init(key, position)` and `step(key, state)`.

    `state.position` always exists. Both methods are pure, so they can be compiled, mapped over
    chains, run inside a scan and pickled: `jax.jit(kernel.step)` works.

    A subclass defines `init(self, key, position)` and `step(self, key, state)`. Callers may leave
    the key of `init` out where the first state does not depend on it: `init(position)`.

    Attributes:
        origin: the functions that made it, outermost first, by module and name: what `ex.cite`
            looks up. Empty for a kernel that no `named` function made.
    """

    origin: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        """Let `kernel.init` and `kernel.step` be what a caller is promised."""
        super().__init_subclass__(**options)
        for name, bound in (("init", _Init), ("step", _Step)):
            function = vars(cls).get(name)
            if isinstance(function, types.FunctionType):
                setattr(cls, name, _Method(function, bound))

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """Make the first state.

        Args:
            key: a key of `jax.random.key`; used for momenta and the estimator's state. It may be
                left out where nothing is drawn: `init(position)`.
            position: any tree of floating-point arrays.

        Raises:
            TypeError: no key, although something is drawn.
        """

    @abc.abstractmethod
    def step(self, key: PRNGKeyArray, state: PyTree) -> tuple[Any, Any]:
        """Take one step.

        A caller may pass a batch: `step(key, state, batch=batch)`. It takes the place of the one
        that the gradient estimator would draw, and is scaled by N / n for the n rows that it has.

        Args:
            key: a fresh key.
            state: from `init` or the step before.

        Returns:
            The next state and the Info of this step.

        Raises:
            TypeError: a batch, for a kernel whose gradient takes none.
            ValueError: a batch whose rows are not like those of the data.
        """


def named(make: Callable[P, K]) -> Callable[P, K]:
    """A function that makes a kernel, so that the kernel tells who made it."""
    name = f"{make.__module__}.{make.__qualname__}"

    @functools.wraps(make)
    def making(*args: P.args, **kwargs: P.kwargs) -> K:
        kernel = make(*args, **kwargs)
        object.__setattr__(kernel, "origin", (name, *kernel.origin))  # new, so nobody else has it
        return kernel

    return making


class _Method:
    """A function in a kernel's class; from an instance it is had as a `_Bound`."""

    def __init__(self, function: Callable[..., Any], bound: type["_Bound"]) -> None:
        self.function, self.bound = function, bound

    def __get__(self, kernel: Kernel | None, owner: type | None = None) -> Callable[..., Any]:
        return self.function if kernel is None else self.bound(kernel, self.function)


class _Bound(eqx.Module):
    """A method of one kernel: a PyTree like the kernel, hashed by which kernel it is.

    Equinox's own bound methods are hashed by the kernel's leaves, and arrays have no hash.
    """

    kernel: Any
    function: Callable[..., Any] = eqx.field(static=True)

    @abc.abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""

    def __hash__(self) -> int:
        return hash((id(self.kernel), self.function))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Bound):
            return False
        return self.kernel is other.kernel and self.function == other.function

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.function.__name__


class _Init(_Bound):
    """`kernel.init`."""

    def __call__(self, *given: Any, key: Any = None, position: PyTree = None) -> Any:
        key, position = _key_and_position(given, key, position)
        frozen = freeze(self.kernel, position)
        state = _begun(lambda key: self.function(self.kernel, key, frozen), key)
        return tree.apart(state, (self.kernel, position))

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = ("key", "position")
        return inspect.Signature([inspect.Parameter(n, kind, default=None) for n in names])


class _Step(_Bound):
    """`kernel.step`."""

    def __call__(self, key: Any, state: PyTree, *, batch: PyTree = None) -> tuple[Any, Any]:
        if batch is None:
            return self.function(self.kernel, key, state)
        if "batch" in inspect.signature(self.function).parameters:
            return self.function(self.kernel, key, state, batch=batch)
        return self.function(with_batch(self.kernel, batch), key, state)


def with_batch(kernel: Any, batch: PyTree) -> Any:
    """The same kernel, whose gradient estimators are given this batch instead of drawing one.

    Raises: TypeError where there is no such estimator, ValueError for other rows than the data's.
    """

    def takes(part: Any) -> bool:
        return hasattr(part, "given")

    parts, structure = jax.tree.flatten(kernel, is_leaf=takes)
    if not any(takes(part) for part in parts):
        name = type(getattr(kernel, "gradient", kernel)).__name__
        raise TypeError(
            f"batch= can't be used here: {name} takes no batch. It is for kernels whose gradient "
            "is estimated from batches, such as ex.sgld(ex.Minibatch(posterior, 100), 1e-4)."
        )
    return structure.unflatten([part.given(batch) if takes(part) else part for part in parts])


def _key_and_position(given: tuple[Any, ...], key: Any, position: PyTree) -> tuple[Any, PyTree]:
    """What was meant by init(key, position), init(position) and init(position, key=key)."""
    given = given[:1] if len(given) == 2 and given[1] is None else given
    names = [name for name, value in (("key", key), ("position", position)) if value is not None]
    if len(given) + len(names) > 2:
        raise TypeError(f"init takes a key and a position, not {len(given)} arguments and {names}.")
    if len(given) == 2:
        key, position = given
    elif given and position is None:
        (position,) = given
    elif given:
        (key,) = given
    if position is None or tree.is_key(position):
        raise TypeError("init needs a position: call init(key, position) or init(position).")
    return key, position


def freeze(kernel: Any, position: PyTree, name: str = "position") -> PyTree:
    """A user's position as a kernel's states hold it, under the constraints of its target."""
    parts = jax.tree.leaves(kernel, is_leaf=lambda part: hasattr(part, "constraints"))
    found = [part for part in parts if getattr(part, "constraints", None) is not None]
    return (found[0] if found else tree).freeze(position, name)


def initial_state(kernel: Any, position: PyTree, key: Any = None) -> Any:
    """The first state of any kernel; a TypeError where it is drawn and there is no key."""
    return _begun(lambda key: kernel.init(key, position), key)


def _begun(init: Callable[[Any], Any], key: Any) -> Any:
    """init(key), or without a key what it is for every key."""
    if key is not None:
        check_key(key)
        return init(key)
    key = jax.random.key(0)
    if depends_on(init, key):
        raise TypeError(
            "init needs a key here, since the first state is drawn at random (momenta, or the "
            "estimator's batches). Call init(key, position), such as "
            "kernel.init(jax.random.key(0), position)."
        )
    return init(key)


def kinetic_temperature(momentum: PyTree, velocity: PyTree) -> Float[Array, ""]:
    """r^T M^-1 r / d, from the momentum r and the velocity M^-1 r."""
    return tree.dot(momentum, velocity) / tree.size(momentum)


class Methods(NamedTuple):
    """The two methods of a kernel, which is all that the driver needs of it."""

    init: Callable[[Any, Any], Any]
    step: Callable[[Any, Any], tuple[Any, Any]]


def check_kernel(kernel: Any) -> Any:
    """Accept anything with `init` and `step`; say what a kernel is otherwise. Raises: TypeError."""
    methods = [getattr(kernel, name, None) for name in ("init", "step")]
    if isinstance(kernel, type) or not all(callable(method) for method in methods):
        raise TypeError(
            f"kernel must have the methods init and step, not {kernel!r}. Try ex.sgld(...)."
        )
    by_value = type(kernel).__hash__ not in (None, object.__hash__)
    if by_value or not jax.tree_util.all_leaves([kernel]):
        return kernel
    # The compiled program of an object that only its identity tells apart would outlive a
    # change of its attributes. New functions have a program of their own.
    return Methods(lambda k, p: kernel.init(k, p), lambda k, s: kernel.step(k, s))


def check_key(key: Any) -> PRNGKeyArray:
    """Accept a typed key or a raw uint32 one; name the argument otherwise. Raises: TypeError."""
    if isinstance(key, jax.Array):
        if tree.is_key(key) and key.shape == ():
            return key
        if key.dtype == jnp.uint32 and key.shape in ((2,), (4,)):
            return jax.random.wrap_key_data(key)
    what = f"an array of shape {key.shape}" if isinstance(key, jax.Array) else repr(key)
    raise TypeError(f"key must be one key, such as jax.random.key(0), not {what}.")
