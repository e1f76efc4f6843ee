"""The compiled inner loop.

A chunk runs many steps and stores every thin-th position in a buffer, which the next chunk goes
on filling in place. How many draws to make is an argument of the compiled program, not part of
it, so any chunking, and runs of similar length, reuse one compilation. Step t of a chain uses
the key fold_in(chain key, t): the draws depend on the key alone, not on where chunks begin.

Arguments with a leading chain axis come last; `keys` has one for each chain. Blocks of streamed
data are arguments of their own: no step changes them, so they are not returned.

On CPUs `jax.vmap` makes of the chains' products of matrices one batched product, which XLA hands to
threads and whose operands, the batches of all chains, may not fit into the caches. Where such
products are not small, chains run one after another. What several chains share, such as the whole
data, is not batched, and there all at once is faster.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.block import attach, detach
from ergodax.driver import cpu_fusion
from ergodax.driver.compile import measured, one_of, traced
from ergodax.graph import calls_python, equations

WIDE_PRODUCT = measured("ERGODAX_WIDE_PRODUCT", 64)
BLOCK = 32  # turns of a loop whose number is in the program

Collect = Callable[[PyTree], PyTree]
Number = Int[Array, ""]
Keys = Key[Array, " chains"]


class Way(NamedTuple):
    """How a program takes steps."""

    small: bool = False  # whether a step is one piece of machine code, see `cpu_fusion`
    apart: bool = False  # whether the chains run one after another
    calls_python: bool = False  # whether an exception of a callback may end the program


class Step(eqx.Module):
    """A step of a kernel, and the way in which it is taken."""

    kernel: Any
    way: Way = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray, blocks: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """The state after, its blocks detached, and the kernel's Info."""
        return (_fused_step if self.way.small else _step)(self.kernel, key, blocks, state)


@eqx.filter_jit
def _step(kernel: Any, key: PRNGKeyArray, blocks: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
    state, info = kernel.step(key, attach(blocks, state))
    return detach(state)[1], info


_fused_step = cpu_fusion.fused(_step)


def _first(kernel: Any, key: PRNGKeyArray, state: PyTree) -> tuple[PyTree, PyTree]:
    return _step(kernel, key, *detach(state))


def first_states(
    kernel: Any, key: PRNGKeyArray, first: int | Number, positions: PyTree, states: PyTree
) -> tuple[Keys, PyTree, PyTree]:
    """The key of each chain, zeros in the shape of the Info of all chains, and the first states.

    Where there are `states` to go on from, they are not returned. Chain c runs with the key
    fold_in(., c), whatever the number of chains; that of chain `first` is the first one here.
    Finding the shapes here, in the compiled program, saves tracing the kernel anew in each run.
    """
    key_init, key_run = jax.random.split(key)
    given, made = states is not None, None
    num_chains = jax.tree.leaves(states.position if given else positions)[0].shape[0]
    chains = first + jnp.arange(num_chains, dtype=jnp.int32)
    of_chains = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    if not given:
        made = over_chains(kernel.init, num_chains)(of_chains(key_init, chains), positions)
        states = made
    keys = of_chains(key_run, chains)
    one = jax.tree.map(lambda x: x[0], states)
    shapes = jax.eval_shape(lambda s: _first(kernel, keys[0], s)[1], one)
    infos = jax.tree.map(lambda s: jnp.zeros((num_chains, *s.shape), s.dtype), shapes)
    return keys, infos, made


def way_of_steps(kernel: Any, keys: Keys, states: PyTree) -> Way:
    """The fastest way to take steps of as many chains as there are states."""
    chain, num_chains = one_of((keys, states)), keys.shape[0]
    if cpu_fusion.is_small(_first, kernel, *chain, times=num_chains):
        return Way(small=True)
    if num_chains == 1:
        graph = eqx.filter_make_jaxpr(_first)(kernel, *chain)[0].jaxpr
        return Way(calls_python=calls_python(graph))
    many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_chains, *x.shape), x.dtype), chain)
    together = eqx.filter_vmap(lambda key, state: _first(kernel, key, state))
    graph = eqx.filter_make_jaxpr(together)(*many)[0].jaxpr
    apart = jax.default_backend() == "cpu" and _has_wide_product(graph)
    return Way(apart=apart, calls_python=calls_python(graph))


