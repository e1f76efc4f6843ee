"""`ergodax run`: a posterior from a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jax
from cyclopts import App, Parameter
from jax.sharding import Mesh
from rich.console import Console

from ergodax import distributed
from ergodax.apps import archive, job, tables
from ergodax.cli.options import Json, Many, Output, folder, tell_files, tell_json
from ergodax.cli.show import show_result
from ergodax.cluster.meshes import mesh as sampling_mesh

run_app = App(
    name="run",
    help="""Sample a posterior, compare it with a reference, write draws and a report.

    Example: ergodax run digits
    """,
)


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions(job.Options):
    """Options of every run: those of the job, and where things come from and go.

    Parameters
    ----------
    batch_size
        Rows in a minibatch; by default a quarter of them, at most 100.
    step_size
        Step size in whitened coordinates; by default from the measured gradient noise.
    num_steps
        Steps of each chain; by default from the step size.
    num_chains
        Chains of the sampler and of the reference.
    prior_scale
        Standard deviation of each coefficient's normal prior.
    reference_draws
        Draws of each full-gradient reference chain; 0 for none.
    held_out
        Fraction of the rows held out, where the data have no test rows of their own.
    seed
        Of the split, the batches and the noise.
    progress
        Show progress bars, where standard error is a terminal.
    output
        Folder for draws.nc, summary.csv, facts.json and report.html; by default runs/NAME.
    json
        Print the figures as JSON instead of tables.
    coordinator
        HOST:PORT where process 0 of several listens; the chains are split over all of them. With
        `ergodax launch` or `srun` this and the next two come from the environment.
    processes
        How many processes there are.
    process_id
        The number of this one, from 0, which writes the files.
    """

    held_out: float = 0.2
    output: Output = None
    json: Json = False
    coordinator: str | None = None
    processes: int | None = None
    process_id: int | None = None


DEFAULTS = RunOptions()


@run_app.command
def digits(
    *,
    classes: Annotated[tuple[str, str], Many] = ("3", "8"),
    options: RunOptions = DEFAULTS,
) -> None:
    """Logistic regression on scikit-learn's handwritten digits, one against another.

    Needs no download.

    Example: ergodax run digits --classes 4 9

    Parameters
    ----------
    classes
        The two digits.
    """
    table = tables.digits(classes)
    train, test = tables.split(table, options.held_out, options.seed)
    _run(train, test, None, options, f"digits: {classes[1]} against {classes[0]}", "digits")


@run_app.command
def logistic(
    *,
    data: Path,
    target: str | None = None,
    features: str = "x_train",
    classes: Annotated[tuple[str, str] | None, Many] = None,
    components: int | None = None,
    options: RunOptions = DEFAULTS,
) -> None:
    """Logistic regression on a table: CSV, Parquet or npz.

    Columns are standardised and an intercept is added; text columns become indicators.

    Example: ergodax run logistic --data patients.csv --target died

    Example: ergodax run logistic --data mnist.npz --classes 7 9 --components 128 --prior-scale 10

    Parameters
    ----------
    data
        The file. Of an .npz file the arrays x_train and y_train are read, and x_test and y_test
        are held out if they are there.
    target
        The column to predict; of an .npz file the array, y_train by default.
    features
        The array of features of an .npz file.
    classes
        The two values of the target to keep, where it has more.
    components
        Reduce the features to this many principal components first.
    """
    table = tables.read(data, target, features, classes=classes)
    own = [name.replace("train", "test") for name in (features, target or "y_train")]
    if data.suffix == ".npz" and own[0] != features and set(own) <= set(archive.names(data)):
        train, test = table, tables.read_npz(data, own[0], own[1], table.classes)
    else:
        train, test = tables.split(table, options.held_out, options.seed)
    title = f"{data.name}: {train.classes[1]} against {train.classes[0]}"
    _run(train, test, components, options, title, data.stem)


def _mesh(options: RunOptions) -> Mesh | None:
    """All devices of all processes, where there are several."""
    distributed.start(options.coordinator, options.processes, options.process_id)
    return sampling_mesh() if jax.process_count() > 1 else None


def _run(
    train: tables.Table,
    test: tables.Table,
    components: int | None,
    options: RunOptions,
    title: str,
    name: str,
) -> None:
    mesh = _mesh(options)
    first = jax.process_index() == 0
    console = Console(stderr=options.json, quiet=not first)
    train, test = tables.prepare(train, test, components)
    place = folder(options.output, name) if first else Path()
    console.print(f"[bold]{title}[/bold]")
    say = lambda text: console.print(text, highlight=False)  # noqa: E731
    result = job.run(train, test, options, say, mesh=mesh)
    if not first:
        return
    paths = job.write(result, train, test, place, title)
    if options.json:
        tell_json(result.facts, paths)
    else:
        show_result(console, result)
    tell_files(console, paths)
