"""Results that all visitors of the gallery share: each is computed once, and begun early.

A browser needs seconds to fetch and start marimo's scripts, and the cells of a page run only then.
So the first results of a page are computed meanwhile.
"""

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

MOST = 64  # results that are kept, of some MB each at most

_kept: OrderedDict[Hashable, Future] = OrderedDict()
_begun: set[str] = set()
_lock = threading.Lock()


def once(function: Callable[..., Any], *values: Hashable) -> Any:
    """The function's result for these values; who asks for it while it is computed waits for it.

    Args:
        function: whose result depends on its arguments alone.
        values: its arguments.
    """
    key = (function, *values)
    with _lock:
        known = _kept.get(key)
        future = _kept.setdefault(key, Future())
        _kept.move_to_end(key)
        if len(_kept) > MOST:
            _kept.popitem(last=False)
    if known is None:
        try:
            future.set_result(function(*values))
        except BaseException as error:  # who waits is told; who asks later tries again
            with _lock:
                _kept.pop(key, None)
            future.set_exception(error)
    return future.result()


def begin(slug: str) -> None:
    """Run a page in the background with its sliders as they are at first, the first time alone.

    Args:
        slug: of the page.
    """
    with _lock:
        if slug in _begun:
            return
        _begun.add(slug)
    threading.Thread(target=run, args=(slug,), daemon=True, name=f"gallery {slug}").start()


def run(slug: str) -> None:
    """Run a page with its sliders as they are at first.

    Args:
        slug: of the page.
    """
    importlib.import_module(f"gallery.notebooks.{slug}").app.run()
