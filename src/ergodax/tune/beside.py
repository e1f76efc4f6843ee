"""Work beside the main thread: XLA compiles without holding Python's lock."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ergodax.driver.sample import sample
from ergodax.tune.coordinates import Coordinates


def beside(function: Callable, *args: Any) -> Future:
    """Begin function(*args) in a thread of its own, under the caller's settings of JAX.

    Args:
        function: thread-safe, as compiled JAX functions are.
        args: its arguments.

    Returns:
        A Future: `result()` waits, and raises what the function raised.
    """
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
    return future


def compile_beside(
    kernel: Any,
    coordinates: Coordinates,
    starts: Float[Array, "chains d"],
    thin: int,
    key: PRNGKeyArray,
) -> Future:
    """Begin to compile the program of `infer`'s rounds, by making one draw with it.

    Args:
        kernel: one that differs from the rounds' in numbers alone.
        coordinates: likewise.
        starts: u of each chain.
        thin: steps to a draw.
        key: any.
    """

    def draw() -> None:
        sample(
            kernel,
            positions=starts,
            num_steps=thin,
            key=key,
            num_chains=len(starts),
            thin=thin,
            collect=coordinates.position,
            progress=False,
        )

    return beside(draw)
