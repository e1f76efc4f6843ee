"""`ergodax infer`: the posterior of a regression on a table, with nothing to tune."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from ergodax.checks import legible
from ergodax.cli.output import Json, Many, Output, folder, tell, tell_files, tell_json


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Which rows.

    Parameters
    ----------
    data
        CSV, Parquet or npz; or `flights`, 325,724 from New York, late or not, or `digits`,
        scikit-learn's handwritten ones, which need no file. Of an .npz file the arrays x_train and
        y_train are read, and x_test and y_test are held out if they are there.
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
    components
        Reduce the features to so many principal components first.
    held_out
        The fraction of the rows that is held out, to see how well it is predicted.
    """

    data: Path
    target: str | None = None
    model: Literal["logistic", "linear"] = "logistic"
    features: str = "x_train"
    categorical: str | None = None
    classes: Annotated[tuple[str, str] | None, Many] = None
    components: int | None = None
    held_out: float = 0.0


def infer(
    *,
    source: Source,
    reference: bool = False,
    nuts: bool = False,
    accuracy: float = 0.05,
    prior_scale: float = 1.0,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    seed: int = 0,
    checkpoint: Path | None = None,
    resume: Annotated[bool, Parameter(negative=())] = False,
    progress: bool = True,
    output: Output = None,
    json_: Json = False,
) -> int:
    """Infer a regression's posterior until every error is small enough.

    Text columns become indicators and an intercept is added. Columns are standardised to sample,
    and a linear model's target too; coefficients are told and saved in the columns' own units.
    Prints the verdict, the table and every decision with its reason.

    Exit status: 0 the accuracy was reached, 1 it was not, 2 wrong use.

    Example: ergodax infer --data patients.csv --target died --held-out 0.2 --accuracy 0.02

    Example: ergodax infer --data digits --classes 3 8 --reference

    Example: ergodax infer --data patients.csv --target died --checkpoint run --resume

    Parameters
    ----------
    reference
        Sample the same posterior by HMC with full gradients, which has no bias, and compare.
    nuts
        Run the no-U-turn sampler too, for as long as this took, and tell how far it came.
    accuracy
        The error that is small enough, in posterior standard deviations.
    prior_scale
        Standard deviation of the normal prior of each coefficient of the standardised columns.
    num_chains
        Independent chains.
    max_seconds
        When to give up.
    seed
        Of everything random.
    checkpoint
        Folder in which decisions and draws are kept as they come.
    resume
        Go on with the inference in that folder, or begin one there.
    progress
        Show progress bars, where standard error is a terminal.
    output
        Folder for draws.zarr, summary.csv, account.txt, facts.json and report.html; without it
        none are written.
    json_
        Print the figures as JSON.
    """
    from ergodax import Checkpoint
    from ergodax.learn.fit import fit, header
    from ergodax.report import inference

    console = Console(stderr=json_)
    if resume and checkpoint is None:
        raise ValueError("--resume needs --checkpoint DIR, the folder of what to go on with.")
    keep = None if checkpoint is None else Checkpoint(checkpoint, resume=resume)
    place = None if output is None else folder(output)
    train, *others = _read(source, seed)
    test = others[0] if others else None
    what, size = header(source.model, train, test)
    title = f"{legible(source.data.name)}: {what}"
    console.print(f"{title}, {size}", style="bold", highlight=False, markup=False)
    found = fit(
        source.model,
        train,
        test,
        prior_scale=prior_scale,
        seed=seed,
        accuracy=accuracy,
        num_chains=num_chains,
        max_seconds=max_seconds,
        progress=progress,
        reference=reference,
        nuts=nuts,
        checkpoint=keep,
    )
    paths = {} if place is None else inference.write(found, place, title)
    if json_:
        tell_json(inference.facts(found), paths)
    else:
        _show(console, inference.legibly(found))
    tell_files(console, paths)
    return 0 if found.result.converged else 1


def _read(source: Source, seed: int) -> list[Any]:
    """The rows to fit, and those that are held out if there are any."""
    from ergodax.data import archive
    from ergodax.learn import examples, tables

    data, target, features = source.data, source.target, source.features
    if str(data) == "flights":
        parts = [examples.flights()]
    elif str(data) == "digits":
        parts = [examples.digits(source.classes or ("3", "8"))]
    elif source.model == "linear":
        parts = [tables.read_numeric(data, target)]
    else:
        parts = [tables.read(data, target, features, source.categorical, source.classes)]
    own = [name.replace("train", "test") for name in (features, target or "y_train")]
    whole = data.suffix != ".npz" or own[0] == features or source.categorical
    if not whole and set(own) <= set(archive.names(data)):
        parts.append(tables.read_npz(data, own[0], own[1], parts[0].classes))
    elif source.held_out:
        parts = list(tables.split(parts[0], source.held_out, seed))
    return tables.varying(parts, source.components)


def _show(console: Console, found: Any) -> None:
    """The verdict, the table, the comparison and the decisions."""
    from ergodax.report import inference

    result = found.result
    style = "green" if result.converged else "red"
    console.print(result.verdict(), style=style, highlight=False, markup=False)
    scores = [] if found.held_out is None else [inference.predictions(found)]
    decided = "what was decided", inference.decisions(found)
    stages = ", ".join(f"{name} {value:.1f} s" for name, value in result.account.seconds.items())
    tell(console, [inference.texts(found), inference.ERROR, *found.model.meaning, *scores])
    beside = [*inference.compared(found), *inference.raced(found.nuts)]
    tell(console, [*beside, decided, stages])
