"""The compiled inner loop.

A chunk runs many steps and stores every thin-th position in a buffer, which the next chunk goes
on filling in place. How many draws to make is an argument of the compiled program, not part of
it, so any chunking, and runs of similar length, reuse one compilation. Step t of a chain uses
the key fold_in(chain key, t): the draws depend on the key alone, not on where chunks begin.

Blocks of streamed data are arguments of their own: no step changes them, so they are not returned.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.block import attach, detach
from ergodax.driver import cpu_fusion, measured
from ergodax.driver.compile import compiled_at
from ergodax.driver.execution import Way, fill_in_turn, over_chains, way_of
from ergodax.driver.traced import one_of, traced

Collect = Callable[[PyTree], PyTree]


def first_states(
    kernel: Any, key: PRNGKeyArray, positions: PyTree, first: int | Int[Array, ""] = 0
) -> tuple[Key[Array, " chains"], PyTree, PyTree]:
    """The key of each chain, zeros in the shape of the Info of all chains, and the first states.

    Chain c runs with the key fold_in(., c), whatever the number of chains; positions have a
    leading chain axis, that of chain `first` at its head. Finding the shapes here, in the compiled
    program, saves tracing the kernel anew in each run.
    """
    num_chains = jax.tree.leaves(positions)[0].shape[0]
    key_init, key_run = jax.random.split(key)
    keys = _of_chains(key_init, num_chains, first)
    states = over_chains(kernel.init, num_chains)(keys, positions)
    return *_keys_and_infos(kernel, key_run, states, first), states


def next_keys(
    kernel: Any, key: PRNGKeyArray, states: PyTree, first: int | Int[Array, ""] = 0
) -> tuple[Key[Array, " chains"], PyTree]:
    """The keys and zeros of `first_states`, where there are states to go on from."""
    return _keys_and_infos(kernel, jax.random.split(key)[1], states, first)


def _keys_and_infos(
    kernel: Any, key_run: PRNGKeyArray, states: PyTree, first: int | Int[Array, ""]
) -> tuple[Key[Array, " chains"], PyTree]:
    num_chains = jax.tree.leaves(states.position)[0].shape[0]
    keys = _of_chains(key_run, num_chains, first)
    one = jax.tree.map(lambda x: x[0], states)
    shapes = jax.eval_shape(lambda s: _first(kernel, keys[0], s)[1], one)
    infos = jax.tree.map(lambda s: jnp.zeros((num_chains, *s.shape), s.dtype), shapes)
    return keys, infos


def _of_chains(key: PRNGKeyArray, num_chains: int, first: Any) -> Key[Array, " chains"]:
    chains = first + jnp.arange(num_chains, dtype=jnp.int32)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, chains)


def stored_of(collect: Collect | None, states: PyTree) -> Collect:
    """The function of a frozen position that gives what is stored of it, a tree of arrays.

    Args:
        collect: a user's function of the position; None for the position itself.
        states: of all chains.
    """
    if collect is None:
        return _itself
    return traced(eqx.Partial(_collected, collect), one_of(states.position))


def zeros_of(stored: Collect, states: PyTree, num_chains: int) -> PyTree:
    """Zeros in the shape of what is stored of the positions of so many chains."""
    shapes = eqx.filter_eval_shape(stored, one_of(states.position))
    return jax.tree.map(lambda s: np.zeros((num_chains, *s.shape), s.dtype), shapes)


def way_of_steps(kernel: Any, keys: Key[Array, " chains"], states: PyTree) -> Way:
    """See `way_of`, for as many chains as there are states."""
    return way_of(_first, (kernel, *one_of((keys, states))), keys.shape[0])


class Step(eqx.Module):
    """A step of a kernel.

    Attributes:
        kernel: the kernel.
        way: how it is taken.
    """

    kernel: Any
    way: Way = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray, blocks: PyTree, state: Any) -> tuple[Any, Any]:
        """The state after, its blocks detached, and the kernel's Info."""
        return (_fused_step if self.way.small else _step)(self.kernel, key, blocks, state)

    def over_chains(self, function: Callable, num_chains: int) -> Callable:
        """See `ways.over_chains`."""
        return over_chains(function, num_chains, apart=self.way.apart)


@compiled_at
def buffer(row: PyTree, rows: int) -> PyTree:
    """Zeros for the rows of draws: leaves (chains, rows, ...).

    Args:
        row: one draw, leaves (chains, ...).
        rows: how many.
    """
    return jax.tree.map(lambda x: jnp.zeros((x.shape[0], rows, *x.shape[1:]), x.dtype), row)


def take_steps(
    step: Step,
    keys: Key[Array, " chains"],
    blocks: PyTree,
    states: PyTree,
    first: Int[Array, ""],
    count: Int[Array, ""],
) -> tuple[PyTree, Bool[Array, " chains"]]:
    """Take `count` steps without storing anything.

    Args:
        step: of the kernel.
        keys: one for each chain.
        blocks: the rows of the blocks of `states`.
        states: where the chains stand, their blocks detached.
        first: the number of the first step.
        count: how many.

    Returns:
        The states after, and whether each chain went well: finite, and no step infeasible.
    """

    def chain(key: PRNGKeyArray, blocks: PyTree, state: Any) -> Any:
        state, well = _steps(step, key, blocks, state, first, count)
        return state, well & tree.all_finite(state.position)

    return step.over_chains(chain, keys.shape[0])(keys, blocks, states)


