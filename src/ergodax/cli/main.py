"""The command `ergodax`."""

import os
import sys

from cyclopts import App
from rich.console import Console

from ergodax import __version__
from ergodax.cli.advise import advise
from ergodax.cli.compare import compare
from ergodax.cli.infer import infer
from ergodax.cli.launch import launch
from ergodax.cli.lda import lda
from ergodax.cli.network import network_app
from ergodax.cli.reproduce import reproduce_app
from ergodax.cli.reproduce_mnist import mnist
from ergodax.cli.run import run_app
from ergodax.driver.processes import ProcessFailed, ProcessLost
from ergodax.errors import DivergenceError, Interrupted, StorageError

app = App(
    name="ergodax",
    version=__version__,
    help="""Stochastic-gradient MCMC from two matrices, in JAX.

    Example: ergodax run digits
    """,
)
app.command(run_app)
app.command(infer)
app.command(advise)
app.command(compare)
app.command(lda)
app.command(launch)
app.command(network_app)
app.command(reproduce_app)
reproduce_app.command(mnist)


USE = ValueError, TypeError, FileNotFoundError
ENDS = *USE, DivergenceError, StorageError, ProcessLost, ProcessFailed


def main() -> None:
    """Run the command line; errors of use are one line and exit status 2, others 1.

    Set ERGODAX_TRACEBACK=1 to see the whole traceback of an error.
    """
    try:
        app(sys.argv[1:])
    except ENDS as error:
        if os.environ.get("ERGODAX_TRACEBACK"):
            raise
        Console(stderr=True).print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(2 if isinstance(error, USE) else 1)
    except Interrupted as error:
        Console(stderr=True).print(str(error), highlight=False)
        sys.exit(128 + error.signal)


if __name__ == "__main__":
    main()
