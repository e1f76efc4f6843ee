"""The warm-up of the no-U-turn sampler, by all chains together."""

import contextlib
import dataclasses
import importlib
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.sample import compile_draws, sample, trace
from ergodax.driver.samples import Samples
from ergodax.target.base import AbstractTarget
from ergodax.tune.background import in_background
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import LARGEST_DENSE, draws_coordinates
from ergodax.tune.decisions import Tuned
from ergodax.tune.dependence import conditional_scales, num_gradients
from ergodax.tune.descent import potential_at, seconds_of_gradient
from ergodax.tune.host import fold_in, generator, on_device, split_key
from ergodax.tune.jumps import jumps_between
from ergodax.tune.modes import at_modes
from ergodax.tune.nuts_kernel import MOST_DOUBLINGS, Nuts
from ergodax.tune.reparametrisation import ReparametrisedTarget, reparametrised
from ergodax.tune.whitening import Coordinates, in_coordinates, unflattened

# Of the warm-up, steps of each chain:
SETTLING = 50  # from the start to where the draws are looked at
WINDOWS = 50, 100, 150  # after each the coordinates are those of its draws
LAST = 60  # with the step alone adapted
WHOLE = 2.0  # times the warm-up, that it takes with the draws
BLOCK = 10  # between two changes of the step
FEW_DRAWS = 5  # a dimension, of all chains: fewer do not tell the coordinates
NORMAL = 0.75  # times d^(-1/4): a step from which coordinates are good; 1.55 on a normal law
ACCEPTANCE = 0.8
CAREFUL = 0.95  # acceptance, where trajectories at the usual one diverge
GAIN = 1.5  # of the logarithm of the step, at the first change
LOOK = 0.1  # of the time left, that a look for scales which depend on others may take
STILL = 0.5  # of the share of steps in which the chain that moves most does
FARTHEST = 4.0  # sds, at which a chain begins in other numbers
PROGRAM = 5.0  # seconds, in which that of other numbers is compiled
SHORTER_THERE = 0.8  # times the step in the model's own numbers: other ones are no better
SHORTER = 0.25  # of a first step that is hardly ever accepted
HARDLY = 0.2
SHORTEST = 1e-6

FEWEST_DOUBLINGS = 5
SHARE = 0.01  # of the time left, which a trajectory of all chains may take
SHARE_OF_WARM_UP = 0.3  # of all the time, as it mostly is
TRAJECTORY = 2**4  # leapfrogs, of which most trajectories in whitened coordinates have fewer
SETTLE = 100  # draws that are left out where chains begin at several modes
THREE_LEAPFROGS = 1.1  # the step at which three of them turn a normal law's trajectory around
HALVINGS = 10  # of a start that lies where the density is not finite
FEW = 30  # dimensions, beyond which such a step is accepted too rarely


class Ahead(NamedTuple):
    """What was begun before the coordinates were known."""

    doublings: int  # of a trajectory, at most
    compiling: Future[None] | None = None


