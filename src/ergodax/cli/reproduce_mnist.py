"""`ergodax reproduce mnist`: posterior variances of a logistic regression, by passes."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from ergodax.apps import tables
from ergodax.apps.reproduce import digits, digits_pages
from ergodax.apps.reproduce.pages import plain
from ergodax.cli.reproduce import DEFAULTS, ReproduceOptions


def mnist(
    *,
    data: Path,
    classes: Annotated[tuple[str, str], Parameter(consume_multiple=True)] = ("7", "9"),
    components: int = 128,
    prior_scale: float = 10.0,
    reference: Path | None = None,
    options: ReproduceOptions = DEFAULTS,
) -> None:
    """Matthews and Weare (2018), section 5.3: posterior variances of MNIST's 7 against 9.

    NOGIN, mSGLD and CC-ADL as in the paper, and NOGIN in whitened coordinates with a fitted
    Gaussian as control variate, against long HMC with full gradients.

    Example: ergodax reproduce mnist --data mnist.npz --quick

    Parameters
    ----------
    data
        An .npz file with x_train and y_train.
    classes
        The two digits.
    components
        How many principal components of the images are the features, beside an intercept.
    prior_scale
        Standard deviation of each coefficient's normal prior.
    reference
        The file of the reference's variances: read if it fits, else written; reference.npz in
        the output folder by default.
    """
    if not data.exists():
        raise FileNotFoundError(f"no such file: --data {data}")
    folder = options.output or Path("runs") / "mnist"
    console = Console(stderr=options.json)
    console.print(f"[bold]{digits_pages.TITLE}[/bold]")
    begin = time.perf_counter()
    images = tables.read_npz(data, "x_train", "y_train", classes)
    result = digits.run(
        tables.prepare(images, images, components)[0],
        prior_scale,
        digits.QUICK if options.quick else digits.Size(),
        reference or folder / "reference.npz",
        options.seed,
        options.progress,
        lambda text: console.print(text, highlight=False),
    )
    result.facts["seconds"] = time.perf_counter() - begin
    paths = digits_pages.write(result, folder)
    if options.json:
        files = {key: str(path) for key, path in paths.items()}
        json.dump(plain(result.facts) | {"files": files}, sys.stdout)
        sys.stdout.write("\n")
    else:
        _show(console, result)
    console.print(f"written: {', '.join(str(path) for path in paths.values())}", highlight=False)


def _show(console: Console, result: digits.Result) -> None:
    texts = digits_pages.errors_table(result)
    table = Table(*texts.columns, title=digits_pages.HEAD, box=box.SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for row in texts.itertuples(index=False):
        table.add_row(*row)
    console.print(table)
    console.print(digits_pages.LEGEND, highlight=False)
    for verdict in result.verdicts:
        console.print(f"- {verdict}", highlight=False)
