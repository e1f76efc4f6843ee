"""Normal numbers chosen by the test: a step becomes a plain function of its state and noise.

Every kernel draws its normal numbers through `tree.normal_like`. Dealt from a given vector
instead, they can be differentiated and integrated over, and the law of the chain that the
code makes is found exactly, without sampling.
"""

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

import ergodax as ex
from ergodax import tree


def key() -> jax.Array:
    """The key of a step whose normal numbers are dealt: it decides nothing."""
    return jax.random.key(0)


class _Dealer:
    def __init__(self, numbers: jax.Array | None) -> None:
        self.numbers, self.used = numbers, 0

    def __call__(self, _, like):
        flat, unravel = ravel_pytree(like)
        first, self.used = self.used, self.used + flat.size
        if self.numbers is None:
            return tree.zeros_like(like)
        assert self.used <= self.numbers.size, "the step drew more normal numbers than there are"
        return unravel(self.numbers[first : self.used].astype(flat.dtype))


@contextlib.contextmanager
def dealt(numbers: jax.Array | None) -> Iterator[_Dealer]:
    """Deal `numbers` in the order they are asked for; with None, deal zeros and count."""
    dealer = _Dealer(numbers)
    with mock.patch.object(tree, "normal_like", dealer):
        yield dealer


def count(kernel: ex.Kernel, state: ex.State) -> int:
    """How many normal numbers a step draws."""
    with dealt(None) as dealer:
        jax.eval_shape(lambda s: kernel.step(key(), s), state)
    return dealer.used


def start(kernel: ex.Kernel, position) -> ex.State:
    """A state at `position`, all its momenta zero."""
    with dealt(None):
        return kernel.init(key(), jax.tree.map(jnp.asarray, position))


def has_momentum(kernel: ex.Kernel) -> bool:
    """Whether the kernel's states have a momentum."""
    return "momentum" in jax.eval_shape(lambda x: start(kernel, x), jnp.zeros(1)).auxiliary


def scaled_by(factor: float) -> Callable:
    """A fault: all the noise of a step multiplied by `factor`."""

    @contextlib.contextmanager
    def fault():
        right = tree.normal_like
        wrong = lambda key, like: tree.scale(factor, right(key, like))  # noqa: E731
        with mock.patch.object(tree, "normal_like", wrong):
            yield

    return fault
