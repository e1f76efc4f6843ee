"""`ergodax network`: Bayesian neural networks on tables and images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from cyclopts import App, Parameter
from rich.console import Console

from ergodax.apps.bnn import cold as curves
from ergodax.apps.bnn import data, experiment, pages
from ergodax.apps.bnn.methods import METHODS
from ergodax.cli.options import Json, Many, Output, folder, tell_files, tell_json
from ergodax.cli.show import text_table

QUICK_ROWS = 2000

network_app = App(
    name="network",
    help="""Sample the weights of a neural network, beside an optimised one and an ensemble.

    Example: ergodax network regress boston.npz --split 0
    """,
)


@Parameter(name="*")
@dataclass(frozen=True)
class NetworkOptions(experiment.Options):
    """Options of every network.

    Parameters
    ----------

    Methods:
        Which run: MAP, ensemble, SGHMC, pSGLD, SGNHT; and HMC, a reference with full gradients, at
        far more of them.
    width
        Units of a hidden layer.
    depth
        Hidden layers.
    prior_scale
        Standard deviation of a weight's normal prior times the root of its inputs.
    members
        Chains of a sampler and members of the ensemble.
    steps
        Of each member; the first 40% of a chain's are Adam's.
    batch_size
        Examples in a batch.
    seed
        Of everything random.
    quick
        Few steps; of a classification's file 2,000 rows.
    output
        Folder for the picture, the table as CSV, the figures as JSON and report.html; by default
        runs/network-FILE, or runs/cold-FILE.
    json
        Print the figures as JSON instead of a table.
    """

    methods: Annotated[tuple[str, ...], Many] = tuple(METHODS)
    output: Output = None
    json: Json = False


DEFAULT = NetworkOptions()


@network_app.command
def regress(
    file: Path, *, split: int = 0, splits: int = 1, options: NetworkOptions = DEFAULT
) -> None:
    """Regression with a learned noise: SGHMC in cycles, pSGLD and SGNHT against MAP and ensemble.

    Example: ergodax network regress boston.npz --split 0 --splits 5

    Parameters
    ----------
    file
        An .npz file with x (N, d), y (N,) and, if it has splits, test_mask (splits, N).
    split
        The first split; the seed of a random one, of a tenth of the rows, without test_mask.
    splits
        How many splits; errors are over them if there are several.
    """
    if splits < 1:
        raise ValueError(f"--splits must be at least 1, not {splits}.")
    _run(file, [data.regression(file, split + k) for k in range(splits)], options)


@network_app.command
def classify(
    file: Path,
    *,
    rows: int | None = None,
    test_rows: int | None = None,
    unseen: Annotated[tuple[int, ...], Many] = (),
    seeds: int = 1,
    options: NetworkOptions = DEFAULT,
) -> None:
    """Classification: SGHMC in cycles, pSGLD and SGNHT against MAP and ensemble.

    How unsure the methods are of inputs of another kind is measured too: test images turned by a
    quarter, or classes left out of training.

    Example: ergodax network classify mnist.npz --unseen 8 9

    Parameters
    ----------
    file
        An .npz file with x_train, y_train, x_test and y_test.
    rows
        Learn from the first so many rows.
    test_rows
        Test on the first so many.
    unseen
        Labels left out of training; their test rows are the inputs of another kind.
    seeds
        Repetitions, each with networks and batches of its own; errors are over them if there are
        several.
    """
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, not {seeds}.")
    _run(file, [_classification(file, rows, test_rows, unseen, options)] * seeds, options)


@network_app.command
def cold(
    file: Path,
    *,
    temperatures: Annotated[tuple[float, ...], Many] = (0.01, 0.03, 0.1, 0.3, 1.0),
    split: int = 0,
    rows: int | None = None,
    test_rows: int | None = None,
    options: NetworkOptions = DEFAULT,
) -> None:
    """Test log-likelihood against the temperature of the posterior, by SGHMC in cycles.

    Example: ergodax network cold boston.npz --temperatures 0.1 0.3 1

    Parameters
    ----------
    file
        An .npz file for `regress` (x and y) or for `classify` (x_train and the others).
    temperatures
        Of exp(-U / T); 1 is the posterior.
    split
        Of a regression's file.
    rows
        Of a classification's file, learn from the first so many rows.
    test_rows
        Likewise, test on the first so many.
    """
    if data.has_classes(file):
        task = _classification(file, rows, test_rows, (), options)
    else:
        task = data.regression(file, split)
    console, say = _console(options)
    place = folder(options.output, f"cold-{file.stem}")
    table = curves.curve(task, temperatures, options, say)
    paths = curves.write(table, task, place)
    facts = {"data": task.name, "temperatures": table.to_dict("records")}
    _tell(console, options, facts, curves.texts(table, task), [curves.CAPTION], paths)


def _classification(
    file: Path,
    rows: int | None,
    test_rows: int | None,
    unseen: tuple[int, ...],
    options: NetworkOptions,
) -> data.Task:
    if options.quick:
        rows, test_rows = rows or QUICK_ROWS, test_rows or QUICK_ROWS
    return data.classification(file, rows=rows, test_rows=test_rows, unseen=unseen)


def _run(file: Path, tasks: list[data.Task], options: NetworkOptions) -> None:
    console, say = _console(options)
    place = folder(options.output, f"network-{file.stem}")
    result = experiment.run(tasks, options, say)
    paths = pages.write(result, place)
    if not options.json:
        console.print(f"[bold]{pages.title(result)}[/bold]", highlight=False)
    _tell(console, options, result.facts, pages.texts(result), pages.reading(result), paths)


def _console(options: NetworkOptions) -> tuple[Console, Any]:
    console = Console(stderr=options.json)
    return console, lambda text: console.print(text, highlight=False, markup=False)


def _tell(
    console: Console,
    options: NetworkOptions,
    facts: dict[str, Any],
    texts: pd.DataFrame,
    sentences: list[str],
    paths: dict[str, Path],
) -> None:
    if options.json:
        tell_json(facts, paths)
    else:
        console.print(text_table(texts))
        for sentence in sentences:
            console.print(sentence, highlight=False, markup=False)
    tell_files(console, paths)
