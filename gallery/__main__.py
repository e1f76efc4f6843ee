"""The gallery's command: `python -m gallery [FIGURE]` serves all pages and opens one."""

import argparse
import importlib.util
from collections.abc import Sequence

from gallery.pages import FIGURES

COMPILE = "compile what the pages need, keep it for the next server, and end: a minute or two"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments and serve; wrong use ends with exit status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m gallery",
        description="Serve interactive pictures in which sliders run real chains.",
        epilog="example: python -m gallery brownian",
    )
    names = ", ".join(figure.slug for figure in FIGURES)
    parser.add_argument("figure", nargs="?", help=f"the page to open: {names} (the index)")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free (8000)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--compile", action="store_true", help=COMPILE)
    parser.add_argument("--no-browser", action="store_true", help="open no page in the browser")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("marimo") is None:
        parser.error("the gallery needs marimo: make gallery, or pip install -e '.[app,gallery]'.")
    from gallery.serve import keep_programs, run_pages, serve

    if options.compile:
        keep_programs()
        return run_pages(lambda line: print(line, flush=True))

    try:
        serve(options.port, options.host, not options.no_browser, options.figure)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