def tune_nuts(
    target: AbstractTarget,
    coordinates: Coordinates,
    key: PRNGKeyArray,
    num_chains: int,
    modes: Sequence[PyTree] = (),
    deadline: Deadline | None = None,
    *,
    careful: bool = False,
    ahead: Ahead | None = None,
) -> Tuned:
    """Warm NUTS up from dispersed starts at each of several modes.

    The step follows the acceptance of all chains, as in Stan's warm-up; the coordinates, in place
    of a mass, follow the draws of all chains, in windows each longer than the one before. Where the
    step at which it ends says that the law is about normal, a longer one is taken
    (`turning_step`).

    Args:
        target: of the position.
        coordinates: whitened, as far as is known.
        key: a key of `jax.random.key`.
        num_chains: chains.
        modes: positions of all of them where there are several.
        deadline: at which it ends, whatever the kernel is then; by default none.
        careful: whether the step is adapted to an acceptance of 0.95, and not of 0.8.
        ahead: of `compiling_nuts`, if it was called.
    """
    deadline = deadline or Deadline.never()
    key_start, key_run = split_key(key, 2)
    key_jumps = fold_in(key_run, 0)
    offsets = generator(key_start).standard_normal((num_chains, coordinates.dimension))
    dtype = jnp.result_type(float)  # BlackJAX wants JAX's own precision
    centres = on_device(np.zeros(offsets.shape), dtype)
    starts = _inside(target, coordinates, at_modes(centres, coordinates, modes), offsets)
    if ahead is None:
        seconds = deadline.left()
        ahead = Ahead(doublings_within(seconds, target, coordinates.centre, num_chains))
    elif ahead.compiling is not None:
        ahead.compiling.exception()  # until it is done
    warm = warm_up(
        target,
        coordinates,
        starts,
        key=key_run,
        deadline=deadline,
        doublings=ahead.doublings,
        acceptance=CAREFUL if careful else ACCEPTANCE,
        reparametrise=not modes,
    )
    tuned = Tuned(warm.kernel, warm.coordinates, warm.ends, None, 1, 0, target=warm.target)
    if warm.done < 1.0:
        tuned = dataclasses.replace(tuned, doubt=_unfinished(warm))
    if modes:  # the long steps of the warm-up may have brought all chains into one of them
        places = at_modes(centres, warm.coordinates, modes)
        jumps = jumps_between(target, warm.coordinates, modes, key_jumps)
        kernel = dataclasses.replace(warm.kernel, jumps=jumps)
        tuned = dataclasses.replace(tuned, kernel=kernel, starts=places, burn_in=SETTLE)
    return tuned


def compiling_nuts(
    target: AbstractTarget, init: PyTree, key: PRNGKeyArray, num_chains: int, seconds: float
) -> Ahead:
    """Compile in another thread what `tune_nuts` will run, unless in many dimensions.

    Args:
        target: of the position.
        init: any position.
        key: a key of `jax.random.key`.
        num_chains: chains.
        seconds: there are for the warm-up.
    """
    frozen, ahead = tree.freeze(init), Ahead(doublings_within(seconds, target, init, num_chains))
    d, dtype = tree.size(frozen), tree.result_dtype(frozen)
    if d > LARGEST_DENSE:
        return ahead  # coordinates may be of another kind
    coordinates = Coordinates(tree.thaw(frozen), on_device(np.zeros((d, d)), dtype))
    ends = on_device(np.zeros((num_chains, d)), jnp.result_type(float))
    unit = on_device(1.0, ends.dtype)
    kernel = Nuts(in_coordinates(target, coordinates), unit, ahead.doublings)

    def compiled() -> None:
        compile_draws(kernel, ends, key, coordinates.position)
        importlib.import_module("pandas")  # for the table of the draws

    with contextlib.suppress(Exception):  # of the model, which will be told where it is needed
        trace(kernel, ends, key)
        return Ahead(ahead.doublings, in_background(compiled))
    return ahead


def doublings_within(
    seconds: float, target: AbstractTarget, position: PyTree, num_chains: int
) -> int:
    """Of a trajectory, so many that it takes a small share of the time."""
    trajectory = SHARE * seconds / (num_chains * seconds_of_gradient(target, position))
    return int(np.clip(np.log2(max(trajectory, 1.0)), FEWEST_DOUBLINGS, MOST_DOUBLINGS))


def _unfinished(warm: "Warm") -> str:
    """That a warm-up was cut, and how long NUTS takes, where two blocks or more have told."""
    doubt = "the time for tuning was up before NUTS had found its step and its scales"
    if not np.isfinite(warm.whole):
        return f"{doubt}, of which it was left too little; try a max_seconds twice as large"
    wanted = f"{warm.whole:,.0f} s after the search for its start"
    return f"{doubt}; at its pace so far it takes some {wanted}: try a larger max_seconds"


