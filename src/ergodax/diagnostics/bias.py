"""The bias of a finite step size or batch, measured by coupled runs at two of them."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, flag, real_number, whole_number
from ergodax.driver import Samples, sample
from ergodax.kernel import Info, Kernel, check_kernel
from ergodax.stats.draws import check_unweighted, columns
from ergodax.stats.estimators import FEWEST as FEWEST_DRAWS
from ergodax.stats.estimators import standard_error

MOST_COPIED = 10_000  # numbers, at every step, for one program in place of two
FEWEST = 20  # draws of a run that is cut short, of which a bias can be told


@dataclasses.dataclass(frozen=True)
class BiasReport:
    """What `bias` and `batch_bias` return; `str` is the table.

    Attributes:
        coarse: the coarser setting, a step size or batch size.
        fine: the finer.
        ratio: the coarser run's bias in units of the finer one's.
        evaluations: gradients of single examples that both runs took.
        samples: of both runs, under "coarse" and "fine".
    """

    coarse: int | float
    fine: int | float
    ratio: float
    evaluations: int
    samples: Samples

    @functools.cached_property
    def table(self) -> Any:
        """A pandas DataFrame, rows (component, "mean") and (component, "sd").

        Columns: `estimate` and `mcse` of the finer run; `bias` of the finer run and its standard
        error `bias_error`; `bias_coarse`, of the coarser run; `extrapolated`, the estimate without
        the bias, and its standard error `error`.
        """
        return _table(self.samples, 1.0 / (self.ratio - 1.0))

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
        return dataclasses.replace(self, samples=samples)

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
    max_seconds: float | None = None,
    positions: PyTree = None,
) -> BiasReport:
    """Measure the bias of a step size: run at h and h / 2 with common random numbers.

    Where the bias is c h^p, the averages f_h and f_(h/2) give c (h/2)^p =
    (f_h - f_(h/2)) / (2^p - 1), and subtracting it extrapolates (Richardson). The bias of the
    discretisation and that of the gradient's noise both shrink with h.

    Args:
        make_kernel: step size -> kernel.
        position: where all chains start, or None with `positions`.
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
        max_seconds: end with the draws so far when so much time has passed; by default never.
        positions: instead of `position`, one start for each chain along a leading axis.

    Raises:
        ValueError: a step size or order that is not positive, or a sampler that can't be coupled.
        DivergenceError: from `sample`.
        TimeoutError: hardly a draw was made in `max_seconds`.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> gradient = ex.FullGradient(target)
        >>> report = ex.diagnostics.bias(
        ...     lambda h: ex.sgld(gradient, h), jnp.zeros(2), 0.2, 5_000, key=jax.random.key(0),
        ...     progress=False,
        ... )
        >>> bool(report.table.loc[("position[0]", "sd"), "bias_coarse"] > 0.0)  # Euler's: too wide
        True
    """
    real_number("step_size", step_size, above=0.0)
    real_number("order", order, above=0.0, hint="Try 1.")
    callable_function("make_kernel", make_kernel)
    kernel = coupled(make_kernel, step_size, flag("couple", couple))
    settings = {"num_chains": num_chains, "progress": progress, "max_seconds": max_seconds}
    settings["positions"] = positions
    samples = _sample(kernel, position, num_steps, key, function, burn_in, thin, **settings)
    if max_seconds is not None and samples.num_draws < min(FEWEST, num_steps // thin):
        raise TimeoutError(
            f"{samples.num_draws} draws in max_seconds={max_seconds:g} do not tell a bias."
        )
    return BiasReport(step_size, 0.5 * step_size, 2.0**order, _cost(samples, thin), samples)


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

    Raises:
        ValueError: a batch size below 1 or above N / 2, or a sampler that can't be coupled.
        DivergenceError: from `sample`.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> report = ex.diagnostics.batch_bias(
        ...     lambda n: ex.sgld(ex.Minibatch(model, n), 1e-3), jnp.float32(1.0), 10, 5_000,
        ...     key=jax.random.key(0), num_data=100, progress=False,
        ... )
        >>> bool(report.table.loc[("position", "sd"), "bias_coarse"] > 0.0)  # too wide
        True
    """
    rows = np.inf if num_data is None else num_data
    if not 1 <= batch_size <= rows / 2:
        raise ValueError(f"batch_size must lie between 1 and num_data / 2, not {batch_size!r}.")
    callable_function("make_kernel", make_kernel)
    pair = check_kernel(make_kernel(batch_size)), check_kernel(make_kernel(2 * batch_size))
    kernel = Coupled(*pair, 1, flag("couple", couple))
    settings = {"num_chains": num_chains, "progress": progress}
    samples = _sample(kernel, position, num_steps, key, function, burn_in, thin, **settings)
    share = 1.0 - 2.0 * batch_size / rows
    ratio = (1.0 + share) / share if share else np.inf
    cost = _cost(samples, thin)
    return BiasReport(batch_size, 2 * batch_size, ratio, cost, samples)


