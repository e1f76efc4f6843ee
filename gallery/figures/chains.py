"""Chains that may leave the finite numbers, as too large a step makes them do."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

import ergodax as ex


@dataclasses.dataclass(frozen=True)
class Chains:
    """What chains have drawn.

    Attributes:
        positions: every draw of every chain.
        diverged: the step at which a chain diverged, where one did; the draws are
            those before it.
    """

    positions: Float[np.ndarray, "chains draws d"]
    diverged: int | None

    @property
    def pooled(self) -> Float[np.ndarray, "draws d"]:
        """The draws of all chains."""
        return self.positions.reshape(-1, self.positions.shape[-1])


def draw(
    kernel: Any, start: Float[Array, " d"], steps: int, *, chains: int, seed: int, burn_in: int = 0
) -> Chains:
    """Run chains, to the end or to where one diverges.

    Args:
        kernel: of the library.
        start: of every chain.
        steps: of each chain that are kept.
        chains: how many.
        seed: of everything random.
        burn_in: steps before.
    """
    diverged = None
    try:
        samples = ex.sample(
            kernel, start, steps, num_chains=chains, burn_in=burn_in,
            key=jax.random.key(seed), progress=False,
        )  # fmt: skip
    except ex.DivergenceError as error:
        samples, diverged = error.samples, error.step
    drawn = np.zeros((chains, 0, start.size)) if samples is None else samples.position
    return Chains(np.asarray(drawn, float), diverged)