class Stretch(eqx.Module):
    """A stretch of draws to be made.

    Attributes:
        keys: one for each chain.
        blocks: the rows of the blocks of `states`.
        states: where the chains stand, leading chain axis, their blocks detached.
        first: the number of the first draw's first step.
        count: how many draws.
        thin: steps to a draw; None for 1, which needs no inner loop.
        taken: how many steps of the first draw have been taken before; below thin.
        offset: the row of the buffer for the first draw.
    """

    keys: Key[Array, " chains"]
    blocks: PyTree
    states: PyTree
    first: Int[Array, ""]
    count: Int[Array, ""]
    thin: Int[Array, ""] | None
    taken: Int[Array, ""]
    offset: Int[Array, ""]


def make_draws(
    what: tuple[Step, Collect, Stretch], buffer: PyTree
) -> tuple[PyTree, PyTree, Bool[Array, " chains"]]:
    """Make the draws of a stretch.

    Args:
        what: the step, what to store of a position, and the stretch.
        buffer: leaves (chains, rows, ...) for (collected, info); its memory is reused.

    Returns:
        The states after, the buffer with the new rows, and whether each chain went well: finite,
        and no step infeasible.
    """
    step, stored, stretch = what
    first, thin = stretch.first, stretch.thin

    def chain(given: tuple, buffer: PyTree, *number: Any) -> Any:
        key, blocks, state = given

        def one(k: Int[Array, ""], carry: tuple) -> tuple:
            state, buffer, well = carry
            last = first + k
            if thin is not None:
                begin = first + k * thin + jnp.where(k == 0, stretch.taken, 0)
                last = first + k * thin + (thin - 1)
                state, fine = _steps(step, key, blocks, state, begin, last - begin)
                well = well & fine
            state, info = step(jax.random.fold_in(key, last), blocks, state)
            row = stored(state.position), info
            place = *number, stretch.offset + k
            buffer = jax.tree.map(lambda b, x: b.at[place].set(x), buffer, row)
            return state, buffer, _still(well, info)

        begin = (state, buffer, jnp.array(True))
        state, buffer, well = lax.fori_loop(0, stretch.count, one, begin)
        return (state, well & tree.all_finite(state.position)), buffer

    chains = stretch.keys, stretch.blocks, stretch.states
    if step.way.apart and stretch.keys.shape[0] > 1:
        results = stretch.states, jnp.zeros(stretch.keys.shape, bool)
        (states, well), buffer = fill_in_turn(chain, chains, results, buffer)
    else:
        (states, well), buffer = over_chains(chain, stretch.keys.shape[0])(chains, buffer)
    return states, buffer, well


def retrace(
    step: Step,
    keys: Key[Array, " chains"],
    blocks: PyTree,
    states: PyTree,
    first: Int[Array, ""],
    count: Int[Array, ""],
) -> tuple[Int[Array, " chains"], PyTree]:
    """Take up to `count` steps again; each chain stops at its first that did not go well.

    The chains are mapped over as in `take_steps`, so that they retrace their steps to the bit.

    Returns:
        How many steps of each chain went well, and the Info of its last one taken.
    """

    def chain(key: PRNGKeyArray, blocks: PyTree, state: Any) -> tuple:
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

    return step.over_chains(chain, keys.shape[0])(keys, blocks, states)


class Programs(NamedTuple):
    """Programs that take steps, compiled alike, so that they take them alike."""

    advance: Callable
    draw: Callable
    draw_unoptimised: Callable
    replay: Callable


def programs(advance: Callable, draw: Callable, replay: Callable) -> dict[bool, Programs]:
    """Programs that take steps, make draws and retrace steps, by `Way.small`.

    They can't be called within another program.
    """

    def compiled(more: dict[str, Any]) -> Programs:
        return Programs(
            compiled_at(advance, measured.OPTIMISATION, more),
            compiled_at(draw, measured.OPTIMISATION, more, donate="all-except-first"),
            compiled_at(draw, 0, more, donate="all-except-first"),
            compiled_at(replay, measured.OPTIMISATION, more),
        )

    return {False: compiled({}), True: compiled(cpu_fusion.WITHOUT_LIBRARY)}


def _first(kernel: Any, key: PRNGKeyArray, state: Any) -> tuple[Any, Any]:
    return _step(kernel, key, *detach(state))


def _itself(position: PyTree) -> PyTree:
    return tree.hide(tree.thaw(position))


def _collected(collect: Collect, position: PyTree) -> PyTree:
    return tree.hide(collect(tree.thaw(position)))


@eqx.filter_jit
def _step(kernel: Any, key: PRNGKeyArray, blocks: PyTree, state: Any) -> tuple[Any, Any]:
    state, info = kernel.step(key, attach(blocks, state))
    return detach(state)[1], info


_fused_step = cpu_fusion.fused(_step)


def _steps(
    step: Step, key: PRNGKeyArray, blocks: PyTree, state: Any, first: Any, count: Any
) -> tuple[Any, Bool[Array, ""]]:
    def one(k: Int[Array, ""], carry: tuple) -> tuple:
        state, well = carry
        state, info = step(jax.random.fold_in(key, first + k), blocks, state)
        return state, _still(well, info)

    return lax.fori_loop(0, count, one, (state, jnp.array(True)))


def _still(well: Bool[Array, ""], info: Any) -> Bool[Array, ""]:
    """Whether all went well so far and this step was feasible, where the kernel says so."""
    feasible = getattr(info, "feasible", None)
    return well if feasible is None else well & feasible
