"""What lambda-hat of a deep linear network is: by exact draws of a layer at a time.

Of the other layers given, t |A W B - W*|^2 / 2 is quadratic in a layer W, so under the local
posterior W is Gaussian; in the eigenvectors of A^T A and B B^T its entries are independent. There
is no step size and nothing to accept, and a network of 10,000 weights takes a minute.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

Matrix = np.ndarray

CHAINS, SWEEPS, BURN_IN = 4, 2_000, 500


def by_gibbs(truth: Sequence[Matrix], t: float, localization: float) -> tuple[float, float]:
    """The mean of t (L - L*), L = |W_k ... W_1 - W*|^2 / 2 at w*, and its standard error.

    Args:
        truth: w*, the layers from the first to the last; W* is their product.
        t: the inverse temperature.
        localization: gamma of exp(-gamma |w - w*|^2 / 2).
    """
    energies = np.array([_chain(truth, t, localization, seed) for seed in range(CHAINS)])
    means = energies.reshape(4 * CHAINS, -1).mean(axis=1)  # quarters of the chains
    return float(energies.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


def _chain(truth: Sequence[Matrix], t: float, localization: float, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    truth = [np.asarray(layer, np.float64) for layer in truth]
    goal, inputs = product(truth), len(truth[0].T)
    layers, energies = list(truth), []
    last = len(layers) - 1
    for sweep in range(BURN_IN + SWEEPS):
        for k in [*range(last + 1), *range(last - 1, 0, -1)]:
            before = product([np.eye(inputs), *layers[:k]])
            after = product([np.eye(layers[k].shape[0]), *layers[k + 1 :]])
            layers[k] = _drawn(rng, after, before, goal, truth[k], t, localization)
        if sweep >= BURN_IN:
            energies.append(0.5 * t * np.sum((product(layers) - goal) ** 2))
    return energies


def _drawn(
    rng: np.random.Generator,
    after: Matrix,
    before: Matrix,
    goal: Matrix,
    centre: Matrix,
    t: float,
    localization: float,
) -> Matrix:
    """W ~ exp(-t |after W before - goal|^2 / 2 - localization |W - centre|^2 / 2)."""
    left, rotate = np.linalg.eigh(after.T @ after)
    right, turn = np.linalg.eigh(before @ before.T)
    precision = t * np.outer(left.clip(0.0), right.clip(0.0)) + localization
    pull = t * after.T @ goal @ before.T + localization * centre
    mean = (rotate.T @ pull @ turn) / precision
    return rotate @ (mean + rng.normal(size=mean.shape) / np.sqrt(precision)) @ turn.T


def product(layers: Sequence[Matrix]) -> Matrix:
    """The last layer times ... times the first."""
    return reduce(lambda whole, layer: layer @ whole, layers)
