"""The normal law of independent components that is closest to a density: where its mass lies."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ergodax.target.mode import minimise
from ergodax.tune.budget import Deadline
from ergodax.tune.host import generator

PAIRS = 8  # of opposite places, at which the mean of the potential is taken
ITERATIONS = 100
NEAR = 0.05  # of the gradient of a component, in its sds: so near is near enough


def middle_of_mass(
    potential: Callable[[np.ndarray], tuple[float, Float[np.ndarray, " d"]]],
    start: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    *,
    key: PRNGKeyArray,
    deadline: Deadline | None = None,
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """The m and s of the N(m, diag(s^2)) with the least divergence from the density.

    That is where E U(m + s z) - sum log s is least, z standard normal. The logarithms are the
    entropy, which counts volume against height: a spike has none. The mean over z is that at 8
    pairs of opposite places, the same ones throughout, so that L-BFGS can go down.

    Args:
        potential: U and its gradient at a place.
        start: m where the search begins.
        scales: s there, about.
        key: a key of `jax.random.key`.
        deadline: at which it ends where it is.

    Reference:
        Kucukelbir, Tran, Ranganath, Gelman and Blei, Automatic differentiation variational
        inference, 2017; Giordano, Ingram and Broderick, Black box variational inference with a
        deterministic objective, 2024.
    """
    scales, d = np.where(np.isfinite(scales), scales, 1.0), scales.size
    z = generator(key).standard_normal((PAIRS, d))
    places = np.concatenate([z, -z])

    def divergence(moved: Float[np.ndarray, " both"]) -> tuple[float, Float[np.ndarray, " both"]]:
        """At a mean, in units of the scales, and the logs of s over these."""
        steps = scales * np.exp(moved[d:])
        found = [potential(start + scales * moved[:d] + steps * u) for u in places]
        slopes = np.stack([slope for _, slope in found])
        along = np.mean(slopes * places, axis=0) * steps - 1.0
        value = float(np.mean([value for value, _ in found]) - np.sum(moved[d:]))
        return value, np.concatenate([scales * slopes.mean(axis=0), along])

    found = minimise(
        divergence,
        np.zeros(2 * d),
        lambda value: NEAR * np.sqrt(2.0 * d),
        ITERATIONS,
        stop=None if deadline is None else lambda: deadline.over,
    )
    return start + scales * found.position[:d], scales * np.exp(found.position[d:])
