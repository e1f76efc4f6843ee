"""The weights of an ensemble of networks, sampled by microcanonical Langevin dynamics."""

import dataclasses
import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import ergodax as ex
from ergodax import network, tree
from ergodax.learn.modules import each_draw, filled
from ergodax.learn.regression import rows_of_program
from ergodax.network import NetworkPosterior
from ergodax.sampler.microcanonical import energy_error
from ergodax.stats.estimators import scale_reduction
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import mean_squares, some_rows

PRIOR = network.priors.Normal(4.0)  # of the optimiser: sd 1 for the weights of a unit of 16 inputs
WIDER = 2.0  # is the prior of the sampling than the optimised weights
LEAST = 1.0  # the least sd of that prior, in the same units
STEPS = 12_000  # of a member by default, and again where that is not enough and costs little:
AGREED = 1.01  # R-hat of the members' predictions, with which it is enough
LITTLE = 2**27  # rows that a member's steps have visited
COMPARED = 256  # rows whose predictions tell
BURN_IN = 0.7  # of the steps: from optima to typical weights takes long
ROUNDS = 10  # of the burn-in, after each of which step and length are set anew
FIRST, LAST = 10.0, 2.0  # variances of a step's energy error, for a dimension, that are aimed at
SMALLEST, LARGEST = 6.0, 30.0  # powers of the step with which the variance may grow
APART = 0.05  # of the logarithms of two steps, from which they tell the power
SCORES = 1_000  # rows whose scores stand for all
PROBES, BETWEEN = 8, 4  # places where a member's energy error is measured, and steps between
SEEN = 4  # draws of a round; those of the last half of the rounds set the length
TRIALS, TRIAL, IN_TIME = 3, 16, 0.8  # trials of so many steps, and the share of the time planned
TRIES = 6  # of a round, each with a quarter of the step


@dataclasses.dataclass(frozen=True)
class Setting:
    """How the members move, in coordinates where each array's curvature is about 1."""

    scales: PyTree  # the curvature of the average weight of each array, a tree like a position
    step: float  # h over the root of the dimension
    length: float  # after which a direction is forgotten, likewise
    energy_error: float = math.nan  # variance of what a step adds to the energy, for a dimension


@dataclasses.dataclass(frozen=True)
class Growth:
    """How the variance of a step's energy error grows with the step."""

    step: float = math.nan  # the last measured one
    error: float = math.nan  # its variance
    power: float = SMALLEST

    def after(self, step: float, error: float) -> "Growth":
        """With one more measurement; steps that are nearly equal do not tell the power."""
        apart = math.log(step / self.step)
        power = self.power
        if abs(apart) > APART and error > 0.0 and self.error > 0.0:
            power = float(np.clip(math.log(error / self.error) / apart, SMALLEST, LARGEST))
        return Growth(step, error, power)

    def factor(self, aim: float) -> float:
        """By which the last step is changed to have a variance, at most doubled or halved."""
        if not self.error > 0.0:  # it is lost in rounding, or not a number
            return 2.0 if self.error == 0.0 else 0.5
        return float(np.clip((aim / self.error) ** (1.0 / self.power), 0.5, 2.0))


@dataclasses.dataclass(frozen=True)
class Members:
    """Draws of the members' weights.

    Attributes:
        positions: of the posterior, leading axes members and draws.
        setting: how they were made.
    """

    positions: PyTree
    setting: Setting

    @property
    def last(self) -> PyTree:
        """Where the members are."""
        return jax.tree.map(lambda x: x[:, -1], self.positions)

    @property
    def flat(self) -> PyTree:
        """All draws, leading axis members times draws."""
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self.positions)


@dataclasses.dataclass(frozen=True)
class Measured:
    """What is known about a fit.

    Attributes:
        energy_error: variance of the energy that a step adds, for a dimension; about 2 is aimed
            at, and much more says that draws are biased.
        r_hat: of the predicted means or probabilities among members, the median over rows.
        held_out: mean log density of the optimised members, on the rows that decided when to
            stop. The draws are of all rows: what they are worth, `log_density` says of new ones.
    """

    energy_error: float
    r_hat: float
    held_out: float


def measured_prior(posterior: NetworkPosterior, positions: PyTree) -> network.priors.Normal:
    """A normal prior whose sd is twice the root mean square of optimised weights.

    A prior that is much wider than the weights which a table needs leaves a network of few rows
    free to be anything between them: with sd 4 for every table, predicted sds were up to 50 times
    the target's on 455 rows. One as wide as the optimum would be too narrow, since an optimum is
    nearer to 0 than draws are. Twice was about right for five tables of 277 to 13,903 rows. No
    prior is narrower than one that keeps the variance from layer to layer.

    Args:
        posterior: with the normal prior `PRIOR`, whose log density tells the squares of weights.
        positions: optimised, leading axis members.
    """
    zero = tree.zeros_like(jax.tree.map(lambda w: w[0], positions))
    fall = posterior.prior(zero) - jax.vmap(posterior.prior)(positions).mean()
    root_mean_square = float(PRIOR.scale) * math.sqrt(max(0.0, 2.0 * float(fall) / tree.size(zero)))
    return network.priors.Normal(max(LEAST, WIDER * root_mean_square))


