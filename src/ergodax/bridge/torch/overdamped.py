"""Langevin dynamics for PyTorch: SGLD, with a preconditioner (PSGLD), or a metric (RSGLD)."""

# pyright: reportMissingImports=false
import math
from collections.abc import Callable
from typing import Any

import torch

from ergodax.bridge.torch.base import Sampler
from ergodax.bridge.torch.memory import Group, Memory, Number, Tensors, foreach, settings_of
from ergodax.checks import real_number

Field = Callable[[torch.Tensor], torch.Tensor]


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
        parameters: x, changed in place.
        gradients: g, estimates of the whole data's grad U.
        normals: xi, standard normal numbers.
        lr: h.
        temperature: T.
    """
    foreach("add_", parameters, gradients, alpha=-lr)
    foreach("add_", parameters, normals, alpha=math.sqrt(2.0 * lr * temperature))


class SGLD(Sampler):
    """Stochastic-gradient Langevin dynamics as an optimizer (Welling and Teh).

    State: the parameters x. H = U = -log prior + N * mean loss, D = 1, Q = 0. Update, with
    g = N p.grad - grad log prior:
        x+ = x - h g + N(0, 2 h T)
    First order in h; stable for h k < 2, with k the curvature of U, which grows with N.

    Args:
        params: parameters, groups of them, or a module.
        lr: h, the step on U; on the mean loss it is a learning rate of N h. Welling and Teh's
            epsilon is 2 h. Schedulers of torch may change it.
        common: `num_data`, `prior`, `temperature`, `generator` and `check_finite`; for these, and
            for what is raised, see `Sampler`.

    Reference:
        Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, 2011.
    """

    def __init__(self, params: Any, lr: Any = None, **common: Any) -> None:
        super().__init__(params, {"lr": lr}, **common)

    @staticmethod
    def move(memory: Memory, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        """One step of a group."""
        sgld_step(
            parameters,
            gradients,
            memory.normal_like(parameters),
            **settings_of(group, "lr", "temperature"),
        )


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
        gradients: g, estimates of the whole data's grad U.
        normals: xi, standard normal numbers.
        second_moments: V, changed in place.
        lr: h.
        num_data: N.
        damping: added to the root of V.
        temperature: T.
        weight: w of the new square; 0 leaves V as it is.
    """
    if weight > 0.0:
        foreach("mul_", second_moments, 1.0 - weight)
        foreach("addcmul_", second_moments, gradients, gradients, value=weight / num_data**2)
    metric = foreach("sqrt", second_moments)
    foreach("add_", metric, damping)
    foreach("reciprocal_", metric)
    foreach("addcmul_", parameters, metric, gradients, value=-lr)
    foreach("sqrt_", metric)
    spread = math.sqrt(2.0 * lr * temperature)
    foreach("addcmul_", parameters, metric, normals, value=spread)


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
        params: parameters, groups of them, or a module.
        lr: h; stable for h k < 2 (damping + sqrt(V)), with k the curvature of U.
        decay: of V's memory, in [0, 1).
        damping: positive, on the scale of sqrt(V).
        adaptation_steps: how many steps V adapts for; pass your burn-in.
        common: `num_data`, `prior`, `temperature`, `generator` and `check_finite`; for these, and
            for what is raised, see `Sampler`.

    Reference:
        Li, Chen, Carlson and Carin, Preconditioned stochastic gradient Langevin dynamics for
        deep neural networks, 2016.
    """

    positive = "lr", "damping", "adaptation_steps"

    def __init__(
        self,
        params: Any,
        lr: Any = None,
        *,
        decay: Any = 0.99,
        damping: Any = 1e-3,
        adaptation_steps: Any = 1000,
        **common: Any,
    ) -> None:
        own = {"lr": lr, "decay": decay, "damping": damping, "adaptation_steps": adaptation_steps}
        super().__init__(params, own, **common)

    def _check(self, group: Group) -> None:
        super()._check(group)
        real_number("decay", group["decay"], at_least=0.0)
        if group["decay"] >= 1.0:
            raise ValueError(f"decay must be less than 1, not {group['decay']}. Try 0.99.")

    @staticmethod
    def start(memory: Memory, group: Group, parameters: Tensors) -> None:
        """V, zero before the first step, whose square replaces it."""
        _second_moments(memory, parameters)

    @staticmethod
    def move(memory: Memory, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        """One step of a group."""
        moments = _second_moments(memory, parameters)
        normals = memory.normal_like(parameters)
        for step, places in _by_step(memory, parameters).items():
            psgld_step(
                [parameters[i] for i in places],
                [gradients[i] for i in places],
                [moments[i] for i in places],
                [normals[i] for i in places],
                weight=_weight(step, group["decay"], group["adaptation_steps"]),
                **settings_of(group, "lr", "num_data", "damping", "temperature"),
            )


def _second_moments(memory: Memory, parameters: Tensors) -> list[torch.Tensor]:
    return memory.entries(
        "second_moment", parameters, lambda new: [torch.zeros_like(p) for p in new]
    )


def _by_step(memory: Memory, parameters: Tensors) -> dict[int, list[int]]:
    """The places of the parameters by their own count of steps, which is raised by 1."""
    places: dict[int, list[int]] = {}
    for place, parameter in enumerate(parameters):
        state = memory.state[parameter]
        step = state.get("step", 0)
        places.setdefault(step, []).append(place)
        state["step"] = step + 1
    return places


def _weight(step: int, decay: Number, adaptation_steps: Number) -> float:
    """What the new square counts for: 1 at the first step, 0 once V is frozen."""
    return (1.0 - decay) / (1.0 - decay ** (step + 1)) if step < adaptation_steps else 0.0


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
        parameters: x, changed in place.
        gradients: g, estimates of the whole data's grad U.
        normals: xi, standard normal numbers.
        metric: the diagonal of G^-1 at x.
        divergence: Gamma at x, the derivative of each entry of it along its own coordinate.
        lr: h.
        temperature: T.
    """
    noise = foreach("mul", foreach("sqrt", metric), normals)
    foreach("addcmul_", parameters, metric, gradients, value=-lr)
    foreach("add_", parameters, divergence, alpha=lr * temperature)
    foreach("add_", parameters, noise, alpha=math.sqrt(2.0 * lr * temperature))


