"""Stochastic-gradient Nose-Hoover thermostat for PyTorch."""

# pyright: reportMissingImports=false
from typing import Any

import torch

from ergodax.bridge.torch.base import Group, Sampler, Tensors
from ergodax.bridge.torch.errors import Number, check_number


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
        parameters: x.
        gradients: g, estimates of grad U of the whole data.
        momenta: r.
        thermostat: zeta, one number, or tensors like the parameters: one for each coordinate.
        normals: xi, standard normal numbers.
        lr: h.
        friction: A.
        thermal_mass: mu.
        mass: m.
        temperature: T.
    """
    half = 0.5 * lr
    shared = isinstance(thermostat, torch.Tensor)
    zetas = [thermostat] if shared else thermostat
    torch._foreach_add_(momenta, gradients, alpha=-lr)
    torch._foreach_add_(parameters, momenta, alpha=half / mass)
    _heat(zetas, momenta, shared, half / thermal_mass, mass, temperature)
    damping = [_damping(zeta, lr, friction * temperature * mass) for zeta in zetas]
    decay, spread = damping[0] if shared else zip(*damping, strict=True)
    torch._foreach_mul_(momenta, decay)
    torch._foreach_add_(momenta, torch._foreach_mul(normals, spread))
    _heat(zetas, momenta, shared, half / thermal_mass, mass, temperature)
    torch._foreach_add_(parameters, momenta, alpha=half / mass)


def _heat(
    zetas: Tensors, momenta: Tensors, shared: bool, rate: Number, mass: Number, temperature: Number
) -> None:
    """D: zeta += t (r^T r / m - d T) / mu, with rate = t / mu; in place."""
    if shared:
        squares = torch.stack(torch._foreach_norm(momenta)).square().sum()
        size = sum(r.numel() for r in momenta)
        zetas[0].add_(squares / mass - size * temperature, alpha=rate)
    else:
        excess = torch._foreach_mul(momenta, momenta)
        torch._foreach_div_(excess, mass)
        torch._foreach_sub_(excess, temperature)
        torch._foreach_add_(zetas, excess, alpha=rate)


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
        params: parameters, or groups of them with settings of their own.
        lr: h.
        friction: A > 0, a rate: how much noise is injected.
        num_data: N, examples in the whole data.
        prior: the standard deviation s of a prior N(0, s^2) on every number; or the log prior, a
            function of the list of a group's parameters; or None if the loss has it already.
        thermal_mass: mu; by default d, or 1 for each coordinate.
        per_coordinate: one zeta for each coordinate, for noise that differs between them.
        mass: m, a number for each group.
        temperature: T.
        generator: of the noise, on the parameters' device; by default one that torch's seeds.
        check_finite: look for NaN in the gradients at every step; on a GPU that waits for it.

    Raises:
        TypeError: a setting of the wrong kind, or a parameter that is not of full precision.
        ValueError: a number out of range, or a group on several devices that shares a zeta.

    Reference:
        Ding, Fang, Babbush, Chen, Skeel and Neven, Bayesian sampling using stochastic gradient
        thermostats, 2014; Leimkuhler and Shang, Adaptive thermostats for noisy gradient
        systems, 2016.
    """

    def __init__(
        self,
        params: Any,
        lr: Any,
        friction: Any,
        *,
        num_data: Any,
        prior: Any = 1.0,
        thermal_mass: Any = None,
        per_coordinate: bool = False,
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
            "thermal_mass": thermal_mass,
            "per_coordinate": per_coordinate,
            "mass": mass,
            "temperature": temperature,
            "check_finite": check_finite,
        }
        super().__init__(params, defaults, generator)

    def _check(self, group: Group) -> None:
        super()._check(group)
        check_number("friction", group["friction"])
        check_number("mass", group["mass"])
        if group["thermal_mass"] is not None:
            check_number("thermal_mass", group["thermal_mass"])
        devices = {str(p.device) for p in group["params"]}
        if len(devices) > 1 and not group["per_coordinate"]:
            raise ValueError(
                f"a group shares one thermostat, but its parameters are on {sorted(devices)}. "
                "Try a group for each device, or per_coordinate=True."
            )

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        mass, temperature = group["mass"], group["temperature"]
        momenta = self._start("momentum", parameters, self._momentum_of(mass, temperature))
        sgnht_step(
            parameters,
            gradients,
            momenta,
            self._thermostat(group, parameters),
            self.normal_like(parameters),
            lr=group["lr"],
            friction=group["friction"],
            thermal_mass=_inertia(group, parameters),
            mass=mass,
            temperature=temperature,
        )

    def _thermostat(self, group: Group, parameters: Tensors) -> torch.Tensor | Tensors:
        friction = group["friction"]
        if group["per_coordinate"]:
            return self._start(
                "thermostat", parameters, lambda new: [torch.full_like(p, friction) for p in new]
            )
        first = group["params"][0]  # which holds what the group shares
        return self._start("thermostat", [first], lambda _: [first.new_tensor(friction)])[0]


def _inertia(group: Group, parameters: Tensors) -> Number:
    if group["thermal_mass"] is not None:
        return group["thermal_mass"]
    return 1.0 if group["per_coordinate"] else float(sum(p.numel() for p in parameters))
