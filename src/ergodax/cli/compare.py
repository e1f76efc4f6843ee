"""`ergodax compare`: `infer` against NUTS."""

from pathlib import Path
from typing import Annotated

from rich.console import Console

from ergodax.apps import compare as app
from ergodax.apps import compare_pages as pages
from ergodax.apps.compare_table import Source
from ergodax.cli.options import Json, Many, Output, folder, tell_files, tell_json
from ergodax.cli.show import text_table


def compare(
    *,
    sizes: Annotated[tuple[float, ...] | None, Many] = None,
    dimension: int | None = None,
    data: Path | None = None,
    target: str | None = None,
    features: str = "x_train",
    categorical: str | None = None,
    classes: Annotated[tuple[str, str] | None, Many] = None,
    components: int | None = None,
    prior_scale: float = 10.0,
    peers: Annotated[tuple[str, ...], Many] = ("blackjax", "numpyro", "nutpie"),
    quick: bool = False,
    seed: int = 0,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Race infer against NUTS on logistic regressions: of growing size, or on a table.

    Effective draws a second while sampling and with everything counted, gradients to an effective
    draw, errors against an exact reference in double precision, microseconds a step; written as
    table, picture and report. The whole takes some ten minutes, --quick two.

    Example: ergodax compare --sizes 500 50000 --peers blackjax

    Example: ergodax compare --data mnist.npz --classes 7 9 --components 128

    Parameters
    ----------
    sizes
        Numbers of rows; by default 500 to 5,000,000, with --quick 500 to 50,000.
    dimension
        Coefficients, 10 by default.
    data
        A table instead, CSV, Parquet or npz; of an .npz file the arrays x_train and y_train are
        read. Columns are standardised, constant ones dropped, and an intercept is added.
    target
        The column to predict; of an .npz file the array, y_train by default.
    features
        The array of features of an .npz file.
    categorical
        An array of codes of an .npz file, each column of which becomes indicators.
    classes
        The two values of the target to keep, where it has more.
    components
        Reduce the features to this many principal components first.
    prior_scale
        Standard deviation of each coefficient's normal prior on a table.
    peers
        Whose NUTS: blackjax, numpyro, nutpie; those not installed are skipped.
    quick
        Smaller sizes, and a goal of 2,000 effective draws instead of 10,000.
    seed
        Of data and samplers.
    output
        Folder for compare.md, compare.csv, compare.json, compare.png and report.html; by default
        runs/compare.
    json_
        Print the figures as JSON instead of a table.
    """
    console = Console(stderr=json_)
    say = lambda text: console.print(text, highlight=False)  # noqa: E731
    whole = None if sizes is None else tuple(round(n) for n in sizes)
    place = folder(output, "compare")
    options = app.Options(whole, 10 if dimension is None else dimension, peers, quick, seed)
    if data is None:
        result = app.run(options, say)
    else:
        if sizes is not None or dimension is not None:
            raise ValueError("--sizes and --dimension are for made-up data, not for --data FILE.")
        source = Source(data, target, features, categorical, classes, components, prior_scale)
        say(f"{data.name}: reading, and a long exact run as the reference")
        problem, title = source.problem(seed)
        result = app.race([problem], title, options, say)
    paths = pages.write(result, place)
    if json_:
        tell_json(result.facts, paths)
    else:
        console.print(f"[bold]{result.facts['title']}[/bold]", highlight=False)
        console.print(text_table(pages.texts(result)))
        for sentence in [*pages.reading(result), *(f"- {v}" for v in result.verdicts)]:
            console.print(sentence, highlight=False, markup=False)
    tell_files(console, paths)
