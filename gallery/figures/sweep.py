"""Many settings of a sampler in one run, and chains that may leave the finite numbers."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray, PyTree

import ergodax as ex


class Sweep(ex.Kernel):
    """Kernels that differ in numbers alone, run side by side: row i of the position is i's chain.

    Other numbers need no new compilation. Arrays that all of them share, such as data, are kept
    once.

    Attributes:
        own: the arrays in which the kernels differ, leading axis kernels.
        common: all else.
        size: how many kernels.
    """

    own: Any
    common: Any
    size: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The state of each kernel, stacked.

        Args:
            key: for all of them.
            position: leading axis kernels.
        """
        return self._each("init", key, position)

    def step(self, key: PRNGKeyArray, state: Any) -> tuple[Any, Any]:
        """A step of each."""
        return self._each("step", key, state)

    def _each(self, name: str, key: PRNGKeyArray, argument: PyTree) -> Any:
        def one(own: Any, key: PRNGKeyArray, argument: PyTree) -> Any:
            return getattr(eqx.combine(own, self.common), name)(key, argument)

        return eqx.filter_vmap(one)(self.own, jax.random.split(key, self.size), argument)


def side_by_side(kernels: Sequence[ex.Kernel]) -> Sweep:
    """Make a Sweep.

    Args:
        kernels: of one structure.

    Raises:
        ValueError: there are none, or their structures differ.
    """
    if not kernels:
        raise ValueError("kernels must be one at least, not none.")
    flat = [jax.tree.flatten(kernel) for kernel in kernels]
    structure = flat[0][1]
    if any(other != structure for _, other in flat):
        raise ValueError("kernels must differ in numbers alone. Try a sweep for each structure.")
    columns = list(zip(*(leaves for leaves, _ in flat), strict=True))
    alike = [all(leaf is column[0] for leaf in column) for column in columns]
    own = [None if same else jnp.stack(c) for same, c in zip(alike, columns, strict=True)]
    common = [c[0] if same else None for same, c in zip(alike, columns, strict=True)]
    return Sweep(structure.unflatten(own), structure.unflatten(common), len(kernels))


def with_repeats(
    settings: Float[np.ndarray, " settings"], more: float, repeats: int
) -> list[float]:
    """All settings and, so many times, the one that a page looks at more closely.

    Args:
        settings: of the sweep.
        more: one more.
        repeats: how often it is run.
    """
    return [*settings.tolist(), *[more] * repeats]


def without_repeats(
    draws: Float[np.ndarray, "chains steps kernels"], repeats: int
) -> tuple[Float[np.ndarray, "chains steps settings"], Float[np.ndarray, "more_chains steps"]]:
    """The draws of the settings, and those of the one more, whose repeats are chains.

    Args:
        draws: of a sweep of `with_repeats`.
        repeats: as there.
    """
    last = np.moveaxis(draws[..., -repeats:], -1, 0)
    return draws[..., :-repeats], last.reshape(-1, draws.shape[1])
