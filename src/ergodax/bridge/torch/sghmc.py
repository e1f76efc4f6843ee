"""Stochastic-gradient Hamiltonian Monte Carlo for PyTorch."""

# pyright: reportMissingImports=false
import math
from typing import Any

import torch

from ergodax.bridge.torch.base import Group, Sampler, Tensors
from ergodax.bridge.torch.errors import Number, check_number


@torch.no_grad()
def sghmc_step(
    parameters: Tensors,
    gradients: Tensors,
    momenta: Tensors,
    normals: Tensors,
    *,
    lr: Number,
    friction: Number,
    mass: Number = 1.0,
    temperature: Number = 1.0,
) -> None:
    """r+ = r - h g - h gamma r + sqrt(2 h T gamma m) xi, then x+ = x + h r+ / m, in place.

    Args:
        parameters: x.
        gradients: g, estimates of grad U of the whole data.
        momenta: r.
        normals: xi, standard normal numbers.
        lr: h.
        friction: the rate gamma.
        mass: m.
        temperature: T.
    """
    spread = math.sqrt(2.0 * lr * temperature * friction * mass)
    torch._foreach_mul_(momenta, 1.0 - lr * friction)
    torch._foreach_add_(momenta, gradients, alpha=-lr)
    torch._foreach_add_(momenta, normals, alpha=spread)
    torch._foreach_add_(parameters, momenta, alpha=lr / mass)


class SGHMC(Sampler):
    """Stochastic-gradient Hamiltonian Monte Carlo as an optimizer (Chen, Fox and Guestrin).

    State: the parameters x and a momentum r, drawn from N(0, T m) at the first step.
    H = U + r^2 / (2 m), D = diag(0, gamma m), Q = [[0, -1], [1, 0]]. Update, with
    g = N p.grad - grad log prior:
        r+ = r - h g - h gamma r + N(0, 2 h T gamma m),   x+ = x + h r+ / m
    Second order in h for x with exact gradients; stable for 2 gamma h + h^2 k / m < 4. A
    gradient noise of variance V heats x by h V / (2 gamma m).

    Args:
        params: parameters, or groups of them with settings of their own.
        lr: h. Of SGD with learning rate l on the mean loss and momentum b it is sqrt(l / N), at
            friction (1 - b) / h: see `ergodax.convert.from_torch_sgd`.
        friction: the rate gamma > 0.
        num_data: N, examples in the whole data.
        prior: the standard deviation s of a prior N(0, s^2) on every number; or the log prior, a
            function of the list of a group's parameters; or None if the loss has it already.
        mass: m, a number for each group.
        temperature: T; 0 descends with momentum.
        generator: of the noise, on the parameters' device; by default one that torch's seeds.
        check_finite: look for NaN in the gradients at every step; on a GPU that waits for it.

    Raises:
        TypeError: a setting of the wrong kind, or a parameter that is not of full precision.
        ValueError: a number out of range.

    Reference:
        Chen, Fox and Guestrin, Stochastic gradient Hamiltonian Monte Carlo, 2014.
    """

    def __init__(
        self,
        params: Any,
        lr: Any,
        friction: Any,
        *,
        num_data: Any,
        prior: Any = 1.0,
        mass: Any = 1.0,
        temperature: Any = 1.0,
        generator: torch.Generator | None = None,
        check_finite: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "friction": friction,
            "num_data": num_data,
            "prior": prior,
            "mass": mass,
            "temperature": temperature,
            "check_finite": check_finite,
        }
        super().__init__(params, defaults, generator)

    def _check(self, group: Group) -> None:
        super()._check(group)
        check_number("friction", group["friction"])
        check_number("mass", group["mass"])

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        mass, temperature = group["mass"], group["temperature"]
        momenta = self._start("momentum", parameters, self._momentum_of(mass, temperature))
        sghmc_step(
            parameters,
            gradients,
            momenta,
            self.normal_like(parameters),
            lr=group["lr"],
            friction=group["friction"],
            mass=mass,
            temperature=temperature,
        )
