"""What many draws predict together."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The average over draws of what a network predicts for n rows, as NumPy arrays.

    Attributes:
        count: draws averaged.
        mean: probabilities of the classes, shape (n, classes); the probability of class 1,
            shape (n,); or the mean of the targets, shape (n, ...).
        spread: the variance of `mean`'s summands among draws, same shape: what the weights leave
            open.
        noise: the average variance of a target about a draw's mean; None for classes.
        log_density: the log of the averaged density of each target, shape (n,): what the posterior
            predictive says of it; None without targets.
        draw_log_density: the average of the log densities, never larger; None without targets.
        draw_entropy: the average entropy of a draw's probabilities, shape (n,); None for
            regression.
        below: the predictive probability of a smaller target, shape (n,), uniform where the
            prediction is right; None for classes, vector targets and without targets.
    """

    count: int
    mean: np.ndarray
    spread: np.ndarray
    noise: float | None
    log_density: np.ndarray | None = None
    draw_log_density: np.ndarray | None = None
    draw_entropy: np.ndarray | None = None
    below: np.ndarray | None = None

    @property
    def variance(self) -> np.ndarray:
        """The variance of a target: spread and noise; for classes, of the indicator."""
        if self.noise is not None:
            return self.spread + self.noise
        return self.mean * (1.0 - self.mean)

    def __getitem__(self, rows: slice | np.ndarray) -> "Prediction":
        """The prediction for some of the rows."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arrays = {k: v[rows] for k, v in fields.items() if isinstance(v, np.ndarray)}
        return dataclasses.replace(self, **arrays)
