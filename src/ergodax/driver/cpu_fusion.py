"""Small computations as one piece of machine code.

On CPUs XLA runs a program as a series of small pieces, any of which may go to another thread. For a
few hundred numbers this costs more than the arithmetic, and most where rows of a large table are
fetched, while which the other threads fall asleep. Hints to XLA make a call one piece. Results do
not depend on them but for rounding. Measured on two cores with 4 chains and batches of 8, steps of
NOGIN took 1.9 to 2.8 times as long without; those of SGLD and SGHMC were within 5 %.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Jaxpr, jaxprs_in_params

from ergodax.driver.compile import measured

FUSED_NUMBERS = measured("ERGODAX_FUSED_NUMBERS", 32_768)
HINTS = {"inlineable": "false", "xla_cpu_small_call": "true"}
NO_HINTS = dict.fromkeys(HINTS)
# Products of matrices by a library, which XLA can't put into such a piece.
WITHOUT_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}
MOST_OPERATIONS = 2_000
# Not those that scatter, nor dynamic_update_slice, of which jax.vmap makes one that does.
KNOWN = frozenset(
    """
    abs add add_any and argmax argmin atan2 bitcast_convert_type broadcast_in_dim cbrt ceil clamp
    concatenate convert_element_type copy copy_p cos cosh cumsum div dot_general dynamic_slice eq
    erf erf_inv erfc exp exp2 expm1 floor gather ge gt integer_pow iota is_finite le lgamma log
    log1p logistic lt max min mul ne neg not optimization_barrier or pad pow random_bits
    random_fold_in random_seed random_split random_unwrap random_wrap reduce_and reduce_max
    reduce_min reduce_or reduce_precision reduce_prod reduce_sum rem reshape rev round rsqrt
    select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh slice split sqrt
    square squeeze stack stop_gradient sub tan tanh threefry2x32 transpose unstack xor
    """.split()
)
CALLS = frozenset(
    """
    checkpoint closed_call cond core_call custom_jvp_call custom_vjp_call jit pjit remat remat2 scan
    while
    """.split()
)


def is_small(function: Callable, *args: Any, times: int = 1) -> bool:
    """Whether `fused` is faster, and able to: few numbers, operations that are known.

    The arguments may be shapes; `times` is how often a call does the work, as under `jax.vmap`.
    """
    numbers, operations = _work(eqx.filter_make_jaxpr(function)(*args)[0].jaxpr)
    few = numbers * times <= FUSED_NUMBERS and operations <= MOST_OPERATIONS
    return few and understood()


def fused(function: Callable) -> Callable:
    """A compiled function as one piece, in a program with the options `WITHOUT_LIBRARY`."""

    @eqx.filter_jit
    def hinted(*args: Any) -> Any:
        with set_xla_metadata(**NO_HINTS):  # what is called within it is no piece of its own
            return function(*args)

    def called(*args: Any) -> Any:
        with set_xla_metadata(**HINTS):
            return hinted(*args)

    return called


@functools.cache
def understood() -> bool:
    """Whether this backend takes the hints, and this version of XLA the options they need.

    Before JAX 0.12, the last for Python 3.11 among them, XLA aborts the process for some steps,
    which no exception tells.
    """
    if jax.default_backend() != "cpu" or jax.__version_info__ < (0, 12):
        return False
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options=WITHOUT_LIBRARY).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _work(jaxpr: Jaxpr) -> tuple[float, int]:
    """How many numbers are computed, infinite if in a way that is not known, and operations."""
    numbers, operations = 0.0, 0
    for equation in jaxpr.eqns:
        name, results = equation.primitive.name, equation.outvars
        if name in KNOWN:
            numbers += sum(math.prod(getattr(v.aval, "shape", ())) for v in results)
            operations += 1
        elif name in CALLS:
            repeats = equation.params.get("length", 1)
            for inner in jaxprs_in_params(equation.params):
                more, count = _work(inner)
                numbers, operations = numbers + repeats * more, operations + count
        else:
            return math.inf, operations
    return numbers, operations
