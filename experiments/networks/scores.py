"""How good a prediction is on held-out rows, with standard errors."""

from collections.abc import Callable

import numpy as np

import ergodax as ex
from experiments.networks.tasks import Task

RESAMPLES = 200

# What a table shows, and what the figures are called in it.
FIGURES = {
    "regression": {
        "log_likelihood": "log-lik.",
        "rmse": "RMSE",
        "calibration_error": "calibration",
        "noise": "noise",
    },
    "classification": {
        "log_likelihood": "log-lik.",
        "accuracy": "accuracy",
        "calibration_error": "ECE",
        "entropy": "entropy",
        "strange_entropy": "strange",
    },
}


def scores(task: Task, prediction: ex.network.Prediction) -> dict[str, float]:
    """The figures of a prediction for the test rows, then the strange ones, in the task's units."""
    test = prediction[: len(task.y_test)]
    strange = prediction[len(task.y_test) :]
    rows = np.arange(len(task.y_test))
    figures = {name: of(task, test, rows) for name, of in _measures(task).items()}
    if task.kind == "regression":
        figures["noise"] = float(np.sqrt(test.noise)) * task.unit
    else:
        figures["entropy"] = float(ex.network.entropy(test.mean).mean())
        if len(strange.mean):
            figures["strange_entropy"] = float(ex.network.entropy(strange.mean).mean())
    return figures


def errors(task: Task, prediction: ex.network.Prediction, seed: int = 0) -> dict[str, float]:
    """Standard errors of the figures, over the test rows, by the bootstrap."""
    rng, count = np.random.default_rng(seed), len(task.y_test)
    test = prediction[:count]
    drawn = [rng.integers(count, size=count) for _ in range(RESAMPLES)]
    measures = _measures(task).items()
    return {
        name: float(np.std([of(task, test, rows) for rows in drawn], ddof=1))
        for name, of in measures
    }


def calibrated(task: Task, prediction: ex.network.Prediction) -> ex.network.Calibration:
    """The reliability diagram of a prediction."""
    count = len(task.y_test)
    if task.kind == "regression":
        return ex.network.coverage(_array(prediction.below)[:count])
    return ex.network.calibration(prediction.mean[:count], task.y_test)


def _measures(task: Task) -> dict[str, Callable[[Task, ex.network.Prediction, np.ndarray], float]]:
    accuracy = {"rmse": _rmse} if task.kind == "regression" else {"accuracy": _accuracy}
    return {"log_likelihood": _log_likelihood, **accuracy, "calibration_error": _calibration}


def _log_likelihood(task: Task, test: ex.network.Prediction, rows: np.ndarray) -> float:
    return float(_array(test.log_density)[rows].mean() - np.log(task.unit))


def _rmse(task: Task, test: ex.network.Prediction, rows: np.ndarray) -> float:
    apart = test.mean[rows] - task.y_test[rows]
    return float(np.sqrt((apart**2).mean())) * task.unit


def _accuracy(task: Task, test: ex.network.Prediction, rows: np.ndarray) -> float:
    return float((test.mean[rows].argmax(axis=1) == task.y_test[rows]).mean())


def _calibration(task: Task, test: ex.network.Prediction, rows: np.ndarray) -> float:
    if task.kind == "regression":
        return ex.network.coverage(_array(test.below)[rows]).error
    return ex.network.calibration(test.mean[rows], task.y_test[rows]).error


def _array(values: np.ndarray | None) -> np.ndarray:
    assert values is not None
    return values


def measured(value: float, error: float | None) -> str:
    """A figure to two digits of its standard error, or to three digits without one."""
    if error is None or not np.isfinite(error) or error <= 0:
        return f"{value:.3g}"
    digits = max(0, 1 - int(np.floor(np.log10(error))))
    return f"{value:.{digits}f}±{error:.{digits}f}"