def _inside(
    target: AbstractTarget,
    coordinates: Coordinates,
    centres: Float[Array, "chains d"],
    offsets: Float[np.ndarray, "chains d"],
) -> Float[Array, "chains d"]:
    """Centres + offsets, each offset halved until the potential and its gradient are finite."""
    middle, steps, like = np.asarray(centres), offsets, tree.freeze(coordinates.centre)
    for _ in range(HALVINGS):
        found = [potential_at(target, like, x) for x in coordinates.flats_at(middle + steps)]
        finite = np.array([np.isfinite(value) and np.isfinite(x).all() for value, x in found])
        if finite.all():
            break
        steps = np.where(finite[:, None], steps, 0.5 * steps)
    return on_device(middle + steps, centres.dtype)


def warm_up_seconds(target: AbstractTarget, coordinates: Coordinates, num_chains: int) -> float:
    """How long a warm-up of NUTS mostly takes, its compilation apart."""
    leapfrogs = TRAJECTORY * steps_of_warm_up(coordinates.dimension, num_chains)
    return leapfrogs * num_chains * seconds_of_gradient(target, coordinates.centre)


def steps_of_warm_up(dimension: int, num_chains: int) -> int:
    """Those of a warm-up that begins in good coordinates."""
    return SETTLING + sum(_telling(dimension, num_chains)) + LAST


def _telling(dimension: int, num_chains: int) -> list[int]:
    """The windows whose draws are enough to tell of better coordinates."""
    return [window for window in WINDOWS if window * num_chains > FEW_DRAWS * dimension]


class Warm(NamedTuple):
    """What a warm-up has come to."""

    kernel: Nuts  # in the coordinates
    coordinates: Coordinates
    ends: Float[Array, "chains d"]  # u of each chain
    done: float = 1.0  # the share of its steps that there was time for
    seconds: float = np.nan  # that all steps take, if known
    target: AbstractTarget | None = None  # whose numbers they are

    @property
    def whole(self) -> float:
        """Seconds with the draws, as far as the pace of the warm-up tells."""
        return self.seconds / SHARE_OF_WARM_UP


def warm_up(
    target: AbstractTarget,
    coordinates: Coordinates,
    starts: Float[Array, "chains d"],
    *,
    key: PRNGKeyArray,
    deadline: Deadline | None = None,
    doublings: int = MOST_DOUBLINGS,
    acceptance: float = ACCEPTANCE,
    reparametrise: bool = False,
) -> Warm:
    """Find the step, and coordinates whose scale is 1, as `tune_nuts` describes.

    Args:
        target: of the position.
        coordinates: the first ones.
        starts: u of each chain.
        key: a key of `jax.random.key`.
        deadline: at which it ends; by default never.
        doublings: of a trajectory, at most.
        acceptance: that the step is adapted to.
        reparametrise: whether parameters whose scale depends on others may be replaced by numbers
            whose scale does not.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.zeros(2), jnp.array([4.0, 100.0]))  # sds 2 and 10
        >>> rough = ex.tune.Coordinates(jnp.zeros(2), jnp.array([2.0, 5.0]))
        >>> found = ex.tune.warm_up(target, rough, jnp.ones((4, 2)), key=jax.random.key(0))
        >>> (abs(found.coordinates.scales / [2.0, 10.0] - 1.0) < 0.2).tolist()
        [True, True]
    """
    deadline = deadline or Deadline.never()
    chains = _Chains(target, coordinates, starts, doublings, deadline, acceptance)
    keys = iter(split_key(key, 2 + len(WINDOWS)))
    rng = generator(fold_in(key, 1)) if reparametrise else None
    chains.run(SETTLING, next(keys))
    good = chains.step >= NORMAL * coordinates.dimension**-0.25
    windows = _telling(coordinates.dimension, len(starts)) if good else WINDOWS
    steps = SETTLING + sum(windows) + LAST
    for window in windows:
        draws = chains.run(window, next(keys))
        good = chains.step >= NORMAL * coordinates.dimension**-0.25
        if window == windows[-1] and chains.is_worse():
            chains.give_up(draws)
            continue
        if rng is not None and not good and chains.reparametrise(draws, rng):
            continue
        if len(draws) * draws.shape[1] > FEW_DRAWS * coordinates.dimension:
            chains.whiten(draws)
    chains.run(LAST, next(keys))
    step = chains.step
    if chains.acceptance == ACCEPTANCE:
        step = turning_step(step, coordinates.dimension)
    done = chains.taken / steps
    spent = sum(seconds for seconds, _ in chains.clock)
    kernel, seconds = chains.kernel(step), max(chains.pace * steps, spent)
    return Warm(kernel, chains.coordinates, chains.ends, done, seconds, chains.target)


