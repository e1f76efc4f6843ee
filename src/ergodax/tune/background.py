"""The programs of the pilot and of what comes before it, compiled in background threads.

They are most of what a cold `infer` waits for, their shapes can mostly be guessed at once, and XLA
compiles without holding Python's lock.
"""

import contextlib
import gc
import importlib
import sys
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import take_at_once
from ergodax.diagnostics.bias import BiasReport, bias, coupled
from ergodax.driver.compile import short_runs
from ergodax.driver.sample import trace
from ergodax.gradient.base import GradientEstimator
from ergodax.gradient.expansion import CHUNK, lowered_expansion
from ergodax.sampler.underdamped import nogin
from ergodax.target.posterior import Posterior
from ergodax.tune.estimator import (
    COSTS,
    LARGEST_SECOND_ORDER,
    LONGEST_STEP,
    SMALLEST_BATCH,
    Plan,
    lowered_covariances,
)
from ergodax.tune.host import on_device
from ergodax.tune.influential import lowered_remainders
from ergodax.tune.whitening import Coordinates, posterior_in

FRICTION = 1.0  # which makes the draws least correlated in whitened coordinates, whatever the step
RELAXATIONS = 20  # burn-in, in units of the time 1 / h
PILOT_DRAWS = 500  # of each chain
POINTS, SCORES = 16, 2_000  # at which the noise is measured; rows whose scores stand for all
# Evaluations times dimensions of a pilot's first draws, which it is not worth to optimise, and of
# all of them, which take as long as another program takes to compile.
SHORT, AS_LONG = 3e6, 1.5e7
FEW = 4  # draws of a run that is made for its programs only
WIDE = ("int64", "uint64", "float64", "complex128")  # dtypes that single precision has not
ALONE = 2  # references to an array, as Python counts them, where one object refers to it


_RUNNING: set[Future[Any]] = set()


