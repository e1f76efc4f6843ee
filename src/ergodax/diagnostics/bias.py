"""The bias of a finite step size or batch, measured by running at two of them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from ergodax.diagnostics.coupling import Coupled
from ergodax.driver import Samples, sample
from ergodax.driver.summary import summarise


@dataclasses.dataclass(frozen=True)
class BiasReport:
    """What `bias` and `batch_bias` return; `str` is the table.

    Attributes:
        table: a pandas DataFrame, rows (component, "mean") and (component, "sd"). Columns:
            `estimate` and `mcse` of the finer run; `bias` of the finer run and its standard error
            `bias_error`; `bias_coarse`, of the coarser run; `extrapolated`, the estimate without
            the bias, and its standard error `error`.
        coarse: the coarser setting, a step size or batch size.
        fine: the finer.
        ratio: the coarser run's bias in units of the finer one's.
        evaluations: gradients of single examples that both runs took.
        samples: of both runs, under "coarse" and "fine".
    """

    table: Any
    coarse: int | float
    fine: int | float
    ratio: float
    evaluations: int
    samples: Samples

    def worst(self, *, coarse: bool = False, errors: float = 2.0) -> float:
        """The largest |bias| + 2 standard errors, in posterior standard deviations.

        Args:
            coarse: of the coarser run instead of the finer.
            errors: how many standard errors; -2 gives what the bias is at least.
        """
        sds = self.table["estimate"].xs("sd", level=1)
        scale = self.table.index.get_level_values(0).map(sds)
        bound = (self.table["bias"].abs() + errors * self.table["bias_error"]) / scale
        return float(bound.max()) * (self.ratio if coarse else 1.0)

    def of(self, function: Callable[[PyTree], PyTree]) -> "BiasReport":
        """The same of a function of what was looked at.

        Args:
            function: draws, leaves with leading axes chains and draws, -> any such tree; by NumPy.
        """
        position = {run: function(draws) for run, draws in self.samples.position.items()}
        samples = Samples(position, self.samples.info, self.samples.final_state)
        table = _table(samples, 1.0 / (self.ratio - 1.0))
        return dataclasses.replace(self, table=table, samples=samples)

    def __str__(self) -> str:
        """The table, under a line that says what was compared."""
        head = f"{self.coarse:g} against {self.fine:g}; {self.evaluations:,} gradient evaluations"
        return f"{head}\n{self.table.to_string(float_format=lambda x: f'{x:.4g}')}"


def bias(
    make_kernel: Callable[[float], Any],
    position: PyTree,
    step_size: float,
    num_steps: int,
    *,
    key: Any,
    order: int | float = 1,
    function: Callable[[PyTree], PyTree] | None = None,
    num_chains: int = 4,
    burn_in: int = 0,
    thin: int = 1,
    couple: bool = True,
    progress: bool = True,
) -> BiasReport:
    """Measure the bias of a step size: run at h and h / 2 with common random numbers.

    Where the bias is c h^p, the averages f_h and f_(h/2) give c (h/2)^p =
    (f_h - f_(h/2)) / (2^p - 1), and subtracting it extrapolates (Richardson). A step size's bias
    has two parts, that of the discretisation and that of the gradient's noise; halving h shrinks
    both.

    Args:
        make_kernel: step size -> kernel.
        position: where all chains start.
        step_size: h of the coarser run.
        num_steps: steps of size h of each chain after burn-in; the finer run takes twice as many.
        key: a key of `jax.random.key`.
        order: p: 1 for Euler schemes and for noise that is not compensated, 2 for BAOAB with
            exact gradients and for NOGIN.
        function: position -> what to look at, any tree of arrays; by default the position.
        num_chains: independent pairs of chains.
        burn_in: steps of size h before the first that counts.
        thin: steps of size h to a draw.
        couple: drive both runs by the same normal numbers: chains that contract towards each other
            then differ by their bias and little else. Not for samplers that draw normal numbers
            inside a compiled loop or condition of their own.
        progress: show a bar.

    Returns:
        A BiasReport.

    Raises:
        ValueError: a step size or order that is not positive, or a sampler that can't be coupled.
        DivergenceError: from `sample`.
    """
    if not step_size > 0:
        raise ValueError(f"step_size must be positive, not {step_size!r}.")
    if not order > 0:
        raise ValueError(f"order must be positive, not {order!r}. Try 1.")
    kernel = Coupled(make_kernel(step_size), make_kernel(0.5 * step_size), 2, couple)
    settings = _Run(num_steps, burn_in, thin, num_chains, progress)
    samples = settings.sample(kernel, position, function, key)
    table = _table(samples, 1.0 / (2.0**order - 1.0))
    return BiasReport(table, step_size, 0.5 * step_size, 2.0**order, _cost(samples, thin), samples)


def batch_bias(
    make_kernel: Callable[[int], Any],
    position: PyTree,
    batch_size: int,
    num_steps: int,
    *,
    key: Any,
    num_data: int | None = None,
    function: Callable[[PyTree], PyTree] | None = None,
    num_chains: int = 4,
    burn_in: int = 0,
    thin: int = 1,
    couple: bool = True,
    progress: bool = True,
) -> BiasReport:
    """Measure the bias that a batch brings: run with n and 2 n examples at one step size.

    The noise's part of the bias is linear in the gradient's covariance, so proportional to
    1/n - 1/N for batches without replacement and to 1/n with. What it is extrapolated to is the
    full gradient at the same step size, whose own bias is for `bias` to measure.

    Args:
        make_kernel: batch size -> kernel.
        position: where all chains start.
        batch_size: n of the coarser run.
        num_steps: steps of each chain after burn-in.
        key: a key of `jax.random.key`.
        num_data: N, for batches without replacement; None for batches with replacement.
        function: see `bias`.
        num_chains: independent pairs of chains.
        burn_in: steps before the first that counts.
        thin: steps to a draw.
        couple: see `bias`.
        progress: show a bar.

    Returns:
        A BiasReport.

    Raises:
        ValueError: a batch size below 1 or above N / 2, or a sampler that can't be coupled.
        DivergenceError: from `sample`.
    """
    rows = np.inf if num_data is None else num_data
    if not 1 <= batch_size <= rows / 2:
        raise ValueError(f"batch_size must lie between 1 and num_data / 2, not {batch_size!r}.")
    kernel = Coupled(make_kernel(batch_size), make_kernel(2 * batch_size), 1, couple)
    settings = _Run(num_steps, burn_in, thin, num_chains, progress)
    samples = settings.sample(kernel, position, function, key)
    share = 1.0 - 2.0 * batch_size / rows
    ratio = (1.0 + share) / share if share else np.inf
    cost = _cost(samples, thin)
    return BiasReport(_table(samples, share), batch_size, 2 * batch_size, ratio, cost, samples)


class _Collect(eqx.Module):
    """What a user's function makes of both chains' positions."""

    function: Callable[[PyTree], PyTree]

    def __call__(self, positions: dict[str, PyTree]) -> dict[str, PyTree]:
        return {name: self.function(position) for name, position in positions.items()}


@dataclasses.dataclass(frozen=True)
class _Run:
    num_steps: int
    burn_in: int
    thin: int
    num_chains: int
    progress: bool

    def sample(
        self,
        kernel: Coupled,
        position: PyTree,
        function: Callable[[PyTree], PyTree] | None,
        key: Any,
    ) -> Samples:
        """Burn-in draws are made and left out: a burn-in of its own is one more program."""
        early = -(-self.burn_in // self.thin)
        samples = sample(
            kernel,
            position,
            self.num_steps + early * self.thin,
            key=key,
            num_chains=self.num_chains,
            thin=self.thin,
            collect=None if function is None else _Collect(function),
            progress=self.progress,
        )
        return samples.without(early)


def _cost(samples: Samples, thin: int) -> int:
    return thin * int(np.sum(samples.info.evaluations, dtype=np.int64))


def _table(samples: Samples, share: float) -> Any:
    """The rows of both kinds; the finer run's bias is `share` times the difference of the two."""
    import pandas as pd

    summary = summarise(_draws(samples, "fine"))
    coarse, fine = (_columns(_draws(samples, name)) for name in ("coarse", "fine"))
    tables = {
        "mean": pd.DataFrame(_rows(coarse, fine, share), index=summary.index),
        "sd": pd.DataFrame(_rows(*_squares(coarse, fine), share), index=summary.index),
    }
    # The mean of the squares differs from the sd by the same number in both runs.
    shift = summary["sd"] - tables["sd"]["estimate"]
    tables["sd"][["estimate", "extrapolated"]] = tables["sd"][["estimate", "extrapolated"]].add(
        shift, axis=0
    )
    table = pd.concat(tables).swaplevel()
    return table.loc[[(name, kind) for name in summary.index for kind in tables]]


