"""Stochastic-gradient Langevin dynamics for PyTorch."""

# pyright: reportMissingImports=false
import math
from typing import Any

import torch

from ergodax.bridge.torch.base import Group, Sampler, Tensors
from ergodax.bridge.torch.errors import Number


@torch.no_grad()
def sgld_step(
    parameters: Tensors,
    gradients: Tensors,
    normals: Tensors,
    *,
    lr: Number,
    temperature: Number = 1.0,
) -> None:
    """x+ = x - h g + sqrt(2 h T) xi, in place.

    Args:
        parameters: x.
        gradients: g, estimates of grad U of the whole data.
        normals: xi, standard normal numbers.
        lr: h.
        temperature: T.
    """
    torch._foreach_add_(parameters, gradients, alpha=-lr)
    torch._foreach_add_(parameters, normals, alpha=math.sqrt(2.0 * lr * temperature))


class SGLD(Sampler):
    """Stochastic-gradient Langevin dynamics as an optimizer (Welling and Teh).

    State: the parameters x. H = U = -log prior + N * mean loss, D = 1, Q = 0. Update, with
    g = N p.grad - grad log prior:
        x+ = x - h g + N(0, 2 h T)
    First order in h; stable for h k < 2, with k the curvature of U, which grows with N.

    Args:
        params: parameters, or groups of them with settings of their own.
        lr: h, the step on U; on the mean loss it is a learning rate of N h. Welling and Teh's
            epsilon is 2 h. Schedulers of torch may change it.
        num_data: N, examples in the whole data.
        prior: the standard deviation s of a prior N(0, s^2) on every number; or the log prior, a
            function of the list of a group's parameters; or None if the loss has it already.
        temperature: T; 0 descends.
        generator: of the noise, on the parameters' device; by default one that torch's seeds.
        check_finite: look for NaN in the gradients at every step; on a GPU that waits for it.

    Raises:
        TypeError: a setting of the wrong kind, or a parameter that is not of full precision.
        ValueError: a number out of range.

    Reference:
        Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, 2011.
    """

    def __init__(
        self,
        params: Any,
        lr: Any,
        *,
        num_data: Any,
        prior: Any = 1.0,
        temperature: Any = 1.0,
        generator: torch.Generator | None = None,
        check_finite: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "num_data": num_data,
            "prior": prior,
            "temperature": temperature,
            "check_finite": check_finite,
        }
        super().__init__(params, defaults, generator)

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        sgld_step(
            parameters,
            gradients,
            self.normal_like(parameters),
            lr=group["lr"],
            temperature=group["temperature"],
        )
