"""The gallery's server: an index page, and each notebook below its own name."""

import contextlib
import html
import importlib
import pkgutil
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jax
import marimo
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from gallery import figures, results
from gallery.pages import FIGURES, find

STYLE = """
body { font: 16px/1.5 "PT Sans", Helvetica, Arial, sans-serif; color: #1d1d1f;
       max-width: 46rem; margin: 3rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; }
li { margin: .9rem 0; }
a { color: #3b6fb6; font-weight: bold; text-decoration: none; }
a:hover { text-decoration: underline; }
"""


PROGRAMS = Path(__file__).parents[1] / ".cache" / "gallery"  # compiled ones, for the next server
SCRIPTS = "/marimo"

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class OwnPages:
    """Middleware that refuses requests made by another site's page.

    A browser names the site of the page in Origin, which must be the Host that is asked. On the
    loopback address Host itself must be a loopback name, lest a foreign name resolve to it.

    Args:
        app: what answers the other requests.
        host: the address that the server listens on.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.local = app, host in LOOPBACK

    def allows(self, headers: Headers) -> bool:
        """Whether Host and Origin are the server's own."""
        host, origin = headers.get("host", ""), headers.get("origin")
        named = not self.local or urlsplit(f"//{host}").hostname in LOOPBACK
        return named and (origin is None or urlsplit(origin).netloc == host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or close the WebSocket, where the request is not allowed."""
        if scope["type"] == "lifespan" or self.allows(Headers(scope=scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(1008)
        else:
            answer = PlainTextResponse("This page is not the gallery's own.", 403)
            await answer(scope, receive, send)


class Ahead:
    """Middleware that begins a page's first results when its address is asked for.

    Args:
        app: what answers the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.slugs = {f"/{figure.slug}/": figure.slug for figure in FIGURES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ever."""
        await self.app(scope, receive, send)
        slug = self.slugs.get(scope.get("path", "")) if scope["type"] == "http" else None
        if slug is not None:
            results.begin(slug)


class Scripts(StaticFiles):
    """Marimo's scripts, at one address for all pages, so that a browser fetches them once."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        """The file, to be kept by the browser: its name has its digest."""
        response = super().file_response(*arguments, **options)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def application(host: str = "127.0.0.1") -> Starlette:
    """The ASGI application: the index at /, each figure at /SLUG/.

    Args:
        host: the address that it listens on.
    """
    builder = marimo.create_asgi_app(quiet=True, asset_url=SCRIPTS)
    for figure in FIGURES:
        builder = builder.with_app(path=f"/{figure.slug}", root=str(figure.notebook))
    notebooks: Any = builder.build()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for route in notebooks.routes:  # their threads would keep the process alive
            if isinstance(route, Mount):
                mounted: Any = route.app
                await mounted.state.session_manager.shutdown()

    return Starlette(
        routes=[
            Route("/", index),
            Mount(SCRIPTS, Scripts(packages=[("marimo", "_static")])),
            Mount("/", notebooks),
        ],
        middleware=[Middleware(OwnPages, host=host), Middleware(Ahead)],
        lifespan=lifespan,
    )


def index(request: Request) -> HTMLResponse:
    """The page that lists the figures."""
    items = "\n".join(
        f'<li><a href="{figure.slug}/">{html.escape(figure.title)}</a><br>'
        f"{html.escape(figure.line)}</li>"
        for figure in FIGURES
    )
    return HTMLResponse(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<title>ergodax gallery</title><style>{STYLE}</style></head><body>"
        "<h1>Stochastic-gradient MCMC in pictures</h1>"
        "<p>Move a slider: chains run, and the picture is drawn from them.</p>"
        f"<ol>{items}</ol></body></html>"
    )


def keep_programs() -> None:
    """Keep what the pages compile on disk, unless JAX has been told where: a page opens sooner."""
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(PROGRAMS))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def run_pages(tell: Callable[[str], object]) -> None:
    """Run every page once with its sliders as they are at first, so that its programs are kept.

    Args:
        tell: is told each page before it is run.
    """
    for number, figure in enumerate(FIGURES, 1):
        tell(f"page {number} of {len(FIGURES)}: {figure.title}")
        results.run(figure.slug)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, and sends what it is given at once.

    asyncio sees to that for sockets that it makes itself, not for one that it is handed; and
    without it each of the 300 scripts of a page waits 40 ms for the browser's acknowledgement.

    Args:
        host: the address to listen on.
        port: 0 for any that is free.

    Raises:
        ValueError: not a port, or an address that can't be listened on.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"port must lie in [0, 65535], not {port}. Try 8000, or 0 for any.")
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        raise ValueError(
            f"can't listen on port {port} of {host}: {error}. Try --port 0, for any that is free."
        ) from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def serve(
    port: int = 8000,
    host: str = "127.0.0.1",
    open_browser: bool = True,
    figure: str | None = None,
) -> None:
    """Serve the gallery until the process is interrupted.

    Args:
        port: of the server; 0 for any that is free.
        host: the address to listen on.
        open_browser: open the page in the system's browser.
        figure: whose page; None for the index.

    Raises:
        ValueError: no such figure, not a port, or an address that can't be listened on.
    """
    path = "" if figure is None else f"{find(figure).slug}/"
    listening = listen(host, port)
    keep_programs()
    settings: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(application(host), **settings))
    for module in pkgutil.iter_modules(figures.__path__):  # no visitor has to wait for imports
        importlib.import_module(f"{figures.__name__}.{module.name}")
    address = f"http://{host}:{listening.getsockname()[1]}/{path}"
    print(f"gallery: {address} (Ctrl-C ends it)", flush=True)
    if open_browser:  # in a thread, since some browsers return only when they are closed
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
