"""A black-box check of a kernel: does it leave the target alone as h -> 0, and how fast?"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, numbers, real_number, whole_number
from ergodax.kernel import check_kernel, check_key
from ergodax.target.analytic import AnalyticTarget
from ergodax.verify.kernel_report import LOOKS, Bias, KernelReport

ALL_PAIRS = 6  # dimension up to which every product x_i x_j is watched
DRAWS = 2**13  # at once, while they are small
NUMBERS = 2**20  # coordinates at once
FRACTIONS = (0.4, 0.2, 0.1, 0.05)  # default step sizes, of the target's shortest time
STEPS = 4  # default duration, in the largest step size, at least
DOUBLINGS = 4  # of it, at most
FORGOTTEN = 0.5  # correlation with the start, below which an error has built up
PILOT = 2**11  # runs that look for it
MORE = 2  # times as many draws, at each of the LOOKS after the first


class Moments(eqx.Module):
    """The default functions: z_i, z_i z_j, cos(2 z_i) and U, with z the standardised position.

    In more than `ALL_PAIRS` dimensions the products are those of neighbours only.
    """

    target: AnalyticTarget
    centre: Float[Array, " d"]
    scale: Float[Array, " d"]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The i <= j whose products are watched."""
        d = self.centre.size
        reach = d if d <= ALL_PAIRS else 2
        return [(i, j) for i in range(d) for j in range(i, min(i + reach, d))]

    @property
    def names(self) -> tuple[str, ...]:
        """One for each value."""
        d = range(self.centre.size)
        products = [f"z{i}^2" if i == j else f"z{i} z{j}" for i, j in self.pairs]
        cosines = [f"cos(2 z{i})" for i in d]
        return (*(f"z{i}" for i in d), *products, *cosines, "potential")

    def __call__(self, position: Float[Array, " d"]) -> Float[Array, " functions"]:
        """All the values at one position."""
        z = (position - self.centre.astype(position.dtype)) / self.scale.astype(position.dtype)
        first, second = jnp.array(self.pairs).T
        potential = self.target.potential(position)[None]
        return jnp.concatenate([z, z[first] * z[second], jnp.cos(2 * z), potential])


class Given(eqx.Module):
    """A user's functions, by name."""

    functions: tuple[Callable[[Any], Any], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, position: Float[Array, " d"]) -> Float[Array, " functions"]:
        """All the values at one position."""
        values = [jnp.asarray(f(position), position.dtype) for f in self.functions]
        return jnp.stack(values)


def _as_functions(
    functions: Any,
    target: AnalyticTarget,
    source: AnalyticTarget,
) -> Moments | Given:
    """The user's functions by name, or the default ones for the law of `source`."""
    if functions is None:
        return Moments(target, source.mean, jnp.sqrt(jnp.diagonal(source.covariance)))
    if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
        raise TypeError(
            f"functions must map names to functions of a position, not {functions!r}. "
            'Try {"square": lambda x: x[0] ** 2}.'
        )
    if not functions:
        raise ValueError("functions is empty. Leave it out for the default ones.")
    for name, function in functions.items():
        shape = jax.eval_shape(function, source.mean).shape
        if shape != ():
            raise ValueError(
                f"functions[{name!r}] must return one number, not an array of shape {shape}. "
                "Name each component on its own."
            )
    return Given(tuple(functions.values()), tuple(functions))


