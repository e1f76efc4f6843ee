"""The optimizer that every sampler for PyTorch is: the mean loss's gradient becomes that of U."""

# pyright: reportMissingImports=false
import abc
import math
from collections.abc import Callable
from typing import Any

import torch

from ergodax.bridge.torch.memory import Group, Memory, Tensors, foreach
from ergodax.bridge.torch.module import parameters_of
from ergodax.checks import real_number

# Settings of torch's optimizers that have another place here.
ELSEWHERE = {
    "weight_decay": "weight decay is a Gaussian prior, and the prior has an argument of its own. "
    "Try prior=ergodax.convert.from_weight_decay(weight_decay, num_data=N)['scale'], which is "
    "1 / sqrt(N weight_decay); prior=None is no decay.",
    "momentum": "momentum b is a friction, (1 - b) / h with h = sqrt(lr / N). Try "
    "SGHMC(..., **ergodax.convert.from_torch_sgd(lr, momentum, num_data=N)).",
    "dampening": "a momentum is a friction, without dampening. Leave it out.",
    "nesterov": "a Nesterov step has no stationary law of this form. Leave it out.",
}


class NonFiniteGradientError(RuntimeError):
    """A gradient is NaN or infinite; no parameter of this step has been moved.

    Attributes:
        group: the number of the parameter group.
        index: the number of the parameter among those of the group that have a gradient.
    """

    def __init__(self, message: str, *, group: int, index: int) -> None:
        super().__init__(message)
        self.group = group
        self.index = index


