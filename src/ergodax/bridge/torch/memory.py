"""What every sampler for PyTorch works with: lists of tensors, the state of each, and noise."""

# pyright: reportMissingImports=false
import abc
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Number = float | int
Tensors = Sequence[torch.Tensor]
Group = dict[str, Any]


def foreach(name: str, tensors: Tensors, *others: Any, **options: Any) -> Any:
    """`torch._foreach_NAME(tensors, *others, **options)`, under `torch.func.vmap` too.

    vmap has no rule for these functions: inside it each tensor is taken by itself.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        return getattr(torch, f"_foreach_{name}")(tensors, *others, **options)
    each = _addcmul_ if name == "addcmul_" else getattr(torch.Tensor, name)
    rows = [x if isinstance(x, list | tuple) else [x] * len(tensors) for x in others]
    return [each(*row, **options) for row in zip(tensors, *rows, strict=True)]


def _addcmul_(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: Number) -> torch.Tensor:
    """Tensor.addcmul_, for which vmap would loop over the chains."""
    return x.add_(a * b, alpha=value)


class Memory(abc.ABC):
    """The state of each parameter from step to step, and where the noise comes from.

    Attributes:
        state: {parameter: {name: tensor}}, as in `torch.optim.Optimizer`.
    """

    state: Any

    @abc.abstractmethod
    def generator_on(self, device: torch.device) -> torch.Generator | None:
        """The generator of the noise on a device; None for torch's own."""

    def normal_like(self, tensors: Tensors) -> list[torch.Tensor]:
        """Independent standard normal numbers in the shape of each tensor."""
        return self._random_like(tensors, torch.randn)

    def sign_like(self, tensors: Tensors) -> list[torch.Tensor]:
        """Independent signs, +1 or -1, in the shape of each tensor."""

        def signs(size: int, dtype: torch.dtype, **options: Any) -> torch.Tensor:
            return torch.randint(2, (size,), **options).to(dtype).mul_(2.0).sub_(1.0)

        return self._random_like(tensors, signs)

    def _random_like(self, tensors: Tensors, draw: Callable[..., Any]) -> list[torch.Tensor]:
        # One vector for each device and dtype: many small parameters cost one call.
        places: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for place, tensor in enumerate(tensors):
            places.setdefault((tensor.device, tensor.dtype), []).append(place)
        drawn: list[torch.Tensor] = list(tensors)
        for (device, dtype), where in places.items():
            sizes = [tensors[place].numel() for place in where]
            generator = self.generator_on(device)
            flat = draw(sum(sizes), dtype=dtype, device=device, generator=generator)
            for place, part in zip(where, flat.split(sizes), strict=True):
                drawn[place] = part.view(tensors[place].shape)
        return drawn

    def entries(
        self, name: str, parameters: Tensors, make: Callable[[Tensors], Tensors]
    ) -> list[torch.Tensor]:
        """The state `name` of each parameter, made by make(parameters) where there is none."""
        new = [p for p in parameters if name not in self.state[p]]
        if new:
            for parameter, value in zip(new, make(new), strict=True):
                self.state[parameter][name] = value
        return [self.state[p][name] for p in parameters]

    def momenta(self, group: Group, parameters: Tensors) -> list[torch.Tensor]:
        """The momentum of each parameter, drawn from N(0, T m) where there is none."""
        spread = math.sqrt(group["temperature"] * group["mass"])
        make = lambda new: foreach("mul", self.normal_like(new), spread)  # noqa: E731
        return self.entries("momentum", parameters, make)


def settings_of(group: Group, *names: str) -> Group:
    """Some settings of a group, by name."""
    return {name: group[name] for name in names}