def in_background(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Begin a thread-safe function(*args) in a thread, under the caller's settings of JAX."""
    settings = (
        jax.enable_x64(jax.config.jax_enable_x64),
        jax.numpy_dtype_promotion(jax.config.jax_numpy_dtype_promotion),
        jax.numpy_rank_promotion(jax.config.jax_numpy_rank_promotion),
        jax.default_matmul_precision(jax.config.jax_default_matmul_precision),
        jax.default_device(jax.config.jax_default_device),
    )

    def run() -> Any:
        with contextlib.ExitStack() as stack:
            for setting in settings:  # they hold for the thread that enters them
                stack.enter_context(setting)
            return function(*args)

    pool = ThreadPoolExecutor(1)
    future = pool.submit(run)
    pool.shutdown(wait=False)  # no more work; the thread ends with this one
    _RUNNING.add(future)
    future.add_done_callback(_RUNNING.discard)
    return future


@contextlib.contextmanager
def small_algebra() -> Generator[None]:
    """While active, the linear algebra of NumPy and SciPy has one thread.

    A descent's matrices are of ten rows or so. While XLA compiles, a second thread for them waits
    for a core, a thousand times as long as the work takes.
    """
    from threadpoolctl import threadpool_limits

    importlib.import_module("scipy.optimize")  # so that its library is there to be told
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@contextlib.contextmanager
def double_precision() -> Generator[None]:
    """While active, JAX computes in double precision where it is told to.

    JAX 0.12 finds a NumPy array that a model closes over by its identity: as it was cast in one
    precision it is found in the other, where an index by it fails. So before and after, where such
    an array is kept, all compiled programs are thrown away, and the garbage that refers to it. No
    thread may be tracing.
    """
    if jax.config.jax_enable_x64:
        yield  # there is no other precision
        return
    _forget(_is_narrowed)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        _forget(_is_wide)


def _forget(is_wrong: Callable[[Any], bool]) -> None:
    """Clear what JAX keeps, if a constant that it would find again is wrong, or if none can tell.

    Clearing costs every program of the process, the user's too, so it must have a reason.
    """
    wait(list(_RUNNING))
    if not _any_is(is_wrong):
        return
    gc.collect()  # only garbage may have it
    if _any_is(is_wrong):
        jax.clear_caches()
        gc.collect()  # of which much refers to itself in circles


def _any_is(is_wrong: Callable[[Any], bool]) -> bool:
    constants = _constants_found_again()
    return constants is None or any(is_wrong(constant) for constant in constants)


def _constants_found_again() -> list[Any] | None:
    """The casts of NumPy arrays that JAX finds by the arrays' identity; None if it can't be told.

    JAX has weak references to each of them and to its array, and to no other constant. An array of
    our own tells whether that is so: if it is not among them, this JAX keeps them in another way.
    """
    ours = np.zeros(2)
    held = jax.make_jaxpr(lambda: jax.lax.neg(ours))()
    if gc.get_freeze_count():
        return None  # what is frozen is not listed
    listed = [x for x in gc.get_objects() if type(x).__name__ == "TypedNdArray"]
    found = [x for x in listed if weakref.getweakrefcount(x)]
    mine = [x for x in found if any(x is constant for constant in held.consts)]
    if len(mine) != 1 or not _is_narrowed(mine[0]) or _is_shared(mine[0]):
        return None
    return [x for x in found if x is not mine[0]]


def _is_narrowed(constant: Any) -> bool:
    """Whether it was cast from double precision: then its memory is not the model's array's."""
    return not weakref.getweakrefcount(constant.base)


def _is_wide(constant: Any) -> bool:
    """Whether it is in double precision, and the model's array may be seen again."""
    return constant.dtype.name in WIDE and _is_shared(constant)


def _is_shared(constant: Any) -> bool:
    """Whether anything but the constant refers to the array that has its memory."""
    return sys.getrefcount(constant.base) > ALONE


def relaxation(step_size: float) -> int:
    """Steps to a draw, of a step size in whitened coordinates."""
    return max(1, round(1.0 / step_size))


def _kernels(gradient: GradientEstimator) -> Callable[[float], Any]:
    """By their step size."""
    return lambda h: nogin(gradient, h, FRICTION)


def is_short(plan: Plan, num_chains: int, d: int) -> bool:
    """Whether a pilot's first draws take less time than its program does with optimisations."""
    return PILOT_DRAWS * work(plan, num_chains, d) < SHORT


def work(plan: Plan, num_chains: int, d: int) -> int:
    """Evaluations times dimensions, of a draw of each chain.

    Args:
        plan: of the steps.
        num_chains: chains.
        d: dimensions.
    """
    steps = num_chains * relaxation(plan.step_size)
    return steps * COSTS[plan.name] * plan.batch_size * d


def pilot_run(
    plan: Plan,
    gradient: GradientEstimator,
    coordinates: Coordinates,
    key: PRNGKeyArray,
    starts: Float[Array, "chains d"],
    *,
    draws: int,
    progress: bool = False,
    max_seconds: float | None = None,
) -> BiasReport:
    """Coupled runs at a plan's step and half of it, with a gradient that the plan has built."""
    thin, (num_chains, d) = relaxation(plan.step_size), starts.shape
    with short_runs(is_short(plan, num_chains, d)):
        return bias(
            _kernels(gradient),
            None,
            plan.step_size,
            draws * thin,
            key=key,
            positions=starts,
            order=2,
            function=coordinates.position,
            num_chains=num_chains,
            burn_in=RELAXATIONS * thin,
            thin=thin,
            progress=progress,
            max_seconds=max_seconds,
        )


class Programs:
    """Compiles for each kind of plan once, by short runs in the background.

    Args:
        num_chains: of the runs.
    """

    def __init__(self, num_chains: int) -> None:
        self.num_chains = num_chains
        self.begun: dict[tuple[Any, ...], Future[BiasReport]] = {}
        self.looks: list[Future[Any]] = []

    def guess(self, posterior: Posterior, init: PyTree, key: PRNGKeyArray) -> None:
        """Begin with the plan that much data about one mode leads to, before any measurement."""
        init = tree.freeze(init, "init")
        d, dtype = tree.size(init), tree.result_dtype(init)
        if d > LARGEST_SECOND_ORDER:
            return
        plan = Plan("ControlVariate, order 2", SMALLEST_BATCH, LONGEST_STEP, np.zeros(d), 0.0, {})
        coordinates = Coordinates(tree.thaw(init), on_device(np.zeros((d, d)), dtype))
        inner = posterior_in(posterior, coordinates)
        with contextlib.suppress(Exception):  # of the model, which will be told
            self.begin(plan, _like(plan, inner, dtype), coordinates, key)

    def begin(
        self,
        plan: Plan,
        gradient: GradientEstimator,
        coordinates: Coordinates,
        key: PRNGKeyArray,
    ) -> None:
        """Start, unless a plan that differs in numbers alone has been seen."""
        kind, chains = _kind(plan), self.num_chains
        if kind in self.begun:
            return
        starts = on_device(np.zeros((chains, coordinates.dimension)), coordinates.basis.dtype)
        with contextlib.suppress(Exception):  # what it is will be told where it is needed
            trace(coupled(_kernels(gradient), plan.step_size), starts, key)
        self.begun[kind] = in_background(
            lambda: pilot_run(plan, gradient, coordinates, key, starts, draws=FEW)
        )

    def look(self, posterior: Posterior, coordinates: Coordinates) -> None:
        """Begin with what is measured before the first pilot."""
        if coordinates.dimension > LARGEST_SECOND_ORDER:
            return
        with contextlib.suppress(Exception):  # likewise
            lowered = _looks(posterior, coordinates)
            self.looks = [in_background(program.compile) for program in lowered]
        self.looks.append(in_background(importlib.import_module, "pandas"))  # for its table

    def wait(self) -> None:
        """Until the programs of `look` are there."""
        wait(self.looks)  # where one failed, what needs it will fail again

    def wait_for_pilot(self, plan: Plan) -> None:
        """Until its program is there; what failed will fail again where it is needed."""
        self.begun[_kind(plan)].exception()


def _looks(posterior: Posterior, coordinates: Coordinates) -> list[Any]:
    """The programs of what is measured before a pilot, traced and not yet compiled."""
    dtype, d = coordinates.basis.dtype, coordinates.dimension
    inner, points = posterior_in(posterior, coordinates), np.zeros((POINTS, d))
    rows = take_at_once(posterior.data, np.arange(min(SCORES, posterior.num_data)))
    return [
        lowered_remainders(posterior, coordinates, points),
        lowered_covariances(inner, rows, on_device(points, dtype)),
        lowered_expansion(inner, on_device(np.zeros(d), dtype), CHUNK, 2),
    ]


def _kind(plan: Plan) -> tuple[Any, ...]:
    """What of a plan decides which programs run."""
    return plan.name, plan.batch_size, relaxation(plan.step_size) > 1


def _like(plan: Plan, posterior: Posterior, dtype: np.dtype[Any]) -> Any:
    """What the plan builds, without its pass over the data: zeros in place of its numbers."""
    shapes = eqx.filter_eval_shape(lambda p: plan.build(p, dtype), posterior)
    mine = eqx.tree_at(lambda gradient: gradient.gradient.target, shapes, posterior)

    def zeros(leaf: Any) -> Any:
        is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        return on_device(np.zeros(leaf.shape), leaf.dtype) if is_shape else leaf

    return jax.tree.map(zeros, mine)