class Sampler(torch.optim.Optimizer, Memory):
    """A `torch.optim.Optimizer` whose steps sample exp(-U / T) instead of descending.

    U = -log prior + N * loss, where the loss whose gradient is in `p.grad` is the MEAN, over a
    minibatch, of minus the log-likelihoods, as in cross_entropy(model(x), y).

    Args:
        params: parameters, or groups of them with settings of their own; or an `nn.Module`, which
            is then searched for layers with no posterior.
        own: the settings of this sampler, for a group that names none.
        num_data: N, examples in the whole data.
        prior: the standard deviation s of a prior N(0, s^2) on every number; or the log prior, a
            function of the list of a group's parameters; or None if the loss has it already.
        temperature: T; 0 descends.
        generator: of the noise, on the parameters' device; by default one for each device,
            seeded by torch's own.
        check_finite: look for NaN in the gradients at every step; on a GPU that waits for it.
        step_size: another name for `lr`, the one in the rest of this library and its `convert`.

    Raises:
        TypeError: a setting of the wrong kind or of torch's optimizers (`weight_decay`,
            `momentum`), or a parameter that is not of full precision.
        ValueError: a number out of range, or a module with BatchNorm or dropout in training mode.
    """

    positive: tuple[str, ...] = ("lr",)  # settings that must be positive numbers

    def __init__(
        self,
        params: Any,
        own: Group,
        *,
        num_data: Any,
        prior: Any = 1.0,
        temperature: Any = 1.0,
        generator: torch.Generator | None = None,
        check_finite: bool = True,
        step_size: Any = None,
        **elsewhere: Any,
    ) -> None:
        for name in elsewhere:
            if name not in ELSEWHERE:
                raise TypeError(f"{type(self).__name__} has no setting {name!r}.")
        if step_size is not None:
            if own["lr"] is not None:
                raise TypeError("lr and step_size are two names for one number: give one of them.")
            own = own | {"lr": step_size}
        self.generators: dict[str, torch.Generator] = {}
        self._makes_generators = generator is None
        if generator is not None:
            self.generators[str(generator.device)] = generator
        common = {
            "num_data": num_data,
            "prior": prior,
            "temperature": temperature,
            "check_finite": check_finite,
        }
        if isinstance(params, torch.nn.Module):
            params = parameters_of(params).values()
        super().__init__(params, own | common | elsewhere)

    @staticmethod
    def start(memory: Memory, group: Group, parameters: Tensors) -> None:
        """Make the state of parameters that have none; by default a sampler needs none."""

    @staticmethod
    @abc.abstractmethod
    def move(memory: Memory, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        """Move parameters in place, given the gradients of U and the settings of their group."""

    def _check(self, group: Group) -> None:
        """Refuse settings of a group that mean nothing."""
        for name in sorted(ELSEWHERE.keys() & group.keys()):
            raise TypeError(f"{type(self).__name__} has no {name}: {ELSEWHERE[name]}")
        for name in ("num_data", *self.positive):
            real_number(name, group[name], above=0.0)
        real_number("temperature", group["temperature"], at_least=0.0)
        if group["prior"] is not None and not callable(group["prior"]):
            real_number("prior", group["prior"], above=0.0)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with settings of their own; see `torch.optim.Optimizer`.

        Args:
            param_group: "params" and any settings.
        """
        super().add_param_group(param_group)
        try:
            group = self.param_groups[-1]
            for parameter in group["params"]:
                check_dtype(parameter)
                self._prepare_generator(parameter.device)
            self._check(group)
        except Exception:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; a parameter without a gradient stays where it is.

        Args:
            closure: clears the gradients, computes the loss, calls backward() and returns the
                loss; optional.

        Returns:
            What the closure returned, or None.

        Raises:
            ValueError: no parameter has a gradient.
            TypeError: a gradient is sparse.
            NonFiniteGradientError: a gradient is NaN or infinite; nothing has moved.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moves = []
        for number, group in enumerate(self.param_groups):
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                gradients = potential_gradients(group, parameters, [p.grad for p in parameters])
                if group["check_finite"]:
                    _refuse_non_finite(gradients, number)
                moves.append((group, parameters, gradients))
        if not moves:
            raise ValueError("no parameter has a gradient: call loss.backward() before step().")
        for group, parameters, gradients in moves:
            self.move(self, group, parameters, gradients)
        return loss

    def generator_on(self, device: torch.device) -> torch.Generator:
        """The generator of the noise on a device."""
        self._prepare_generator(device)  # the model may have moved since
        return self.generators[str(device)]

    def _prepare_generator(self, device: torch.device) -> None:
        if str(device) in self.generators:
            return
        if not self._makes_generators:
            raise ValueError(
                f"generator is on {next(iter(self.generators))}, but a parameter is on {device}. "
                f"Try torch.Generator({str(device)!r}), or none."
            )
        seed = int(torch.randint(2**62, ()))
        self.generators[str(device)] = torch.Generator(device).manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """The settings, the state of each parameter and of the generators.

        A run that loads it goes on bit for bit. Functions among the settings are left out, since
        they can't be stored safely; `load_state_dict` keeps those given to the constructor.
        """
        content = super().state_dict()
        content["param_groups"] = [
            {name: value for name, value in group.items() if not callable(value)}
            for group in content["param_groups"]
        ]
        content["generators"] = {d: g.get_state() for d, g in self.generators.items()}
        return content

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Args:
            state_dict: of a sampler of this class with the same parameters. Without the key
                "generators" the noise goes on from this sampler's own.

        Raises:
            ValueError: the generators of the run were on other devices, or it lacks a setting: it
                is of another sampler, or that was a function and is not one here.
        """
        states = state_dict.get("generators", {})
        if states and set(states) != set(self.generators):
            raise ValueError(
                f"the run was saved with noise on {sorted(states)}, and the parameters are now on "
                f"{sorted(self.generators)}, so it can't go on bit for bit. To go on with other "
                "noise, remove the key 'generators'."
            )
        saved = state_dict["param_groups"]
        groups = [
            {n: v for n, v in own.items() if callable(v)} | group
            for own, group in zip(self.param_groups, saved, strict=False)
        ]
        for number, group in enumerate(groups):
            if missing := [name for name in self.defaults if name not in group]:
                raise ValueError(
                    f"the saved group {number} has no {' and no '.join(missing)}, which "
                    f"{type(self).__name__} needs. Functions are not saved: give the constructor "
                    "those of the run. Or the run was of another sampler: make one of its class."
                )
        content = {"state": state_dict["state"], "param_groups": groups + saved[len(groups) :]}
        super().load_state_dict(content)
        for device, state in states.items():
            self.generators[device].set_state(state.cpu())

    def __getstate__(self) -> dict[str, Any]:
        states = {device: g.get_state() for device, g in self.generators.items()}
        return {**super().__getstate__(), "generators": states}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        for device, noise in state.pop("generators", {}).items():
            self.__dict__.setdefault("generators", {})[device] = torch.Generator(device)
            self.generators[device].set_state(noise)
        self.__dict__.setdefault("_makes_generators", True)
        super().__setstate__(state)


def check_dtype(parameter: torch.Tensor) -> None:
    """Refuse what is not in single or double precision. Raises: TypeError."""
    if parameter.dtype in (torch.float32, torch.float64):
        return
    if parameter.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(
            f"a parameter is {parameter.dtype}, in which steps this small are lost and noise is "
            "biased. Try model.float(), with torch.autocast for the forward pass."
        )
    raise TypeError(
        f"a parameter is {parameter.dtype}; the samplers move real numbers. Try .float(), or for "
        "complex numbers torch.view_as_real."
    )


def potential_gradients(group: Group, parameters: Tensors, losses: Tensors) -> list[torch.Tensor]:
    """N times the mean loss's gradients `losses`, and the prior's once. Raises: TypeError."""
    if any(gradient.is_sparse for gradient in losses):
        raise TypeError(
            "a gradient is sparse, but noise and prior move every parameter in every step. "
            "Try nn.Embedding(..., sparse=False)."
        )
    gradients = list(foreach("mul", losses, group["num_data"]))
    prior = group["prior"]
    if callable(prior):
        with torch.enable_grad():
            slopes = torch.func.grad(_one_number(prior))([p.detach() for p in parameters])
        foreach("sub_", gradients, slopes)
    elif prior is not None:
        foreach("add_", gradients, parameters, alpha=prior**-2)
    return gradients


def _one_number(prior: Callable[[Any], Any]) -> Callable[[Any], torch.Tensor]:
    """The log prior, which must return one number."""

    def checked(parameters: Any) -> torch.Tensor:
        value = prior(parameters)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            raise TypeError(
                f"prior must return one number that depends on the parameters, not {value!r}. Sum "
                "over them, as in sum(-0.5 * (p**2).sum() for p in parameters); None is flat."
            )
        return value.reshape(())

    return checked


def _refuse_non_finite(gradients: Tensors, group: int) -> None:
    # One number for all, so that a device is waited for once; the search follows where that
    # number is not finite, which may also be since the sum of squares overflowed.
    device = gradients[0].device
    norms = [norm.to(device) for norm in foreach("norm", gradients)]
    if math.isfinite(float(torch.stack(norms).sum())):
        return
    for index, gradient in enumerate(gradients):
        if not bool(torch.isfinite(gradient).all()):
            raise NonFiniteGradientError(
                f"the gradient of parameter {index} of group {group} (shape "
                f"{tuple(gradient.shape)}) is NaN or infinite, so nothing was moved. Try an lr "
                "ten times smaller, or look at the loss.",
                group=group,
                index=index,
            )
