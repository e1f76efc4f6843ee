"""BlackJAX's algorithms as kernels, and kernels as BlackJAX's algorithms."""

import contextlib
import inspect
from collections.abc import Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.data.arrays import as_data, num_rows, take
from ergodax.data.batching import Batching, WithoutReplacement
from ergodax.kernel import Info, Kernel, check_kernel, initial_state


def blackjax(kernel: Any) -> Any:
    """A kernel as an algorithm of BlackJAX: `init(position, rng_key)`, `step(rng_key, state)`.

    States have a `position`, as BlackJAX's own do, and the Info is this library's.

    Args:
        kernel: any kernel, such as ex.sghmc(...).

    Returns:
        A blackjax.base.SamplingAlgorithm. Its init needs the rng_key that is optional there where
        momenta or the gradient's state are random. Its step also takes a `batch` of yours.

    Raises:
        TypeError: not a kernel.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> algorithm = ex.bridge.blackjax(ex.hmc(model, 0.05))
        >>> state = algorithm.init(jnp.float32(1.0), jax.random.key(0))
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state)
        >>> bool(info.acceptance > 0.5)
        True

    Reference:
        Cabezas, Corenflos, Lao and Louf, BlackJAX: composable Bayesian inference in JAX, 2024.
    """
    from blackjax.base import SamplingAlgorithm

    kernel = check_kernel(kernel)
    return SamplingAlgorithm(_Init(kernel), _Step(kernel))


class _Init(tree.Identified):
    """A kernel's init as BlackJAX calls it; a module, so that its numbers stay arguments."""

    kernel: Any

    def __call__(self, position: PyTree, rng_key: Any = None) -> Any:
        return initial_state(self.kernel, position, rng_key)


class _Step(tree.Identified):
    """A kernel's step as BlackJAX calls it."""

    kernel: Any

    def __call__(
        self, rng_key: PRNGKeyArray, state: PyTree, batch: PyTree = None
    ) -> tuple[Any, Any]:
        batches = {} if batch is None else {"batch": batch}
        return self.kernel.step(rng_key, state, **batches)


class AlgorithmState(eqx.Module):
    """The state of an algorithm of BlackJAX, and that of its batches."""

    inner: Any  # BlackJAX's
    batches: Any  # the state of the batching scheme, or None

    @property
    def position(self) -> PyTree:
        """Where the chain stands."""
        return getattr(self.inner, "position", self.inner)


class Algorithm(Kernel):
    """The kernel that `from_blackjax` returns for an algorithm of the whole target."""

    algorithm: Any
    step_size: Float[Array, ""]
    num_data: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> AlgorithmState:
        """BlackJAX's state at the position, in JAX's default precision, which BlackJAX wants."""
        return AlgorithmState(_begin(self.algorithm, key, position), None)

    def step(self, key: PRNGKeyArray, state: AlgorithmState) -> tuple[AlgorithmState, Info]:
        """One step of the algorithm."""
        with _as_blackjax_computes():
            inner, told = self.algorithm.step(key, state.inner)
        new = AlgorithmState(inner, None)
        if isinstance(told, Info):
            return new, told
        return new, _info(new, told, self.step_size, self.num_data)


class StochasticAlgorithm(Kernel):
    """The kernel that `from_blackjax` returns for an algorithm that is given batches."""

    algorithm: Any
    step_size: Float[Array, ""]
    temperature: Float[Array, ""]
    data: PyTree
    batch_size: int = eqx.field(static=True)
    batching: Batching
    gradients_per_step: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> AlgorithmState:
        """BlackJAX's state at the position, and the state of the batches."""
        key_algorithm, key_batches = jax.random.split(key)
        batches = self.batching.init(key_batches, num_rows(self.data))
        return AlgorithmState(_begin(self.algorithm, key_algorithm, position), batches)

    def step(
        self, key: PRNGKeyArray, state: AlgorithmState, batch: PyTree = None
    ) -> tuple[AlgorithmState, Info]:
        """One step of the algorithm on a fresh batch, or on one of the user's."""
        key_batch, key_step = jax.random.split(key)
        batches = state.batches
        if batch is None:
            rows, batches = self.batching.draw(
                key_batch, batches, num_rows(self.data), self.batch_size
            )
            batch = take(self.data, rows)
        size = num_rows(batch)
        with _as_blackjax_computes():
            inner = self.algorithm.step(
                key_step, state.inner, batch, self.step_size, temperature=self.temperature
            )
        new = AlgorithmState(inner, batches)
        return new, _info(new, None, self.step_size, self.gradients_per_step * size)


