"""Langevin dynamics preconditioned by RMSprop, for PyTorch."""

# pyright: reportMissingImports=false
import math
from typing import Any

import torch

from ergodax.bridge.torch.base import Group, Sampler, Tensors
from ergodax.bridge.torch.errors import Number, check_number


@torch.no_grad()
def psgld_step(
    parameters: Tensors,
    gradients: Tensors,
    second_moments: Tensors,
    normals: Tensors,
    *,
    lr: Number,
    num_data: Number,
    weight: Number,
    damping: Number,
    temperature: Number = 1.0,
) -> None:
    """V <- (1 - w) V + w (g / N)^2, G = 1 / (damping + sqrt(V)), x+ = x - h G g + N(0, 2 h T G).

    Args:
        parameters: x, changed in place.
        gradients: g, estimates of grad U of the whole data.
        second_moments: V, changed in place.
        normals: xi, standard normal numbers.
        lr: h.
        num_data: N.
        weight: w of the new square; 0 leaves V as it is.
        damping: added to the root of V.
        temperature: T.
    """
    if weight > 0.0:
        torch._foreach_mul_(second_moments, 1.0 - weight)
        torch._foreach_addcmul_(second_moments, gradients, gradients, weight / num_data**2)
    metric = torch._foreach_sqrt(second_moments)
    torch._foreach_add_(metric, damping)
    torch._foreach_reciprocal_(metric)
    torch._foreach_addcmul_(parameters, metric, gradients, -lr)
    torch._foreach_sqrt_(metric)
    torch._foreach_addcmul_(parameters, metric, normals, math.sqrt(2.0 * lr * temperature))


class PSGLD(Sampler):
    """Langevin dynamics preconditioned by RMSprop, as an optimizer (Li et al.).

    State: the parameters x, and V, a running mean of squared gradients. H = U,
    D = G = diag(1 / (damping + sqrt(V))), Q = 0. Update at step t = 1, 2, ..., with
    g = N p.grad - grad log prior:
        V  <- (1 - w) V + w (g / N)^2,   w = (1 - decay) / (1 - decay^t)
        x+ = x - h G g + N(0, 2 h T G)
    After `adaptation_steps` V is frozen: G is constant, and the law is that of SGLD with this
    preconditioner. Draw samples from then on. While V adapts the chain has a bias of its own and
    leaves out the term Gamma, which needs second derivatives of the loss; `ergodax.psgld` has it.

    Args:
        params: parameters, or groups of them with settings of their own.
        lr: h; stable for h k < 2 (damping + sqrt(V)), with k the curvature of U.
        num_data: N, examples in the whole data.
        prior: the standard deviation s of a prior N(0, s^2) on every number; or the log prior, a
            function of the list of a group's parameters; or None if the loss has it already.
        decay: of V's memory, in [0, 1).
        damping: positive, on the scale of sqrt(V).
        adaptation_steps: how many steps V adapts for; pass your burn-in.
        temperature: T.
        generator: of the noise, on the parameters' device; by default one that torch's seeds.
        check_finite: look for NaN in the gradients at every step; on a GPU that waits for it.

    Raises:
        TypeError: a setting of the wrong kind, or a parameter that is not of full precision.
        ValueError: a number out of range.

    Reference:
        Li, Chen, Carlson and Carin, Preconditioned stochastic gradient Langevin dynamics for
        deep neural networks, 2016.
    """

    def __init__(
        self,
        params: Any,
        lr: Any,
        *,
        num_data: Any,
        prior: Any = 1.0,
        decay: Any = 0.99,
        damping: Any = 1e-3,
        adaptation_steps: Any = 1000,
        temperature: Any = 1.0,
        generator: torch.Generator | None = None,
        check_finite: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "num_data": num_data,
            "prior": prior,
            "decay": decay,
            "damping": damping,
            "adaptation_steps": adaptation_steps,
            "temperature": temperature,
            "check_finite": check_finite,
        }
        super().__init__(params, defaults, generator)

    def _check(self, group: Group) -> None:
        super()._check(group)
        check_number("decay", group["decay"], allow_zero=True)
        check_number("damping", group["damping"])
        check_number("adaptation_steps", group["adaptation_steps"])
        if group["decay"] >= 1.0:
            raise ValueError(f"decay must be less than 1, not {group['decay']}. Try 0.99.")

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        moments = self._start(
            "second_moment", parameters, lambda new: [torch.zeros_like(p) for p in new]
        )
        normals = self.normal_like(parameters)
        for step, places in self._by_step(parameters).items():
            psgld_step(
                [parameters[i] for i in places],
                [gradients[i] for i in places],
                [moments[i] for i in places],
                [normals[i] for i in places],
                lr=group["lr"],
                num_data=group["num_data"],
                weight=_weight(step, group["decay"], group["adaptation_steps"]),
                damping=group["damping"],
                temperature=group["temperature"],
            )

    def _by_step(self, parameters: Tensors) -> dict[int, list[int]]:
        """The places of the parameters by their own count of steps, which is raised by 1."""
        places: dict[int, list[int]] = {}
        for place, parameter in enumerate(parameters):
            state = self.state[parameter]
            step = state.get("step", 0)
            places.setdefault(step, []).append(place)
            state["step"] = step + 1
        return places


def _weight(step: int, decay: Number, adaptation_steps: Number) -> float:
    """What the new square counts for: 1 at the first step, 0 once V is frozen."""
    return (1.0 - decay) / (1.0 - decay ** (step + 1)) if step < adaptation_steps else 0.0
