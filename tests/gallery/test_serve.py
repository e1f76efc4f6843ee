"""The server and its command: what they refuse, and how they end."""

import importlib.util
import socket
import urllib.request

import pytest

from ergodax.cli.gallery import gallery
from ergodax.gallery.pages import FIGURES
from gallery import server

NEEDS = [n for n in ("marimo", "altair") if importlib.util.find_spec(n) is None]
installed = pytest.mark.skipif(bool(NEEDS), reason=f"needs {' and '.join(NEEDS)}")


def test_the_command_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "marimo" else find(n))
    with pytest.raises(ValueError, match=r"needs marimo: pip install 'ergodax\[gallery\]'"):
        gallery()


@installed
def test_the_command_names_the_figures():
    with pytest.raises(ValueError, match="figure must be one of recipe, .*, not 'browning'"):
        gallery("browning", browser=False)
    text = " ".join((gallery.__doc__ or "").split())
    assert ", ".join(figure.slug for figure in FIGURES) in text


@installed
def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"can't listen on port {port}.*Try --port 0"):
            gallery(port=port, browser=False)
    with pytest.raises(ValueError, match=r"port must lie in \[0, 65535\], not 70000"):
        gallery(port=70_000, browser=False)


@installed
def test_an_interrupt_ends_the_server_without_an_error():
    with server.started() as (process, address):
        with urllib.request.urlopen(address, timeout=60) as page:
            text = page.read().decode()
        assert all(f'href="{figure.slug}/"' in text for figure in FIGURES)
        assert server.interrupted(process) == 0
