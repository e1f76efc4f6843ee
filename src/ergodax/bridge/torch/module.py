"""Parameters by name: of an `nn.Module` that has a posterior, or a dict of tensors."""

# pyright: reportMissingImports=false
from collections.abc import Mapping
from typing import Any

import torch

from ergodax.network.modules import DROPOUT, STATEFUL

Named = dict[str, torch.Tensor]
FROZEN = " Or keep the statistics of a trained network as they are: model.eval()."


def parameters_of(module: Any) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name.

    Args:
        module: any; layers whose output for a row depends on other rows, or on chance, must be
            in evaluation mode.

    Raises:
        TypeError: not a module.
        ValueError: a layer that normalises by its batch, dropout that is on, or nothing to sample.

    Example:
        >>> import torch
        >>> list(parameters_of(torch.nn.Linear(3, 2)))
        ['weight', 'bias']
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be an nn.Module, not {module!r}.")
    check_module(module)
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("no parameter of the module requires a gradient: nothing to sample.")
    return parameters


def check_module(module: torch.nn.Module) -> None:
    """Refuse BatchNorm that uses its batch, and dropout that is on. Raises: ValueError."""
    for where, layer in module.named_modules():
        where, kind = where or type(layer).__name__, type(layer).__name__
        if isinstance(layer, torch.nn.modules.batchnorm._NormBase):
            tracked = layer.track_running_stats
            by_batch = isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and not tracked
            if by_batch or (tracked and layer.training):
                text = STATEFUL.format(where=where, kind=kind)
                raise ValueError(text + (FROZEN if tracked else ""))
        if layer.training and _dropout(layer) > 0.0:
            raise ValueError(DROPOUT.format(where=where, how="model.eval()"))


def _dropout(layer: torch.nn.Module) -> float:
    """The rate at which a layer drops units of its own."""
    if isinstance(layer, torch.nn.modules.dropout._DropoutNd):
        return layer.p
    if isinstance(layer, torch.nn.MultiheadAttention | torch.nn.RNNBase):
        return layer.dropout
    return 0.0


def named_tensors(what: str, tensors: Any, like: Named | None = None) -> Named:
    """A dict of tensors, with the names and shapes of `like` and in its order.

    Raises: TypeError, ValueError.
    """
    if not isinstance(tensors, Mapping) or not tensors:
        raise TypeError(f"{what} must be a dict of tensors by name, not {tensors!r}.")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{what}[{name!r}] must be a tensor, not {tensor!r}.")
    if like is None:
        return dict(tensors)
    if tensors.keys() != like.keys():
        odd = sorted(tensors.keys() ^ like.keys())
        raise ValueError(f"{what} and the parameters have different names: {odd}.")
    for name, tensor in tensors.items():
        if tensor.shape != like[name].shape:
            raise ValueError(
                f"{what}[{name!r}] has shape {tuple(tensor.shape)}, but the parameter has "
                f"{tuple(like[name].shape)}."
            )
    return {name: tensors[name] for name in like}
