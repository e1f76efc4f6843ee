"""The prior of a group of parameters, as a setting of the group."""

# pyright: reportMissingImports=false
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ergodax.bridge.torch.errors import Number, check_number

Prior = Number | Callable[[list[torch.Tensor]], torch.Tensor] | None


def check_prior(prior: Any) -> None:
    """Accept a standard deviation, a function or None.

    Args:
        prior: the setting of a group.

    Raises:
        TypeError: none of these.
        ValueError: a standard deviation that is not positive.
    """
    if prior is not None and not callable(prior):
        check_number("prior", prior)


def add_prior_gradient(
    gradients: Sequence[torch.Tensor], prior: Prior, parameters: Sequence[torch.Tensor]
) -> None:
    """Add the gradient of -log prior, in place.

    Args:
        gradients: one for each parameter.
        prior: the standard deviation s of N(0, s^2) for each number; or the log prior, a
            function of the list of parameters; or None for a flat one.
        parameters: of one group.

    Raises:
        TypeError: the log prior is not one number that depends on the parameters.
    """
    if prior is None:
        return
    if not callable(prior):
        torch._foreach_add_(gradients, parameters, alpha=prior**-2)
        return
    with torch.enable_grad():
        copies = [p.detach().requires_grad_() for p in parameters]
        value = prior(copies)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            raise TypeError(
                f"prior must return one number that depends on the parameters, not {value!r}. Sum "
                "over them, as in sum(-0.5 * (p**2).sum() for p in parameters); None is flat."
            )
        slopes = torch.autograd.grad(value, copies, allow_unused=True, materialize_grads=True)
    torch._foreach_sub_(gradients, slopes)