def _draws(samples: Samples, run: str) -> dict[str, np.ndarray]:
    """One run's draws, float64; a single quantity is called by no name but "position"."""
    return {
        name.removeprefix(run).lstrip(".") or "position": np.asarray(draws, np.float64)
        for name, draws in samples.named().items()
        if name.split(".")[0] == run
    }


def _columns(draws: dict[str, np.ndarray]) -> np.ndarray:
    """All components, shape (chains, draws, components)."""
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in draws.values()], axis=-1)


def _rows(coarse: np.ndarray, fine: np.ndarray, share: float) -> dict[str, np.ndarray]:
    """Averages and their standard errors."""
    gap, better = coarse - fine, fine + share * (fine - coarse)
    return {
        "estimate": fine.mean(axis=(0, 1)),
        "mcse": _mcse(fine),
        "bias": share * gap.mean(axis=(0, 1)),
        "bias_error": share * _mcse(gap),
        "bias_coarse": (1.0 + share) * gap.mean(axis=(0, 1)),
        "extrapolated": better.mean(axis=(0, 1)),
        "error": _mcse(better),
    }


def _mcse(draws: np.ndarray) -> np.ndarray:
    """Of the mean, by ArviZ."""
    from arviz_stats.base.array import array_stats

    mcse: Any = array_stats.mcse
    with np.errstate(invalid="ignore", divide="ignore"):
        return mcse(draws, method="mean", chain_axis=0, draw_axis=1)


def _squares(coarse: np.ndarray, fine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Series whose means in the two runs differ by the difference of the sds."""
    pooled = sum(x.std(axis=(0, 1)) for x in (coarse, fine))
    scale = np.where(pooled > 0, pooled, 1.0)

    def series(draws: np.ndarray) -> np.ndarray:
        return (draws - draws.mean(axis=(0, 1))) ** 2 / scale

    return series(coarse), series(fine)
