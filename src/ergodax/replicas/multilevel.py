"""Unbiased expectations from coupled UBU chains at successive step sizes (UBUBU)."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, real_number, whole_number
from ergodax.gradient import SVRG, FullGradient
from ergodax.gradient.base import GradientEstimator, check_estimator
from ergodax.integrator import flows
from ergodax.kernel import check_key, freeze
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.operators import Operator, as_definite

MOST_LEVELS = 20  # there a step is a millionth of h_0, and the bias left is below rounding
# E D_l^2 falls by 2^-SMOOTHNESS a level: h^4 where the gradient is exact, h^3 where its variance
# falls with h^2.
SMOOTHNESS = {FullGradient: 4, SVRG: 3}


class Outcome(NamedTuple):
    """What one replica gives.

    Attributes:
        value: the estimate, a tree of arrays.
        level: the finest level that it reached; 0 where there are none.
        evaluations: gradients of single examples that it took.
    """

    value: PyTree
    level: Int[Array, ""] | int = 0
    evaluations: Float[Array, ""] | float = 0.0


class _Chain(NamedTuple):
    """One of the coupled chains."""

    position: PyTree
    momentum: PyTree
    gradient: PyTree  # the estimator's state
    evaluations: Float[Array, ""]


class Moments(eqx.Module):
    """A function with the first two moments."""

    def __call__(self, position: PyTree) -> dict[str, PyTree]:
        """The position and its square."""
        return {"mean": position, "second_moment": jax.tree.map(jnp.square, position)}


def seen(function: Callable[[PyTree], PyTree], position: PyTree) -> PyTree:
    """The function at a frozen position, as arrays."""
    return jax.tree.map(jnp.asarray, function(tree.thaw(position)))


def added(total: PyTree, value: PyTree, counts: Array) -> PyTree:
    """The total with the value where it counts."""
    return jax.tree.map(lambda t, x: t + jnp.where(counts, x, 0).astype(t.dtype), total, value)


class Unbiased(eqx.Module):
    """The estimator that `unbiased` returns: a pure function of a key, `estimate(key)`."""

    gradient: GradientEstimator
    position: PyTree
    step_size: Float[Array, ""]
    friction: Float[Array, ""]
    temperature: Float[Array, ""]
    mass: Operator
    function: Callable[[PyTree], PyTree]
    burn_in: int = eqx.field(static=True)
    num_draws: int = eqx.field(static=True)
    decay: float = eqx.field(static=True)
    rate: float = eqx.field(static=True)
    num_levels: int | None = eqx.field(static=True)

    @property
    def bias(self) -> str:
        """What bias the estimate has, in words."""
        if self.num_levels is None:
            return "none"
        return f"that of the step size h_0 / 2^{self.num_levels} and of its burn-in"

    @property
    def top(self) -> int:
        """The number of the finest level there is."""
        return MOST_LEVELS if self.num_levels is None else self.num_levels

    def probabilities(self) -> np.ndarray:
        """The probability that a replica has the difference of level l, for l = 1 to `top`."""
        ratio = 2.0**-self.decay
        tail = ratio ** np.arange(self.top)
        law = tail * (1.0 - ratio)
        law[-1] = tail[-1]
        return self.rate * law

    def level(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The level L that a key draws; 0 for none.

        Replicas that are mapped together all take as long as the longest of them: sort their keys
        by level, and map over blocks of them.
        """
        key_level, key_some = jax.random.split(jax.random.fold_in(key, 1))
        # A product of coins, since a uniform number in single precision ends at 2^-23.
        coins = jax.random.uniform(key_level, (self.top,)) < 2.0**-self.decay
        coins = coins.at[:1].set(jax.random.uniform(key_some) < self.rate)
        return jnp.sum(jnp.cumprod(coins.astype(jnp.int32)), dtype=jnp.int32)

    def __call__(self, key: PRNGKeyArray) -> Outcome:
        """One estimate: D_0 + D_L / p_L."""
        key, level = check_key(key), self.level(key)
        key_coarse, key_pair = jax.random.split(jax.random.fold_in(key, 0))
        coarse, cost = self.coarsest(key_coarse)
        if self.top == 0:
            return Outcome(coarse, level, cost)

        def finer() -> tuple[PyTree, Array]:
            return self.difference(key_pair, level)

        def none() -> tuple[PyTree, Array]:
            return tree.zeros_like(coarse), jnp.zeros_like(cost)

        difference, more = lax.cond(level > 0, finer, none) if self.rate < 1.0 else finer()
        law = jnp.asarray(self.probabilities(), tree.result_dtype(self.position))
        weight = 1.0 / law[jnp.maximum(level, 1) - 1]
        return Outcome(tree.add_scaled(coarse, weight, difference), level, cost + more)

    def coarsest(self, key: PRNGKeyArray) -> tuple[PyTree, Float[Array, ""]]:
        """D_0: the average along a chain of step h_0, and the gradients that it took."""
        key_begin, key_run = jax.random.split(key)

        def one(i: Array, carry: tuple[_Chain, PyTree]) -> tuple[_Chain, PyTree]:
            chain, total = carry
            chain = self._step(jax.random.fold_in(key_run, i), chain, self.step_size)
            return chain, added(total, seen(self.function, chain.position), i >= self.burn_in)

        chain = self._begin(key_begin)
        carry = chain, tree.zeros_like(seen(self.function, chain.position))
        chain, total = lax.fori_loop(0, self.burn_in + self.num_draws, one, carry)
        return tree.scale(1.0 / self.num_draws, total), chain.evaluations

    def difference(
        self, key: PRNGKeyArray, level: Int[Array, ""] | int
    ) -> tuple[PyTree, Float[Array, ""]]:
        """D_l: the average of a chain of step h_0 / 2^l less that of one of twice the step.

        Both chains of a level have the burn-in and the times of recording that chains of their
        step have at the next level: the fine one (l + 1) burn_in steps of h_0, the coarse one l.

        Args:
            key: a fresh key.
            level: l, at least 1.

        Returns:
            The difference, a tree like the function's values, and the gradients that it took.
        """
        level = jnp.asarray(level, jnp.int32)
        steps = jnp.left_shift(jnp.int32(1), level - 1)  # of the coarse chain in a time h_0
        h = self.step_size / steps.astype(self.step_size.dtype)
        key_fine, key_coarse, key_alone, key_pair = jax.random.split(key, 4)

        def alone(i: Array, fine: _Chain) -> _Chain:
            return self._step(jax.random.fold_in(key_alone, i), fine, 0.5 * h)

        def pair(i: Array, both: tuple[_Chain, _Chain]) -> tuple[_Chain, _Chain]:
            return self._coupled(jax.random.fold_in(key_pair, i), *both, h)

        def one(i: Array, carry: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
            both, total = carry
            both = lax.fori_loop(i * steps, (i + 1) * steps, pair, both)
            gap = tree.subtract(*(seen(self.function, chain.position) for chain in both))
            return both, added(total, gap, i >= level * self.burn_in)

        fine = lax.fori_loop(0, 2 * steps * self.burn_in, alone, self._begin(key_fine))
        both = fine, self._begin(key_coarse)
        carry = both, tree.zeros_like(seen(self.function, fine.position))
        last = level * self.burn_in + self.num_draws
        (fine, coarse), total = lax.fori_loop(0, last, one, carry)
        cost = fine.evaluations + coarse.evaluations
        return tree.scale(1.0 / self.num_draws, total), cost

    def plan(self, key: PRNGKeyArray, *, num: int = 256, levels: int = 3) -> "Plan":
        """Measure variance and cost of the levels, and what follows for a replica.

        Args:
            key: a fresh key.
            num: runs of each level.
            levels: how many levels are run; those beyond are extrapolated by `decay`'s law.

        Raises:
            TypeError: a number that is not an integer.
            ValueError: num below 2, or levels below 1 or more than there are.
        """
        num = whole_number("num", num, at_least=2)
        levels = whole_number("levels", levels, below=max(2, self.top + 1))
        keys = jax.random.split(check_key(key), (levels + 1, num))
        values, costs = jax.jit(jax.vmap(self.coarsest))(keys[0])
        found, paid = [_columns(values)], [float(np.mean(costs))]
        run = jax.jit(jax.vmap(self.difference, (0, None)))
        for level in range(1, levels + 1):
            values, costs = run(keys[level], jnp.int32(level))
            found.append(_columns(values))
            paid.append(float(np.mean(costs)))
        variance = found[0].var(axis=0, ddof=1)
        squares = [np.mean(x**2, axis=0) / np.where(variance > 0, variance, 1) for x in found[1:]]
        return Plan(self, paid, [float(s[variance > 0].mean()) for s in squares], num)

    def _begin(self, key: PRNGKeyArray) -> _Chain:
        key_momentum, key_gradient = jax.random.split(key)
        momentum = draw_momentum(key_momentum, self.position, self.mass, self.temperature)
        state = self.gradient.init(key_gradient, self.position)
        return _Chain(self.position, momentum, state, jnp.zeros((), jnp.float32))

    def _fly(self, key: PRNGKeyArray, chain: _Chain, t: Array) -> _Chain:
        moved = flows.free_flight(
            key, chain.position, chain.momentum, self.mass, self.friction, self.temperature, t
        )
        return chain._replace(position=moved[0], momentum=moved[1])

    def _kick(self, key: PRNGKeyArray, chain: _Chain, t: Array) -> _Chain:
        estimate, state = self.gradient.estimate(key, chain.gradient, chain.position)
        momentum = flows.kick(chain.momentum, estimate.gradient, t)
        cost = chain.evaluations + estimate.evaluations.astype(jnp.float32)
        return _Chain(chain.position, momentum, state, cost)

    def _step(self, key: PRNGKeyArray, chain: _Chain, h: Array) -> _Chain:
        """UBU: half a flight, a kick, half a flight."""
        first, batch, second = jax.random.split(key, 3)
        chain = self._kick(batch, self._fly(first, chain, 0.5 * h), h)
        return self._fly(second, chain, 0.5 * h)

    def _coupled(
        self, key: PRNGKeyArray, fine: _Chain, coarse: _Chain, h: Array
    ) -> tuple[_Chain, _Chain]:
        """Two steps of h / 2 and one of h, which flies the same four quarters of the time.

        The flight without force has independent increments, so each chain has the law it would
        have alone. The coarse batch is the first of the fine ones.
        """
        keys = jax.random.split(key, 6)
        quarter, half = 0.25 * h, 0.5 * h
        fine = self._kick(keys[4], self._fly(keys[0], fine, quarter), half)
        fine = self._fly(keys[2], self._fly(keys[1], fine, quarter), quarter)
        fine = self._fly(keys[3], self._kick(keys[5], fine, half), quarter)
        coarse = self._fly(keys[1], self._fly(keys[0], coarse, quarter), quarter)
        coarse = self._kick(keys[4], coarse, h)
        coarse = self._fly(keys[3], self._fly(keys[2], coarse, quarter), quarter)
        return fine, coarse


def _columns(values: PyTree) -> np.ndarray:
    """Values along a leading axis as columns of numbers."""
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(values)]
    return np.concatenate([x.reshape(len(x), -1) for x in leaves], axis=1)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What `Unbiased.plan` has measured; `str` is a table.

    Attributes:
        estimator: the Unbiased.
        costs: gradients of single examples that levels 0, 1, ... took, on average.
        squares: E D_l^2 of levels 1, 2, ... in units of Var D_0, on average over all numbers.
        num: runs of each level.
    """

    estimator: Unbiased
    costs: list[float]
    squares: list[float]
    num: int

    @property
    def fall(self) -> float:
        """By which power of 2 E D_l^2 falls from the last level but one to the last."""
        if len(self.squares) < 2:
            return 2 * self.estimator.decay - 1
        return float(np.log2(self.squares[-2] / self.squares[-1]))

    def _series(self) -> tuple[np.ndarray, np.ndarray]:
        """Costs and squares of all levels from 1 on; those not run go on as the last ones fall."""
        e, known = self.estimator, len(self.squares)
        level = np.arange(1, e.top + 1)
        fine = 2.0**level * ((level + 1) * e.burn_in + e.num_draws)
        steps = fine + 2.0 ** (level - 1) * (level * e.burn_in + e.num_draws)
        costs = steps * self.costs[-1] / steps[known - 1]
        fall = min(self.fall, 2 * e.decay - 1)
        squares = self.squares[-1] * 2.0 ** (-fall * (level - known))
        costs[:known], squares[:known] = self.costs[1:], self.squares
        return costs, squares

    @property
    def cost(self) -> float:
        """Expected gradients of single examples of a replica."""
        return self.costs[0] + float(self.estimator.probabilities() @ self._series()[0])

    @property
    def variance(self) -> float:
        """Of a replica, in units of Var D_0, at most: 1 + sum of E D_l^2 / p_l."""
        return 1.0 + float(np.sum(self._series()[1] / self.estimator.probabilities()))

    @property
    def rate(self) -> float:
        """The rate for which variance times cost is least."""
        law = self.estimator.probabilities() / self.estimator.rate
        costs, squares = self._series()
        best = np.sqrt(np.sum(squares / law) * self.costs[0] / (law @ costs))
        return float(np.clip(best, 1e-3, 1.0))

    def __str__(self) -> str:
        """The table."""
        law = self.estimator.probabilities()
        rows = [f"level 0: {self.costs[0]:.4g} gradients, always"]
        rows += [
            f"level {k + 1}: {cost:.4g} gradients, probability {law[k]:.3g}, "
            f"E D^2 {square:.3g} Var D_0, part of the variance {square / law[k]:.3g}"
            for k, (cost, square) in enumerate(zip(self.costs[1:], self.squares, strict=True))
        ]
        rows.append(
            f"a replica: {self.cost:.4g} gradients expected, variance {self.variance:.4g} Var D_0; "
            f"bias: {self.estimator.bias}; best rate {self.rate:.2g} ({self.num} runs a level)"
        )
        if self.fall < self.estimator.decay:
            rows.append(
                f"E D^2 falls by 2^{self.fall:.2g} a level, less than decay = "
                f"{self.estimator.decay:.3g} asks for: a longer burn_in brings the chains of a "
                "pair together, a smaller step makes their difference smaller"
            )
        return "\n".join(rows)


def unbiased(
    gradient: GradientEstimator,
    position: PyTree,
    step_size: Any,
    friction: Any = 1.0,
    *,
    burn_in: int,
    num_draws: int,
    function: Callable[[PyTree], PyTree] | None = None,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    decay: float | None = None,
    rate: float = 1.0,
    num_levels: int | None = None,
) -> Unbiased:
    """Unbiased estimates of expectations, from coupled UBU chains (UBUBU).

    With h_l = h_0 / 2^l, D_0 the average of f along a chain of step h_0 and D_l that of
    f(step h_l) - f(step h_(l-1)) along two chains with the same noise,
        Z = D_0 + D_L / p_L,   P(L = l) = p_l = rate 2^(-decay (l - 1)) (1 - 2^-decay)
    has the mean sum E D_l = lim E f(step h_l), the expectation itself. A chain of level l burns
    in for (l + 1) burn_in h_0, so that the bias of the start goes with that of the step. Variance
    and cost are finite where E D_l^2 ~ 2^(-s l) with s > decay > 1; s is 4 with exact
    gradients and smooth functions, 3 with SVRG, whose noise falls with the step, and half as much
    for indicators. This takes chains that come together, by 2^s in square in a time burn_in h_0:
    well within a mode, not across barriers that are hardly crossed. `plan` measures it. Batches
    whose noise does not fall with the step have s = 1 and no such law, so they need `num_levels`,
    and are then biased.

    Quantiles are no expectations: that of the estimated distribution function is biased, by
    O(1 / number of replicas).

    Args:
        gradient: ex.FullGradient, or ex.SVRG for batches; others with `num_levels` alone.
        position: where all chains start, any tree of floating-point arrays.
        step_size: h_0, positive and stable for UBU (see `langevin`). Half of the largest stable
            one is a good beginning; `plan` tells.
        friction: the rate gamma, a positive number. Coupled chains come together where it is about
            2 sqrt(curvature / mass), of the largest curvature, or more.
        burn_in: steps of h_0 of a chain of level 0 before the first that counts. Long enough for
            the coupled chains to come together; what `plan` says.
        num_draws: times, h_0 apart, over which f is averaged.
        function: f, position -> tree of floating-point arrays; by default the position as "mean"
            and its square as "second_moment".
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a positive number.
        decay: of the probabilities; by default (s + 1) / 2, for which variance times cost is
            least. Between 1 and 2 for functions with jumps: 1.5.
        rate: the probability of any difference at all; `plan(key).rate` is the best.
        num_levels: end at this level, 0 for the chain of h_0 alone. Biased.

    Returns:
        A function of a key, pure and compilable, that returns an Outcome: `value` like f's,
        `level`, `evaluations`. Average `value` over independent keys.

    Raises:
        TypeError: not an estimator, or one whose noise does not fall with the step.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.zeros(1), jnp.ones(1))
        >>> estimate = ex.replicas.unbiased(
        ...     ex.FullGradient(target), jnp.ones(1), 0.5, burn_in=8, num_draws=8
        ... )
        >>> outcomes = jax.vmap(estimate)(jax.random.split(jax.random.key(0), 100))
        >>> outcomes.value["second_moment"].shape
        (100, 1)

    Reference:
        Chada, Leimkuhler, Paulin and Whalley, Unbiased kinetic Langevin Monte Carlo with inexact
        gradients, 2023; for the estimator, Rhee and Glynn, Unbiased estimation with square root
        convergence for SDE models, 2015.
    """
    check_estimator(gradient)
    if num_levels is not None:
        num_levels = whole_number("num_levels", num_levels, at_least=0, below=MOST_LEVELS + 1)
    smooth = next((s for kind, s in SMOOTHNESS.items() if isinstance(gradient, kind)), None)
    if smooth is None and num_levels is None:
        raise TypeError(
            f"gradient must be an ex.FullGradient or ex.SVRG, not {type(gradient).__name__}: where "
            "the noise does not fall with the step, no law of levels has finite variance and cost. "
            "Try ex.SVRG(posterior, 100, period=10), or num_levels=4, whose bias remains."
        )
    smooth = smooth or 2  # a finite sum has a finite variance whatever the law
    decay = (smooth + 1) / 2 if decay is None else decay
    real_number("decay", decay, above=1.0, below=smooth, hint=f"Try {(smooth + 1) / 2}.")
    real_number("rate", rate, above=0.0, below=np.nextafter(1.0, 2.0), hint="Try 1.")
    numbers = {"step_size": step_size, "friction": friction, "temperature": temperature}
    for name, value in numbers.items():
        real_number(name, value, above=0.0)
    position = freeze(gradient, position)
    gradient.init(jax.random.key(0), position)  # which checks the position
    kind = tree.result_dtype(position)
    return Unbiased(
        gradient,
        position,
        jnp.asarray(step_size, kind),
        jnp.asarray(friction, kind),
        jnp.asarray(temperature, kind),
        as_definite(mass, "mass"),
        Moments() if function is None else callable_function("function", function),
        whole_number("burn_in", burn_in, at_least=0),
        whole_number("num_draws", num_draws),
        float(decay),
        float(rate),
        num_levels,
    )
