"""A sampler for posteriors that suit no minibatch: HMC on a condensed posterior.

An observation of extreme curvature bounds the posterior, and is felt only close to its bound. A
batch that lacks it does not see the bound, and one that has it is thrown back N / n times as far.
Such rows are few: HMC follows them in short steps, other rows of some curvature and a Taylor
polynomial of the rest in long ones, and a test by the whole data keeps the law exact.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.progress import progress_bar
from ergodax.driver.sample import sample
from ergodax.exact import Condensed, condense, delayed_acceptance
from ergodax.exact.condensed import Rows
from ergodax.gradient import FullGradient
from ergodax.gradient.expansion import whole_hessian
from ergodax.sampler.hamiltonian import hmc, split_hmc
from ergodax.target.posterior import Posterior
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import draws_coordinates, hessian_coordinates
from ergodax.tune.decisions import DecisionLog, Tuned
from ergodax.tune.dependence import conditional_scales, num_gradients
from ergodax.tune.descent import seconds_of_gradient
from ergodax.tune.host import generator, on_device, split_key
from ergodax.tune.nuts import LOOK, NORMAL
from ergodax.tune.whitening import Coordinates, are_white, posterior_in

ROUNDS = 100, 100, 200, 400, 400, 100  # trajectories of each chain; before the last the
# coordinates stay as they are, and where they have settled it comes at once
BLOCK = 20  # trajectories between changes of the step
NO_TIME = "there was no time to tune it"
POINTS = 64  # draws at which the rows are looked at
LENGTH = 1.8  # of a trajectory, after which a normal law's draws and their squares are uncorrelated
LONG = 0.25  # an outer step
INNER = 1, 64
OUTER = 1, 32
LONGEST = 1.3  # step, which turns a normal law's chain by less than a quarter
SHARP = 1.0  # curvature of a row in whitened coordinates, from which it is followed in short steps
EXTREME = 4.0  # from which it is not forgotten where later draws do not touch it
BEYOND = 1.0  # log density that a polynomial misses of a row, from which it is not either
OUTSIDE = 30.0  # in potential: a chain that is so much worse off than another begins there
CHAINS = 8  # at least, in the rounds: more draws of each step of a chain
ACCEPTANCE = 0.65
TRIALS = 25  # steps of each chain that tell how often the whole data agree
LEAST = 0.2  # of the steps of each chain that must move it
SHORTEST = 0.1  # trajectory, with which a chain would take a hundred to come anywhere
MOST_BETWEEN = 8  # trajectories between tests by all data


@dataclasses.dataclass(frozen=True)
class Steps:
    """The steps of a trajectory."""

    inner: float  # the length of a short step
    inner_count: int  # short steps in a long one, a power of two
    outer_count: int  # long steps

    @classmethod
    def of(cls, inner: float, *, sharp: bool = True) -> "Steps":
        """For a short step."""
        many = int(np.clip(2 ** round(np.log2(LONG / inner)), *INNER)) if sharp else 1
        # Not a power of two: at twice this length a normal law's chain would go to and fro.
        return cls(inner, many, int(np.clip(round(LENGTH / (many * inner)), *OUTER)))

    @property
    def outer(self) -> float:
        """The length of a long step."""
        return self.inner * self.inner_count

    def kernel(self, surrogate: "Surrogate") -> Any:
        """HMC on the surrogate."""
        if not len(surrogate.steep):
            gradient = FullGradient(surrogate.condensed)
            return hmc(gradient, self.outer, num_leapfrog_steps=self.outer_count)
        return split_hmc(
            *surrogate.condensed.split(surrogate.steep),
            self.outer,
            num_leapfrog_steps=self.outer_count,
            num_inner_steps=self.inner_count,
        )

    def cost(self, surrogate: "Surrogate") -> int:
        """Evaluations of a trajectory, a gradient counted as two."""
        slow = surrogate.condensed.evaluations - len(surrogate.steep)
        return 2 * self.outer_count * (slow + self.inner_count * len(surrogate.steep))


@dataclasses.dataclass(frozen=True)
class Surrogate:
    """A condensed posterior in the coordinates u."""

    condensed: Condensed
    steep: Int[np.ndarray, " steep"]  # places, among the rows that are kept, of those that bend
    extreme: Int[np.ndarray, " extreme"]  # in the data, observations of extreme curvature so far

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        coordinates: Coordinates,
        points: Float[np.ndarray, "draws d"],
        known: Int[np.ndarray, " known"],
    ) -> "Surrogate":
        """By looking at some draws u, and with the extreme observations that are known."""
        dtype = coordinates.basis.dtype
        draws, origin = (on_device(x, dtype) for x in (points, np.zeros(coordinates.dimension)))
        condensed = condense(posterior_in(posterior, coordinates), origin, draws, keep=known)
        bends = np.asarray(sharpest_curvatures(condensed.kept, draws))
        rows = np.asarray(condensed.rows)
        seen = (bends > EXTREME) | (np.asarray(condensed.remainders) > BEYOND)
        extreme = np.union1d(known, rows[seen])
        bends = np.where(np.isin(rows, known), np.inf, bends)
        count = int(np.sum(bends > SHARP))
        if 2 * count >= len(bends) or not count:
            return cls(condensed, np.arange(0), extreme)
        # A power of two, for the same program in the next round.
        steep = np.argsort(-bends, kind="stable")[: 2 ** int(np.ceil(np.log2(count)))]
        return cls(condensed, steep, extreme)


@eqx.filter_jit
def sharpest_curvatures(rows: Rows, draws: PyTree) -> Float[Array, " rows"]:
    """The largest curvature of each row's log-likelihood along its own score, over some draws."""

    def of(row: PyTree, position: PyTree) -> Float[Array, ""]:
        single = jax.tree.map(lambda x: x[None], row)
        slope = jax.grad(lambda x: rows.posterior.log_likelihoods(x, single)[0])
        score = slope(position)
        bend = jax.jvp(slope, (position,), (score,))[1]
        square = tree.dot(score, score)
        # Far from its bound a row has no score left in the dtype, and bends nothing.
        return jnp.abs(tree.dot(score, bend)) / jnp.maximum(square, jnp.finfo(square.dtype).tiny)

    def at(position: PyTree) -> Float[Array, " rows"]:
        return jax.vmap(of, in_axes=(0, None))(rows.rows, position)

    return jnp.max(lax.map(at, draws), axis=0)


