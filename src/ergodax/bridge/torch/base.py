"""The optimizer that every sampler for PyTorch is: the mean loss's gradient becomes that of U."""

# pyright: reportMissingImports=false
import abc
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ergodax.checks import real_number

Number = float | int
Tensors = Sequence[torch.Tensor]
Group = dict[str, Any]


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


class Sampler(torch.optim.Optimizer, abc.ABC):
    """A `torch.optim.Optimizer` whose steps sample exp(-U / T) instead of descending.

    U = -log prior + N * loss, where the loss whose gradient is in `p.grad` is the MEAN, over a
    minibatch, of minus the log-likelihoods, as in cross_entropy(model(x), y).

    Args:
        params: parameters, or groups of them with settings of their own.
        own: the settings of this sampler, for a group that names none.
        num_data: N, examples in the whole data.
        prior: the standard deviation s of a prior N(0, s^2) on every number; or the log prior, a
            function of the list of a group's parameters; or None if the loss has it already.
        temperature: T; 0 descends.
        generator: of the noise, on the parameters' device; by default one for each device,
            seeded by torch's own.
        check_finite: look for NaN in the gradients at every step; on a GPU that waits for it.

    Raises:
        TypeError: a setting of the wrong kind, or a parameter that is not of full precision.
        ValueError: a number out of range.
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
    ) -> None:
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
        super().__init__(params, own | common)

    @abc.abstractmethod
    def _move(self, group: Group, parameters: Tensors, gradients: Tensors) -> None:
        """Move the parameters of a group, given the gradients of U."""

    def _check(self, group: Group) -> None:
        """Refuse settings of a group that mean nothing."""
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
                _check_dtype(parameter)
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
                moves.append((group, parameters, _potential_gradients(group, number, parameters)))
        if not moves:
            raise ValueError("no parameter has a gradient: call loss.backward() before step().")
        for group, parameters, gradients in moves:
            self._move(group, parameters, gradients)
        return loss

    def normal_like(self, tensors: Tensors) -> list[torch.Tensor]:
        """Independent standard normal numbers in the shape of each tensor."""
        return self._random_like(tensors, torch.randn)

    def sign_like(self, tensors: Tensors) -> list[torch.Tensor]:
        """Independent signs, +1 or -1, in the shape of each tensor."""

        def signs(size: int, dtype: torch.dtype, **options: Any) -> torch.Tensor:
            return torch.randint(2, (size,), **options).to(dtype).mul_(2.0).sub_(1.0)

        return self._random_like(tensors, signs)

    def _random_like(self, tensors: Tensors, draw: Callable) -> list[torch.Tensor]:
        # One vector for each device and dtype: many small parameters cost one call.
        places: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for place, tensor in enumerate(tensors):
            places.setdefault((tensor.device, tensor.dtype), []).append(place)
        drawn: list[torch.Tensor] = list(tensors)
        for (device, dtype), where in places.items():
            sizes = [tensors[place].numel() for place in where]
            self._prepare_generator(device)  # the model may have moved since
            generator = self.generators[str(device)]
            flat = draw(sum(sizes), dtype=dtype, device=device, generator=generator)
            for place, part in zip(where, flat.split(sizes), strict=True):
                drawn[place] = part.view(tensors[place].shape)
        return drawn

    def _start(self, name: str, parameters: Tensors, make: Callable) -> list[torch.Tensor]:
        """The state `name` of each parameter, made by make(parameters) where there is none."""
        new = [p for p in parameters if name not in self.state[p]]
        if new:
            for parameter, value in zip(new, make(new), strict=True):
                self.state[parameter][name] = value
        return [self.state[p][name] for p in parameters]

    def _momenta(self, group: Group, parameters: Tensors) -> list[torch.Tensor]:
        """The momentum of each parameter, drawn from N(0, T m) where there is none."""
        spread = math.sqrt(group["temperature"] * group["mass"])
        make = lambda new: torch._foreach_mul(self.normal_like(new), spread)  # noqa: E731
        return self._start("momentum", parameters, make)

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
            ValueError: the generators of the run were on other devices.
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


def settings_of(group: Group, *names: str) -> Group:
    """Some settings of a group, by name."""
    return {name: group[name] for name in names}


def _check_dtype(parameter: torch.Tensor) -> None:
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


def _potential_gradients(group: Group, number: int, parameters: Tensors) -> list[torch.Tensor]:
    """N times the mean loss's gradient, and the prior's once."""
    losses = [p.grad for p in parameters]
    if any(gradient.is_sparse for gradient in losses):
        raise TypeError(
            "a gradient is sparse, but noise and prior move every parameter in every step. "
            "Try nn.Embedding(..., sparse=False)."
        )
    gradients = list(torch._foreach_mul(losses, group["num_data"]))
    _add_prior_gradient(gradients, group["prior"], parameters)
    if group["check_finite"]:
        _refuse_non_finite(gradients, number)
    return gradients


def _add_prior_gradient(gradients: Tensors, prior: Any, parameters: Tensors) -> None:
    """Add the gradient of -log prior, in place."""
    if prior is None:
        return
    if not callable(prior):
        torch._foreach_add_(gradients, parameters, alpha=prior**-2)
        return
    with torch.enable_grad():
        copies = [p.detach().requires_grad_() for p in parameters]
        value: Any = prior(copies)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            raise TypeError(
                f"prior must return one number that depends on the parameters, not {value!r}. Sum "
                "over them, as in sum(-0.5 * (p**2).sum() for p in parameters); None is flat."
            )
        slopes = torch.autograd.grad(value, copies, allow_unused=True, materialize_grads=True)
    torch._foreach_sub_(gradients, slopes)


def _refuse_non_finite(gradients: Tensors, group: int) -> None:
    # One number for all, so that a device is waited for once; the search follows where that
    # number is not finite, which may also be since the sum of squares overflowed.
    device = gradients[0].device
    norms = [norm.to(device) for norm in torch._foreach_norm(gradients)]
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
