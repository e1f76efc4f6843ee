"""The command `ergodax`."""

import io
import os
import signal
import sys

from cyclopts import App
from rich.console import Console
from rich.markup import escape

from ergodax import __version__, interrupts
from ergodax.cli.advise import advise
from ergodax.cli.infer import infer
from ergodax.cli.launch import launch
from ergodax.cli.topics import topics
from ergodax.cli.verify import verify_app
from ergodax.cluster.processes import ProcessFailed, ProcessLost
from ergodax.errors import CallbackError, DivergenceError, StorageError

app = App(
    name="ergodax",
    version=__version__,
    help="""Stochastic-gradient MCMC from two matrices, in JAX.

    Exit status: 0 done, 1 the answer is not good enough or the work failed, 2 wrong use. Each
    command has an example in its help, --json to print one JSON document, and --output for the
    folder of its files.

    Example: ergodax infer --data digits --classes 3 8
    """,
    suppress_keyboard_interrupt=False,  # which would end it without a word
)
app.command(infer)
app.command(advise)
app.command(verify_app)
app.command(topics)
app.command(launch)


USE = (
    ValueError, TypeError, FileNotFoundError, PermissionError, IsADirectoryError,
    NotADirectoryError,
)  # fmt: skip
ENDS = (
    *USE, OSError, DivergenceError, StorageError, CallbackError, ProcessLost, ProcessFailed,
)  # fmt: skip


def main() -> None:
    """Run the command line; errors of use are one line and exit status 2, others 1.

    Set ERGODAX_TRACEBACK=1 to see the whole traceback of an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal of ASCII loses a sign, not the answer
    try:
        interrupts.raise_again()
        app(sys.argv[1:])
    except ENDS as error:
        if os.environ.get("ERGODAX_TRACEBACK"):
            raise
        console = Console(stderr=True, soft_wrap=True)
        told = str(error).replace("resume=True", "--resume")  # as it is called here
        console.print("[red]error:[/red]", escape(told), highlight=False)
        sys.exit(2 if isinstance(error, USE) else 1)
    except KeyboardInterrupt as error:
        told = escape(str(error) or interrupts.NOTHING)
        Console(stderr=True, soft_wrap=True).print(told, highlight=False)
        sys.exit(128 + getattr(error, "signal", signal.SIGINT))


if __name__ == "__main__":
    main()