def from_blackjax(
    algorithm: Any,
    *,
    step_size: Any = np.nan,
    num_data: int = 1,
    data: PyTree = None,
    batch_size: int | None = None,
    batching: Batching | None = None,
    temperature: Any = 1.0,
    gradients_per_step: int = 1,
) -> Algorithm | StochasticAlgorithm:
    """An algorithm of BlackJAX as a kernel, for `sample` and all that runs kernels.

    With `data`, the algorithm is one of stochastic gradients, such as blackjax.sgld, whose step
    takes a batch, a step size and a temperature. Numbers held by the algorithm itself are
    constants of the compiled program: one with other numbers is compiled anew.

    Args:
        algorithm: a blackjax.base.SamplingAlgorithm, such as blackjax.nuts(...).
        step_size: h; needed with `data`, and otherwise only told in Info.
        num_data: what one gradient costs, in examples, without `data`.
        data: arrays, or any tree of them, with one leading axis of length N in common.
        batch_size: n, with `data`.
        batching: a scheme of `ergodax.data`; by default n distinct rows, anew in each step.
        temperature: T, with `data`.
        gradients_per_step: with `data`: of blackjax.sghmc its num_integration_steps. Only
            Info.evaluations depends on it.

    Returns:
        A kernel whose states have a `position`. Info has what the algorithm tells.

    Raises:
        TypeError: not an algorithm, or one whose step takes other arguments than these, or a count
            that is not an integer.
        ValueError: a missing batch size or step size, a count below 1, or bad data.

    Example:
        >>> import blackjax, ergodax as ex, jax, jax.numpy as jnp
        >>> algorithm = blackjax.nuts(lambda x: -0.5 * jnp.sum(x**2), 0.5, jnp.ones(2))
        >>> kernel = ex.bridge.from_blackjax(algorithm, step_size=0.5)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 500, num_chains=4, key=jax.random.key(0),
        ...     progress=False)
        >>> bool(abs(samples.position).mean() < 1.0)
        True
    """
    if not all(callable(getattr(algorithm, name, None)) for name in ("init", "step")):
        raise TypeError(
            "algorithm must have init and step, as blackjax.nuts(log_density, ...) has, not "
            f"{algorithm!r}."
        )
    num_data = whole_number("num_data", num_data)
    gradients_per_step = whole_number("gradients_per_step", gradients_per_step)
    size = jnp.asarray(step_size, float)
    if data is None:
        _check_step(algorithm, ("rng_key", "state"), "With data= it is also given a batch.")
        return Algorithm(algorithm, size, num_data)
    given = ("rng_key", "state", "batch", "step_size")
    _check_step(algorithm, given, "Without data= it is given no batch.", temperature=1.0)
    if batch_size is None or not float(size) > 0.0:
        raise ValueError(
            f"an algorithm that is given data needs batch_size and a positive step_size, not "
            f"{batch_size!r} and {step_size!r}. Try batch_size=100, step_size=1e-4."
        )
    data, batching = as_data(data), batching or WithoutReplacement()
    batching.check(num_rows(data), batch_size)
    return StochasticAlgorithm(
        algorithm, size, jnp.asarray(temperature, float), data, int(batch_size), batching,
        gradients_per_step,
    )  # fmt: skip


def _check_step(algorithm: Any, given: tuple[str, ...], hint: str, **named: Any) -> None:
    """Refuse an algorithm whose step can't be called as here. Raises: TypeError."""
    signature = inspect.signature(algorithm.step)
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        takes = ", ".join(signature.parameters)
        raise TypeError(
            f"the algorithm's step takes {takes}, but would be given {', '.join([*given, *named])}:"
            f" {error}. {hint}"
        ) from error


@contextlib.contextmanager
def _as_blackjax_computes() -> Generator[None]:
    """JAX's usual promotion of types and ranks, which BlackJAX relies on."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _begin(algorithm: Any, key: PRNGKeyArray, position: PyTree) -> Any:
    with _as_blackjax_computes():
        default = jax.tree.map(lambda x: x.astype(float), tree.freeze(position))
        state = algorithm.init(tree.thaw(default), key)
        # Arrays of a full type, since a number or a weak type would not come back as it went in.
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), state)


def _info(state: AlgorithmState, told: Any, step_size: Array, cost: int) -> Info:
    """Info from whatever names BlackJAX's state and info have."""
    unknown = jnp.full((), jnp.nan)
    density = getattr(state.inner, "logdensity", None)
    gradient = getattr(state.inner, "logdensity_grad", None)
    divergent = getattr(told, "is_divergent", None)
    accepted = getattr(told, "is_accepted", None if divergent is None else ~divergent)
    steps = jnp.asarray(getattr(told, "num_integration_steps", 1), jnp.int32)
    return Info(
        step_size=step_size,
        potential=unknown if density is None else -density,
        gradient_norm=unknown if gradient is None else tree.norm(gradient),
        finite=tree.all_finite(state.position),
        evaluations=steps * cost,
        acceptance=getattr(told, "acceptance_rate", None),
        accepted=accepted,
    )
