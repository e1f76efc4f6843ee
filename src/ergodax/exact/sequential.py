"""A Metropolis test that looks at rows until it can tell, or has seen them all."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number
from ergodax.data.arrays import take
from ergodax.data.batching import WithoutReplacement
from ergodax.data.permutation import Permutation
from ergodax.exact.proposal import centre_of, random_walk, unknown
from ergodax.kernel import Info, Kernel, State
from ergodax.recipe.operators import Operator
from ergodax.schedule import Schedule
from ergodax.target.posterior import Posterior


class TaylorProxy(eqx.Module):
    """The change of each example's log-likelihood, to second order about a centre.

    From x to x', with u = x' - x and w = x' + x - 2 centre, xi_i = g_i . u + u^T H_i w / 2. The
    sums of g_i and H_i are found once, by d + 1 passes; then that of all proxies costs O(d^2).

    Args:
        posterior: the model.
        centre: a position or ex.Mode, best the posterior's mode.
    """

    posterior: Posterior
    centre: Float[Array, " d"]
    slope: Float[Array, " d"]
    curvature: Float[Array, "d d"]

    def __init__(self, posterior: Posterior, centre: Any) -> None:
        about = centre_of(centre, posterior.freeze)
        posterior.check(about)
        self.posterior, self.centre = posterior, tree.ravel(about)[0]
        self.slope, self.curvature = _derivatives(posterior, about)

    def total(self, position: PyTree, proposal: PyTree) -> Float[Array, ""]:
        """The sum of all rows' proxies."""
        u, w = (tree.ravel(x)[0] for x in self._directions(position, proposal))
        slope, curvature = (x.astype(u.dtype) for x in (self.slope, self.curvature))
        return slope @ u + 0.5 * u @ (curvature @ w)

    def rows(self, position: PyTree, proposal: PyTree, batch: PyTree) -> Float[Array, " n"]:
        """The proxies of the rows of a batch."""
        u, w = self._directions(position, proposal)

        def slope(centre: PyTree) -> Array:
            return jax.jvp(lambda x: self.posterior.log_likelihoods(x, batch), (centre,), (u,))[1]

        first, second = jax.jvp(slope, (self.centre_like(position),), (w,))
        return first + 0.5 * second

    def centre_like(self, position: PyTree) -> PyTree:
        """The centre in the structure of a position."""
        flat, unravel = tree.ravel(position)
        return unravel(self.centre.astype(flat.dtype))

    def _directions(self, position: PyTree, proposal: PyTree) -> tuple[PyTree, PyTree]:
        centre = self.centre_like(position)
        from_centre = (tree.subtract(x, centre) for x in (position, proposal))
        return tree.subtract(proposal, position), tree.add(*from_centre)


@eqx.filter_jit
def _derivatives(posterior: Posterior, centre: PyTree) -> tuple[Array, Array]:
    flat, unravel = tree.ravel(centre)

    def total(x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum(posterior.log_likelihoods(unravel(x), posterior.data))

    slope = jax.grad(total)
    # One column after the other: all at once would take d times the memory of a pass.
    basis = jnp.eye(flat.size, dtype=flat.dtype)
    return slope(flat), jax.lax.map(lambda e: jax.jvp(slope, (flat,), (e,))[1], basis)


class Seen(eqx.Module):
    """The terms of the rows that were drawn so far, by their moments and extremes.

    `squares` are summed about the mean, `likelihoods` the means of the log-likelihood at position
    and proposal; `magnitude` is its greatest absolute value, by which rounding is judged.
    """

    count: Int[Array, ""]
    mean: Float[Array, ""]
    squares: Float[Array, ""]
    least: Float[Array, ""]
    greatest: Float[Array, ""]
    likelihoods: Float[Array, "2"]
    magnitude: Float[Array, ""]

    @property
    def spread(self) -> Float[Array, ""]:
        """The terms' standard deviation, with divisor `count`."""
        return jnp.sqrt(self.squares / self.count.astype(self.squares.dtype))

    def after(
        self, terms: Float[Array, " n"], both: Float[Array, "2 n"], real: Bool[Array, " n"]
    ) -> "Seen":
        """With a further block of rows, of which those count that are `real`."""
        new = jnp.sum(real, dtype=jnp.int32)
        size = jnp.maximum(new, 1).astype(terms.dtype)
        mean = jnp.sum(jnp.where(real, terms, 0.0)) / size
        squares = jnp.sum(jnp.where(real, (terms - mean) ** 2, 0.0))
        share = new.astype(terms.dtype) / (self.count + new).astype(terms.dtype)
        apart = mean - self.mean
        means = jnp.sum(jnp.where(real[None, :], both, 0.0), axis=1) / size
        return Seen(
            self.count + new,
            self.mean + share * apart,
            self.squares + squares + self.count.astype(terms.dtype) * share * apart**2,
            jnp.minimum(self.least, jnp.min(jnp.where(real, terms, jnp.inf))),
            jnp.maximum(self.greatest, jnp.max(jnp.where(real, terms, -jnp.inf))),
            self.likelihoods + share * (means - self.likelihoods),
            jnp.maximum(self.magnitude, jnp.max(jnp.where(real[None, :], jnp.abs(both), 0.0))),
        )


def nothing_seen(dtype: Any) -> Seen:
    """Before the first row."""
    zero, infinity = jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype)
    return Seen(jnp.int32(0), zero, zero, infinity, -infinity, jnp.zeros(2, dtype), zero)