class _Chains:
    """The chains of a warm-up, their step and their coordinates."""

    def __init__(
        self,
        target: AbstractTarget,
        coordinates: Coordinates,
        starts: Float[Array, "chains d"],
        doublings: int,
        deadline: Deadline,
        acceptance: float,
    ) -> None:
        self.target, self.coordinates, self.ends = target, coordinates, starts
        self.original, self.before, self.wanted = target, 1.0, acceptance
        self.doublings, self.deadline, self.acceptance = doublings, deadline, acceptance
        self.step, self.found = 1.0, False  # the scale of the coordinates, if they are right
        self.taken = 0  # steps of the right size
        self.clock: list[tuple[float, int]] = []  # seconds and steps of each block

    def kernel(self, step: float) -> Nuts:
        """With a step in the present coordinates."""
        inner, dtype = in_coordinates(self.target, self.coordinates), self.ends.dtype
        return Nuts(inner, on_device(step, dtype), self.doublings)

    @property
    def pace(self) -> float:
        """Seconds of a step; NaN of one block alone, most of whose time is the compilation's."""
        seconds, steps = np.sum(self.clock[1:], axis=0) if self.clock[1:] else (0.0, 0)
        return float(seconds / steps) if steps else np.nan

    def run(self, steps: int, key: PRNGKeyArray) -> Float[np.ndarray, "chains draws d"]:
        """Take so many steps, if there is time, and adapt the step size; the draws' u."""
        parts, logs = [], []
        for number, key_block in enumerate(split_key(key, steps // BLOCK)):
            if self.deadline.over:
                break
            began = time.perf_counter()
            samples = self._block(key_block)
            self.clock.append((time.perf_counter() - began, samples.num_draws))
            off = _acceptance(samples) - self.acceptance
            self.step *= float(np.exp(GAIN * off / np.sqrt(1.0 + number)))
            self.taken += samples.num_draws
            parts.append(self.coordinates.of_chains(samples.position))
            logs.append(np.log(self.step))
        if not parts:
            return np.empty((len(self.ends), 0, self.coordinates.dimension))
        self.step = float(np.exp(np.mean(logs[len(logs) // 2 :])))
        return np.concatenate(parts, axis=1)

    def _block(self, key: PRNGKeyArray) -> Samples:
        """Steps of one size; where hardly any is accepted, of shorter ones."""
        while True:
            samples = sample(
                self.kernel(self.step),
                positions=self.ends,
                num_steps=BLOCK,
                key=key,
                num_chains=len(self.ends),
                collect=self.coordinates.position,
                progress=False,
                max_seconds=self.deadline.left(),
            )
            tried = self.step < SHORTEST or self.deadline.over
            if self.found or tried or _acceptance(samples) > HARDLY:
                self.found, self.ends = True, samples.final_state.position
                return samples
            self.step *= SHORTER

    def whiten(self, draws: Float[np.ndarray, "chains draws d"]) -> None:
        """Let the draws have scale 1, about the mean of each chain."""
        means = draws.mean(axis=1, keepdims=True)
        within = (draws - means + means.mean(axis=0)).reshape(-1, draws.shape[-1])
        moved = draws_coordinates(self.coordinates, within)
        ends = self.coordinates.flats_at(np.asarray(self.ends))
        self.ends = on_device(moved.of_flats(ends), self.ends.dtype)
        self.coordinates, self.step = moved, min(1.0, self.step)

    def reparametrise(self, draws: Float[np.ndarray, "chains draws d"], rng: Any) -> bool:
        """Let parameters whose scale depends on others be numbers whose scale does not, if any."""
        like = self.coordinates.centre
        seconds = num_gradients(draws.shape[-1]) * seconds_of_gradient(self.original, like)
        again = PROGRAM + np.nan_to_num(self.pace) * self.taken  # to be where it is now
        left = self.deadline.left()
        if not draws.size or seconds > LOOK * left or again > left:
            return False
        moves = np.mean(np.any(np.diff(draws, axis=1), axis=2), axis=1)
        moving = draws[moves >= STILL * moves.max()]  # others are not where their law is
        seen = self._originals(moving)[: -len(self.ends)]
        scales = conditional_scales(self.original, like, seen, rng)
        if scales is None:
            return False
        rows = self._originals(draws)
        self.before = self.step if self.target is self.original else self.before
        target = reparametrised(self.original, scales)
        # A chain that stood still in a neck would begin hundreds of sds away.
        numbers = target.numbers(rows)
        near = np.clip(numbers, -FARTHEST, FARTHEST)
        self._go_on_in(target, np.where(scales.changed, near, numbers))
        self.acceptance = max(self.acceptance, CAREFUL)  # since steps must suit the narrowest place
        return True

    def is_worse(self) -> bool:
        """Whether the new numbers need a shorter step than those of the model did."""
        return self.target is not self.original and self.step < SHORTER_THERE * self.before

    def give_up(self, draws: Float[np.ndarray, "chains draws d"]) -> None:
        """Back to the numbers of the model."""
        rows, self.acceptance = self._originals(draws), self.wanted
        self._go_on_in(self.original, rows)

    def _originals(self, draws: Float[np.ndarray, "chains draws d"]) -> Float[np.ndarray, "n d"]:
        """The raveled positions of draws, and then of the chains' ends, in the model's numbers."""
        rows = np.concatenate([draws.reshape(-1, draws.shape[-1]), np.asarray(self.ends)])
        rows = self.coordinates.flats_at(rows)
        target = self.target
        return target.originals(rows) if isinstance(target, ReparametrisedTarget) else rows

    def _go_on_in(self, target: AbstractTarget, rows: Float[np.ndarray, "n d"]) -> None:
        """Take the numbers of another target, in which the draws and the ends are these."""
        like, dtype = self.coordinates.centre, self.ends.dtype
        zero, unit = np.zeros(rows.shape[1]), np.eye(rows.shape[1])
        plain = Coordinates(unflattened(like, zero), on_device(unit, dtype))
        moved = draws_coordinates(plain, rows[: -len(self.ends)])
        self.ends = on_device(moved.of_flats(rows[-len(self.ends) :]), dtype)
        self.target, self.coordinates, self.step, self.found = target, moved, 1.0, False


def _acceptance(samples: Samples) -> float:
    """The mean over steps and chains; a trajectory without a finite energy accepts nothing."""
    return float(np.mean(np.nan_to_num(samples.info.acceptance))) if samples.num_draws else 0.0


def turning_step(adapted: float, dimension: int) -> float:
    """A step at which trajectories end after three leapfrogs, where the law is about normal.

    NUTS doubles a trajectory until it turns around: on a normal law with its own mass at half a
    period, pi / step leapfrogs, rounded up to 1, 3, 7, ... The steps to which the usual acceptance
    of 0.8 leads, 0.5 to 0.9 in 10 to 30 dimensions, need seven; at 1.1 three do, and these accept
    0.45 to 0.7 and cost half as much for an effective draw of means and of squares. That the law is
    about normal is read off the adapted step, which is 1.55 / d^(1/4) if it is, and less if some
    place is rougher.

    Args:
        adapted: the step at acceptance 0.8, in whitened coordinates.
        dimension: d.

    Example:
        >>> turning_step(0.7, 10), turning_step(0.3, 10), turning_step(0.43, 100)
        (1.1, 0.3, 0.43)
    """
    normal = dimension <= FEW and adapted >= dimension**-0.25
    return THREE_LEAPFROGS if normal else adapted