def settled_members(
    posterior: NetworkPosterior,
    starts: PyTree,
    *,
    key: PRNGKeyArray,
    num_steps: int | None,
    share: float = 1.0,
    **settings: Any,
) -> Members:
    """`sample_members`; where nothing is said of steps, until members agree if that costs little.

    They take 12,000 steps. Where the median R-hat of their predictions is above 1.01 then, rows are
    few and there is time, they take as many again, and the first ones are burn-in.

    Args:
        posterior: of a network, with its data in memory.
        starts: positions, leading axis members.
        key: of everything random.
        num_steps: of each member, or None.
        share: of the steps that are taken: fewer suffice where few rows are new.
        settings: the others of `sample_members`.
    """
    began = time.perf_counter()
    settings |= {"num_steps": math.ceil(share * (num_steps or STEPS)), "more": share < 1.0}
    members = sample_members(posterior, starts, key=key, **settings)
    took = time.perf_counter() - began
    visited = settings["num_steps"] * min(posterior.num_data, settings["batch_size"])
    if num_steps is not None or visited > LITTLE or took > settings["deadline"].left():
        return members
    if disagreement(posterior, members) <= AGREED:
        return members
    settings |= {"setting": members.setting}
    return sample_members(posterior, members.last, key=jax.random.fold_in(key, 1), **settings)


def disagreement(posterior: NetworkPosterior, members: Members) -> float:
    """R-hat of what the members predict, the median over rows of the data, evenly spread."""
    data = np.asarray(posterior.data[0])
    rows = np.unique(np.linspace(0, len(data) - 1, min(len(data), COMPARED)).astype(int))
    some = np.resize(rows, min(COMPARED, rows_of_program(len(rows))))  # of few different numbers
    means = np.asarray(each_draw(posterior, members.flat, data[some]).mean)
    draws = jax.tree.leaves(members.positions)[0].shape[:2]
    found = scale_reduction(means.reshape(*draws, *means.shape[1:]), "split")
    return float(np.median(found[: len(rows)]))


