"""What a call may end in, whatever it was given."""

import math
import traceback
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from hypothesis import HealthCheck, settings

import ergodax as ex

NAMED = (ValueError, TypeError, FileNotFoundError, ex.DivergenceError, ex.StorageError)
FOREIGN = ("/jax/", "/jaxlib/", "/equinox/", "/zarr/", "/numpy/")

# Deadlines of single examples would measure the machine; a hang shows as the suite's.
few = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
many = settings(few, max_examples=150)


def outcome(call: Callable[[], Any]) -> Any:
    """What the call returns, or the named error that it ends in.

    Any other error, or one whose text is another library's, fails the test.
    """
    try:
        return call()
    except NAMED as error:
        raised = traceback.extract_tb(error.__traceback__)[-1].filename
        assert not any(part in raised for part in FOREIGN), f"raised in {raised}: {error}"
        assert str(error).strip(), "an error without words"
        return error


def finite(samples: ex.Samples) -> bool:
    """Whether no draw is NaN or infinite."""
    arrays = [x for x in jax.tree.leaves(samples.position) if isinstance(x, np.ndarray)]
    return all(np.isfinite(x).all() for x in arrays)


def sane(number: Any, *, least: float = 0.0) -> bool:
    """Whether a number could be a step size, a temperature and the like."""
    return isinstance(number, float | int) and math.isfinite(number) and number >= least
