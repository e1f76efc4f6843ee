"""The server and its command: what they refuse, and how they end."""

import asyncio
import importlib
import importlib.util
import re
import socket
import urllib.request

import jax
import pytest

from gallery import headless
from gallery.__main__ import main
from gallery.pages import FIGURES

installed = pytest.mark.skipif(importlib.util.find_spec("marimo") is None, reason="needs marimo")


def refused(capsys, *arguments):
    """What wrong use of the command prints."""
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--no-browser"])
    assert stop.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_the_command_says_what_to_install(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "marimo" else find(n))
    assert "needs marimo: make gallery, or pip install -e '.[app,gallery]'" in refused(capsys)


@installed
def test_the_command_names_the_figures(capsys):
    error = refused(capsys, "browning")
    assert re.search("figure must be one of recipe, .*, not 'browning'", error)
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert stop.value.code == 0 and ", ".join(figure.slug for figure in FIGURES) in text


@installed
def test_a_port_that_is_taken_is_named(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(capsys, "--port", str(port))
        assert re.search(f"can't listen on port {port}.*Try --port 0", error)
    assert "port must lie in [0, 65535], not 70000" in refused(capsys, "--port", "70000")


@installed
def test_what_is_sent_does_not_wait_for_an_acknowledgement():
    from gallery.serve import listen

    with listen("127.0.0.1", 0) as listening:
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as served:
            assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def first_answer(app, kind, **headers):
    """The first message with which an application answers a request with these headers."""
    scope = {
        "type": kind, "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"",
        "root_path": "", "scheme": "http", "server": ("127.0.0.1", 8000), "subprotocols": [],
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    sent = []

    async def receive():
        return {"type": f"{kind}.connect" if kind == "websocket" else "http.request"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]


@pytest.mark.slow
@installed
def test_pages_of_other_sites_are_refused():
    from gallery.serve import application

    own, foreign = "127.0.0.1:8000", "evil.example"
    local, everywhere = application(), application("0.0.0.0")
    for app, headers, status in (
        (local, {"host": own}, 200),
        (local, {"host": "localhost:8000", "origin": "http://localhost:8000"}, 200),
        (local, {"host": "[::1]:8000"}, 200),
        (local, {"host": own, "origin": f"http://{foreign}"}, 403),
        (local, {"host": own, "origin": "http://127.0.0.1:9000"}, 403),
        (local, {"host": own, "origin": "null"}, 403),
        (local, {"host": foreign}, 403),  # a name that resolves to this host
        (local, {"host": foreign, "origin": f"http://{foreign}"}, 403),
        (everywhere, {"host": "machine:8000", "origin": "http://machine:8000"}, 200),
        (everywhere, {"host": "machine:8000", "origin": f"http://{foreign}"}, 403),
    ):
        assert first_answer(app, "http", **headers)["status"] == status, headers
    closed = first_answer(local, "websocket", host=own, origin=f"http://{foreign}")
    assert closed["type"] == "websocket.close"


@pytest.mark.slow
@installed
def test_programs_are_kept_where_jax_is_told_of_no_folder(monkeypatch, tmp_path):
    serve = importlib.import_module("gallery.serve")
    settings = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in settings}
    monkeypatch.setattr(serve, "PROGRAMS", tmp_path)
    try:
        for given, kept in ((None, str(tmp_path)), ("elsewhere", "elsewhere")):
            jax.config.update(settings[0], given)
            serve.keep_programs()
            assert jax.config.jax_compilation_cache_dir == kept
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_an_interrupt_ends_the_server_without_an_error():
    with headless.started() as (process, address):
        with urllib.request.urlopen(address, timeout=60) as page:
            text = page.read().decode()
        assert all(f'href="{figure.slug}/"' in text for figure in FIGURES)
        assert headless.interrupted(process) == 0
