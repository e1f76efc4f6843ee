"""Does `auxiliary` draw from exp(-g), and has the position the law exp(-U) then? By Stein.

For r ~ exp(-g(x, r)) and any f that does not grow too fast, E[df/dr_i - f dg/dr_i] = 0, whatever
the normalising constant. Where the integral of exp(-g) over r does not depend on x, as it must not
if the position is to follow exp(-U), E[dg/dx_j] = 0 as well.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.verify.equation import compiled

DRAWS = 16_384  # of the auxiliary variables, over all positions
LARGEST = 2**21  # numbers that are drawn
BUDGET = 1e-6  # probability of a false alarm

# Functions f of a variable u of unit scale, and their slopes. The bounded ones see laws with
# heavy tails, for which the first has no variance.
FUNCTIONS = (
    (lambda u: u, lambda u: np.ones_like(u)),
    (lambda u: np.ones_like(u), lambda u: np.zeros_like(u)),
    (np.tanh, lambda u: 1.0 - np.tanh(u) ** 2),
    (lambda u: u / (1.0 + u**2), lambda u: (1.0 - u**2) / (1.0 + u**2) ** 2),
    (lambda u: 1.0 / (1.0 + u**2), lambda u: -2.0 * u / (1.0 + u**2) ** 2),
)


class Drawn(NamedTuple):
    """Auxiliary variables drawn at each position, and the slopes of g there."""

    first: Variables  # one draw at each position
    value: Float[np.ndarray, "n m p"]
    slope: Float[np.ndarray, "n m p"]  # dg/dr
    pull: Float[np.ndarray, "n m q"]  # dg/dx
    position: Float[np.ndarray, "n q"]
    names: list[str]


class Verdict(NamedTuple):
    """Whether the auxiliary variables follow exp(-g), and what was found, in words."""

    right: bool
    words: str


def draw(recipe: Recipe, positions: PyTree, names: Any, key: PRNGKeyArray) -> Drawn | None:
    """Draw many at each position; None where there are no auxiliary variables.

    Args:
        recipe: what has `auxiliary` and the energy.
        positions: with a leading axis.
        names: a function that names the numbers of a tree.
        key: for the draws.
    """
    one = jax.tree.map(lambda x: x[0], positions)
    shapes = jax.eval_shape(recipe.auxiliary, key, one)
    if not shapes:
        return None
    n, size = jax.tree.leaves(positions)[0].shape[0], tree.size(shapes)
    count = max(2, min(DRAWS, LARGEST // (size + tree.size(one))) // n)

    def at(key: PRNGKeyArray, position: PyTree) -> tuple[Variables, Array, Array, Array]:
        auxiliary = jax.tree.map(lambda x: x.astype(float), recipe.auxiliary(key, position))
        slopes = jax.grad(recipe.energy)({"position": position, **auxiliary})
        pull = slopes.pop("position")
        value, slope, pull = (tree.ravel(x)[0] for x in (auxiliary, slopes, pull))
        return auxiliary, value, slope, pull

    @compiled
    def all_of(positions: PyTree) -> Any:
        keys = jax.random.split(key, (n, count))
        return jax.vmap(jax.vmap(at, (0, None)))(keys, positions)

    auxiliary, *arrays = all_of(positions)
    value, slope, pull = map(np.asarray, arrays)
    place = np.asarray(jax.vmap(lambda x: tree.ravel(x)[0])(positions))
    first = jax.tree.map(lambda x: x[:, 0], auxiliary)
    named = names(jax.tree.map(lambda x: x[0], first))
    return Drawn(first, value, slope, pull, place, named)


def judged(drawn: Drawn, temperature: float) -> Verdict:
    """Test what was drawn; variables that are the same in every draw are told, and not tested."""
    moving = np.ptp(drawn.value, axis=1).max(axis=0) > 0
    fixed = list(dict.fromkeys(_variable(drawn.names[k]) for k in np.flatnonzero(~moving)))
    told = f"{', '.join(fixed)} begins at a constant" if fixed else ""
    if not moving.any():
        return Verdict(True, told)
    weights = _weights(drawn.position)
    scores, found = [], []
    for i in np.flatnonzero(moving):
        value, slope = drawn.value[..., i], drawn.slope[..., i]
        centre = np.median(value)
        scale = 1.4826 * np.median(np.abs(value - centre)) or value.std()
        u = (value - centre) / scale
        for f, df in FUNCTIONS:
            terms = df(u) - scale * f(u) * slope
            found.append(i)
            other = weights[:, 1 + i % drawn.position.shape[1]]
            scores.append([_score(terms, w) for w in (weights[:, 0], other)])
    worst = np.nanmax(np.abs(scores), axis=1)
    tests = 2 * len(worst) + 2 * drawn.position.shape[1]
    critical = float(scipy.stats.norm.isf(0.5 * BUDGET / tests))
    i = found[int(worst.argmax())]
    if worst.max() > critical:
        return Verdict(False, _wrong(drawn, int(i), float(worst.max())))
    words = f"{told}; the rest follows exp(-energy)" if told else "follows exp(-energy)"
    if temperature == 1.0 and not fixed:
        spread = drawn.position.std(axis=0)
        pulls = [
            [_score(spread[j] * drawn.pull[..., j], w) for w in (weights[:, 0], weights[:, 1 + j])]
            for j in range(drawn.position.shape[1])
        ]
        if np.nanmax(np.abs(pulls)) > critical:
            return Verdict(
                False,
                "follows exp(-energy), whose integral depends on the position: the position does "
                "NOT follow exp(-U), for exp(-U - energy) has another marginal",
            )
    return Verdict(True, f"{words} (false alarm {BUDGET:g})")


def _variable(name: str) -> str:
    return name.partition("[")[0].partition(".")[0]


def _weights(position: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n weights"]:
    """One, and a bounded function of each coordinate of the position."""
    spread = position.std(axis=0)
    standard = (position - position.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.hstack([np.ones((len(position), 1)), np.tanh(standard)])


def _score(terms: Float[np.ndarray, "n m"], weight: Float[np.ndarray, " n"]) -> float:
    """The sum of terms of unit scale, whose mean ought to be 0, in its standard errors."""
    weighted = terms * weight[:, None]
    rounding = 1e-6 * weighted.size
    return float(weighted.sum() / (np.sqrt((weighted**2).sum()) + rounding))


def _wrong(drawn: Drawn, i: int, score: float) -> str:
    value, slope = drawn.value[..., i], drawn.slope[..., i]
    products = (value - np.median(value)) * slope
    mean, error = products.mean(), products.std() / np.sqrt(products.size)
    name = drawn.names[i]
    text = f"{name} does NOT follow exp(-energy)"
    if np.isfinite(mean) and abs(mean - 1.0) > 5.0 * error:
        return f"{text}: the mean of {name} d energy / d {name} is {mean:.3g} +- {error:.1g}, not 1"
    return f"{text}: Stein's identity fails by {score:.3g} standard errors"
