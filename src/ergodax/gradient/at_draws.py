"""The gradient at draws that are already there, exact or from a fresh batch for each."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Key, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.gradient.base import GradientEstimator, check_estimator
from ergodax.gradient.full import FullGradient
from ergodax.kernel import check_key
from ergodax.stats.draws import positions_of
from ergodax.target.base import AbstractTarget


def as_estimator(gradient: Any) -> GradientEstimator:
    """An estimator as it is, a target as its FullGradient."""
    if isinstance(gradient, AbstractTarget):
        return FullGradient(gradient)
    return check_estimator(gradient)


def is_exact(gradient: GradientEstimator) -> bool:
    """Whether the estimate is the gradient itself, so that no key is needed."""
    return isinstance(gradient, FullGradient)


def gradients_at(draws: Any, gradient: Any, *, key: Any = None, chunk: int = 64) -> PyTree:
    """The gradient of U at each draw: exact, or estimated from a fresh batch for each.

    Batches drawn here know nothing of the chain, so that the estimate at a draw is unbiased given
    the draw. (Of an estimator over shuffled epochs the batches of one epoch are disjoint, hence
    slightly dependent.) Draws are taken `chunk` at a time by one compiled program, whatever their
    number; place k of a chunk has an estimator's state of its own, handed on from chunk to chunk.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).
        gradient: a target or posterior, for the exact gradient at N evaluations a draw; or an
            estimator, such as ex.Minibatch.
        key: of the batches; needed by every estimator but FullGradient.
        chunk: draws at once; lower it where memory is short.

    Returns:
        A tree like the positions, NumPy arrays (chains, draws, ...).

    Raises:
        TypeError: no array among the draws.
        ValueError: no key for an estimator that draws batches, or a chunk below 1.

    Example:
        >>> import ergodax as ex, jax
        >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))  # chains, draws
        >>> found = ex.postprocess.gradients(draws, ex.Target(lambda x: 0.5 * x**2))
        >>> bool(abs(found - draws).max() < 1e-6)
        True
    """
    estimator = as_estimator(gradient)
    if getattr(estimator.target, "constraints", None) is not None:
        raise ValueError(
            "gradient: the target has constraints, so its gradient is in unconstrained numbers, "
            "which these draws are not. Draw from ergodax.target.unconstrained(target, position)."
        )
    if key is None and not is_exact(estimator):
        raise ValueError(
            f"key must be given for {type(estimator).__name__}, which draws a batch at each "
            "position. Try key=jax.random.key(0)."
        )
    chunk = whole_number("chunk", chunk)
    frozen = tree.freeze(jax.tree.map(_on_host, positions_of(draws)))
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, frozen))
    lead = leaves[0].shape[:2]
    count = lead[0] * lead[1]
    flat = structure.unflatten([x.reshape(count, *x.shape[2:]) for x in leaves])
    chunk = min(chunk, 2 ** int(np.ceil(np.log2(count))))
    key_init, key_run = jax.random.split(jax.random.key(0) if key is None else check_key(key))
    first = jax.tree.map(lambda x: x[0], flat)
    states = _start(estimator, jax.random.split(key_init, chunk), first)
    out = [np.empty_like(x) for x in jax.tree.leaves(flat)]
    for number, begin in enumerate(range(0, count, chunk)):
        rows = np.minimum(np.arange(begin, begin + chunk), count - 1)  # the last row fills up
        keys = jax.random.split(jax.random.fold_in(key_run, number), chunk)
        some = jax.tree.map(lambda x, rows=rows: x[rows], flat)
        gradients, states = _evaluate(estimator, keys, states, some)
        for whole, part in zip(out, jax.tree.leaves(gradients), strict=True):
            whole[begin : begin + chunk] = np.asarray(part)[: count - begin]
    return tree.thaw(structure.unflatten([x.reshape(*lead, *x.shape[1:]) for x in out]))


def _on_host(leaf: Any) -> Any:
    return np.asarray(leaf) if eqx.is_array(leaf) else leaf


@eqx.filter_jit
def _start(
    estimator: GradientEstimator, keys: Key[jax.Array, " chunk"], position: PyTree
) -> PyTree:
    return eqx.filter_vmap(estimator.init, in_axes=(0, None))(keys, position)


@eqx.filter_jit
def _evaluate(
    estimator: GradientEstimator, keys: Key[jax.Array, " chunk"], states: Any, positions: PyTree
) -> tuple[PyTree, PyTree]:
    def one(key: Any, state: PyTree, position: PyTree) -> tuple[PyTree, PyTree]:
        estimate, state = estimator.estimate(key, state, position)
        return estimate.gradient, state

    return eqx.filter_vmap(one)(keys, states, positions)