class StoppingRule(eqx.Module):
    """When the mean of the rows that were seen is far enough from the threshold to decide."""

    @abc.abstractmethod
    def span(self, position: PyTree, proposal: PyTree, centre: PyTree) -> Array | None:
        """A bound on the terms' range over all rows, or None where the rule needs none."""

    @abc.abstractmethod
    def distance(self, seen: Seen, look: Int[Array, ""], span: Array | None) -> Float[Array, ""]:
        """How far is far enough at the look of this number, counted from 0."""


class SequentialMetropolis(Kernel):
    """The kernel that `confidence` and `austerity` return."""

    infeasible: ClassVar[str] = (
        "a row's log-likelihood ratio lay outside the range that `bound` promised. Correct it."
    )
    posterior: Posterior
    step_size: Schedule
    covariance: Operator
    proxy: TaylorProxy | None
    rule: StoppingRule
    looks: Int[Array, " looks"]
    batch_size: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Nothing but the position."""
        self.posterior.check(position)
        return State(position, {}, None, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Propose, draw the uniform number of the test, and look until its outcome is clear."""
        key_proposal, key_test, key_rows = jax.random.split(key, 3)
        x, h = state.position, self.step_size(state.step)
        proposal = random_walk(key_proposal, x, h, self.covariance)
        priors = jnp.stack([self.posterior.prior(at) for at in (x, proposal)])
        level = -jax.random.exponential(key_test, dtype=priors.dtype) + priors[0] - priors[1]
        if self.proxy is not None:
            level = level - self.proxy.total(x, proposal).astype(level.dtype)
        centre = None if self.proxy is None else self.proxy.centre_like(x)
        span = self.rule.span(x, proposal, centre)
        threshold = level / self.posterior.num_data
        seen = self._look(key_rows, x, proposal, threshold, span)
        accepted = seen.mean > threshold.astype(seen.mean.dtype)
        position = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), proposal, x)
        chosen = accepted.astype(jnp.int32)
        info = Info(
            step_size=h,
            potential=-priors[chosen] - self.posterior.num_data * seen.likelihoods[chosen],
            gradient_norm=unknown(priors),
            finite=tree.all_finite(position),
            evaluations=seen.count * (2 if self.proxy is None else 3),
            accepted=accepted,
            feasible=None if span is None else _within(seen, span),
        )
        return State(position, {}, None, None, state.step + 1), info

    def _look(
        self,
        key: PRNGKeyArray,
        position: PyTree,
        proposal: PyTree,
        threshold: Float[Array, ""],
        span: Array | None,
    ) -> Seen:
        """Draw blocks of rows without replacement until the rule can tell."""
        rows, n = Permutation(self.posterior.num_data), self.posterior.num_data
        words = rows.draw(key)

        def one(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            seen, look, _ = carry
            places = seen.count + jnp.arange(self.batch_size, dtype=jnp.int32)
            batch = take(self.posterior.data, rows(words, jnp.minimum(places, n - 1)))
            terms, both = self._terms(position, proposal, batch)
            seen = seen.after(terms, both, places < n)
            now = seen.count >= self.looks[look]
            away = jnp.abs(seen.mean - threshold.astype(seen.mean.dtype))
            clear = now & ((away >= self.rule.distance(seen, look, span)) | (seen.count == n))
            return seen, look + now.astype(jnp.int32), clear

        dtype = jax.eval_shape(
            self.posterior.log_likelihoods, position, take(self.posterior.data, jnp.arange(1))
        ).dtype
        begin = (nothing_seen(dtype), jnp.int32(0), jnp.array(False))
        return lax.while_loop(lambda carry: ~carry[2], one, begin)[0]

    def _terms(self, position: PyTree, proposal: PyTree, batch: PyTree) -> tuple[Array, Array]:
        both = jnp.stack([self.posterior.log_likelihoods(x, batch) for x in (position, proposal)])
        terms = both[1] - both[0]
        if self.proxy is not None:
            terms = terms - self.proxy.rows(position, proposal, batch)
        return terms, both


def _within(seen: Seen, span: Array) -> Bool[Array, ""]:
    """Whether the rows seen respect the bound, up to rounding: a bound that fails is none."""
    span = span.astype(seen.mean.dtype)
    rounding = 64.0 * jnp.finfo(span.dtype).eps * (1.0 + seen.magnitude)
    # A proposal without a likelihood is rejected by all rows, and proves nothing.
    return ~(seen.greatest - seen.least > 1.001 * span + rounding)


def look_times(num_rows: int, batch_size: Any, growth: Any) -> np.ndarray:
    """After how many rows to look: whole batches, each time `growth` times as many, N at last."""
    WithoutReplacement().check(num_rows, batch_size)
    growth = real_number("growth", growth, at_least=1.0, hint="Try growth=2.")
    times = [int(batch_size)]
    while times[-1] < num_rows:
        batches = max(times[-1] // batch_size + 1, int(np.ceil(growth * times[-1] / batch_size)))
        times.append(min(batches * int(batch_size), num_rows))
    return np.array(times, np.int32)
