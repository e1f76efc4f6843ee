"""`python -m experiments`: the papers' experiments, one a command."""

import os
import sys

from cyclopts import App

import ergodax as ex
from experiments.fetch import fetch
from experiments.formalml.bias import bias
from experiments.formalml.funnel import funnel
from experiments.formalml.variance_reduction import variance_reduction
from experiments.ma_chen_fox_2015.figure2 import figure2
from experiments.ma_chen_fox_2015.figure3 import figure3
from experiments.matthews_weare_2018.autocorrelation import autocorrelation
from experiments.matthews_weare_2018.mixture import mixture
from experiments.matthews_weare_2018.mnist import mnist
from experiments.matthews_weare_2018.noise_orders import noise_orders
from experiments.networks.commands import networks
from experiments.topics.commands import topics

app = App(
    name="experiments",
    version_flags=(),
    help="""Run an experiment of a paper again: table, picture, facts and a page.

    Example: python -m experiments figure2 --quick
    """,
)
for command in (
    figure2,
    figure3,
    noise_orders,
    autocorrelation,
    mixture,
    mnist,
    bias,
    variance_reduction,
    funnel,
    networks,
    topics,
):
    app.command(command)
app.command(fetch, name="data")

USE = (ValueError, FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)


def main() -> None:
    """Run the command line; errors of use are one line and exit status 2, divergence is 1.

    Set ERGODAX_TRACEBACK=1 to see the whole traceback of an error.
    """
    try:
        app(sys.argv[1:])
    except (*USE, ex.DivergenceError) as error:
        if os.environ.get("ERGODAX_TRACEBACK"):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, USE) else 1)


if __name__ == "__main__":
    main()
