"""Firefly Monte Carlo: exact, and each step looks at the bright rows only.

z_i = 1 marks a row as bright. Given the position, the z_i are independent, with odds
r_i = L_i / B_i - 1 for a likelihood L_i and its lower bound B_i. An update proposes to every bright
row to go dark, accepted with probability min(1, q / r_i), and to every dark row, with probability
q each, to go bright, accepted with probability min(1, r_i / q). The dark rows that get a proposal
are found by the geometric gaps between them, so the cost is that of the bright rows and of about
q N others. The bright rows are stored, sorted, in a fixed number of places; the places left hold N.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt32

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.data.arrays import take
from ergodax.exact.proposal import check_posterior, number
from ergodax.gradient.base import Estimate
from ergodax.integrator.hamiltonian import Energies, leapfrog, metropolis
from ergodax.kernel import Info, Kernel, State, named
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.operators import Operator, as_definite
from ergodax.schedule import Schedule, as_schedule
from ergodax.target.posterior import Posterior

BLOCK = 32  # rows computed at a time


class LowerBound(eqx.Module):
    """Functions B_i with 0 < B_i <= L_i whose product over all rows costs no pass over them."""

    @abc.abstractmethod
    def log_bounds(self, position: PyTree, rows: Int[Array, " n"]) -> Float[Array, " n"]:
        """log B_i of these rows, at a position as the kernels hold it."""

    @abc.abstractmethod
    def log_bound_sum(self, position: PyTree) -> Float[Array, ""]:
        """The sum of log B_i over all rows, up to a constant."""


class Excess(eqx.Module):
    """log(L_i / B_i), which is never negative if the bounds are bounds."""

    posterior: Posterior
    bound: LowerBound

    def __call__(
        self, position: PyTree, rows: Int[Array, " n"]
    ) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
        """The excess of each of these rows, at least 0, and whether its bound holds."""
        rows = jnp.minimum(rows, self.posterior.num_data - 1)
        likelihoods = self.posterior.log_likelihoods(position, take(self.posterior.data, rows))
        gap = likelihoods - self.bound.log_bounds(position, rows).astype(likelihoods.dtype)
        rounding = jnp.finfo(gap.dtype).eps ** 0.5 * (1.0 + jnp.abs(likelihoods))
        return jnp.maximum(gap, 0.0), gap >= -rounding


class Flips(NamedTuple):
    """The bright rows now, how many (lost ones included), whether all bounds held, and the cost."""

    bright: Int[Array, " places"]
    total: Int[Array, ""]
    sound: Bool[Array, ""]
    evaluations: Int[Array, ""]


def flip(
    key: PRNGKeyArray,
    excess: Excess,
    position: PyTree,
    bright: Int[Array, " places"],
    probability: Float[Array, ""],
) -> Flips:
    """Update every z_i at a position; `bright` has a multiple of BLOCK places."""
    key_dark, key_bright = jax.random.split(key)
    n, count = excess.posterior.num_data, how_many(bright < excess.posterior.num_data)
    uniforms = jax.random.uniform(key_dark, bright.shape, probability.dtype)

    def darken(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """A block of the bright rows; N takes the places of those that go dark."""
        done, rows, sound = carry
        block, u = (lax.dynamic_slice(x, (done,), (BLOCK,)) for x in (rows, uniforms))
        gap, holds = excess(position, block)
        stay = u * jnp.expm1(gap) >= probability
        rows = lax.dynamic_update_slice(rows, jnp.where(stay, block, n), (done,))
        return done + BLOCK, rows, sound & jnp.all(holds | (block == n))

    def brighten(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """The next rows with a proposal; those that were dark are looked at."""
        key, passed, come, arrivals, looked, sound = carry
        key, key_gaps, key_test = jax.random.split(key, 3)
        passed, rows = successes(key_gaps, passed, probability, n)
        place = jnp.minimum(jnp.searchsorted(bright, rows), bright.size - 1)
        dark = (rows < n) & (bright[place] != rows)
        gap, holds = excess(position, rows)
        u = jax.random.uniform(key_test, rows.shape, probability.dtype)
        goes = dark & (u * probability < jnp.expm1(gap))
        slots = jnp.where(goes, arrivals + jnp.cumsum(goes, dtype=jnp.int32) - 1, come.size)
        come = come.at[slots].set(rows, mode="drop")
        arrivals = arrivals + how_many(goes)
        looked = looked + how_many(dark)
        return key, passed, come, arrivals, looked, sound & jnp.all(holds | ~dark)

    none, yes = jnp.int32(0), jnp.array(True)
    _, stay, sound = lax.while_loop(lambda carry: carry[0] < count, darken, (none, bright, yes))
    begin = (key_bright, jnp.uint32(0), jnp.full_like(bright, n), none, none, yes)
    found = lax.while_loop(lambda carry: carry[1] < n, brighten, begin)
    _, _, come, arrivals, looked, holds = found
    rows = jnp.sort(jnp.concatenate([stay, come]))[: bright.size]
    return Flips(rows, how_many(stay < n) + arrivals, sound & holds, count + looked)


def how_many(flags: Bool[Array, " n"]) -> Int[Array, ""]:
    """The number of flags that are raised."""
    return jnp.sum(flags, dtype=jnp.int32)


def successes(
    key: PRNGKeyArray, passed: UInt32[Array, ""], probability: Float[Array, ""], num_rows: int
) -> tuple[UInt32[Array, ""], Int[Array, " block"]]:
    """The next BLOCK successes in a row of N trials, one for each row, after `passed` of them.

    Returns how many trials have been made then, and the successes' rows, N beyond the end.
    """
    bits = jax.random.bits(key, (BLOCK,), jnp.uint32).astype(probability.dtype)
    # 32 bits near zero, where a uniform number of JAX has 23: rare successes need them.
    exponential = -jnp.log1p(-(bits + 0.5) * 2.0**-32)
    failures = jnp.floor(exponential / -jnp.log1p(-probability))
    failures = jnp.where(failures < num_rows, failures, num_rows).astype(jnp.uint32)
    # N + 1 stands for all that is beyond the end, so that no sum can overflow.
    ends = lax.associative_scan(
        lambda a, b: jnp.minimum(a + b, jnp.uint32(num_rows + 1)),
        (failures + 1).at[0].add(passed),
    )
    return ends[-1], ends.astype(jnp.int32) - 1


class Firefly(Kernel):
    """The kernel that `firefly` returns."""

    infeasible: ClassVar[str] = (
        "a row's likelihood fell below its lower bound, or more rows went bright than `capacity`. "
        "Raise the capacity, or centre the bounds at the mode."
    )
    excess: Excess
    step_size: Schedule
    mass: Operator
    candidates: Float[Array, ""]
    num_leapfrog_steps: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Draw every z_i, which costs a pass over the data; state.gradient is the bright rows."""
        posterior = self.excess.posterior
        posterior.check(position)
        gap, _ = self.excess(position, jnp.arange(posterior.num_data, dtype=jnp.int32))
        bright = jax.random.exponential(key, gap.shape, gap.dtype) < gap
        places = (self.capacity // BLOCK + 1) * BLOCK
        rows = jnp.nonzero(bright, size=places, fill_value=posterior.num_data)[0]
        return State(position, {}, rows.astype(jnp.int32), None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Update the bright rows, then the position given them."""
        key_flip, key_momentum, key_accept = jax.random.split(key, 3)
        x, h = state.position, self.step_size(state.step)
        n = self.excess.posterior.num_data
        probability = jnp.minimum(self.candidates / n, 0.5).astype(tree.result_dtype(x))
        begun = how_many(state.gradient < n)
        flips = flip(key_flip, self.excess, x, state.gradient, probability)

        def energies(position: PyTree) -> Energies:
            return energy_given(self.excess, flips.bright, position)

        start = energies(x)
        momentum = draw_momentum(key_momentum, x, self.mass)
        y, r, end = leapfrog(energies, x, momentum, start, self.mass, h, self.num_leapfrog_steps)
        rise = end[0] + self._kinetic(r) - start[0] - self._kinetic(momentum)
        given = State(x, {}, flips.bright, Estimate(start[1], start[0]), state.step)
        state, info = metropolis(
            key_accept,
            given,
            (y, Estimate(end[1], end[0])),
            rise,
            step_size=h,
            evaluations=flips.evaluations + flips.total * (self.num_leapfrog_steps + 1),
            feasible=flips.sound & (jnp.maximum(begun, flips.total) <= self.capacity),
        )
        return State(state.position, {}, state.gradient, None, state.step), info

    def _kinetic(self, momentum: PyTree) -> Float[Array, ""]:
        return 0.5 * tree.dot(momentum, self.mass.solve(momentum))


def energy_given(excess: Excess, bright: Int[Array, " places"], position: PyTree) -> Energies:
    """-log of p(x) prod B_i prod over bright rows of (L_i / B_i - 1), and its gradient."""
    n = excess.posterior.num_data
    count = how_many(bright < n)

    def smooth(x: PyTree) -> Float[Array, ""]:
        prior = excess.posterior.prior(x)
        return -prior - excess.bound.log_bound_sum(x).astype(prior.dtype)

    def of_block(x: PyTree, rows: Int[Array, " n"]) -> Float[Array, ""]:
        gap, real = excess(x, rows)[0], rows < n
        # log(e^g - 1) without overflow; places left must not spoil the gradient either.
        gap = jnp.where(real, gap, 1.0)
        return -jnp.sum(jnp.where(real, gap + jnp.log(-jnp.expm1(-gap)), 0.0))

    def one(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        done, value, gradient = carry
        rows = lax.dynamic_slice(bright, (done,), (BLOCK,))
        more, slope = jax.value_and_grad(of_block)(position, rows)
        return done + BLOCK, value + more.astype(value.dtype), tree.add(gradient, slope)

    begin = (jnp.int32(0), *jax.value_and_grad(smooth)(position))
    return lax.while_loop(lambda carry: carry[0] < count, one, begin)[1:]


@named
def firefly(
    posterior: Posterior,
    step_size: Any,
    bound: LowerBound,
    *,
    mass: Any = 1.0,
    num_leapfrog_steps: int | np.integer = 1,
    candidates: Any = 20.0,
    capacity: int | np.integer = 255,
) -> Firefly:
    """Firefly Monte Carlo: the posterior itself, from the rows where a bound does not do.

    State: position x and a bright-or-dark mark z_i of each row. With lower bounds B_i <= L_i of the
    likelihoods, the joint density
        p(x) prod_i B_i(x) prod_{i bright} (L_i(x) / B_i(x) - 1)
    has the posterior as its marginal in x, and only the bright rows' likelihoods in it. A step
    updates z, then x given z, and leaves the joint density invariant:
        bright rows go dark with probability min(1, q / r_i), where r_i = L_i / B_i - 1
        dark rows get a proposal with probability q = candidates / N, accepted with min(1, r_i / q)
        x moves by leapfrog steps of size h from (x, r), r ~ N(0, M), and a Metropolis test; a
        single step is the Metropolis-adjusted Langevin algorithm
    No bias at any step size. Cost: (num_leapfrog_steps + 2) likelihoods a bright row, and
    `candidates`; see `LogisticBound` for how many rows are bright. z changes slowly where r_i is
    above q, so compare settings by the effective sample size for the same evaluations.

    Args:
        posterior: a Posterior; its likelihood must be normalised as the bound is.
        step_size: h, a positive number or a schedule.
        bound: of the likelihood of each row, such as LogisticBound, or a LowerBound of yours.
        mass: M: number, vector, matrix or operator, positive definite; the Hessian at the mode is
            a good one.
        num_leapfrog_steps: at least 1.
        candidates: how many dark rows get a proposal in a step on average; about as many as are
            bright, or more.
        capacity: how many rows may be bright at once.

    Returns:
        A kernel with state.position; state.gradient holds the bright rows, sorted, N in the places
        left. Info: `evaluations` counts likelihoods of single rows; `potential` is that of x given
        the bright rows; `feasible` is False where more rows than `capacity` went bright or a bound
        exceeded its likelihood, and `sample` stops there.

    Raises:
        TypeError: not a Posterior or a LowerBound, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jax.random.normal(jax.random.key(0), (1_000, 2))
        >>> y = jnp.where(x[:, 0] + jax.random.logistic(jax.random.key(1), (1_000,)) > 0, 1.0, -1.0)
        >>> log_likelihood = lambda w, row: jax.nn.log_sigmoid(row[1] * (row[0] @ w))
        >>> model = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))
        >>> bound = ex.exact.LogisticBound(x, y)
        >>> kernel = ex.exact.firefly(model, 0.1, bound, num_leapfrog_steps=4)
        >>> start = jnp.array([1.0, 0.0])
        >>> samples = ex.sample(kernel, start, 500, key=jax.random.key(2), progress=False)
        >>> bool(samples.info.evaluations.mean() < 5_000)  # rows of a step, of 5 gradients of 1,000
        True

    Reference:
        Maclaurin and Adams, Firefly Monte Carlo: exact MCMC with subsets of data, 2014.
    """
    if not isinstance(bound, LowerBound):
        raise TypeError(
            f"bound must be a lower bound of the likelihood, not {bound!r}. For logistic "
            "regression try ex.exact.LogisticBound(features, labels, centre=mode)."
        )
    return Firefly(
        Excess(check_posterior(posterior), bound),
        as_schedule(step_size, "step_size"),
        as_definite(mass, "mass"),
        number("candidates", candidates),
        whole_number("num_leapfrog_steps", num_leapfrog_steps),
        whole_number("capacity", capacity),
    )
