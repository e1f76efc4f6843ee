"""TunaMH: an exact Metropolis test on a batch of random size."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import numbers, real_array, whole_number
from ergodax.data.arrays import take
from ergodax.exact.proposal import (
    check_posterior,
    number,
    random_walk,
    unknown,
)
from ergodax.kernel import Info, Kernel, State, named
from ergodax.recipe.operators import Operator, as_definite
from ergodax.schedule import Schedule, as_schedule
from ergodax.target.posterior import Posterior


class AliasTable(eqx.Module):
    """Rows drawn with probabilities proportional to weights, by Walker's alias method.

    A uniform row is kept with its own probability and replaced by its alias otherwise. Unlike a
    search in cumulative sums, which single precision blurs where N is large, every row keeps its
    probability to rounding.

    Args:
        weights: shape (N,), not negative, with a positive sum.

    Raises:
        TypeError: weights that are not numbers.
        ValueError: of another shape, negative, or zero throughout.
    """

    keep: Float[Array, " N"]
    alias: Int[Array, " N"]

    def __init__(self, weights: np.ndarray) -> None:
        scaled = real_array("weights", weights, ndim=1)
        if (scaled < 0).any() or not scaled.any():
            raise ValueError("weights must not be negative, and not zero throughout.")
        share = (scaled * (scaled.size / scaled.sum())).tolist()
        keep, alias = [1.0] * len(share), list(range(len(share)))
        small = [i for i, p in enumerate(share) if p < 1.0]
        large = [i for i, p in enumerate(share) if p >= 1.0]
        while small and large:
            low, high = small.pop(), large[-1]
            keep[low], alias[low] = share[low], high
            share[high] -= 1.0 - share[low]
            if share[high] < 1.0:
                small.append(large.pop())
        self.keep, self.alias = jnp.asarray(keep, float), jnp.asarray(alias, jnp.int32)

    def draw(self, key: PRNGKeyArray, count: int) -> Int[Array, " {count}"]:
        """Independent rows.

        Args:
            key: of the draw.
            count: how many.

        Returns:
            Their numbers, from 0 to N - 1.
        """
        key_row, key_keep = jax.random.split(key)
        rows = jax.random.randint(key_row, (count,), 0, self.keep.size, jnp.int32)
        uniforms = jax.random.uniform(key_keep, (count,), self.keep.dtype)
        return jnp.where(uniforms < self.keep[rows], rows, self.alias[rows])


Distance = Callable[[PyTree, PyTree], Array]


class Tuna(Kernel):
    """The kernel that `tuna` returns."""

    infeasible: ClassVar[str] = (
        "a row's potential changed by more than `lipschitz` times the distance allows. Correct it."
    )
    posterior: Posterior
    step_size: Schedule
    covariance: Operator
    distance: Distance
    lipschitz: Float[Array, " N"]
    total: Float[Array, ""]
    rows: AliasTable
    chi: Float[Array, ""]
    block_size: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Nothing but the position."""
        self.posterior.check(position)
        return State(position, {}, None, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Propose, draw a batch that suits the proposal, accept or stay."""
        key_proposal, key_batch, key_test = jax.random.split(key, 3)
        x, h = state.position, self.step_size(state.step)
        proposal = random_walk(key_proposal, x, h, self.covariance)
        priors = [self.posterior.prior(at) for at in (x, proposal)]
        distance = jnp.asarray(self.distance(tree.thaw(x), tree.thaw(proposal)))
        log_ratio, count, sound = self._batch(key_batch, x, proposal, distance)
        log_ratio = priors[1] - priors[0] + log_ratio.astype(priors[0].dtype)
        # NaN, from a proposal without a density, fails the comparison and is rejected.
        acceptance = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accepted = jax.random.uniform(key_test, dtype=acceptance.dtype) < acceptance
        position = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), proposal, x)
        info = Info(
            step_size=h,
            potential=unknown(acceptance),
            gradient_norm=unknown(acceptance),
            finite=tree.all_finite(position),
            evaluations=2 * count,
            acceptance=acceptance,
            accepted=accepted,
            feasible=sound,
        )
        return State(position, {}, None, None, state.step + 1), info

    def _batch(
        self, key: PRNGKeyArray, position: PyTree, proposal: PyTree, distance: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Int[Array, ""], Bool[Array, ""]]:
        """log of the batch's factor in the ratio, its size, whether the bound held on it.

        A Poisson number of rows is what arrives at unit rate until a time, which needs no place
        for the largest number that might come.
        """
        dtype = tree.result_dtype(position)
        most = self.total.astype(dtype) * distance.astype(dtype)
        chi = self.chi.astype(dtype)
        end = most + chi * most**2

        def one(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            key, time, total, count, sound = carry
            key, key_time, key_row, key_keep = jax.random.split(key, 4)
            times = time + jnp.cumsum(jax.random.exponential(key_time, (self.block_size,), dtype))
            real = times < end
            rows = self.rows.draw(key_row, self.block_size)
            change, holds = self._change(position, proposal, distance, rows)
            keep, log_factor = thinning(change.astype(dtype), chi * most)
            kept = real & (jax.random.uniform(key_keep, keep.shape, dtype) < keep)
            total = total + jnp.sum(jnp.where(kept, log_factor, 0.0))
            count = count + jnp.sum(real, dtype=jnp.int32)
            return key, times[-1], total, count, sound & jnp.all(holds | ~real)

        zero = jnp.zeros((), dtype)
        begin = (key, zero, zero, jnp.int32(0), jnp.array(True))
        _, _, total, count, sound = lax.while_loop(lambda carry: carry[1] < end, one, begin)
        return total, count, sound

    def _change(
        self, position: PyTree, proposal: PyTree, distance: Float[Array, ""], rows: Array
    ) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
        """(U_i(x') - U_i(x)) / (c_i M), in [-1, 1] where the bound holds, and whether it does."""
        batch = take(self.posterior.data, rows)
        old, new = (self.posterior.log_likelihoods(x, batch) for x in (position, proposal))
        most = self.lipschitz[rows].astype(old.dtype) * distance.astype(old.dtype)
        rounding = 8.0 * jnp.finfo(old.dtype).eps * (jnp.abs(old) + jnp.abs(new))
        share = (old - new) / jnp.maximum(most, jnp.finfo(old.dtype).tiny)
        # A proposal without a likelihood gives NaN here, and proves nothing.
        return jnp.clip(share, -1.0, 1.0), ~(jnp.abs(old - new) > 1.001 * most + rounding)


def thinning(
    change: Float[Array, " n"], extra: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """How likely an arriving row is kept, and the logarithm of its factor in the ratio if so.

    Rows arrive at the rate (lambda + C M) c_i / C and are kept so that those of row i number
    Poisson(lambda c_i / C + phi_i); change is (U_i(x') - U_i(x)) / (c_i M), extra lambda / (C M).
    """
    ahead, back = extra + 0.5 * (1.0 + change), extra + 0.5 * (1.0 - change)
    return ahead / (extra + 1.0), jnp.log(back) - jnp.log(ahead)


def euclidean(position: PyTree, proposal: PyTree) -> Float[Array, ""]:
    """|proposal - position| over all leaves."""
    return tree.norm(tree.subtract(tree.freeze(proposal), tree.freeze(position)))


@named
def tuna(
    posterior: Posterior,
    step_size: Any,
    lipschitz: Any,
    *,
    distance: Distance = euclidean,
    covariance: Any = 1.0,
    chi: Any = 0.1,
    block_size: int | np.integer = 32,
) -> Tuna:
    """TunaMH: an exact Metropolis test on a batch of Poisson size.

    State: position x. With U_i = -log p(y_i | x), constants c_i with
        |U_i(x') - U_i(x)| <= c_i M(x, x'),  C = sum of c_i,  lambda = chi C^2 M^2
    and phi_i(x, x') = (U_i(x') - U_i(x) + c_i M) / 2, a step is
        x' ~ N(x, h^2 covariance);  Poisson(lambda + C M) rows, row i with probability c_i / C,
        each kept with probability (lambda c_i + C phi_i(x, x')) / (lambda c_i + C c_i M)
        x+ = x' with probability min(1, p(x') / p(x) prod over the rows kept of
             (lambda c_i + C phi_i(x', x)) / (lambda c_i + C phi_i(x, x')))
    No bias at any step size, chi and batch. A small chi saves rows and lowers the acceptance, whose
    logarithm has a variance of about mean((U_i' - U_i)^2 / (c_i M)^2) / chi.

    Args:
        posterior: a Posterior.
        step_size: h, a positive number or a schedule; the batch grows with its square.
        lipschitz: c_i, shape (N,), not negative; for logistic regression the norms of the rows of
            the features.
        distance: M, symmetric, a function (x, x') -> number; the Euclidean distance by default.
        covariance: of the proposals for h = 1: number, vector, matrix or operator.
        chi: positive; how far the batch exceeds the least possible.
        block_size: rows computed at a time.

    Returns:
        A kernel with state.position; `auxiliary` is empty. Info: `evaluations` counts 2 for each
        row drawn; `acceptance` is that of the batch; `potential` is NaN, since no estimate of it is
        made; `feasible` is False where a row broke its bound, and `sample` stops there.

    Raises:
        TypeError: not a Posterior, or an argument of the wrong type.
        ValueError: a number out of range, or constants of the wrong shape.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.exact.tuna(model, 0.1, 4.0 * jnp.ones(100))
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.1)
        True

    Reference:
        Zhang, Cooper and De Sa, Asymptotically optimal exact minibatch Metropolis-Hastings, 2020.
    """
    check_posterior(posterior)
    if not callable(distance):
        raise TypeError(f"distance must be a function (x, x') -> number, not {distance!r}.")
    constants = np.asarray(numbers("lipschitz", lipschitz), np.float64)
    if constants.shape != (posterior.num_data,):
        raise ValueError(
            f"lipschitz must have shape ({posterior.num_data},), a number for each row of the "
            f"data, not {constants.shape}."
        )
    if not (np.isfinite(constants).all() and (constants >= 0).all() and constants.any()):
        raise ValueError("lipschitz must be finite and not negative, and not zero throughout.")
    return Tuna(
        posterior,
        as_schedule(step_size, "step_size"),
        as_definite(covariance, "covariance"),
        distance,
        jnp.asarray(constants, float),
        jnp.asarray(constants.sum(), float),
        AliasTable(constants),
        number("chi", chi),
        whole_number("block_size", block_size),
    )