class CoupledState(eqx.Module):
    """The states of the two chains; `position` has both positions, "coarse" and "fine"."""

    coarse: Any
    fine: Any

    @property
    def position(self) -> dict[str, PyTree]:
        """Where the two chains stand."""
        return {"coarse": self.coarse.position, "fine": self.fine.position}


class Coupled(Kernel):
    """A coarse chain and a fine one that takes several steps to one of it.

    The normal numbers of a coarse step are the sums of the fine steps', scaled to unit variance,
    and its batch is the first of theirs. Each chain keeps its own law, exactly. Where the dynamics
    contract, the chains stay close, and the difference of two averages has a far smaller variance
    than that of independent chains.
    """

    coarse: Any
    fine: Any  # the same sampler with another setting
    substeps: int = eqx.field(static=True, default=1)  # fine steps to one coarse step
    shared: bool = eqx.field(static=True, default=True)  # False for two independent chains

    def init(self, key: PRNGKeyArray, position: PyTree) -> CoupledState:
        """Both chains from the same place, with the same momentum."""
        return CoupledState(self.coarse.init(key, position), self.fine.init(key, position))

    def step(self, key: PRNGKeyArray, state: CoupledState) -> tuple[CoupledState, Info]:
        """`substeps` fine steps, then the coarse one with their noise."""
        numbers = jnp.arange(self.substeps + 1, dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)

        def substep(fine: PyTree, key: PRNGKeyArray) -> tuple[Any, tuple[list[PyTree], Info]]:
            record = tree.recorded_normals() if self.shared else contextlib.nullcontext([])
            with record as normals:
                fine, info = self.fine.step(key, fine)
            return fine, (normals, info)

        # A loop, though it is short: a step is most of the program to be compiled.
        fine, (drawn, infos) = lax.scan(substep, state.fine, keys[:-1])
        if self.shared:
            with tree.given_normals([_combined(normal) for normal in drawn]):
                coarse, info = self.coarse.step(keys[0], state.coarse)
        else:
            coarse, info = self.coarse.step(keys[-1], state.coarse)
        check_unweighted(info, "diagnostics.bias")
        return CoupledState(coarse, fine), _all_steps(infos, info)


def _combined(normals: PyTree) -> PyTree:
    """Independent normal trees along a leading axis, summed and scaled to unit variance."""
    return jax.tree.map(lambda x: jnp.sum(x, axis=0) / math.sqrt(len(x)), normals)


def _all_steps(infos: Info, last: Info) -> Info:
    """The coarse step's Info, with what concerns all the steps."""
    every = {
        "finite": jnp.all(infos.finite) & last.finite,
        "evaluations": jnp.sum(infos.evaluations, dtype=jnp.int32) + last.evaluations,
    }
    if infos.feasible is not None and last.feasible is not None:
        every["feasible"] = jnp.all(infos.feasible) & last.feasible
    names = list(every)
    return eqx.tree_at(
        lambda info: [getattr(info, name) for name in names], last, [every[n] for n in names]
    )


class Halved(Kernel):
    """`Coupled`, for a sampler at a step and at half of it, with one program for the steps of both.

    A step is most of what is to be compiled, so all are turns of one loop, each with the arrays of
    its own sampler. With independent normal numbers a and b the fine steps have (a + b) / sqrt(2)
    and (a - b) / sqrt(2), and the coarse step has a.
    """

    common: Any  # the sampler, with None for the arrays in `own`
    own: tuple[Any, Any]  # what only the coarse one has, and only the fine one
    shared: bool = eqx.field(static=True, default=True)

    @property
    def pair(self) -> Coupled:
        """The same with a program for each sampler."""
        coarse, fine = (eqx.combine(self.common, own) for own in self.own)
        return Coupled(coarse, fine, 2, self.shared)

    def init(self, key: PRNGKeyArray, position: PyTree) -> CoupledState:
        """Both chains from the same place, with the same momentum."""
        own = jax.tree.map(lambda *x: jnp.stack(x), *self.own)
        states = eqx.filter_vmap(lambda x: eqx.combine(self.common, x).init(key, position))(own)
        return CoupledState(*(jax.tree.map(lambda x, i=i: x[i], states) for i in range(2)))

    def step(self, key: PRNGKeyArray, state: CoupledState) -> tuple[CoupledState, Info]:
        """Two fine steps, then the coarse one with their noise."""
        if sum(x.size for x in jax.tree.leaves(state)) > MOST_COPIED:
            return self.pair.step(key, state)
        numbers = jnp.arange(3, dtype=jnp.int32)
        first, second, third = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
        keys = jnp.stack([first, second, first if self.shared else third])
        half = math.sqrt(0.5)
        weights = jnp.array([[half, half], [half, -half], [1.0, 0.0]])

        def turn(state: CoupledState, given: tuple[Any, ...]) -> tuple[CoupledState, Info]:
            key, weights, coarse = given
            either = functools.partial(jax.tree.map, lambda *x: jnp.where(coarse, *x))
            kernel = eqx.combine(self.common, either(*self.own))
            noise = tree.mixed_normals(third, weights) if self.shared else contextlib.nullcontext()
            with noise:
                new, info = kernel.step(key, either(state.coarse, state.fine))
            return CoupledState(either(new, state.coarse), either(state.fine, new)), info

        state, infos = lax.scan(turn, state, (keys, weights, numbers == 2))
        fine, coarse = (jax.tree.map(lambda x, at=at: x[at], infos) for at in (slice(2), 2))
        check_unweighted(coarse, "diagnostics.bias")
        return state, _all_steps(fine, coarse)