def sample_members(
    posterior: NetworkPosterior,
    starts: PyTree,
    *,
    key: PRNGKeyArray,
    num_steps: int,
    num_draws: int,
    batch_size: int,
    deadline: Deadline,
    setting: Setting | None = None,
    progress: bool = False,
    more: bool = False,
) -> Members:
    """Sample each member's weights from where it is; seven tenths of the steps are burn-in.

    Microcanonical Langevin dynamics, in coordinates where the mean squared score of each array's
    average weight (the Fisher information, and the prior's curvature) is 1. After each of ten
    rounds of the burn-in
    - the length becomes the root of the summed variances of a member's weights, in these
      coordinates, so that a member turns where it has crossed its mode;
    - the step h is changed by (a / v)^(1/s), where v is the measured variance of the energy that
      a step adds, for a dimension, and a falls from 10 to 2 in the first half: large steps at
      first, which come far, then small ones, whose bias is small and which take the members on for
      as long again. v grows as h^6 where h is small, and faster near the largest step that is
      stable, so s is the power between the last two measured rounds.

    Args:
        posterior: of a network, with its data in memory.
        starts: positions, leading axis members.
        key: of everything random.
        num_steps: of each member.
        num_draws: of each member that are kept.
        batch_size: rows of a gradient, if there are more.
        deadline: when to end, with fewer draws if need be.
        setting: of an earlier run, to begin with.
        progress: show bars.
        more: whether rows have come since `setting` was found, and will again: they are filled up,
            and steps are rounded to whole draws, `num_draws`, so that the same programs serve.

    Raises:
        DivergenceError: however small the step.

    Reference:
        Sommer, Robnik, Nozadze, Seljak and Rügamer, Microcanonical Langevin ensembles, 2025.
    """
    key_scales, key_run = jax.random.split(key)
    if setting is None:
        setting = Setting(_scales(posterior, starts, key_scales), 0.1, 1.0)
    sampled = filled(posterior, batch_size) if more else posterior
    full = posterior.num_data <= batch_size
    gradient = ex.FullGradient(sampled) if full else ex.Minibatch(sampled, batch_size)
    run: dict[str, Any] = {"key": key_run, "progress": progress}
    seen: list[PyTree] = []
    begin: dict[str, Any] = {"positions": starts}
    each = math.inf  # seconds of a step; the first trial compiles, and one pause spoils one trial
    for _ in range(TRIALS):
        began = time.perf_counter()
        setting, _, samples = _tried(gradient, setting, TRIAL, TRIAL, begin, deadline, run)
        begin = {"state": samples.final_state}
        each = min(each, (time.perf_counter() - began) / TRIAL)
    num_steps = max(1, min(num_steps, int(IN_TIME * deadline.left() / each)))
    burn_in = int(BURN_IN * num_steps)
    least = 2 if more else 1  # steps to a draw; a draw of each is another program
    steps = max(least, burn_in // ROUNDS)
    thin = max(least, steps // SEEN)
    if more:
        steps -= steps % thin
    growth = Growth()
    for number in range(ROUNDS):
        setting, kernel, samples = _tried(gradient, setting, steps, thin, begin, deadline, run)
        state, begin = samples.final_state, {"state": samples.final_state}
        seen = [*seen, samples.position][(number + 1) // 2 - number - 1 :]
        key_probes = jax.random.fold_in(key_scales, number)
        aim = FIRST * (LAST / FIRST) ** min(1.0, 2.0 * number / ROUNDS)
        growth = growth.after(setting.step, _energy_error(kernel, key_probes, state))
        setting = _adjusted(setting, seen, growth.factor(aim))
    steps = max(1, num_steps - burn_in)
    thin = max(least, steps // num_draws)
    if more:
        steps = thin * num_draws
    setting, kernel, samples = _tried(gradient, setting, steps, thin, begin, deadline, run)
    error = _energy_error(kernel, jax.random.fold_in(key_scales, ROUNDS), samples.final_state)
    return Members(samples.position, dataclasses.replace(setting, energy_error=error))


def _tried(
    gradient: Any,
    setting: Setting,
    steps: int,
    thin: int,
    begin: dict[str, Any],
    deadline: Deadline,
    run: dict[str, Any],
) -> tuple[Setting, Any, ex.Samples]:
    """A run, with a smaller step where it diverges; the setting and kernel that it was made with.

    One that is cut short before its first draw has the members' last positions.
    """
    for attempt in range(TRIES):
        inverse = jax.tree.map(lambda x: 1.0 / x, setting.scales)
        root = math.sqrt(tree.size(setting.scales))
        kernel = ex.microcanonical(
            gradient, setting.step * root, setting.length * root, preconditioner=inverse
        )
        try:
            samples = ex.sample(
                kernel, num_steps=steps, thin=thin, max_seconds=deadline.left(), **begin, **run
            )
        except ex.DivergenceError:
            setting = dataclasses.replace(setting, step=0.25 * setting.step)
            if attempt == TRIES - 1:
                raise
            continue
        if samples.num_draws == 0:
            last = jax.tree.map(lambda x: np.asarray(x)[:, None], samples.final_state.position)
            samples = ex.Samples(tree.thaw(last), None, samples.final_state)
        return setting, kernel, samples
    raise AssertionError  # the last attempt returned or raised


def _adjusted(setting: Setting, seen: list[PyTree], factor: float) -> Setting:
    """A step changed by a factor, and a length as wide as what was crossed."""
    size = tree.size(setting.scales)
    draws = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *seen)
    variance = jax.tree.map(lambda x: np.var(x, axis=1, dtype=np.float64).mean(axis=0), draws)
    widths = jax.tree.map(lambda scale, x: np.sum(np.asarray(scale) * x), setting.scales, variance)
    length = max(1.0, math.sqrt(sum(jax.tree.leaves(widths)) / size))
    return dataclasses.replace(setting, step=factor * setting.step, length=length)


def _energy_error(kernel: Any, key: PRNGKeyArray, states: Any) -> float:
    """The variance of what a step adds to the energy, for a dimension, averaged over members."""
    errors = np.asarray(_energy_errors(kernel, key, states), np.float64)
    size = tree.size(states.position) // errors.shape[1]
    return float(np.var(errors, axis=0).mean()) / size


@eqx.filter_jit
def _energy_errors(kernel: Any, key: PRNGKeyArray, states: Any) -> Float[Array, "probes members"]:
    """What a step adds to the energy, here and there along the members' ways from where they are.

    In directions drawn anew the error would be smaller: a step that is too long follows the
    gradient.
    """

    def probe(states: Any, key: PRNGKeyArray) -> tuple[Any, Float[Array, " members"]]:
        def step(states: Any, key: PRNGKeyArray) -> tuple[Any, None]:
            members = jax.tree.leaves(states.position)[0].shape[0]
            return jax.vmap(kernel.step)(jax.random.split(key, members), states)[0], None

        members = jax.tree.leaves(states.position)[0].shape[0]
        key_steps, key_errors = jax.random.split(key)
        states, _ = lax.scan(step, states, jax.random.split(key_steps, BETWEEN))
        keys = jax.random.split(key_errors, members)
        return states, jax.vmap(energy_error, (None, 0, 0))(kernel, keys, states)

    return lax.scan(probe, states, jax.random.split(key, PROBES))[1]


def _scales(posterior: NetworkPosterior, positions: PyTree, key: PRNGKeyArray) -> PyTree:
    """The curvature of each array's average weight, averaged over the members."""
    rows = some_rows(posterior, key, SCORES)
    return tree.thaw(_averaged(posterior, tree.freeze(positions), rows, key))


@eqx.filter_jit
def _averaged(
    posterior: NetworkPosterior, positions: PyTree, rows: PyTree, key: PRNGKeyArray
) -> PyTree:
    squares = lax.map(lambda x: mean_squares(posterior, x, rows, key), positions).mean(axis=0)
    _, unravel = tree.ravel(jax.tree.map(lambda x: x[0], positions))
    return jax.tree.map(lambda x: jnp.full_like(x, jnp.maximum(x.mean(), 1e-6)), unravel(squares))
