"""Does `auxiliary` draw from exp(-g), and has the position the law exp(-U) then? By Stein.

For r ~ exp(-g(x, r)) and any f that does not grow too fast, E[df/dr_i - f dg/dr_i] = 0, whatever
the normalising constant. Where the integral of exp(-g) over r does not depend on x, as it must not
if the position is to follow exp(-U), E[dg/dx_j] = 0 as well.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.graph import depends_on
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
PAIRED = FUNCTIONS[1:3]  # f of one variable, times an odd and an even function of another:
PARTNERS = (FUNCTIONS[2][0], FUNCTIONS[4][0])  # they see what two variables share
NOT_TESTED = "that the position follows exp(-U/T)"


class Drawn(NamedTuple):
    """Auxiliary variables drawn at each position, and the slopes of g there."""

    first: Variables  # one draw at each position
    value: Float[np.ndarray, "n m p"]
    slope: Float[np.ndarray, "n m p"]  # dg/dr
    pull: Float[np.ndarray, "n m q"]  # dg/dx
    position: Float[np.ndarray, "n q"]
    names: list[str]
    tied: bool  # whether g depends on x at all


Pulls = Float[np.ndarray, "n m q"]


class Verdict(NamedTuple):
    """Whether the auxiliary variables follow exp(-g), and what was found, in words."""

    right: bool
    words: str
    untested: str | None = None


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
    state = jax.tree.map(lambda x: x[0], first)
    tied = depends_on(lambda x: recipe.energy({**state, "position": x}), one)
    return Drawn(first, value, slope, pull, place, names(state), tied)


def judged(
    drawn: Drawn, temperature: float, integrate: Callable[[], Pulls | None] | None = None
) -> Verdict:
    """Test what was drawn; variables that are the same in every draw are told, and not tested.

    Args:
        drawn: what was.
        temperature: T.
        integrate: finds terms whose mean is E[dg/dx] in the law exp(-g / T), or None, where
            the draws don't follow it.
    """
    moving = np.ptp(drawn.value, axis=1).max(axis=0) > 0
    told, q = _of_the_fixed(drawn, ~moving), drawn.position.shape[1]
    weights, p = _weights(drawn.position), int(moving.sum())
    pairs = 2 * len(PAIRED) * len(PARTNERS) * p * (p - 1)
    tests = 2 * len(FUNCTIONS) * p + pairs + 2 * q
    critical = float(scipy.stats.norm.isf(0.5 * BUDGET / tests))
    budget = f" (false alarm {BUDGET:g})"
    if moving.any():
        wrong = _of_the_moving(drawn, np.flatnonzero(moving), weights, critical)
        if wrong:
            return Verdict(False, wrong)
        told = f"{told}; the rest follows exp(-energy)" if told else "follows exp(-energy)"
    if not drawn.tied:
        return Verdict(True, told + (budget if moving.any() else ""))
    exact = temperature == 1.0 and bool(moving.all())
    pull = drawn.pull if exact else None if integrate is None else integrate()
    if pull is None:
        why = "the integral of exp(-energy/T) over the other variables could not be found"
        words = told + (budget if moving.any() else "")
        return Verdict(True, f"{words}; not tested: {NOT_TESTED}, for {why}", NOT_TESTED)
    spread = drawn.position.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    pulls = [
        [_score(spread[j] * pull[..., j], w) for w in (weights[:, 0], weights[:, 1 + j])]
        for j in range(q)
    ]
    t = "" if temperature == 1.0 else "/T"
    if np.nanmax(np.abs(pulls)) > critical:
        return Verdict(
            False,
            f"{told}, but the integral of exp(-energy{t}) depends on the position: the position "
            f"does NOT follow exp(-U{t}), for exp(-(U + energy){t}) has another marginal",
        )
    same = "" if exact else f"; the integral of exp(-energy{t}) is the same at all positions"
    return Verdict(True, f"{told}{same}{budget}")


def _of_the_fixed(drawn: Drawn, fixed: Bool[np.ndarray, " p"]) -> str:
    """Which variables are not drawn, and what they are."""
    kinds: dict[str, list[str]] = {}
    for k in np.flatnonzero(fixed):
        constant = np.ptp(drawn.value[..., k]) == 0
        kind = "begins at a constant" if constant else "is a function of the position, not drawn"
        kind = kind if len(drawn.value) > 1 else "is the same in every draw"
        kinds.setdefault(kind, []).append(_variable(drawn.names[k]))
    return ", ".join(f"{', '.join(dict.fromkeys(names))} {kind}" for kind, names in kinds.items())


def _of_the_moving(
    drawn: Drawn, moving: Int[np.ndarray, " p"], weights: Float[np.ndarray, "n w"], critical: float
) -> str:
    """What is wrong with the law of variables that are drawn; nothing where none is."""
    scores, found, units, pulls = [], [], [], []
    for i in moving:
        value, slope = drawn.value[..., i], drawn.slope[..., i]
        centre = np.median(value)
        scale = 1.4826 * np.median(np.abs(value - centre)) or value.std()
        u = (value - centre) / scale
        units.append(u)
        pulls.append(scale * slope)
        other = weights[:, 1 + i % drawn.position.shape[1]]
        for f, df in FUNCTIONS:
            terms = df(u) - scale * f(u) * slope
            found.append(int(i))
            scores.append([_score(terms, w) for w in (weights[:, 0], other)])
    worst = np.nanmax(np.abs(scores), axis=1)
    if worst.max() > critical:
        return _wrong(drawn, found[int(worst.argmax())], float(worst.max()))
    others = weights[:, 1 + moving % drawn.position.shape[1]]
    joint = _of_pairs(np.stack(units, axis=-1), np.stack(pulls, axis=-1), others)
    if joint.max() <= critical:
        return ""
    i, j = np.unravel_index(int(joint.argmax()), joint.shape)
    pair = " and ".join(drawn.names[moving[k]] for k in sorted((int(i), int(j))))
    return (
        f"{pair} do NOT follow exp(-energy) together, though each alone may: Stein's identity of "
        f"the two fails by {joint.max():.3g} standard errors. Look for a key that is used twice"
    )


def _of_pairs(
    u: Float[np.ndarray, "n m p"],
    slope: Float[np.ndarray, "n m p"],
    weight: Float[np.ndarray, "n p"],
) -> Float[np.ndarray, "p p"]:
    """The largest score of E[h(u_j) (f'(u_i) - f(u_i) dg/du_i)] = 0 for all i and j, but i = j."""
    p = u.shape[-1]
    worst, flat = np.zeros((p, p)), u.reshape(-1, p)
    for f, df in PAIRED:
        terms = df(u) - f(u) * slope
        for weighted in (terms, terms * weight[:, None]):
            row = weighted.reshape(-1, p)
            for h in PARTNERS:
                partner = h(flat)
                size = np.sqrt((row**2).T @ partner**2) + 1e-6 * len(row)
                worst = np.fmax(worst, np.abs(row.T @ partner) / size)
    np.fill_diagonal(worst, 0.0)
    return worst


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
