"""Errors of the PyTorch bridge, and the checks of its settings."""

import math
from typing import Any

Number = float | int


class NonFiniteGradientError(RuntimeError):
    """A gradient is NaN or infinite; no parameter of this step has been moved.

    Attributes:
        group: the number of the parameter group.
        index: the number of the parameter among those of the group that have a gradient.
    """

    def __init__(self, message: str, *, group: int, index: int) -> None:
        super().__init__(message)
        self.group = group
        self.index = index


def check_number(name: str, value: Any, *, allow_zero: bool = False) -> None:
    """Refuse what is not a finite positive number.

    Args:
        name: of the setting.
        value: what was given.
        allow_zero: whether 0 will do.

    Raises:
        TypeError: not a number.
        ValueError: out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    if not (math.isfinite(value) and (value > 0 or (allow_zero and value == 0))):
        least = "at least 0" if allow_zero else "positive"
        raise ValueError(f"{name} must be {least} and finite, not {value!r}.")
