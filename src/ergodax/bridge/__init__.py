"""Bridges to other libraries: PyTorch, NumPyro, BlackJAX and optax.

Nothing of them is imported before it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ergodax.bridge.blackjax_algorithm import blackjax, from_blackjax
from ergodax.bridge.numpyro_model import ModelPosterior, ModelTarget, numpyro
from ergodax.bridge.optax_transformation import optax

if TYPE_CHECKING:
    from ergodax.bridge import torch

__all__ = [
    "ModelPosterior",
    "ModelTarget",
    "blackjax",
    "from_blackjax",
    "numpyro",
    "optax",
    "torch",
]


def __getattr__(name: str) -> Any:
    """`bridge.torch`, imported when it is asked for."""
    if name == "torch":
        return importlib.import_module("ergodax.bridge.torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
