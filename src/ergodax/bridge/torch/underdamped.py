"""Samplers with a momentum for PyTorch: SGHMC, and SGNHT with a thermostat."""

# pyright: reportMissingImports=false
import math
from typing import Any

import torch

from ergodax.bridge.torch.base import Sampler
from ergodax.bridge.torch.memory import Group, Memory, Number, Tensors, foreach, settings_of
from ergodax.checks import real_number


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
        parameters: x, changed in place.
        gradients: g, estimates of the whole data's grad U.
        normals: xi, standard normal numbers.
        momenta: r.
        lr: h.
        friction: the rate gamma.
        mass: m.
        temperature: T.
    """
    spread = math.sqrt(2.0 * lr * temperature * friction * mass)
    foreach("mul_", momenta, 1.0 - lr * friction)
    foreach("add_", momenta, gradients, alpha=-lr)
    foreach("add_", momenta, normals, alpha=spread)
    foreach("add_", parameters, momenta, alpha=lr / mass)


class SGHMC(Sampler):
    """Stochastic-gradient Hamiltonian Monte Carlo as an optimizer (Chen, Fox and Guestrin).

    State: the parameters x and a momentum r, drawn from N(0, T m) at the first step.
    H = U + r^2 / (2 m), D = diag(0, gamma m), Q = [[0, -1], [1, 0]]. Update, with
    g = N p.grad - grad log prior:
        r+ = r - h g - h gamma r + N(0, 2 h T gamma m),   x+ = x + h r+ / m
    Second order in h for x with exact gradients; stable for 2 gamma h + h^2 k / m < 4. A
    gradient noise of variance V raises the temperature of x by h V / (2 gamma m).

    Args:
        params: parameters, groups of them, or a module.
        lr: h. Of SGD with learning rate l on the mean loss and momentum b it is sqrt(l / N), at
            friction (1 - b) / h: see `ergodax.convert.from_torch_sgd`.
        friction: the rate gamma > 0.
        mass: m, a number for each group.
        common: `num_data`, `prior`, `temperature`, `generator` and `check_finite`; for these, and
            for what is raised, see `Sampler`.

    Reference:
        Chen, Fox and Guestrin, Stochastic gradient Hamiltonian Monte Carlo, 2014.
    """

    positive = "lr", "friction", "mass"

    def __init__(
        self, params: Any, lr: Any = None, friction: Any = None, *, mass: Any = 1.0, **common: Any
    ) -> None:
        own = {"lr": lr, "friction": friction, "mass": mass}
        super().__init__(params, own, **common)

    @staticmethod
    def start(memory: Memory, group: Group, parameters: Tensors) -> None:
        """The momentum."""
        memory.momenta(group, parameters)

    @staticmethod
    def move(memory: Memory, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        """One step of a group."""
        momenta = memory.momenta(group, parameters)
        sghmc_step(
            parameters,
            gradients,
            momenta,
            memory.normal_like(parameters),
            **settings_of(group, "lr", "friction", "mass", "temperature"),
        )


@torch.no_grad()
def sgnht_step(
    parameters: Tensors,
    gradients: Tensors,
    momenta: Tensors,
    thermostat: torch.Tensor | Tensors,
    normals: Tensors,
    *,
    lr: Number,
    friction: Number,
    thermal_mass: Number,
    mass: Number = 1.0,
    temperature: Number = 1.0,
) -> None:
    """B(h) A(h/2) D(h/2) O(h) D(h/2) A(h/2), in place; for the letters see `SGNHT`.

    Args:
        parameters: x, changed in place.
        gradients: g, estimates of the whole data's grad U.
        normals: xi, standard normal numbers.
        momenta: r.
        thermostat: zeta, one number, or tensors like the parameters: one for each coordinate.
        lr: h.
        friction: A.
        thermal_mass: mu.
        mass: m.
        temperature: T.
    """
    half = 0.5 * lr
    shared = isinstance(thermostat, torch.Tensor)
    zetas = [thermostat] if shared else thermostat
    foreach("add_", momenta, gradients, alpha=-lr)
    foreach("add_", parameters, momenta, alpha=half / mass)
    _thermostat_step(zetas, momenta, shared, half / thermal_mass, mass, temperature)
    damping = [_damping(zeta, lr, friction * temperature * mass) for zeta in zetas]
    decay, spread = damping[0] if shared else zip(*damping, strict=True)
    foreach("mul_", momenta, decay)
    foreach("add_", momenta, foreach("mul", normals, spread))
    _thermostat_step(zetas, momenta, shared, half / thermal_mass, mass, temperature)
    foreach("add_", parameters, momenta, alpha=half / mass)


def _thermostat_step(
    zetas: Tensors, momenta: Tensors, shared: bool, rate: Number, mass: Number, temperature: Number
) -> None:
    """D: zeta += t (r^T r / m - d T) / mu, with rate = t / mu; in place."""
    if shared:
        squares = torch.stack(foreach("norm", momenta)).square().sum()
        size = sum(r.numel() for r in momenta)
        zetas[0].add_(squares / mass - size * temperature, alpha=rate)
    else:
        excess = foreach("mul", momenta, momenta)
        foreach("div_", excess, mass)
        foreach("sub_", excess, temperature)
        foreach("add_", zetas, excess, alpha=rate)


def _damping(zeta: torch.Tensor, t: Number, power: Number) -> tuple[torch.Tensor, torch.Tensor]:
    """Of O: e^(-zeta t), and the root of power (1 - e^(-2 zeta t)) / zeta, for any zeta."""
    small = (zeta * t).abs() < 1e-4
    safe = torch.where(small, 1.0, zeta)
    exact = -torch.expm1(-2.0 * safe * t) / safe
    variance = torch.where(small, 2.0 * t * (1.0 - zeta * t), exact)
    return torch.exp(-zeta * t), torch.sqrt(power * variance)


class SGNHT(Sampler):
    """Langevin dynamics whose friction adapts to the gradient's noise, as an optimizer.

    State: the parameters x, a momentum r, drawn from N(0, T m) at the first step, and a
    thermostat zeta, A at first: one for each group, over all d numbers of the group.
    H = U + r^2 / (2 m) + mu (zeta - A)^2 / 2, D = diag(0, A m, 0), Q[r, x] = 1,
    Q[r, zeta] = r / mu. Update, with g = N p.grad - grad log prior:
        B  r -= h g                            A  x += (h / 2) r / m
        D  zeta += (h / 2) (r^2 / m - d T) / mu
        O  r = e^(-zeta h) r + N(0, A T m (1 - e^(-2 zeta h)) / zeta)
    in the order B A D O D A: the positions of BADODAB, at one gradient a step. Second order in h
    with exact gradients. Constant isotropic gradient noise moves zeta and leaves x unbiased.

    Args:
        params: parameters, groups of them, or a module.
        lr: h.
        friction: A > 0, a rate: how much noise is injected.
        thermal_mass: mu; by default d, or 1 for each coordinate.
        per_coordinate: one zeta for each coordinate, for noise that differs between them.
        mass: m, a number for each group.
        common: `num_data`, `prior`, `temperature`, `generator` and `check_finite`; for these, and
            for what is raised, see `Sampler`.

    Raises:
        ValueError: a group on several devices that shares a zeta.

    Reference:
        Ding, Fang, Babbush, Chen, Skeel and Neven, Bayesian sampling using stochastic gradient
        thermostats, 2014; Leimkuhler and Shang, Adaptive thermostats for noisy gradient
        systems, 2016.
    """

    positive = "lr", "friction", "mass"

    def __init__(
        self,
        params: Any,
        lr: Any = None,
        friction: Any = None,
        *,
        thermal_mass: Any = None,
        per_coordinate: bool = False,
        mass: Any = 1.0,
        **common: Any,
    ) -> None:
        own = {
            "lr": lr,
            "friction": friction,
            "thermal_mass": thermal_mass,
            "per_coordinate": per_coordinate,
            "mass": mass,
        }
        super().__init__(params, own, **common)

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["thermal_mass"] is not None:
            real_number("thermal_mass", group["thermal_mass"], above=0.0)
        devices = {str(p.device) for p in group["params"]}
        if len(devices) > 1 and not group["per_coordinate"]:
            raise ValueError(
                f"a group shares one thermostat, but its parameters are on {sorted(devices)}. "
                "Try a group for each device, or per_coordinate=True."
            )

    @staticmethod
    def start(memory: Memory, group: Group, parameters: Tensors) -> None:
        """The momentum and the thermostat."""
        memory.momenta(group, parameters)
        _thermostat(memory, group, parameters)

    @staticmethod
    def move(memory: Memory, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        """One step of a group."""
        momenta = memory.momenta(group, parameters)
        sgnht_step(
            parameters,
            gradients,
            momenta,
            _thermostat(memory, group, parameters),
            memory.normal_like(parameters),
            thermal_mass=_inertia(group, parameters),
            **settings_of(group, "lr", "friction", "mass", "temperature"),
        )


def _thermostat(memory: Memory, group: Group, parameters: Tensors) -> torch.Tensor | Tensors:
    friction = group["friction"]
    if group["per_coordinate"]:
        return memory.entries(
            "thermostat", parameters, lambda new: [torch.full_like(p, friction) for p in new]
        )
    first = group["params"][0]  # which holds what the group shares
    return memory.entries("thermostat", [first], lambda _: [first.new_tensor(friction)])[0]


def _inertia(group: Group, parameters: Tensors) -> Number:
    if group["thermal_mass"] is not None:
        return group["thermal_mass"]
    return 1.0 if group["per_coordinate"] else float(sum(p.numel() for p in parameters))
