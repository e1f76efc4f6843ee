"""`ergodax infer`: the posterior of a regression on a table, with nothing to tune."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from ergodax.checks import legible
from ergodax.cli.output import Json, Many, Output, folder, stopped, tell, tell_files, tell_json

Kind = Literal["linear", "robust", "logistic", "multinomial", "poisson", "negative-binomial"]


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
        By default logistic for a target of two values, linear for numbers, multinomial for more
        classes. Counts need poisson or negative-binomial; robust is linear with outliers.
    features
        The array of features of an .npz file.
    categorical
        An array of codes of an .npz file, each column of which becomes indicators.
    classes
        The two values of the target to keep, where it has more.
    components
        Reduce the features to so many principal components first.
    drop_missing
        Leave out the rows of a CSV or Parquet file in which a value is missing.
    held_out
        The fraction of the rows that is held out, to see how well it is predicted.
    """

    data: Path
    target: str | None = None
    model: Kind | None = None
    features: str = "x_train"
    categorical: str | None = None
    classes: Annotated[tuple[str, str] | None, Many] = None
    components: int | None = None
    drop_missing: Annotated[bool, Parameter(negative=())] = False
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
    keep, kept = None, "nothing was kept. Add --checkpoint DIR to keep decisions and draws."
    if checkpoint is not None:
        keep = Checkpoint(checkpoint, resume=resume)
        kept = f"what was kept is in {checkpoint}. Add --resume to go on from there."
    place = None if output is None else folder(output)
    say = functools.partial(console.print, highlight=False, markup=False)
    model, (train, *others) = _read(source, seed, say)
    test = others[0] if others else None
    what, size = header(model, train, test)
    title = f"{legible(source.data.name)}: {what}"
    say(f"{title}, {size}", style="bold")
    if source.model is None and model == "linear" and not (train.target % 1.0).any():
        hint = "for counts try --model negative-binomial, for classes --model multinomial."
        say(f"The target is whole numbers: {hint}")
    with stopped(kept):
        found = fit(
            model, train, test, prior_scale=prior_scale, seed=seed, accuracy=accuracy,
            num_chains=num_chains, max_seconds=max_seconds, progress=progress,
            reference=reference, nuts=nuts, checkpoint=keep,
        )  # fmt: skip
    paths, failure = _written(found, place, title)
    if json_:
        tell_json(inference.facts(found), paths)
    else:
        _show(console, inference.legibly(found))
    tell_files(console, paths)
    if failure:
        raise ValueError(failure)
    return 0 if found.result.converged else 1


def _written(found: Any, place: Path | None, title: str) -> tuple[dict[str, Path], str]:
    """The files, and why there are none where the disk is full, say: the answer is shown first."""
    from ergodax.report import inference

    try:
        return ({} if place is None else inference.write(found, place, title)), ""
    except OSError as error:
        return {}, f"the answer was not written to {place}: {error}. Make room, or choose another."


def _read(source: Source, seed: int, say: Callable[[str], Any]) -> tuple[str, list[Any]]:
    """The model, the rows to fit, and those that are held out if there are any."""
    from ergodax.data import archive
    from ergodax.learn import examples, tables

    data, target, model = source.data, source.target, source.model or "logistic"
    if source.classes and model != "logistic":
        raise ValueError(f"--classes keeps two classes, for --model logistic, not {model}.")
    _check_options(source)
    if str(data) in ("flights", "digits"):
        chosen = source.classes or ("3", "8")
        parts = [examples.flights() if str(data) == "flights" else examples.digits(chosen)]
    elif data.suffix == ".npz":
        y = target or "y_train"
        parts = [tables.read_npz(data, source.features, y, source.classes, source.categorical)]
        own = [name.replace("train", "test") for name in (source.features, y)]
        if own[0] != source.features and not source.categorical:
            if set(own) <= set(archive.names(data)):
                if source.held_out:
                    raise ValueError(
                        f"{data} has rows of its own to hold out, {own[0]} and {own[1]}: leave out "
                        "--held-out, or these arrays."
                    )
                parts.append(tables.read_npz(data, own[0], own[1], parts[0].classes, test=True))
    else:
        columns = tables.read_columns(data, target, drop_missing=source.drop_missing, tell=say)
        model = source.model or tables.suitable(columns[1], source.classes)
        parts = [tables.of_columns(*columns, model, source.classes)]
    if model != "logistic" and not data.suffix.endswith(("csv", "parquet", "pq")):
        raise ValueError(f"--model {model} reads CSV and Parquet files only, and --target COLUMN.")
    if len(parts) == 1 and source.held_out:
        parts = list(tables.split(parts[0], source.held_out, seed))
    return model, tables.varying(parts, source.components, say)


def _check_options(source: Source) -> None:
    """Refuse what would not be looked at for this kind of data."""
    from ergodax.learn.tables import SUFFIXES

    kind = str(source.data) if str(source.data) in ("flights", "digits") else source.data.suffix
    given = {
        "--target": (source.target is not None, ("flights", "digits")),
        "--classes": (bool(source.classes), ("flights",)),
        "--features": (source.features != "x_train", ("flights", "digits", *SUFFIXES)),
        "--categorical": (source.categorical is not None, ("flights", "digits", *SUFFIXES)),
        "--drop-missing": (source.drop_missing, ("flights", "digits", ".npz")),
    }
    for option, (wanted, without) in given.items():
        if wanted and kind in without:
            raise ValueError(f"{option} says nothing about {source.data}: leave it out.")


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
