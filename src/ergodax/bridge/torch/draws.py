"""The draws of a run in PyTorch: collected as it goes, predicting together, and for ArviZ."""

# pyright: reportMissingImports=false
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ergodax.bridge.torch.module import check_module, named_tensors, parameters_of
from ergodax.checks import flag, whole_number
from ergodax.driver.samples import Samples
from ergodax.network.predictive import Prediction, predict_from_outputs


class Draws:
    """The parameters after every `thin`-th step, once the burn-in is over.

    Call `collect` after every step: it counts them. Draws are kept on the CPU, as copies.

    Args:
        burn_in: steps that are not kept.
        thin: keep every so many-th step after them.
        chains: whether every tensor has a leading axis of chains, as under `torch.func.vmap`.

    Attributes:
        steps: how often `collect` was called.

    Raises:
        TypeError: a number of the wrong kind.
        ValueError: a negative burn_in, or a thin below 1.

    Example:
        >>> import torch
        >>> import ergodax as ex
        >>> from ergodax.bridge import torch as et
        >>> x, y = torch.randn(100, 3), torch.randint(2, (100,))
        >>> model = torch.nn.Linear(3, 2)
        >>> sampler = et.SGLD(model, lr=1e-3, num_data=100)
        >>> draws = et.Draws(burn_in=20, thin=10)
        >>> for _ in range(60):
        ...     sampler.zero_grad()
        ...     torch.nn.functional.cross_entropy(model(x), y).backward()
        ...     _ = sampler.step()
        ...     _ = draws.collect(model)
        >>> len(draws)
        4
        >>> draws.predictive(model, x, ex.network.likelihoods.Categorical()).mean.shape
        (100, 2)
    """

    def __init__(self, *, burn_in: Any = 0, thin: Any = 1, chains: Any = False) -> None:
        self.burn_in = whole_number("burn_in", burn_in, at_least=0)
        self.thin = whole_number("thin", thin)
        self.chains = flag("chains", chains)
        self.steps = 0
        self._kept: list[dict[str, torch.Tensor]] = []

    def __len__(self) -> int:
        """Draws of each chain."""
        return len(self._kept)

    def collect(self, params: Any) -> bool:
        """Count a step, and keep its parameters if its turn has come.

        Args:
            params: the module, whose parameters with a gradient are kept, or {name: tensor}, such
                as the `params` of a `Functional`'s state.

        Returns:
            Whether they were kept.

        Raises:
            TypeError: neither of these.
            ValueError: a module with BatchNorm or dropout in training mode, or other names or
                shapes than before.
            FloatingPointError: a parameter is NaN or infinite; it is not kept.
        """
        due = self.steps >= self.burn_in and (self.steps + 1 - self.burn_in) % self.thin == 0
        if isinstance(params, torch.nn.Module) and (due or self.steps == 0):
            params = parameters_of(params)  # which refuses at the first step, not after burn-in
        if due:
            self._kept.append(self._checked(params))
        self.steps += 1
        return due

    def _checked(self, params: Any) -> dict[str, torch.Tensor]:
        """Copies on the CPU with an axis of chains, finite and like the draws before."""
        named = named_tensors("params", params)
        draw = {_raw(name): x.detach().to("cpu", copy=True) for name, x in named.items()}
        if not self.chains:
            draw = {name: x[None] for name, x in draw.items()}
        shapes = {name: tuple(x.shape) for name, x in draw.items()}
        if len({shape[:1] for shape in shapes.values()}) != 1 or () in shapes.values():
            raise ValueError(f"chains=True, but there is no common leading axis: {shapes}.")
        if self._kept and shapes != {n: tuple(x.shape) for n, x in self._kept[0].items()}:
            raise ValueError(f"the parameters differ from those of the draws before: {shapes}.")
        for name, x in draw.items():
            if not bool(torch.isfinite(x).all()):
                raise FloatingPointError(
                    f"{name} is NaN or infinite after step {self.steps + 1}. Try an lr ten times "
                    f"smaller; the {len(self)} draws before are kept."
                )
        return draw

    @classmethod
    def joined(cls, *runs: "Draws") -> "Draws":
        """The draws of several runs as chains, shortened to the shortest run.

        Args:
            runs: Draws of the same parameters.

        Raises:
            ValueError: no run, a run without draws, or runs of different parameters.
        """
        if not runs or not all(runs):
            raise ValueError("a run has no draws. Try more steps, or a smaller burn_in.")
        joined = cls(burn_in=runs[0].burn_in, thin=runs[0].thin, chains=True)
        joined.steps = min(run.steps for run in runs)
        for draws in zip(*(run._kept for run in runs), strict=False):
            if any(draw.keys() != draws[0].keys() for draw in draws):
                raise ValueError("the runs have different parameters.")
            joined._kept.append({n: torch.cat([draw[n] for draw in draws]) for n in draws[0]})
        return joined

    def samples(self) -> Samples:
        """The draws as `ex.sample` returns them: summaries, ArviZ, saving, diagnostics.

        Raises:
            ValueError: there are no draws.
        """
        if not self._kept:
            raise ValueError(f"no draw in {self.steps} steps. Try more, or a smaller burn_in.")
        names = self._kept[0]
        position = {n: np.stack([x[n].numpy() for x in self._kept], axis=1) for n in names}
        return Samples(position, None, None)

    def summary(self) -> Any:
        """Mean, sd, mcse, ess and r_hat of each number: see `ex.Samples.summary`."""
        return self.samples().summary()

    def to_arviz(self, **options: Any) -> Any:
        """An ArviZ DataTree with the group `posterior`: see `ex.Samples.to_arviz`."""
        return self.samples().to_arviz(**options)

    def predictive(
        self,
        model: Any,
        inputs: Any,
        likelihood: Any,
        targets: Any = None,
        *,
        chunk_size: Any = 16,
        batch_size: Any = None,
    ) -> Prediction:
        """What all draws of all chains predict together.

        Args:
            model: what the parameters belong to; it keeps its own. Those that it has and the draws
                have not, such as frozen layers, predict as they are in it.
            inputs: the rows to predict for, shape (n, ...), on the model's device.
            likelihood: what an output means, of `ergodax.network.likelihoods`: Categorical(),
                Bernoulli() or Gaussian(noise).
            targets: of these rows, to be scored.
            chunk_size: draws at once, by vmap; 1 for models that vmap does not take.
            batch_size: rows at once; by default all.

        Returns:
            A Prediction: `mean`, its variance among draws `spread`, and with targets their
            `log_density`.

        Raises:
            TypeError: not a module or one that returns no tensor, no tensor of inputs, or no
                likelihood.
            ValueError: no draws, draws of a parameter that the model lacks, a model with BatchNorm
                or dropout in training mode, or outputs or targets that do not fit.
        """
        whole_number("chunk_size", chunk_size)
        rows = len(inputs) if batch_size is None else whole_number("batch_size", batch_size)
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be an nn.Module, not {model!r}.")
        if not isinstance(inputs, torch.Tensor):
            raise TypeError(f"inputs must be a tensor, not {type(inputs).__name__}.")
        check_module(model)
        if lacking := [n for n in (self._kept or [{}])[0] if n not in _names_in(model)]:
            raise ValueError(
                f"the draws have {lacking}, which the model has not: its parameters are "
                f"{list(_names_in(model))}. Give the module whose parameters were drawn."
            )
        if targets is not None:
            targets = torch.as_tensor(targets).detach().cpu()
            # NumPy has no bfloat16.
            targets = (targets.float() if targets.dtype == torch.bfloat16 else targets).numpy()
        chunks = self._outputs(model, inputs, chunk_size, rows)
        return predict_from_outputs(chunks, likelihood, targets)

    @torch.no_grad()
    def _outputs(
        self, model: torch.nn.Module, inputs: torch.Tensor, size: int, rows: int
    ) -> Iterator[np.ndarray]:
        """The outputs of some draws at a time, shape (draws, n, ...)."""
        names = _names_in(model)

        def call(params: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
            own = {names[n]: x for n, x in params.items()}
            output = torch.func.functional_call(model, own, (batch,))
            if not isinstance(output, torch.Tensor):
                raise TypeError(
                    f"the model must return a tensor, not {type(output).__name__}. Try a module "
                    "around it whose forward returns the outputs alone, such as model(x)[0]."
                )
            return output

        every = [
            {n: x[chain] for n, x in draw.items()}
            for draw in self._kept
            for chain in range(len(next(iter(draw.values()))))
        ]
        for first in range(0, len(every), size):
            some = every[first : first + size]
            params = {n: torch.stack([x[n] for x in some]).to(inputs.device) for n in some[0]}
            parts = [
                torch.func.vmap(call, in_dims=(0, None))(params, batch)
                if size > 1
                else call({n: x[0] for n, x in params.items()}, batch)[None]
                for batch in inputs.split(rows)
            ]
            yield torch.cat(parts, dim=1).cpu().double().numpy()  # autocast may give halves


def _raw(name: str) -> str:
    """A parameter's name without what torch.compile puts before it."""
    return name.replace("_orig_mod.", "")


def _names_in(model: torch.nn.Module) -> dict[str, str]:
    """The model's own name of each parameter and buffer, by the name that draws have for it."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    return {_raw(name): name for name, _ in tensors}
