"""A real table as a problem of the comparison."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ergodax.apps import compare_reference
from ergodax.apps.compare_problem import LARGE, PRIOR_SCALE, Problem, Reference
from ergodax.learn import regression as inference
from ergodax.learn import tables
from ergodax.tune.infer import infer


@dataclasses.dataclass(frozen=True)
class Source:
    """Which table, and what is made of it.

    Attributes:
        data: CSV, Parquet or npz.
        target: the column to predict; of an .npz file the array.
        features: the array of features of an .npz file.
        categorical: an array of codes there, each column of which becomes indicators.
        classes: the two values of the target to keep, where it has more.
        components: reduce the features to so many principal components first.
        prior_scale: standard deviation of each coefficient's normal prior.
        reference_seconds: for the reference's sampling; three times as much for a large table.
    """

    data: Path
    target: str | None = None
    features: str = "x_train"
    categorical: str | None = None
    classes: tuple[str, str] | None = None
    components: int | None = None
    prior_scale: float = PRIOR_SCALE
    reference_seconds: float = 180.0

    def read(self) -> tables.Table:
        """The table as it stands."""
        return tables.read(self.data, self.target, self.features, self.categorical, self.classes)

    def problem(self, seed: int) -> tuple[Problem, str]:
        """The posterior with its reference, and what is regressed on what.

        Args:
            seed: of the reference.
        """
        model = inference.logistic(self.read(), self.prior_scale, self.components)
        features, labels = (np.asarray(x) for x in model.posterior.data)
        rows = compare_reference.Rows.of(features, labels)
        rng, guess, seconds = np.random.default_rng(seed), None, self.reference_seconds
        if features.size >= LARGE:
            seconds *= 3.0
            key, init = jax.random.key(seed + 1), jnp.zeros(features.shape[1])
            found = infer(model.posterior, init, key=key, progress=False)
            guess = np.asarray(found.samples.position, np.float64).reshape(-1, features.shape[1])
        run = compare_reference.run(rows, self.prior_scale, rng, seconds, guess)
        problem = Problem(model.posterior, _reference(run, guess), self.prior_scale)
        return problem, f"{self.data.name}, {model.title}"


def _reference(run: compare_reference.Run, guess: np.ndarray | None) -> Reference:
    flat = run.draws.reshape(-1, run.mode.size)
    count, chains = f"{len(flat):,}", len(run.draws)
    whitened = "whitened by its own draws"
    if guess is not None:
        whitened = "whitened by and begun at draws of an infer with another seed"
    told = (
        f"HMC in double precision {whitened}, {count} draws of {chains} chains in "
        f"{run.seconds:.0f} s, acceptance {run.acceptance:.2f}, R-hat {run.r_hat:.3f}"
    )
    error = float(max(run.mean_errors.max(), run.sd_errors.max()))
    return Reference(
        run.mode, run.factor, flat.mean(axis=0), flat.std(axis=0), error, told,
        run.draws[:, -1], run.step,
    )  # fmt: skip
