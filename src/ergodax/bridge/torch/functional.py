"""The samplers as functions of a state, for `torch.func`: many chains at once by vmap."""

# pyright: reportMissingImports=false
import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree

from ergodax.bridge.torch.base import Sampler, check_dtype, potential_gradients
from ergodax.bridge.torch.memory import Memory, Tensors
from ergodax.bridge.torch.module import Named, named_tensors, parameters_of
from ergodax.checks import real_number


@dataclasses.dataclass(frozen=True)
class State:
    """Where a chain is; a pytree of torch, whose leaves may have a leading axis of chains.

    Attributes:
        params: {name: tensor}, as `torch.func.functional_call` takes them.
        auxiliary: {"momentum": {name: tensor}, ...}, what else the sampler moves; a thermostat
            that all share stands under the first name.
        step: updates so far, the same for all chains.
    """

    params: dict[str, Any]  # not Named: torch.func rebuilds it with leaves of its own
    auxiliary: dict[str, dict[str, Any]]
    step: int = 0


def _state_of(children: Iterable[Any], step: Any) -> State:
    params, auxiliary = children
    return State(params, auxiliary, step)


_pytree.register_pytree_node(State, lambda s: ([s.params, s.auxiliary], s.step), _state_of)


class Functional:
    """A sampler as two functions, `init` and `update`: the optimizer's own step, on copies.

    State, H, D, Q and the update equation are those of the sampler's class. Nothing is changed in
    place, so that `torch.func.vmap(..., randomness="different")` runs many chains, each with noise
    of its own; "same" gives all the same noise.

    Args:
        sampler: the class: SGLD, SGHMC, SGNHT, PSGLD or RSGLD.
        settings: its arguments besides `params`, such as `lr` and `num_data`; one for all
            parameters and all chains. A log prior as `prior` is here a function of the dict of
            parameters. `generator` is an argument of `init` and `update`, and `check_finite` has
            no effect: look at the draws, as `Draws` does.

    Raises:
        TypeError: no such class, or a setting of the wrong kind.
        ValueError: a number out of range.

    Example:
        >>> import torch
        >>> from torch.func import functional_call, grad, stack_module_state, vmap
        >>> from ergodax.bridge import torch as et
        >>> x, y = torch.randn(100, 3), torch.randint(2, (100,))
        >>> models = [torch.nn.Linear(3, 2) for _ in range(4)]
        >>> def loss(params, x, y):
        ...     outputs = functional_call(models[0], params, (x,))
        ...     return torch.nn.functional.cross_entropy(outputs, y)
        >>> kernel = et.Functional(et.SGHMC, lr=1e-2, friction=1.0, num_data=100)
        >>> def step(state, x, y):
        ...     return kernel.update(state, grad(loss)(state.params, x, y))
        >>> params, _ = stack_module_state(models)
        >>> state = vmap(kernel.init, randomness="different")(params)
        >>> steps = vmap(step, in_dims=(0, None, None), randomness="different")
        >>> for _ in range(5):
        ...     state = steps(state, x, y)
        >>> state.params["weight"].shape
        torch.Size([4, 2, 3])
    """

    def __init__(self, sampler: Any, **settings: Any) -> None:
        if not (isinstance(sampler, type) and issubclass(sampler, Sampler)):
            raise TypeError(f"sampler must be a class such as SGHMC, not {sampler!r}.")
        if "generator" in settings:
            raise TypeError("generator is an argument of init and update, not a setting.")
        self.sampler: type[Sampler] = sampler
        # The constructor checks the settings and knows their defaults.
        self.settings = sampler([torch.zeros(1)], **settings).param_groups[0]

    def init(self, params: Any, *, generator: torch.Generator | None = None) -> State:
        """The first state: the parameters, copied, and a momentum where there is one.

        Args:
            params: {name: tensor}, or a module, whose parameters with a gradient are taken.
            generator: of the momentum; by default torch's own.

        Raises:
            TypeError: not a dict of tensors, or a tensor that is not of full precision.
            ValueError: a module with BatchNorm or dropout in training mode.
        """
        if isinstance(params, torch.nn.Module):
            params = parameters_of(params)
        params = named_tensors("params", params)
        for parameter in params.values():
            check_dtype(parameter)
        return self._moved(State(params, {}), None, None, generator)

    def update(
        self,
        state: State,
        gradients: Any,
        *,
        lr: Any = None,
        normals: Any = None,
        generator: torch.Generator | None = None,
    ) -> State:
        """The state after one step.

        Args:
            state: from `init` or `update`.
            gradients: of the MEAN loss over a minibatch at state.params, {name: tensor}; N and the
                prior are added here, as by the optimizers.
            lr: h of this step, where a schedule gives it; by default the kernel's own.
            normals: standard normal numbers like the parameters; by default they are drawn.
            generator: of the noise; by default torch's own.

        Raises:
            TypeError: not a dict of tensors.
            ValueError: gradients or normals of other names or shapes than the parameters.
        """
        if lr is not None:
            real_number("lr", lr, above=0.0)
        gradients = named_tensors("gradients", gradients, state.params)
        if normals is not None:
            normals = named_tensors("normals", normals, state.params)
        return self._moved(state, gradients, normals, generator, lr)

    @torch.no_grad()
    def _moved(
        self,
        state: State,
        gradients: Named | None,
        normals: Named | None,
        generator: torch.Generator | None,
        lr: Any = None,
    ) -> State:
        """A copy of the state, moved where there are gradients, else begun."""
        names = list(state.params)
        parameters = [x.detach().clone() for x in state.params.values()]
        group = {**self.settings, "params": parameters}
        if lr is not None:
            group["lr"] = lr
        if callable(prior := group["prior"]):
            group["prior"] = lambda tensors: prior(dict(zip(names, tensors, strict=True)))
        memory = _Copy(state, parameters, normals, generator)
        if gradients is None:
            self.sampler.start(memory, group, parameters)
        else:
            slopes = potential_gradients(group, parameters, list(gradients.values()))
            self.sampler.move(memory, group, parameters, slopes)
        return memory.as_state(names, state.step + (gradients is not None))


class _Copy(Memory):
    """A copy of a state, which a sampler may change in place."""

    def __init__(
        self,
        state: State,
        parameters: Tensors,
        normals: Named | None,
        generator: torch.Generator | None,
    ) -> None:
        self.generator, self.normals = generator, normals
        self.state: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        self.parameters = parameters
        for name, parameter in zip(state.params, parameters, strict=True):
            own = {
                key: named[name].clone() for key, named in state.auxiliary.items() if name in named
            }
            self.state[parameter] = {**own, "step": state.step}

    def generator_on(self, device: torch.device) -> torch.Generator | None:
        return self.generator

    def normal_like(self, tensors: Tensors) -> list[torch.Tensor]:
        return super().normal_like(tensors) if self.normals is None else [*self.normals.values()]

    def as_state(self, names: list[str], step: int) -> State:
        auxiliary: dict[str, Named] = {}
        for name, parameter in zip(names, self.parameters, strict=True):
            for key, value in self.state[parameter].items():
                if key != "step":
                    auxiliary.setdefault(key, {})[name] = value
        return State(dict(zip(names, self.parameters, strict=True)), auxiliary, step)
