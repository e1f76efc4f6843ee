"""`ergodax compare`: `infer` against NUTS by the number of rows."""

import json
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from ergodax.apps import compare as app
from ergodax.apps import compare_pages as pages

Many = Parameter(consume_multiple=True)


def compare(
    *,
    sizes: Annotated[tuple[float, ...] | None, Many] = None,
    dimension: int = 10,
    peers: Annotated[tuple[str, ...], Many] = ("blackjax", "numpyro", "nutpie"),
    out: Path = Path("runs") / "compare",
    quick: bool = False,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Race infer against NUTS on logistic regressions of growing size.

    Effective draws a second while sampling and with everything counted, errors against importance
    sampling in double precision, microseconds a step; written as table, picture and report. The
    whole takes some ten minutes, --quick two.

    Example: ergodax compare --sizes 500 50000 --peers blackjax

    Parameters
    ----------
    sizes
        Numbers of rows; by default 500 to 5,000,000, with --quick 500 to 50,000.
    dimension
        Coefficients.
    peers
        Whose NUTS: blackjax, numpyro, nutpie; those not installed are skipped.
    out
        Folder for compare.md, compare.csv, compare.json, compare.png and report.html.
    quick
        Smaller sizes, and a goal of 2,000 effective draws instead of 10,000.
    seed
        Of data and samplers.
    json_
        Print the figures as JSON instead of a table.
    """
    console = Console(stderr=json_)
    whole = None if sizes is None else tuple(round(n) for n in sizes)
    options = app.Options(whole, dimension, peers, quick, seed)
    console.print(f"[bold]{pages.TITLE}[/bold]")
    result = app.run(options, lambda text: console.print(text, highlight=False))
    paths = pages.write(result, out)
    if json_:
        files = {name: str(path) for name, path in paths.items()}
        json.dump(pages.plain(result.facts) | {"files": files}, sys.stdout)
        sys.stdout.write("\n")
    else:
        console.print(_table(pages.texts(result)))
        for sentence in [*pages.reading(result), *(f"- {v}" for v in result.verdicts)]:
            console.print(sentence, highlight=False, markup=False)
    console.print(f"written: {', '.join(map(str, paths.values()))}", highlight=False)


def _table(texts: pd.DataFrame) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in texts.columns:
        table.add_column(
            name, justify="left" if name == "sampler" else "right", no_wrap=name in ("N", "sampler")
        )
    for row in texts.itertuples(index=False):
        table.add_row(*row)
    return table
