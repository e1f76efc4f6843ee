"""How many draws a round has: enough if they are independent, then what the errors still ask."""

from typing import Any

import numpy as np

from ergodax.target.base import AbstractTarget
from ergodax.tune.decisions import LARGEST_R_HAT, Tuned
from ergodax.tune.descent import seconds_of_gradient

DRAWS = 1_000  # of the first round, all chains together
AT_LEAST = 500  # of each chain
FALSE_ALARM = 0.01  # that the largest R-hat of a first round is above the limit though all is well
MARGIN = 1.3  # of draws over those that are needed if they are independent
PROGRAM = 2.0  # seconds in which a round's program is compiled


def first_round(target: AbstractTarget, tuned: Tuned, accuracy: float, num_chains: int) -> int:
    """Draws of each chain: fewer where each costs much, but enough if they are independent.

    R-hat of half chains that agree is 1 + (x / (2 chains - 1) - 1) / draws, x chi squared. As many
    draws cost nothing as take no longer than a second round's program does to compile.
    """
    from scipy.special import chdtri

    usual = max(DRAWS // num_chains, AT_LEAST)
    if tuned.bias is not None:
        return usual
    seconds = num_chains * seconds_of_gradient(target, tuned.coordinates.centre)
    free = 2 * num_chains - 1
    largest = chdtri(free, FALSE_ALARM / (2 * tuned.coordinates.dimension)) / free
    needed = max((largest - 1.0) / (LARGEST_R_HAT - 1.0), MARGIN / (accuracy**2 * num_chains))
    return int(np.clip(PROGRAM / seconds, min(needed, usual), usual))


def missing(table: Any, accuracy: float, drawn: int) -> int:
    """How many draws of each chain are missing: the error falls as one over their root."""
    mcse = np.maximum(table["mcse_mean"], table["mcse_sd"]).to_numpy()
    bias = np.maximum(table["bias_mean"], table["bias_sd"]).to_numpy()
    room = np.maximum(accuracy - bias, 0.25 * accuracy)
    missing = np.nan_to_num((mcse / room) ** 2, nan=np.inf) * 1.2
    factor = float(np.clip(missing.max(), 2.0, 5.0))
    return int(np.ceil((factor - 1.0) * drawn))
