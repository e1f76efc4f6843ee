"""What tests of several figures share."""

import pytest

from ergodax.driver import loop


@pytest.fixture
def programs(monkeypatch):
    """A list that grows whenever the driver's loop is traced with a kernel's step in it."""
    traced, step = [], loop._step
    monkeypatch.setattr(loop, "_step", lambda *where: traced.append(1) or step(*where))
    return traced
