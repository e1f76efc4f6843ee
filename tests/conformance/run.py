"""Two steps of a kernel without the driver, and estimators whose use of a key is seen.

They are run operation by operation: compiling a program for each kernel and tree would
take most of the suite's time, and test_compiled does it once for each kernel.
"""

from typing import Any

import jax
import numpy as np

import ergodax as ex


class Drawing(ex.GradientEstimator):
    """An estimator that splits its key, so that JAX's checker sees it used.

    It does not see `Permutation` read a key, and exact gradients use none.
    """

    inner: ex.GradientEstimator

    @property
    def target(self) -> Any:
        return self.inner.target

    def init(self, key: Any, position: Any) -> Any:
        return self.inner.init(jax.random.split(key)[0], position)

    def estimate(self, key: Any, state: Any, position: Any) -> Any:
        return self.inner.estimate(jax.random.split(key)[0], state, position)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # which a module under construction does not have yet
            raise AttributeError(name)
        return getattr(self.inner, name)


def drawing(kernel: Any) -> Any:
    """The kernel with every outermost estimator of a gradient in it so wrapped."""

    def wrapped(x: Any) -> Any:
        return Drawing(x) if is_estimator(x) else x  # pyright: ignore[reportCallIssue]

    return jax.tree.map(wrapped, kernel, is_leaf=is_estimator)


def is_estimator(x: Any) -> bool:
    """Whether it is one whose gradients are noisy; an exact one gets any key, and leaves it."""
    return isinstance(x, ex.GradientEstimator) and not isinstance(x, ex.FullGradient)


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
