"""Whether all rows agree with draws that were made by batches.

A row that bounds the posterior like a wall may be in no batch of a short run, which then crosses
the wall, and with every step size alike: a bias measured by comparing steps does not see it.
"""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.target.posterior import Posterior
from ergodax.tune.coordinates import flattened
from ergodax.tune.host import generator, on_device
from ergodax.tune.modes import potential_and_gradient

FEWEST = 16  # draws
TOTAL = 200  # draws times dimensions: five standard deviations of a normal law's are 0.5 then
DISAGREES = 0.5


def whole_temperature(posterior: Posterior, draws: PyTree, *, key: PRNGKeyArray) -> float:
    """The mean over some draws of (x - c) . grad U(x) / d, U of all rows: 1 if the draws are right.

    It holds for every density without a boundary; the variance for a normal one is 2 / d. A draw
    beyond a wall makes it as large as the wall is steep.

    Args:
        posterior: with data in memory.
        draws: positions with leading axes chains and draws; c is the mean of the chain.
        key: for which of them.
    """
    leaves, structure = jax.tree.flatten(tree.freeze(draws))
    chains, count = leaves[0].shape[:2]
    d = sum(leaf[0, 0].size for leaf in leaves)
    rng, total = generator(key), 0.0
    some = min(chains * count, max(FEWEST, TOTAL // d))
    leaves = [np.asarray(leaf) for leaf in leaves]
    centres = [leaf.mean(axis=1, dtype=np.float64) for leaf in leaves]
    for number in rng.choice(chains * count, some, replace=False):
        chain, draw = divmod(int(number), count)
        parts = [leaf[chain, draw] for leaf in leaves]
        position = structure.unflatten([on_device(part, part.dtype) for part in parts])
        gradient = flattened(potential_and_gradient(posterior, position)[1])
        offsets = [np.ravel(x - c[chain]) for x, c in zip(parts, centres, strict=True)]
        total += float(np.concatenate(offsets) @ gradient)
    return total / (some * d)
