"""Riemannian Langevin dynamics with a diagonal metric, for PyTorch."""

# pyright: reportMissingImports=false
import math
from collections.abc import Callable
from typing import Any

import torch

from ergodax.bridge.torch.base import Group, Sampler, Tensors
from ergodax.bridge.torch.errors import Number

Field = Callable[[torch.Tensor], torch.Tensor]


@torch.no_grad()
def rsgld_step(
    parameters: Tensors,
    gradients: Tensors,
    metric: Tensors,
    divergence: Tensors,
    normals: Tensors,
    *,
    lr: Number,
    temperature: Number = 1.0,
) -> None:
    """x+ = x - h G^-1 g + h T Gamma + sqrt(2 h T G^-1) xi, in place.

    Args:
        parameters: x.
        gradients: g, estimates of grad U of the whole data.
        metric: the diagonal of G^-1 at x.
        divergence: Gamma at x, the derivative of each entry of it along its own coordinate.
        normals: xi, standard normal numbers.
        lr: h.
        temperature: T.
    """
    noise = torch._foreach_mul(torch._foreach_sqrt(metric), normals)
    torch._foreach_addcmul_(parameters, metric, gradients, -lr)
    torch._foreach_add_(parameters, divergence, alpha=lr * temperature)
    torch._foreach_add_(parameters, noise, alpha=math.sqrt(2.0 * lr * temperature))


class RSGLD(Sampler):
    """Stochastic-gradient Riemannian Langevin dynamics as an optimizer (Patterson and Teh).

    State: the parameters x. H = U, D = G^-1(x), a diagonal, Q = 0. Update, with
    g = N p.grad - grad log prior:
        x+ = x - h G^-1 g + h T Gamma + N(0, 2 h T G^-1),   Gamma_i = d G^-1_i / d x_i
    First order in h. Without Gamma the law would be wrong at every step size.

    Args:
        params: parameters, or groups of them with settings of their own.
        lr: h.
        metric: function of one parameter tensor that returns the diagonal of G^-1 there, a
            positive tensor of its shape (or one that broadcasts to it), by differentiable
            operations of torch. Give groups their own where parameters need different ones.
        divergence: function of one parameter tensor that returns Gamma. By default it is found by
            differentiation along random signs: exact where each entry of the metric depends on
            its own coordinate alone, unbiased otherwise.
        num_data: N, examples in the whole data.
        prior: the standard deviation s of a prior N(0, s^2) on every number; or the log prior, a
            function of the list of a group's parameters; or None if the loss has it already.
        temperature: T; multiplies the noise and Gamma.
        generator: of the noise, on the parameters' device; by default one that torch's seeds.
        check_finite: look for NaN in the gradients at every step; on a GPU that waits for it.

    Raises:
        TypeError: a setting of the wrong kind, or a parameter that is not of full precision.
        ValueError: a number out of range.

    Reference:
        Patterson and Teh, Stochastic gradient Riemannian Langevin dynamics on the probability
        simplex, 2013; Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015.
    """

    def __init__(
        self,
        params: Any,
        lr: Any,
        metric: Any,
        *,
        num_data: Any,
        divergence: Any = None,
        prior: Any = 1.0,
        temperature: Any = 1.0,
        generator: torch.Generator | None = None,
        check_finite: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "metric": metric,
            "divergence": divergence,
            "num_data": num_data,
            "prior": prior,
            "temperature": temperature,
            "check_finite": check_finite,
        }
        super().__init__(params, defaults, generator)

    def _check(self, group: Group) -> None:
        super()._check(group)
        for name in ("metric", "divergence"):
            value = group[name]
            if not callable(value) and not (name == "divergence" and value is None):
                raise TypeError(f"{name} must be a function of a parameter, not {value!r}.")

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        metric, divergence = self._geometry(group, parameters)
        rsgld_step(
            parameters,
            gradients,
            metric,
            divergence,
            self.normal_like(parameters),
            lr=group["lr"],
            temperature=group["temperature"],
        )

    def _geometry(self, group: Group, parameters: Tensors) -> tuple[Tensors, Tensors]:
        """G^-1 and Gamma at each parameter."""
        metric, divergence = group["metric"], group["divergence"]
        if divergence is not None:
            return _values(metric, parameters), _values(divergence, parameters)
        pairs = [
            _differentiated(metric, parameter, signs)
            for parameter, signs in zip(parameters, self.sign_like(parameters), strict=True)
        ]
        return [value for value, _ in pairs], [gamma for _, gamma in pairs]


def _values(field: Field, parameters: Tensors) -> Tensors:
    return [field(p.detach()).expand_as(p).contiguous() for p in parameters]


def _differentiated(
    metric: Field, parameter: torch.Tensor, signs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The metric, and v_i d(v . metric) / d x_i with signs v."""
    with torch.enable_grad():
        x = parameter.detach().requires_grad_()
        value = metric(x).expand_as(x)
        if not value.requires_grad:
            return value.contiguous(), torch.zeros_like(x)
        (slope,) = torch.autograd.grad((signs * value).sum(), x, materialize_grads=True)
    return value.detach().contiguous(), signs * slope
