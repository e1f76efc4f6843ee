"""Draws from a fixed discrete distribution at a cost that does not grow with its size."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


class AliasTable(eqx.Module):
    """Rows drawn with probabilities proportional to weights, by Walker's alias method.

    A uniform row is kept with its own probability and replaced by its alias otherwise. Unlike a
    search in cumulative sums, which single precision blurs where N is large, every row keeps its
    probability to rounding.

    Args:
        weights: shape (N,), not negative, with a positive sum.
    """

    keep: Float[Array, " N"]
    alias: Int[Array, " N"]

    def __init__(self, weights: np.ndarray) -> None:
        scaled = np.asarray(weights, np.float64)
        share = (scaled * (scaled.size / scaled.sum())).tolist()
        keep, alias = [1.0] * len(share), list(range(len(share)))
        small = [i for i, p in enumerate(share) if p < 1.0]
        large = [i for i, p in enumerate(share) if p >= 1.0]
        while small and large:
            low, high = small.pop(), large[-1]
            keep[low], alias[low] = share[low], high
            share[high] -= 1.0 - share[low]
            if share[high] < 1.0:
                small.append(large.pop())
        self.keep, self.alias = jnp.asarray(keep, float), jnp.asarray(alias, jnp.int32)

    def draw(self, key: PRNGKeyArray, count: int) -> Int[Array, " {count}"]:
        """Independent rows.

        Args:
            key: of the draw.
            count: how many.

        Returns:
            Their numbers, from 0 to N - 1.
        """
        key_row, key_keep = jax.random.split(key)
        rows = jax.random.randint(key_row, (count,), 0, self.keep.size, jnp.int32)
        uniforms = jax.random.uniform(key_keep, (count,), self.keep.dtype)
        return jnp.where(uniforms < self.keep[rows], rows, self.alias[rows])
