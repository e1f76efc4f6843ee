"""The controls above the pictures of a page: sliders, and a button that runs the chains again."""

from collections.abc import Sequence
from typing import Any

import marimo as mo


def slider(label: str, value: float, steps: Sequence[float]) -> Any:
    """A slider over these values."""
    return mo.ui.slider(steps=list(steps), value=value, label=label, show_value=True)


def scale(label: str, value: float, start: float, stop: float, step: float) -> Any:
    """A slider over evenly spaced values."""
    return mo.ui.slider(start, stop, step, value=value, label=label, show_value=True)


def again() -> Any:
    """A button whose value, the number of clicks, is the seed of a page's chains."""
    return mo.ui.button(value=0, on_click=lambda count: count + 1, label="Run again")


def row(*controls: Any) -> Any:
    """Controls side by side."""
    return mo.hstack(controls, justify="start", gap=2, wrap=True)
