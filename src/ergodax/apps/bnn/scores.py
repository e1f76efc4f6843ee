"""How good a prediction is on held-out rows, with standard errors."""

from collections.abc import Callable

import numpy as np

from ergodax import network
from ergodax.apps.bnn.data import Task
from ergodax.network import Calibration, Prediction

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


def scores(task: Task, prediction: Prediction) -> dict[str, float]:
    """The figures of a prediction for the test rows, then the strange ones, in the task's units.

    Args:
        task: whose test rows are predicted.
        prediction: with log densities.
    """
    test = prediction[: len(task.y_test)]
    strange = prediction[len(task.y_test) :]
    rows = np.arange(len(task.y_test))
    figures = {name: of(task, test, rows) for name, of in _measures(task).items()}
    if task.kind == "regression":
        figures["noise"] = float(np.sqrt(test.noise)) * task.unit
    else:
        figures["entropy"] = float(network.entropy(test.mean).mean())
        if len(strange.mean):
            figures["strange_entropy"] = float(network.entropy(strange.mean).mean())
    return figures


def errors(task: Task, prediction: Prediction, seed: int = 0) -> dict[str, float]:
    """Standard errors of the figures, over the test rows, by the bootstrap.

    Args:
        task: whose test rows are predicted.
        prediction: with log densities.
        seed: of the resampling.
    """
    rng, count = np.random.default_rng(seed), len(task.y_test)
    test = prediction[:count]
    drawn = [rng.integers(count, size=count) for _ in range(RESAMPLES)]
    measures = _measures(task).items()
    return {
        name: float(np.std([of(task, test, rows) for rows in drawn], ddof=1))
        for name, of in measures
    }


def calibrated(task: Task, prediction: Prediction) -> Calibration:
    """The reliability diagram of a prediction.

    Args:
        task: whose test rows are predicted.
        prediction: for them.
    """
    count = len(task.y_test)
    if task.kind == "regression":
        return network.coverage(_array(prediction.below)[:count])
    return network.calibration(prediction.mean[:count], task.y_test)


def _measures(task: Task) -> dict[str, Callable[[Task, Prediction, np.ndarray], float]]:
    accuracy = {"rmse": _rmse} if task.kind == "regression" else {"accuracy": _accuracy}
    return {"log_likelihood": _log_likelihood, **accuracy, "calibration_error": _calibration}


def _log_likelihood(task: Task, test: Prediction, rows: np.ndarray) -> float:
    return float(_array(test.log_density)[rows].mean() - np.log(task.unit))


def _rmse(task: Task, test: Prediction, rows: np.ndarray) -> float:
    apart = test.mean[rows] - task.y_test[rows]
    return float(np.sqrt((apart**2).mean())) * task.unit


def _accuracy(task: Task, test: Prediction, rows: np.ndarray) -> float:
    return float((test.mean[rows].argmax(axis=1) == task.y_test[rows]).mean())


def _calibration(task: Task, test: Prediction, rows: np.ndarray) -> float:
    if task.kind == "regression":
        return network.coverage(_array(test.below)[rows]).error
    return network.calibration(test.mean[rows], task.y_test[rows]).error


def _array(values: np.ndarray | None) -> np.ndarray:
    assert values is not None
    return values