def coupled(
    make_kernel: Callable[[float], Any], step_size: float, shared: bool = True
) -> Coupled | Halved:
    """A chain at a step size, with one at half of it."""
    pair = check_kernel(make_kernel(step_size)), check_kernel(make_kernel(0.5 * step_size))
    (leaves, structure), (others, other) = (jax.tree.flatten(kernel) for kernel in pair)
    if structure == other:
        # By identity: to compare arrays by value takes as long as they are large.
        both = list(zip(leaves, others, strict=True))
        apart = [(x, y) for x, y in both if x is not y]
        few = 0 < sum(np.size(x) for x, _ in apart) <= MOST_COPIED
        if few and all(map(_differ_in_numbers, apart)):
            parts = [(x, None, None) if x is y else (None, x, y) for x, y in both]
            common, *own = (structure.unflatten(part) for part in zip(*parts, strict=True))
            return Halved(common, tuple(own), shared)
    return Coupled(*pair, 2, shared)


def _differ_in_numbers(leaves: tuple[Any, Any]) -> bool:
    """Whether two leaves are arrays of one kind."""
    arrays = all(map(eqx.is_array, leaves))
    return arrays and len({(x.shape, x.dtype) for x in leaves}) == 1


class _Collect(eqx.Module):
    """What a user's function makes of both chains' positions."""

    function: Callable[[PyTree], PyTree]

    def __call__(self, positions: dict[str, PyTree]) -> dict[str, PyTree]:
        return {name: self.function(position) for name, position in positions.items()}


def _sample(
    kernel: Coupled | Halved,
    position: PyTree,
    num_steps: int,
    key: PRNGKeyArray,
    function: Callable[[PyTree], PyTree] | None,
    burn_in: int,
    thin: int,
    **settings: Any,
) -> Samples:
    """Burn-in draws are made and left out: a burn-in of its own is one more program."""
    thin, burn_in = whole_number("thin", thin), whole_number("burn_in", burn_in, at_least=0)
    num_steps = whole_number("num_steps", num_steps)
    if function is not None:
        callable_function("function", function)
    early = -(-burn_in // thin)
    collect = None if function is None else _Collect(function)
    steps = num_steps + early * thin
    settings |= {"key": key, "thin": thin, "collect": collect}
    try:
        return sample(kernel, position, steps, **settings).without(early)
    except jax.errors.UnexpectedTracerError as error:  # a number of one turn, used outside it
        if not kernel.shared:
            raise  # it is the model's
        raise ValueError(
            "the sampler draws normal numbers within a compiled loop or condition, so that two "
            "runs can't share them. Pass couple=False."
        ) from error


def _cost(samples: Samples, thin: int) -> int:
    return thin * int(np.sum(samples.info.evaluations, dtype=np.int64))


def _table(samples: Samples, share: float) -> Any:
    """The rows of both kinds; the finer run's bias is `share` times the difference of the two."""
    import pandas as pd

    if samples.num_draws < FEWEST_DRAWS:
        raise ValueError(
            f"a bias needs at least {FEWEST_DRAWS} draws a chain, not {samples.num_draws}."
        )
    (coarse, _), (fine, names) = (columns(samples.position[run]) for run in ("coarse", "fine"))
    tables = {
        "mean": pd.DataFrame(_rows(coarse, fine, share), index=list(names)),
        "sd": pd.DataFrame(_rows(*_squares(coarse, fine), share), index=list(names)),
    }
    # The mean of the squares differs from the sd by the same number in both runs.
    shift = fine.std(axis=(0, 1), ddof=1) - tables["sd"]["estimate"]
    for kind in ("estimate", "extrapolated"):
        tables["sd"][kind] += shift
    table = pd.concat(tables).swaplevel()
    return table.loc[[(name, kind) for name in names for kind in tables]]


def _rows(coarse: np.ndarray, fine: np.ndarray, share: float) -> dict[str, np.ndarray]:
    """Averages and their standard errors."""
    gap, better = coarse - fine, fine + share * (fine - coarse)
    return {
        "estimate": fine.mean(axis=(0, 1)),
        "mcse": standard_error(fine),
        "bias": share * gap.mean(axis=(0, 1)),
        "bias_error": share * standard_error(gap),
        "bias_coarse": (1.0 + share) * gap.mean(axis=(0, 1)),
        "extrapolated": better.mean(axis=(0, 1)),
        "error": standard_error(better),
    }


def _squares(coarse: np.ndarray, fine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Series whose means in the two runs differ by the difference of the sds."""
    pooled = sum(x.std(axis=(0, 1)) for x in (coarse, fine))
    scale = np.where(pooled > 0, pooled, 1.0)

    def series(draws: np.ndarray) -> np.ndarray:
        return (draws - draws.mean(axis=(0, 1))) ** 2 / scale

    return series(coarse), series(fine)
