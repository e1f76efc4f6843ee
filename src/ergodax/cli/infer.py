"""`ergodax infer`: the posterior of a regression on a table, with nothing to tune."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
from cyclopts import Parameter
from rich.console import Console

from ergodax.apps import inference, tables
from ergodax.apps.reproduce.pages import plain
from ergodax.tune import Inference
from ergodax.tune import infer as infer_posterior


def infer(
    *,
    data: Path,
    target: str | None = None,
    model: Literal["logistic", "linear"] = "logistic",
    features: str = "x_train",
    categorical: str | None = None,
    classes: Annotated[tuple[str, str] | None, Parameter(consume_multiple=True)] = None,
    accuracy: float = 0.05,
    prior_scale: float = 1.0,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    seed: int = 0,
    progress: bool = True,
    output: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Infer a regression's posterior until every error is small enough.

    Columns are standardised and an intercept is added; text columns become indicators. Prints the
    verdict, the table and the account of every decision. The exit status is 1 if the accuracy was
    not reached.

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
        Folder for draws.npz, summary.csv and account.txt.
    json_
        Print the figures as JSON.
    """
    console = Console(stderr=json_)
    chosen = _model(data, target, model, features, categorical, classes, prior_scale)
    rows = chosen.posterior.num_data
    text = (
        f"[bold]{data.name}: {chosen.title}[/bold], {rows:,} rows, {len(chosen.names)} components"
    )
    console.print(text, highlight=False)
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
    files = {} if output is None else _write(result, output)
    if json_:
        json.dump(plain(_facts(result)) | {"files": files}, sys.stdout)
        sys.stdout.write("\n")
    else:
        text = f"{result}\n{inference.ERROR}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if files:
        console.print(f"written: {', '.join(files.values())}", highlight=False)
    if not result.converged:
        sys.exit(1)


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


def _write(result: Inference, folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    names = {"draws": "draws.npz", "summary": "summary.csv", "account": "account.txt"}
    paths = {key: folder / name for key, name in names.items()}
    result.samples.save(paths["draws"])
    result.table.to_csv(paths["summary"])
    paths["account"].write_text(f"{result}\n{inference.ERROR}\n", encoding="utf-8")
    return {key: str(path) for key, path in paths.items()}


def _facts(result: Inference) -> dict[str, Any]:
    return {
        "converged": result.converged,
        "verdict": result.verdict(),
        "accuracy": result.accuracy,
        "error_means": inference.ERROR,
        "components": result.table.to_dict("index"),
        "decisions": [vars(decision) for decision in result.account.decisions],
        "seconds": dict(result.account.seconds),
    }
