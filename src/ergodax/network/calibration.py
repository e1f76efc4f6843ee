"""Whether predicted probabilities are what they say."""

import dataclasses
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from ergodax.checks import numbers, real_array, whole_number
from ergodax.network.likelihoods import check_labels

ROUNDING = 1e-3  # of probabilities and their sums, in half precision too


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Confidence against accuracy in bins; a row for each bin that is not empty.

    Attributes:
        error: the expected calibration error.
        confidence: mean probability of the predicted class in a bin.
        accuracy: share of a bin's rows whose predicted class is right.
        count: rows of a bin.
    """

    error: float
    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray


def calibration(probabilities: Any, labels: Any, *, bins: int = 15) -> Calibration:
    """The expected calibration error, and the reliability diagram that it sums up.

    The confidence of a row is the largest of its probabilities. With bins
    (0, 1/B], (1/B, 2/B], ... of equal width, n_b rows in bin b, of which the accuracy is a_b and
    the mean confidence c_b,
        error = sum over b of (n_b / n) |a_b - c_b|.

    A sample estimate: it is positive for a perfect model too, by about the mean of
    sqrt(2 a_b (1 - a_b) / (pi n_b)).

    Args:
        probabilities: shape (n, classes), rows summing to one; or (n,), of class 1.
        labels: integers, shape (n,).
        bins: B.

    Raises:
        ValueError: shapes that do not fit, what are no probabilities or labels, or no bin.

    Example:
        >>> import ergodax.network as network
        >>> found = network.calibration([[0.8, 0.2]] * 10, [0] * 8 + [1] * 2)  # right 8 times in 10
        >>> bool(found.error < 1e-6)
        True

    Reference:
        Guo, Pleiss, Sun and Weinberger, On calibration of modern neural networks, 2017.
    """
    labels = np.asarray(numbers("labels", labels))
    if labels.shape != np.shape(probabilities)[:1]:
        raise ValueError(
            f"labels must have shape (n,) and probabilities (n,) or (n, classes), not "
            f"{labels.shape} and {np.shape(probabilities)}."
        )
    table = _probabilities(probabilities)
    check_labels(labels, table.shape[1])
    bins = whole_number("bins", bins, below=2**20, hint="Try 15.")
    confidence, right = table.max(axis=1), table.argmax(axis=1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    full = count > 0
    mean = np.bincount(place, confidence, bins)[full] / count[full]
    accuracy = np.bincount(place, right, bins)[full] / count[full]
    error = float(np.sum(count[full] * np.abs(accuracy - mean)) / count.sum())
    return Calibration(error, mean, accuracy, count[full])


def coverage(below: Any, *, levels: int = 10) -> Calibration:
    """The calibration error of a regression, by how often central intervals hold the target.

    The central interval of level p = 1/L, 2/L, ..., (L-1)/L holds a target whose predictive
    probability of a smaller one is within p / 2 of 1/2. With s_p the share of such targets,
        error = mean over p of |s_p - p|.

    Args:
        below: the predictive probability of a smaller target for each row, as
            `Prediction.below`.
        levels: L.

    Returns:
        A Calibration whose `confidence` are the levels and `accuracy` the shares.

    Raises:
        ValueError: fewer than two levels, or numbers outside [0, 1].

    Example:
        >>> import numpy as np
        >>> import ergodax.network as network
        >>> below = np.random.default_rng(0).uniform(size=10_000)  # of right predictions
        >>> bool(network.coverage(below).error < 0.02)
        True

    Reference:
        Kuleshov, Fenner and Ermon, Accurate uncertainties for deep learning using calibrated
        regression, 2018.
    """
    below = real_array("below", below, ndim=1)
    levels = whole_number("levels", levels, at_least=2, below=2**20, hint="Try 10.")
    if not ((below >= 0) & (below <= 1)).all():
        raise ValueError("below must be probabilities, shape (n,), as those of a Prediction.")
    p = np.arange(1, levels) / levels
    share = (2.0 * np.abs(below - 0.5)[None] <= p[:, None]).mean(axis=1)
    return Calibration(float(np.abs(share - p).mean()), p, share, np.full(len(p), len(below)))


def entropy(probabilities: Any) -> Float[np.ndarray, " n"]:
    """The entropy of each row's predicted classes, in nats; high where the network is unsure.

    Args:
        probabilities: shape (n, classes), rows summing to one; or (n,), of class 1.

    Raises:
        ValueError: what are no probabilities.

    Example:
        >>> import ergodax.network as network
        >>> network.entropy([[0.5, 0.5], [1.0, 0.0]]).round(3).tolist()  # log 2, and none
        [0.693, 0.0]
    """
    return scipy.special.entr(_probabilities(probabilities)).sum(axis=1)


def _probabilities(given: Any) -> Float[np.ndarray, "n classes"]:
    table = real_array("probabilities", given, ndim=(1, 2))
    if (table < -ROUNDING).any() or (table > 1.0 + ROUNDING).any():
        raise ValueError("probabilities must lie in [0, 1].")
    table = np.clip(table, 0.0, 1.0)
    if table.ndim == 1:
        return np.stack([1.0 - table, table], axis=1)
    if table.shape[1] == 1:
        raise ValueError("probabilities has one column. Of class 1, try probabilities[:, 0].")
    apart = np.abs(table.sum(axis=1) - 1.0)
    if apart.max() > ROUNDING:
        row = int(apart.argmax())
        raise ValueError(
            f"the rows of probabilities must sum to 1, but row {row} sums to "
            f"{table[row].sum():.6g}. Of logits, try jax.nn.softmax(logits)."
        )
    return table
