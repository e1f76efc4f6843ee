"""The gradient of the potential at draws that are already there."""

from typing import Any

from jaxtyping import PyTree

from ergodax.driver.draws import positions_of
from ergodax.gradient.at_draws import gradients_at


def gradients(draws: Any, gradient: Any, *, key: Any = None, chunk: int = 64) -> PyTree:
    """The gradient of U at each draw: exact, or estimated from a fresh batch for each.

    Batches drawn here know nothing of the chain, so that the estimate at a draw is unbiased given
    the draw. (Of an estimator over shuffled epochs the batches of one epoch are disjoint, hence
    slightly dependent.) One compiled program serves any number of draws.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).
        gradient: a target or posterior, for the exact gradient at N evaluations a draw; or an
            estimator, such as ex.Minibatch.
        key: of the batches; needed by every estimator but FullGradient.
        chunk: draws evaluated at once; lower it where memory is short.

    Returns:
        A tree like the positions, NumPy arrays (chains, draws, ...).
    """
    return gradients_at(positions_of(draws), gradient, key=key, chunk=chunk)
