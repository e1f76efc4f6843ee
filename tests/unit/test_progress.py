"""A bar at a terminal; silence elsewhere."""

import io
import sys

import jax.numpy as jnp
import pytest
import rich.console

import ergodax as ex
from ergodax.driver.progress import Clock, progress_bar

KERNEL = ex.sgld(ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2))), 0.1)


@pytest.fixture
def screen(monkeypatch):
    """A terminal whose output is kept."""
    text = io.StringIO()
    console = rich.console.Console(file=text, force_terminal=True, width=120)
    monkeypatch.setattr(rich.console, "Console", lambda stderr: console)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    return text


def test_silent_where_standard_error_is_no_terminal(key, capfd):
    ex.sample(KERNEL, jnp.ones(2), 10, key=key)
    out, err = capfd.readouterr()
    assert out == "" and err == ""


def test_shown_at_a_terminal(key, screen):
    ex.sample(KERNEL, jnp.ones(2), 10, key=key, thin=3, burn_in=5)
    assert "sampling" in screen.getvalue() and "15/15" in screen.getvalue()
    assert "steps/s" in screen.getvalue()


def test_silent_on_request(key, screen):
    ex.sample(KERNEL, jnp.ones(2), 10, key=key, progress=False)
    assert screen.getvalue() == ""


def test_an_error_passes_through_the_bar(screen):
    with pytest.raises(RuntimeError, match="boom"), progress_bar(10, show=True) as report:
        report(5, 100.0)
        raise RuntimeError("boom")


@pytest.mark.parametrize("rate, steps", [(0.1, 1), (1.0, 2), (3.3, 6)])
def test_a_chunk_is_of_the_steps_of_its_seconds_and_never_empty(rate, steps):
    assert Clock(seconds=2.0, rate=rate).steps() == steps


def test_the_rate_is_that_of_the_last_chunk(monkeypatch):
    times = iter([10.0, 10.25])
    monkeypatch.setattr("ergodax.driver.progress.time.perf_counter", lambda: next(times))
    clock = Clock(seconds=2.0)
    with clock.timing(100):
        pass
    assert clock.rate == 400.0 and clock.steps() == 800