class Trial(eqx.Module):
    """A kernel, the law its starts are drawn from, and what is watched.

    `prepare` is (key, state) -> state, after `init`; `temperature` the kinetic one at the start.
    """

    kernel: Any
    source: AnalyticTarget
    functions: Moments | Given
    temperature: Float[Array, ""]
    prepare: Callable[[Any, Any], Any] | None

    def start(self, key: PRNGKeyArray, position: Float[Array, " d"]) -> Any:
        """The first state."""
        key_init, key_prepare = jax.random.split(key)
        state = self.kernel.init(key_init, position)
        return state if self.prepare is None else self.prepare(key_prepare, state)

    def step(self, key: PRNGKeyArray, state: PyTree) -> tuple[Any, Float[Array, " functions"]]:
        """A step, and the functions after it; the kinetic temperature last, if Info has one."""
        state, info = self.kernel.step(key, state)
        values = self.functions(tree.thaw(state.position))
        kinetic = getattr(info, "kinetic_temperature", None)
        return state, values if kinetic is None else _append(values, kinetic)

    def tells_kinetic_temperature(self, key: PRNGKeyArray, position: Float[Array, " d"]) -> bool:
        """Whether Info has a kinetic temperature; nothing is computed."""
        values = jax.eval_shape(lambda k, x: self.step(k, self.start(k, x))[1], key, position)
        return values.size > len(self.functions.names)

    def run(
        self, key: PRNGKeyArray, position: Float[Array, " d"], count: Int[Array, ""]
    ) -> tuple[Float[Array, " functions"], Float[Array, "2 functions"]]:
        """The functions at the start, and how they change in one step and in `count`."""
        key_start, key_steps = jax.random.split(key)

        def one(t: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
            state, first, _ = carry
            state, last = self.step(jax.random.fold_in(key_steps, t), state)
            return state, jnp.where(t == 0, last, first), last

        before = self.functions(position)
        if self.tells_kinetic_temperature(key, position):
            before = _append(before, self.temperature)
        start = (self.start(key_start, position), before, before)
        _, first, last = lax.fori_loop(0, count, one, start)
        return before, jnp.stack([first, last]) - before[None]


def _append(values: Float[Array, " n"], value: Array) -> Float[Array, " functions"]:
    return jnp.append(values, tree.cast(value, values))


class Change(NamedTuple):
    """Over all runs at one step size: the functions' sd at the start, and what they changed by.

    The mean and its standard error are those of one step, and of all; `memory` is the correlation
    of the functions at the start and at the end.
    """

    spread: Float[np.ndarray, " functions"]
    mean: Float[np.ndarray, "2 functions"]
    error: Float[np.ndarray, "2 functions"]
    memory: Float[np.ndarray, " functions"]


class _Moments(NamedTuple):
    mean: Any
    variance: Any


class Runs:
    """Runs from exact draws, of `count` steps each; more can be added, chunk by chunk.

    Args:
        trial: the kernel, at one step size.
        key: for all of them.
        count: steps of a run.
        num_draws: how many are wanted at first, at least.
    """

    def __init__(self, trial: Trial, key: PRNGKeyArray, count: int, num_draws: int) -> None:
        self.trial, self.key, self.count = trial, key, jnp.int32(count)
        self.size = int(np.clip(NUMBERS // trial.source.mean.size, 1, min(DRAWS, num_draws)))
        self.parts: list[tuple[_Moments, ...]] = []
        self.finite = True

    def change(self, num_draws: int) -> Change | None:
        """What so many runs or a few more have changed.

        None, and no more chunks, where a moment is not finite: it has no part in any arithmetic.
        """
        while self.finite and len(self.parts) * self.size < num_draws:
            key = jax.random.fold_in(self.key, len(self.parts))
            self.parts.append(_chunk(self.trial, key, self.count, self.size))
            last = [moment for part in self.parts[-1] for moment in part]
            self.finite = all(np.isfinite(moment).all() for moment in last)
        if not self.finite:
            return None
        before, change, end = (_pooled(part) for part in zip(*self.parts, strict=True))
        error = np.sqrt(change.variance / (len(self.parts) * self.size))
        # Var(end - start) = Var(end) + Var(start) - 2 Cov; what is constant at the start has none.
        twice = end.variance + before.variance - change.variance[1]
        scale = 2.0 * np.sqrt(before.variance * end.variance)
        memory = np.divide(twice, scale, out=np.zeros_like(twice), where=scale > 0)
        return Change(np.sqrt(before.variance), change.mean, error, memory)


@eqx.filter_jit
def _chunk(
    trial: Trial, key: PRNGKeyArray, count: Int[Array, ""], size: int
) -> tuple[_Moments, _Moments, _Moments]:
    key_draws, key_runs = jax.random.split(key)
    positions = trial.source.sample(key_draws, size)
    keys = jax.random.split(key_runs, size)
    before, change = jax.vmap(trial.run, in_axes=(0, 0, None))(keys, positions, count)
    found = (before, change, before + change[:, 1])
    start, moved, end = (_Moments(x.mean(axis=0), x.var(axis=0)) for x in found)
    return start, moved, end


def _pooled(parts: Sequence[_Moments]) -> _Moments:
    """The moments of chunks of equal size, taken together, in double precision."""
    means = np.array([part.mean for part in parts], float)
    within = np.array([part.variance for part in parts], float)
    return _Moments(means.mean(axis=0), within.mean(axis=0) + means.var(axis=0))


def kernel(
    make_kernel: Any,
    target: Any,
    *,
    key: Any,
    step_sizes: Any = None,
    duration: float | None = None,
    temperature: float = 1.0,
    functions: Any = None,
    prepare: Callable[[Any, Any], Any] | None = None,
    num_draws: Any = 2**18,
    budget: float = 1e-6,
    tolerance: float = 0.1,
) -> KernelReport:
    """Check a kernel against a target that can be drawn from exactly.

    Runs start from independent exact draws, so a kernel whose limit is right has, for any
    function f and after any time t = k h, only a bias E f(X_k) - E f(X_0) that vanishes as
    h -> 0. It is measured on pairs (X_0, X_k), after one step and after `duration`, and
    extrapolated to h = 0:

        after `duration`, bias = a + b h^p + ...: a = 0 for a right limit, p is the weak order;
        after one step, bias / h -> E L f, with L the generator of the limit: 0 likewise.

    The weak order at a fixed time can be below that of the long run: semi-implicit SGHMC and
    BAOA are first order here, while their stationary x is second order and better. Gradient
    noise of a fixed covariance vanishes from the limit; to test a compensation, let it grow as
    1 / h. Whether a run reaches the target from elsewhere is not seen.

    An error of the stationary law builds up as the start is forgotten: a share 1 - r of it has
    after `duration`, with r the correlation of a function at the start and at the end. So the
    default duration is one after which r is small, and the report says which error of the
    stationary law would have been seen (`stationary_resolution`), as far as one rate describes
    how the start is forgotten.

    Args:
        make_kernel: step size h -> a kernel, of this library or with `init` and `step`, and
            with `position` in its states.
        target: an AnalyticTarget, the potential that the kernel samples, in `ergodax.targets`.
        key: a key of `jax.random.key`.
        step_sizes: three or more; `duration` is a whole number of each. By default 0.4, 0.2,
            0.1, 0.05 times the target's shortest time: 1 / k, with k the largest eigenvalue of
            E[grad^2 U], or 1 / sqrt(k) for kernels with a kinetic temperature, of mass 1. These
            are halved, up to 4 times, where the limit is not resolved to `tolerance`.
        duration: physical time, steps times h; by default 4 of the largest steps, doubled up to
            4 times until pilot runs forget half of where they began.
        temperature: T, which the kernel must have too: the draws are from exp(-U / T).
        functions: name -> function of a position; by default the coordinates, their products
            and cosines, and U. The kinetic temperature is added where Info has it.
        prepare: (key, state) -> state, for what `init` does not draw from its stationary law:
            the thermostat of `sgnht` is N(A, T / mu), and begins at A.
        num_draws: runs at each step size at first, rounded up to a whole number of chunks. Where
            a limit is suspicious, as at most one in ten of right ones is, they are doubled, up to
            4 times.
        budget: the probability of a false alarm, of all that is looked at.
        tolerance: the coarsest `resolution` at which a limit is called right.

    Returns:
        A report; printed, it says in one sentence what was found, and shows the table.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: a number out of range, a target without exact draws at this temperature, a
            kernel that does not move, or fewer than three step sizes at which it stays finite.

    Example:
        >>> import ergodax as ex, jax
        >>> target = ex.targets.gaussian(0.0, 1.0)
        >>> report = ex.verify.kernel(
        ...     lambda h: ex.hmc(target, h), target, key=jax.random.key(0), num_draws=20_000
        ... )
        >>> report.ok
        True

    Reference:
        Talay and Tubaro, Expansion of the global error for numerical schemes solving
        stochastic differential equations, 1990 (the expansion of the weak error in h).
    """
    _check(make_kernel, target, num_draws, budget, tolerance)
    key_scale, key_runs = jax.random.split(check_key(key))
    source = target.tempered(temperature)
    watched = _as_functions(functions, target, source)

    def trial(h: float) -> Trial:
        at = jnp.asarray(float(temperature))
        return Trial(check_kernel(make_kernel(h)), source, watched, at, prepare)

    unit = _shortest_time(trial, key_scale, temperature) if step_sizes is None else 1.0
    own = [fraction * unit for fraction in FRACTIONS]
    h, counts, time = _grid(own if step_sizes is None else step_sizes, duration)
    if duration is None:
        doubling = _forgetting(trial(float(h[0])), jax.random.fold_in(key_scale, 1), counts[0])
        counts, time = [doubling * count for count in counts], doubling * time
    kinetic = float(temperature * np.sqrt(2.0 / source.mean.size))  # its sd

    def begin(look: int) -> list[Runs]:
        """One for each step size."""
        key_look = jax.random.fold_in(key_runs, look) if look else key_runs
        keys = [jax.random.fold_in(key_look, k) for k in range(h.size)]
        steps = zip(h, keys, counts, strict=True)
        return [Runs(trial(float(step)), own, count, num_draws) for step, own, count in steps]

    stated = {"duration": time, "budget": budget, "tolerance": tolerance}
    judge = partial(_report, watched.names, kinetic, stated)
    runs = begin(0)
    report = judge(h, runs, num_draws)
    for look in range(1, LOOKS):
        if report.suspicious:
            report = judge(h, runs, MORE * report.num_draws)
        elif report.right_limit is None and step_sizes is None:
            h, counts = 0.5 * h, [2 * count for count in counts]
            runs = begin(look)
            report = judge(h, runs, report.num_draws)
    return report


def _check(make_kernel: Any, target: Any, num_draws: Any, budget: float, tolerance: float) -> None:
    callable_function("make_kernel", make_kernel, hint="Try lambda h: ex.sgld(gradient, h).")
    if not isinstance(target, AnalyticTarget):
        raise TypeError(
            f"target must be one of ergodax.targets, not {target!r}: its exact draws are needed."
        )
    whole_number("num_draws", num_draws, at_least=100, hint="Try 2**18.")
    real_number("budget", budget, above=0.0, below=1.0, hint="Try 1e-6.")
    real_number("tolerance", tolerance, above=0.0, hint="Try 0.1.")


def _shortest_time(trial: Callable[[float], Trial], key: PRNGKeyArray, temperature: float) -> float:
    """1 / k or 1 / sqrt(k), with E[grad^2 U] = E[grad U grad U^T] / T."""
    some = trial(1.0)
    draws = some.source.sample(key, 2**12)
    # The source's potential is U / T, so that T E[its gradient's square] is E[grad^2 U].
    gradients = np.asarray(jax.vmap(some.source.gradient)(draws), float)
    k = temperature * np.linalg.eigvalsh(gradients.T @ gradients / len(gradients))[-1]
    return float(1.0 / (np.sqrt(k) if some.tells_kinetic_temperature(key, draws[0]) else k))


def _forgetting(trial: Trial, key: PRNGKeyArray, count: int) -> int:
    """How many times as long the runs must be until no function remembers where it began."""
    for doubling in range(DOUBLINGS):
        runs = Runs(trial, jax.random.fold_in(key, doubling), count << doubling, PILOT)
        change = runs.change(PILOT)
        if change is None or change.memory.max() <= FORGOTTEN:
            return 1 << doubling
    return 1 << DOUBLINGS


def _grid(
    step_sizes: Any, duration: float | None
) -> tuple[Float[np.ndarray, " steps"], list[int], float]:
    """Step sizes, smallest first, how many of each make the duration, and the duration."""
    h = np.unique(np.asarray(numbers("step_sizes", step_sizes), float))
    if h.size < 3 or not (np.isfinite(h).all() and h[0] > 0.0):
        raise ValueError(
            f"step_sizes must be three or more positive numbers, not {step_sizes!r}. "
            "Try (0.4, 0.2, 0.1, 0.05)."
        )
    time = STEPS * float(h[-1])
    if duration is not None:
        time = float(real_number("duration", duration, above=0.0))
    counts = np.round(time / h)
    if counts[-1] < 1 or np.abs(counts * h - time).max() > 1e-5 * time:
        raise ValueError(
            f"duration={time} must be a whole number of steps at each of {h.tolist()}. "
            "Try step sizes duration / n for whole n."
        )
    return h, [int(count) for count in counts], time


def _report(
    names: tuple[str, ...],
    kinetic: float,
    stated: dict[str, float],
    h: Float[np.ndarray, " all"],
    runs: list[Runs],
    num_draws: int,
) -> KernelReport:
    """What so many runs at each step size say, up to the first at which one is not finite."""
    changes: list[Change] = []
    for each in runs:
        change = each.change(num_draws)
        if change is None:
            break
        changes.append(change)
    return KernelReport(
        *_biases(changes, h, names, kinetic, num_draws),
        num_draws=num_draws,
        diverged=float(h[len(changes)]) if len(changes) < h.size else None,
        memory=changes[0].memory,
        **stated,
    )


def _biases(
    changes: list[Change],
    h: Float[np.ndarray, " all"],
    names: tuple[str, ...],
    kinetic: float,
    num_draws: int,
) -> tuple[tuple[str, ...], Float[np.ndarray, " steps"], Bias, Bias]:
    """The first fields of the report: functions, step sizes and biases in units of their sd."""
    if len(changes) < 3:
        raise ValueError(
            f"a run is not finite at step size {h[len(changes)]:.3g}, and three step sizes at "
            f"which all are finite are needed; of {h.tolist()} there are {len(changes)}. Try "
            "smaller ones; if the kernel compensates noise, its friction may be too small."
        )
    h = h[: len(changes)]
    spread = np.mean([change.spread for change in changes], axis=0)
    mean, error = (np.array(x) for x in list(zip(*changes, strict=True))[1:3])
    if not error[..., : len(names)].any():
        raise ValueError("the kernel does not move: no function changes. Check its step.")
    if len(names) < spread.size:
        names = (*names, "kinetic temperature")
        spread[-1] = kinetic
    if not spread.all():
        constant = [name for name, sd in zip(names, spread, strict=True) if not sd]
        raise ValueError(f"functions must vary under the target; {constant} are constant.")
    # Where no draw changed, a change in one of them would still have gone unseen.
    mean, error = mean / spread, np.maximum(error / spread, 1.0 / num_draws)
    single = Bias(mean[:, 0] / h[:, None], error[:, 0] / h[:, None])
    return names, h, single, Bias(mean[:, 1], error[:, 1])
