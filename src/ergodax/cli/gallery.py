"""`ergodax gallery`: interactive pictures in the browser."""

import importlib.util


def gallery(
    figure: str | None = None,
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    browser: bool = True,
) -> None:
    """Serve interactive pictures in which sliders run real chains.

    Example: ergodax gallery brownian

    Parameters
    ----------
    figure
        The page to open; all are served: recipe, brownian, fokker_planck, langevin, sgld,
        friction, bias, variance_reduction, funnel, nuts. By default the index.
    port
        Of the server; 0 for any that is free.
    host
        The address to listen on.
    browser
        Open the page in the system's browser.
    """
    missing = [name for name in ("marimo", "altair") if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"the gallery needs {' and '.join(missing)}: pip install 'ergodax[gallery]'."
        )
    from ergodax.gallery.serve import serve

    serve(port, host, browser, figure)
