"""The gallery seen from outside: its server in a process, its pages in a headless browser.

For tests, for the timing of sliders and for the pictures of the documentation.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

GALLERY = "from gallery.serve import serve; serve(0, open_browser=False)"
WINDOW = {"width": 1200, "height": 1600}
PATIENCE = 180.0  # seconds: the first run of a figure compiles, on CI beside other tests
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PICTURE = ".vega-embed canvas, .vega-embed svg"
ERROR = "An internal error occurred"  # what a page says where a cell has failed
CONTENTS = "es => es.map(e => e.tagName == 'CANVAS' ? e.toDataURL() : e.outerHTML).join()"


@contextmanager
def started(program: str = GALLERY) -> Iterator[tuple[subprocess.Popen, str]]:
    """The process, and the address that it prints when it listens; it does not outlive the block.

    Args:
        program: in Python.
    """
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }  # fmt: skip
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "the server did not start"
            yield process, found.group().rstrip("/")
        finally:
            process.kill()


def interrupted(process: subprocess.Popen) -> int:
    """The status with which it ends after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    return process.wait(60)


@contextmanager
def running(program: str = GALLERY) -> Iterator[str]:
    """The address of a server, which is interrupted at the end."""
    with started(program) as (process, address):
        yield address
        interrupted(process)


def executable() -> str | None:
    """Chromium or a relative of it, wherever it is."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable())
        yield browser
        browser.close()


class Page:
    """A page, what it asked for and what it complained of.

    Args:
        browser: of `chromium`.
        address: of the page.
        window: its width and height.
        visitor: a context of the browser, which keeps scripts from page to page; else a new one.
    """

    def __init__(
        self,
        browser: Any,
        address: str,
        window: dict[str, int] = WINDOW,
        visitor: Any = None,
    ) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(viewport=window) if visitor is None else visitor.new_page()
        self.page.set_default_timeout(1e3 * PATIENCE)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._listen)
        self.page.goto(address)

    def _listen(self, message: Any) -> None:
        if message.type == "error" or "[STDERR]" in message.text:
            self.complaints.append(message.text)

    def pictures(self) -> str:
        """The pixels or elements of all pictures; empty where there is none."""
        return self.page.locator(PICTURE).evaluate_all(CONTENTS)

    def settled(self, quiet: float = 1.0) -> str:
        """Wait until the pictures stay as they are for `quiet` seconds."""
        last, since = self.pictures(), time.monotonic()

        def still() -> bool:
            nonlocal last, since
            now = self.pictures()
            if now != last:
                last, since = now, time.monotonic()
            return bool(last) and time.monotonic() - since > quiet

        self.until(still, "no picture that stays as it is")
        return last

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for a condition.

        Raises:
            AssertionError: it did not come about, or a cell has failed.
        """
        end = time.monotonic() + PATIENCE
        while not condition():
            assert not self.failed(), self.complaints
            assert time.monotonic() < end, f"{otherwise}: {self.complaints}"
            self.page.wait_for_timeout(50)

    def failed(self) -> bool:
        """Whether the page shows an error of a cell."""
        return self.page.get_by_text(ERROR).count() > 0

    def elsewhere(self) -> list[str]:
        """Requests to other hosts than the server."""
        own = urlsplit(self.page.url).hostname
        parts = [urlsplit(url) for url in self.requests]
        return [p.geturl() for p in parts if p.scheme.startswith("http") and p.hostname != own]
