"""`python -m experiments networks`: Bayesian neural networks on tables and images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from experiments.command import Many, Options, finish, place_for, speaker
from experiments.networks import cold as curves
from experiments.networks import comparison, report, tasks
from experiments.networks.methods import METHODS

QUICK_ROWS = 2000

networks = App(
    name="networks",
    help="""Sample the weights of a neural network, beside an optimised one and an ensemble.

    Example: python -m experiments networks regress boston.npz --split 0
    """,
)


@Parameter(name="*")
@dataclass(frozen=True)
class NetworkOptions(Options):
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
    """

    methods: Annotated[tuple[str, ...], Many] = tuple(METHODS)
    width: int = 50
    depth: int = 1
    prior_scale: float = 1.0
    members: int = 5
    steps: int | None = None
    batch_size: int = 100

    @property
    def settings(self) -> comparison.Settings:
        """What the experiment needs of them."""
        return comparison.Settings(
            self.methods, self.width, self.depth, self.prior_scale, self.members, self.steps,
            self.batch_size, self.seed, self.quick,
        )  # fmt: skip


DEFAULT = NetworkOptions()


@networks.command
def regress(
    file: Path, *, split: int = 0, splits: int = 1, options: NetworkOptions = DEFAULT
) -> None:
    """Regression with a learned noise: SGHMC in cycles, pSGLD and SGNHT against MAP and ensemble.

    Example: python -m experiments networks regress boston.npz --split 0 --splits 5

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
    _compare(file, [tasks.regression(file, split + k) for k in range(splits)], options)


@networks.command
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

    Example: python -m experiments networks classify mnist.npz --unseen 8 9

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
    _compare(file, [_classification(file, rows, test_rows, unseen, options)] * seeds, options)


@networks.command
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

    Example: python -m experiments networks cold boston.npz --temperatures 0.1 0.3 1

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
    if tasks.has_classes(file):
        task = _classification(file, rows, test_rows, (), options)
    else:
        task = tasks.regression(file, split)
    place = place_for(f"cold-{file.stem}", options)
    table = curves.curve(task, temperatures, options.settings, speaker(options))
    finish(curves.present(table, task), "cold", place, options)


def _classification(
    file: Path,
    rows: int | None,
    test_rows: int | None,
    unseen: tuple[int, ...],
    options: NetworkOptions,
) -> tasks.Task:
    if options.quick:
        rows, test_rows = rows or QUICK_ROWS, test_rows or QUICK_ROWS
    return tasks.classification(file, rows=rows, test_rows=test_rows, unseen=unseen)


def _compare(file: Path, every: list[tasks.Task], options: NetworkOptions) -> None:
    settings = options.settings
    place = place_for(f"network-{file.stem}", options)
    result = comparison.run(every, settings, speaker(options))
    finish(report.present(result), "network", place, options)
