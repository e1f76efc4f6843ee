"""Two steps of a kernel without the driver.

They are run operation by operation: compiling a program for each kernel and tree would
take most of the suite's time, and test_compiled does it once for each kernel.
"""

from typing import Any

import jax
import numpy as np


def untyped(kernel: Any) -> Any:
    """A kernel to be called in every way: a type checker sees only its class's own methods."""
    return kernel


def two_steps(kernel: Any, key: Any, position: Any) -> tuple[Any, Any, np.ndarray]:
    """The last state, its Info, and the two new positions as rows of numbers."""
    first, second, third = jax.random.split(key, 3)
    one, _ = kernel.step(second, kernel.init(first, position))
    two, info = kernel.step(third, one)
    return two, info, np.stack([numbers(one.position), numbers(two.position)])


def numbers(tree: Any) -> np.ndarray:
    """All leaves as one vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