def _has_wide_product(jaxpr: Jaxpr) -> bool:
    """Whether both operands of a product are batched, and one is a large matrix for each chain."""
    for equation in equations(jaxpr):
        if equation.primitive.name == "dot_general":
            batch = len(equation.params["dimension_numbers"][1][0])
            shapes = [getattr(v.aval, "shape", ())[batch:] for v in equation.invars]
            if batch and _is_wide(shapes):
                return True
    return False


def _is_wide(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether the operands of a chain are large: in a cache there is room for one chain's alone."""
    if any(len(s) > 1 and min(s) >= WIDE_PRODUCT for s in shapes):
        return True
    matrices = all(len(s) > 1 for s in shapes)
    return matrices and any(math.prod(s) >= WIDE_PRODUCT**2 for s in shapes)


def stored_of(collect: Collect | None, states: PyTree) -> Collect:
    """The function of a frozen position that gives what is stored of it, a tree of arrays.

    Raises:
        ValueError: there is no array to store.
    """
    if collect is None:
        return _itself
    stored = traced(eqx.Partial(_collected, collect), one_of(states.position))
    if not jax.tree.leaves(stored.program.shapes):
        raise ValueError(
            "collect returns no array, so there is nothing to store. Try ending it with `return` "
            "and arrays of jax.numpy, such as jnp.sum(position)."
        )
    return stored


def _itself(position: PyTree) -> PyTree:
    return tree.hide(tree.thaw(position))


def _collected(collect: Collect, position: PyTree) -> PyTree:
    return tree.hide(collect(tree.thaw(position)))


def zeros_of(stored: Collect, states: PyTree, num_chains: int) -> PyTree:
    """Zeros in the shape of what is stored of the positions of so many chains."""
    shapes = eqx.filter_eval_shape(stored, one_of(states.position))
    return jax.tree.map(lambda s: np.zeros((num_chains, *s.shape), s.dtype), shapes)


def take_steps(
    step: Step, first: Number, count: Number, keys: Keys, blocks: PyTree, states: PyTree
) -> tuple[PyTree, Bool[Array, " chains"]]:
    """Take `count` steps, of which the first has the number `first`, without storing anything.

    Returns:
        The states after, their blocks detached, and whether each chain went well: finite, and no
        step infeasible.
    """

    def chain(key: PRNGKeyArray, blocks: PyTree, state: PyTree) -> tuple:
        state, well = _steps(step, key, blocks, state, first, count)
        return state, well & tree.all_finite(state.position)

    return over_chains(chain, keys.shape[0], apart=step.way.apart)(keys, blocks, states)


class Stretch(NamedTuple):
    """The draws that are to be made."""

    first: Number  # the first draw's first step
    count: Number  # how many draws
    thin: Number | int | None  # steps to a draw; None for 1, which needs no inner loop
    taken: Number  # how many steps of the first draw have been taken before; below thin
    offset: Number  # the row of the buffer for the first draw


def make_draws(
    step: Step,
    stored: Collect,
    stretch: Stretch,
    keys: Keys,
    blocks: PyTree,
    states: PyTree,
    buffer: PyTree,
) -> tuple[PyTree, PyTree, Bool[Array, " chains"]]:
    """Make the draws of a stretch, and put what is `stored` of each, and its Info, into the buffer.

    Returns:
        The states after, the buffer with the new rows, leaves (chains, rows, ...), and whether each
        chain went well: finite, and no step infeasible.
    """
    first, thin = stretch.first, stretch.thin

    def chain(given: tuple, buffer: PyTree, *number: Number) -> tuple:
        key, blocks, state = given

        def one(k: Number, carry: tuple) -> tuple:
            state, buffer, well = carry
            last = first + k
            if thin is not None:
                last = first + k * thin + (thin - 1)
                begin, count = first + k * thin, thin - 1
                if not isinstance(thin, int):
                    begin += jnp.where(k == 0, stretch.taken, 0)
                    count = last - begin
                state, fine = _steps(step, key, blocks, state, begin, count)
                well = well & fine
            state, info = step(jax.random.fold_in(key, last), blocks, state)
            row = stored(state.position), info
            place = *number, stretch.offset + k
            buffer = jax.tree.map(lambda b, x: b.at[place].set(x), buffer, row)
            return state, buffer, _still(well, info)

        begin = (state, buffer, jnp.array(True))
        repeat = _repeat if thin is None else _turns
        state, buffer, well = repeat(stretch.count, one, begin)
        return (state, well & tree.all_finite(state.position)), buffer

    chains = keys, blocks, states
    if step.way.apart and keys.shape[0] > 1:
        results = states, jnp.zeros(keys.shape, bool)
        (states, well), buffer = _fill_in_turn(chain, chains, results, buffer)
    else:
        (states, well), buffer = over_chains(chain, keys.shape[0])(chains, buffer)
    return states, buffer, well


def retrace(
    step: Step, first: Number, count: Number, keys: Keys, blocks: PyTree, states: PyTree
) -> tuple[Int[Array, " chains"], PyTree]:
    """Take up to `count` steps again; each chain stops at its first that did not go well.

    The chains are mapped over as in `take_steps`, so that they retrace their steps to the bit.

    Returns:
        How many steps of each chain went well, and the Info of its last one taken.
    """

    def chain(key: PRNGKeyArray, blocks: PyTree, state: PyTree) -> tuple:
        def go_on(carry: tuple) -> Bool[Array, ""]:
            _, done, well, _ = carry
            return well & (done < count)

        def one(carry: tuple) -> tuple:
            state, done, _, _ = carry
            new, info = step(jax.random.fold_in(key, first + done), blocks, state)
            well = _still(tree.all_finite(new.position), info)
            return new, done + well.astype(jnp.int32), well, info

        shapes = jax.eval_shape(lambda s: _step(step.kernel, key, blocks, s)[1], state)
        info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        begin = (state, jnp.int32(0), jnp.array(True), info)
        _, done, _, info = lax.while_loop(go_on, one, begin)
        return done, info

    return over_chains(chain, keys.shape[0], apart=step.way.apart)(keys, blocks, states)


def _steps(
    step: Step,
    key: PRNGKeyArray,
    blocks: PyTree,
    state: PyTree,
    first: Number,
    count: Number | int,
) -> tuple[PyTree, Bool[Array, ""]]:
    def one(k: Number, carry: tuple) -> tuple:
        state, well = carry
        state, info = step(jax.random.fold_in(key, first + k), blocks, state)
        return state, _still(well, info)

    return _repeat(count, one, (state, jnp.array(True)))


def asks_host() -> bool:
    """Whether the host is asked before each turn of a loop whose number is not in the program.

    Accelerators do so, and wait for an answer longer than a small step takes.
    """
    return jax.default_backend() != "cpu"


def _turns(count: Number | int, one: Callable, carry: tuple) -> tuple:
    return lax.fori_loop(0, count, one, carry)


def _repeat(count: Number | int, one: Callable, carry: tuple) -> tuple:
    """`count` turns; where the host would be asked before each, most of them are in blocks."""
    if isinstance(count, int) or not asks_host():
        return _turns(count, one, carry)

    def block(number: Number, carry: tuple) -> tuple:
        return _turns(BLOCK, lambda k, inner: one(number * BLOCK + k, inner), carry)

    carry = _turns(count // BLOCK, block, carry)
    rest = count // BLOCK * BLOCK
    return _turns(count - rest, lambda k, inner: one(rest + k, inner), carry)


def _still(well: Bool[Array, ""], info: PyTree) -> Bool[Array, ""]:
    """Whether all went well so far and this step was feasible, where the kernel says so."""
    feasible = getattr(info, "feasible", None)
    return well if feasible is None else well & feasible


def over_chains(function: Callable, num_chains: int, *, apart: bool = False) -> Callable:
    """Map over a leading chain axis; one chain runs without the cost of a batch of one."""

    def single(*args: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[None], function(*_of_chain(args, 0)))

    def one_by_one(*args: PyTree) -> PyTree:
        return lax.map(lambda chain: function(*chain), args)

    if num_chains == 1:
        return single
    return one_by_one if apart else eqx.filter_vmap(function)


def _fill_in_turn(function: Callable, chains: tuple, results: PyTree, buffer: PyTree) -> tuple:
    """Map over chains one after another that write into one buffer, in place.

    The function takes a chain's arguments, the buffer and its number, and returns its results and
    the buffer; `results` are of the shapes of those of all chains, to be replaced.
    """

    def one(number: Number, carry: tuple) -> tuple:
        results, buffer = carry
        found, buffer = function(_of_chain(chains, number), buffer, number)
        return jax.tree.map(lambda old, x: old.at[number].set(x), results, found), buffer

    num_chains = jax.tree.leaves(chains)[0].shape[0]
    return lax.fori_loop(0, num_chains, one, (results, buffer))


def _of_chain(tree: PyTree, number: int | Number) -> PyTree:
    return jax.tree.map(lambda x: x[number], tree)
