"""How chains are run on one device: all at once, or one after another.

On CPUs `jax.vmap` makes of the chains' products of matrices one batched product, which XLA hands to
threads and whose operands, the batches of all chains, may not fit into the caches. Where such
products are not small, chains one after another are faster. What several chains share, such as the
whole data, is not batched, and there all at once is faster.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import lax
from jax.extend.core import Jaxpr, jaxprs_in_params
from jaxtyping import Array, Int, PyTree

from ergodax.driver import cpu_fusion, measured


class Way(NamedTuple):
    """How a program takes steps.

    Attributes:
        small: whether XLA shall make one piece of machine code of a step (see `cpu_fusion`).
        apart: whether the chains run one after another.
    """

    small: bool = False
    apart: bool = False


def way_of(function: Callable, args: tuple, num_chains: int) -> Way:
    """The fastest one for a step of several chains.

    Args:
        function: the step of one chain.
        args: its arguments, or their shapes.
        num_chains: chains.
    """
    if cpu_fusion.is_small(function, *args, times=num_chains):
        return Way(small=True)
    if num_chains == 1 or jax.default_backend() != "cpu":
        return Way()
    kernel, *chain = args
    many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_chains, *x.shape), x.dtype), chain)
    together = eqx.filter_vmap(lambda *args: function(kernel, *args))
    return Way(apart=_has_wide_product(eqx.filter_make_jaxpr(together)(*many)[0].jaxpr))


def over_chains(function: Callable, num_chains: int, *, apart: bool = False) -> Callable:
    """Map over a leading chain axis; one chain runs without the cost of a batch of one.

    Args:
        function: of trees of arrays, to trees of arrays.
        num_chains: chains.
        apart: one after another.
    """

    def single(*args: Any) -> Any:
        return jax.tree.map(lambda x: x[None], function(*_of_chain(args, 0)))

    def one_by_one(*args: Any) -> Any:
        return lax.map(lambda chain: function(*chain), args)

    if num_chains == 1:
        return single
    return one_by_one if apart else eqx.filter_vmap(function)


def fill_in_turn(function: Callable, chains: tuple, results: PyTree, buffer: PyTree) -> tuple:
    """Map over chains one after another that write into one buffer, in place.

    Args:
        function: (arguments of a chain, the buffer, its number) -> (its results, the buffer).
        chains: the arguments, leaves with a leading chain axis.
        results: of the same shapes as the results of all chains, to be replaced.
        buffer: leaves with a leading chain axis.

    Returns:
        The results, with a leading chain axis, and the buffer.
    """

    def one(number: Int[Array, ""], carry: tuple) -> tuple:
        results, buffer = carry
        found, buffer = function(_of_chain(chains, number), buffer, number)
        return jax.tree.map(lambda old, x: old.at[number].set(x), results, found), buffer

    num_chains = jax.tree.leaves(chains)[0].shape[0]
    return lax.fori_loop(0, num_chains, one, (results, buffer))


def _of_chain(tree: PyTree, number: Any) -> PyTree:
    return jax.tree.map(lambda x: x[number], tree)


def _has_wide_product(jaxpr: Jaxpr) -> bool:
    """Whether two operands of a product are batched, and one is a matrix for each chain."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            batch = equation.params["dimension_numbers"][1][0]
            shapes = [getattr(v.aval, "shape", ()) for v in equation.invars]
            if batch and any(_is_wide(shape[len(batch) :]) for shape in shapes):
                return True
        if any(_has_wide_product(inner) for inner in jaxprs_in_params(equation.params)):
            return True
    return False


def _is_wide(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and min(shape) >= measured.WIDE_PRODUCT