def tune_surrogate(
    posterior: Posterior,
    mode: PyTree,
    log: DecisionLog,
    key: PRNGKeyArray,
    num_chains: int = 4,
    progress: bool = True,
    deadline: Deadline | None = None,
) -> Tuned | None:
    """Condense the posterior and tune HMC on it, in rounds that improve both by their draws.

    Args:
        posterior: with data in memory; a round takes some passes over them.
        mode: of the posterior, or near it.
        log: is told the decisions.
        key: a key of `jax.random.key`.
        num_chains: chains.
        progress: show bars.
        deadline: at which it gives up.

    Returns:
        A kernel of `ex.exact.delayed_acceptance`; None where the surrogate remains so wrong that
        hardly a proposal would be accepted, where it is not finite, where the scale of some
        parameters depends on others, or where the time is up.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x, log = jnp.linspace(-1.0, 3.0, 100), ex.tune.DecisionLog()
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> mode, key = jnp.float32(1.0), jax.random.key(0)
        >>> found = ex.tune.tune_surrogate(model, mode, log, key, progress=False)
        >>> log.decisions[0].what, found.bias, found.starts.shape  # no bias, four chains
        ('surrogate', None, (4, 1))
    """
    deadline = deadline or Deadline.never()
    hessian = None if deadline.over else whole_hessian(posterior, tree.freeze(mode))
    if hessian is None or deadline.over:
        log.decide("surrogate", "none", NO_TIME)
        return None
    if not np.isfinite(hessian).all():
        return None
    coordinates = hessian_coordinates(mode, hessian)
    key_points, key_trial, *keys = split_key(key, 2 + len(ROUNDS))
    rng, d, dtype = generator(key_points), coordinates.dimension, coordinates.basis.dtype
    points = late = rng.standard_normal((POINTS, d))
    starts = on_device(np.zeros((max(num_chains, CHAINS), d)), dtype)
    inner, done, known, settled = 0.02, 0, np.arange(0), False
    surrogate = _condensed(posterior, coordinates, points, known)
    with progress_bar(sum(ROUNDS), show=progress) as report:
        for number, key_round in enumerate(keys):
            if settled and number + 1 < len(ROUNDS):
                continue
            starts = surrogate and _inside(surrogate.condensed, starts)
            if surrogate is None or starts is None:
                log.decide("surrogate", "none", "it is not finite where its chains are")
                return None
            draws, inner = _adapt(surrogate, starts, inner, ROUNDS[number], key_round, deadline)
            if deadline.over:
                log.decide("surrogate", "none", NO_TIME)
                return None
            late = draws[:, draws.shape[1] // 3 :].reshape(-1, d)
            points, ends = late[rng.choice(len(late), POINTS, replace=False)], draws[:, -1]
            if number:  # the first draws are too wide to tell
                known = surrogate.extreme
                settled = not known.size and are_white(late)
            if number + 2 < len(ROUNDS):
                moved = draws_coordinates(coordinates, late)
                points, ends = (_moved(coordinates, moved, u) for u in (points, ends))
                coordinates = moved
            if number + 1 < len(ROUNDS):
                surrogate = _condensed(posterior, coordinates, points, known)
            starts, done = on_device(ends, dtype), done + ROUNDS[number]
            report(done, 0.0)
    assert surrogate is not None  # it has run
    follow = not len(surrogate.steep) and _scales_follow(
        posterior, coordinates, late, inner, rng, deadline
    )
    if follow:
        log.decide("surrogate", "none", "the scale of some parameters follows others")
        return None
    return _tried(surrogate, coordinates, starts[:num_chains], inner, log, key_trial)


def _condensed(
    posterior: Posterior,
    coordinates: Coordinates,
    points: Float[np.ndarray, "draws d"],
    known: Int[np.ndarray, " known"],
) -> Surrogate | None:
    """None where its chains have gone so far that the log-likelihood is not finite there."""
    try:
        return Surrogate.of(posterior, coordinates, points, known)
    except ValueError:  # `condense`'s
        return None


def _scales_follow(
    posterior: Posterior,
    coordinates: Coordinates,
    draws: Float[np.ndarray, "draws d"],
    inner: float,
    rng: np.random.Generator,
    deadline: Deadline,
) -> bool:
    """Whether a short step is due to parameters whose scale depends on others, as in a hierarchy.

    Where these are narrow a chain of one step comes so rarely that no R-hat tells.
    """
    dimension, centre = coordinates.dimension, coordinates.centre
    seconds = num_gradients(dimension) * seconds_of_gradient(posterior, centre)
    if inner >= NORMAL * dimension**-0.25 or seconds > LOOK * deadline.left():
        return False
    rows = coordinates.flats_at(draws)
    return conditional_scales(posterior, centre, rows, rng) is not None


@eqx.filter_jit
def _potentials(condensed: Condensed, u: Float[Array, "chains d"]) -> Float[Array, " chains"]:
    return jax.vmap(condensed.potential)(u)


def _inside(
    condensed: Condensed, starts: Float[Array, "chains d"]
) -> Float[Array, "chains d"] | None:
    """The starts, those beyond a bound that was not known before replaced by the best, if any."""
    values = np.asarray(_potentials(condensed, starts), np.float64)
    if not np.isfinite(values).any():
        return None
    best = int(np.nanargmin(values))
    far = ~(values < values[best] + starts.shape[1] + OUTSIDE)
    return starts[np.where(far, best, np.arange(len(starts)))]


def _adapt(
    surrogate: Surrogate,
    starts: Float[Array, "chains d"],
    inner: float,
    trajectories: int,
    key: PRNGKeyArray,
    deadline: Deadline,
) -> tuple[Float[np.ndarray, "chains draws d"], float]:
    """Draws of HMC whose step is moved towards the acceptance wanted, and the step of the end."""
    first, parts, found = Steps.of(inner, sharp=len(surrogate.steep) > 0), [], []
    for block, key_block in enumerate(split_key(key, trajectories // BLOCK)):
        steps = dataclasses.replace(first, inner=inner)
        samples = sample(
            steps.kernel(surrogate),
            positions=starts,
            num_steps=BLOCK,
            key=key_block,
            num_chains=len(starts),
            progress=False,
            max_seconds=deadline.left(),
        )
        starts = samples.final_state.position
        off = float(np.mean(samples.info.acceptance)) - ACCEPTANCE if samples.num_draws else 0.0
        inner = min(LONGEST, inner * float(np.exp(2.0 * off / np.sqrt(1.0 + block))))
        parts.append(samples.position)
        found.append(inner)
        if deadline.over:
            break
    late = np.log(found[len(found) // 2 :])
    return np.concatenate(parts, axis=1), float(np.exp(late.mean()))


def _moved(
    old: Coordinates, new: Coordinates, u: Float[np.ndarray, "rows d"]
) -> Float[np.ndarray, "rows d"]:
    """The same places in other coordinates."""
    positions = eqx.filter_vmap(old.position)(on_device(u, old.basis.dtype))
    return new.of_rows(positions)


def _tried(
    surrogate: Surrogate,
    coordinates: Coordinates,
    starts: Float[Array, "chains d"],
    inner: float,
    log: DecisionLog,
    key: PRNGKeyArray,
) -> Tuned | None:
    """The kernel, if the whole data accept what it proposes."""
    condensed, steps = surrogate.condensed, Steps.of(inner, sharp=len(surrogate.steep) > 0)
    posterior, total = condensed.posterior, condensed.posterior.num_data
    between = int(np.clip(round(total / steps.cost(surrogate)), 1, MOST_BETWEEN))
    kernel = delayed_acceptance(
        posterior, condensed, steps.kernel(surrogate), num_inner_steps=between
    )
    samples = sample(
        kernel, positions=starts, num_steps=TRIALS, key=key, num_chains=len(starts), progress=False
    )
    accepted = float(np.mean(samples.info.acceptance))
    moves = np.any(np.diff(samples.position, axis=1), axis=-1).mean(axis=1)  # of each chain
    served = moves.min() >= LEAST and steps.outer * steps.outer_count >= SHORTEST
    log.decide(
        "surrogate",
        f"{condensed.evaluations:,} of {total:,} rows, a polynomial for the others"
        if served
        else "none",
        f"log density off by {float(condensed.spread):.2g}; {accepted:.0%} accepted by all rows",
    )
    if not served:
        return None
    log.decide(
        "sampler",
        f"HMC on it, {steps.outer_count} steps of {steps.outer:.3g}",
        f"{len(surrogate.steep)} steep rows in {steps.inner_count} shorter steps each; a test by "
        f"all rows after every {between}: no bias",
    )
    return Tuned(kernel, coordinates, samples.final_state.position, None, 1, 0)
