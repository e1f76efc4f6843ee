"""How often the step of a kernel is traced, that is, compiled."""

from collections.abc import Iterator
from contextlib import contextmanager

from ergodax.integrator.euler_maruyama import EulerMaruyama


@contextmanager
def traces() -> Iterator[list[int]]:
    """A list that grows by an entry at each trace of a step."""
    made: list[int] = []
    step = EulerMaruyama.step

    def counted(self, key, state):
        made.append(1)
        return step(self, key, state)

    type.__setattr__(EulerMaruyama, "step", counted)
    try:
        yield made
    finally:
        type.__setattr__(EulerMaruyama, "step", step)