class RSGLD(Sampler):
    """Stochastic-gradient Riemannian Langevin dynamics as an optimizer (Patterson and Teh).

    State: the parameters x. H = U, D = G^-1(x), a diagonal, Q = 0. Update, with
    g = N p.grad - grad log prior:
        x+ = x - h G^-1 g + h T Gamma + N(0, 2 h T G^-1),   Gamma_i = d G^-1_i / d x_i
    First order in h. Without Gamma the law would be wrong at every step size.

    Args:
        params: parameters, groups of them, or a module.
        lr: h.
        metric: function of one parameter tensor that returns the diagonal of G^-1 there, a
            positive tensor of its shape (or one that broadcasts to it), by differentiable
            operations of torch. Give groups their own where parameters need different ones.
        divergence: function of one parameter tensor that returns Gamma. By default it is found by
            differentiation along random signs: exact where each entry of the metric depends on
            its own coordinate alone, unbiased otherwise.
        common: `num_data`, `prior`, `temperature`, `generator` and `check_finite`; for these, and
            for what is raised, see `Sampler`.

    Reference:
        Patterson and Teh, Stochastic gradient Riemannian Langevin dynamics on the probability
        simplex, 2013; Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = None,
        metric: Any = None,
        *,
        divergence: Any = None,
        **common: Any,
    ) -> None:
        own = {"lr": lr, "metric": metric, "divergence": divergence}
        super().__init__(params, own, **common)

    def _check(self, group: Group) -> None:
        super()._check(group)
        for name in ("metric", "divergence"):
            value = group[name]
            if not callable(value) and not (name == "divergence" and value is None):
                raise TypeError(f"{name} must be a function of a parameter, not {value!r}.")

    @staticmethod
    def move(memory: Memory, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        """One step of a group."""
        metric, divergence = _geometry(memory, group, parameters)
        rsgld_step(
            parameters,
            gradients,
            metric,
            divergence,
            memory.normal_like(parameters),
            **settings_of(group, "lr", "temperature"),
        )


def _geometry(memory: Memory, group: Group, parameters: Tensors) -> tuple[Tensors, Tensors]:
    """G^-1 and Gamma at each parameter."""
    metric, divergence = group["metric"], group["divergence"]
    if divergence is not None:
        return _values(metric, parameters), _values(divergence, parameters)
    pairs = [
        _differentiated(metric, parameter, signs)
        for parameter, signs in zip(parameters, memory.sign_like(parameters), strict=True)
    ]
    return [value for value, _ in pairs], [gamma for _, gamma in pairs]


def _values(field: Field, parameters: Tensors) -> Tensors:
    return [field(p.detach()).expand_as(p).contiguous() for p in parameters]


def _differentiated(
    metric: Field, parameter: torch.Tensor, signs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The metric, and v_i d(v . metric) / d x_i with signs v."""
    with torch.enable_grad():
        pair: Any = torch.func.vjp(lambda x: metric(x).expand_as(x), parameter.detach())
        value, pull = pair
        (slope,) = pull(signs)
    return value.contiguous(), signs * slope
