"""`ergodax infer`: the posterior of a regression on a table, with nothing to tune."""

from pathlib import Path
from typing import Annotated, Literal

import jax
from rich.console import Console

from ergodax.cli.options import Json, Many, Output, folder, tell_files, tell_json
from ergodax.cli.show import text_table
from ergodax.learn import regression as inference
from ergodax.learn import tables
from ergodax.report import inference as pages
from ergodax.tune import Inference
from ergodax.tune import infer as infer_posterior


def infer(
    *,
    data: Path,
    target: str | None = None,
    model: Literal["logistic", "linear"] = "logistic",
    features: str = "x_train",
    categorical: str | None = None,
    classes: Annotated[tuple[str, str] | None, Many] = None,
    accuracy: float = 0.05,
    prior_scale: float = 1.0,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    seed: int = 0,
    progress: bool = True,
    output: Output = None,
    json_: Json = False,
) -> int:
    """Infer a regression's posterior until every error is small enough.

    Columns are standardised and an intercept is added; text columns become indicators. Prints the
    verdict, the table and the account of every decision.

    Exit status: 0 the accuracy was reached, 1 it was not, 2 wrong use.

    Example: ergodax infer --data patients.csv --target died --accuracy 0.02

    Parameters
    ----------
    data
        CSV, Parquet or npz; of an .npz file the arrays x_train and y_train are read.
    target
        The column to predict; of an .npz file the array, y_train by default.
    model
        logistic for a target of two classes, linear for a number.
    features
        The array of features of an .npz file.
    categorical
        An array of codes of an .npz file, each column of which becomes indicators.
    classes
        The two values of the target to keep, where it has more.
    accuracy
        The error that is small enough, in posterior standard deviations.
    prior_scale
        Standard deviation of each coefficient's normal prior.
    num_chains
        Independent chains.
    max_seconds
        When to give up.
    seed
        Of everything random.
    progress
        Show progress bars, where standard error is a terminal.
    output
        Folder for draws.npz, summary.csv, account.txt, facts.json and report.html; without it
        none are written.
    json_
        Print the figures as JSON.
    """
    console = Console(stderr=json_)
    place = None if output is None else folder(output)
    chosen = _model(data, target, model, features, categorical, classes, prior_scale)
    rows = chosen.posterior.num_data
    title = f"{data.name}: {chosen.title}"
    size = f"{rows:,} rows, {len(chosen.names)} components"
    console.print(f"[bold]{title}[/bold], {size}", highlight=False)
    result = infer_posterior(
        chosen.posterior,
        chosen.init,
        key=jax.random.key(seed),
        accuracy=accuracy,
        num_chains=num_chains,
        max_seconds=max_seconds,
        progress=progress,
    )
    result = inference.named(result, chosen.names)
    paths = {} if place is None else pages.write(result, place, title)
    if json_:
        tell_json(pages.facts(result), paths)
    else:
        _show(console, result)
    tell_files(console, paths)
    return 0 if result.converged else 1


def _show(console: Console, result: Inference) -> None:
    """The verdict, the table and the account."""
    style = "green" if result.converged else "red"
    console.print(result.verdict(), style=style, highlight=False, markup=False)
    title, texts = pages.texts(result)
    console.print(text_table(texts, title))
    console.print(inference.ERROR, highlight=False)
    console.print(text_table(pages.decisions(result), "what was decided"))
    stages = ", ".join(f"{name} {value:.1f} s" for name, value in result.account.seconds.items())
    console.print(stages, highlight=False)


def _model(
    data: Path,
    target: str | None,
    model: str,
    features: str,
    categorical: str | None,
    classes: tuple[str, str] | None,
    prior_scale: float,
) -> inference.Model:
    if not data.exists():
        raise FileNotFoundError(f"no such file: --data {data}")
    if model == "logistic":
        table = tables.read(data, target, features, categorical, classes)
        return inference.logistic(table, prior_scale)
    if data.suffix == ".npz" or target is None:
        raise ValueError("--model linear reads CSV and Parquet files only, and --target COLUMN.")
    return inference.linear(inference.read_numeric(data, target), prior_scale)
