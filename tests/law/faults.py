"""Faults to plant in a kernel: what a check must reject.

A fault is a context manager that makes the library wrong while a step is traced. `Planted`
is a kernel class of its own, so that no compiled program of the right kernel is reused.
"""

import contextlib
from collections.abc import Callable
from unittest import mock

import equinox as eqx

import ergodax as ex


class Planted(ex.Kernel):
    """A kernel with a fault."""

    kernel: ex.Kernel
    fault: Callable = eqx.field(static=True)

    def init(self, key, position):
        return self.kernel.init(key, position)

    def step(self, key, state):
        with self.fault():
            return self.kernel.step(key, state)


def replacing(owner: object, name: str, wrong: Callable) -> Callable:
    """The fault that `wrong` stands in place of owner.name."""

    @contextlib.contextmanager
    def fault():
        with mock.patch.object(owner, name, wrong):
            yield

    return fault


def without_gamma(recipe, z, key) -> dict:
    """Stands in for Recipe.correction: Gamma dropped."""
    return {}


GAMMA_DROPPED = replacing(ex.Recipe, "correction", without_gamma)
