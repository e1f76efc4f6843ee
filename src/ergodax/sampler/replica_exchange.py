"""Replicas at several temperatures that exchange their places."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import flag, whole_number
from ergodax.control_flow import when
from ergodax.data.arrays import take
from ergodax.data.batching import WithoutReplacement
from ergodax.gradient.base import GradientEstimator
from ergodax.kernel import Info, Kernel, State, named
from ergodax.sampler.cyclical import check_sampler
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior


def swap_probability(
    difference: Float[Array, "..."], variance: Float[Array, "..."], gap: Float[Array, "..."]
) -> Float[Array, "..."]:
    """min(1, exp(gap D - gap^2 variance / 2)), D the estimated difference: the penalty method.

    Over Gaussian noise of this variance in D, the mean A(D) of it obeys A(D) = e^(gap D) A(-D):
    swaps are in detailed balance as if the energies were exact.
    """
    return jnp.exp(jnp.minimum(gap * difference - 0.5 * gap**2 * variance, 0.0))


def neighbours(num_replicas: int, number: Int[Array, ""]) -> Bool[Array, " pairs"]:
    """Which pairs (i, i + 1) make an attempt: even and odd i in turn; with two replicas the one."""
    pairs = jnp.arange(num_replicas - 1, dtype=jnp.int32)
    return pairs % 2 == (number % 2 if num_replicas > 2 else 0)


class Energies(eqx.Module):
    """Estimates U(x_i) - U(x_(i+1)) for the neighbouring pairs of R replicas.

    From a batch of the target's examples, or, where `batch_size` is None, from the exact U.
    """

    target: AbstractTarget
    batch_size: int | None = eqx.field(static=True)

    @property
    def evaluations(self) -> int:
        """Examples that are evaluated for each replica; 1 where there are no data."""
        return self.target.evaluations if self.batch_size is None else self.batch_size

    def differences(
        self, key: PRNGKeyArray, positions: PyTree
    ) -> tuple[Float[Array, " pairs"], Float[Array, " pairs"]]:
        """The differences, and the variances of their noise."""
        target, n = self.target, self.batch_size
        if isinstance(target, Posterior) and n is not None:
            rows, _ = WithoutReplacement().draw(key, None, target.num_data, n)
            return differences_on(target, positions, take(target.data, rows))
        exact = -jnp.diff(jax.vmap(target.potential)(positions))
        return exact, jnp.zeros_like(exact)


def differences_on(
    posterior: Posterior, positions: PyTree, batch: PyTree
) -> tuple[Float[Array, " pairs"], Float[Array, " pairs"]]:
    """U(x_i) - U(x_(i+1)) from one batch for all replicas, and the variances of the noise.

    With the batch in common, the noise is that of the examples' differences in log-likelihood
    alone: its variance is N (N - n) / n times theirs.
    """

    def at(position: PyTree) -> tuple[Array, Array]:
        prior = posterior.prior(position)
        return prior, posterior.log_likelihoods(position, batch)

    priors, likelihoods = jax.vmap(at)(positions)
    change = jnp.diff(likelihoods, axis=0)
    num_data, n = posterior.num_data, change.shape[1]
    factor = WithoutReplacement().noise_factor(num_data, n)
    variance = factor * jnp.var(change, axis=1, ddof=min(1, n - 1))
    return jnp.diff(priors) + num_data * jnp.mean(change, axis=1), variance


def energies_for(gradient: Any, batch_size: Any, *, correction: bool) -> Energies:
    """The energies that swaps are decided by.

    Raises: TypeError without a target, or for a batch of none; ValueError for one of one example.
    """
    target = getattr(gradient, "target", None)
    if not isinstance(target, AbstractTarget):
        raise TypeError(
            f"gradient must have a target, whose energies decide the swaps, and {gradient!r} has "
            "none. Try ex.Minibatch or ex.FullGradient."
        )
    if not isinstance(target, Posterior):
        if batch_size is not None:
            raise TypeError("swap_batch_size is for targets with data; here U is exact. Omit it.")
        return Energies(target, None)
    own = gradient
    while batch_size is None and own is not None:  # an estimator may wrap another
        batch_size, own = getattr(own, "batch_size", None), getattr(own, "gradient", None)
    if batch_size is None:
        return Energies(target, None)
    WithoutReplacement().check(target.num_data, batch_size)
    if int(batch_size) == target.num_data:
        return Energies(target, None)
    if batch_size == 1 and correction:
        raise ValueError(
            "the variance of a swap's noise can't be estimated from one example: "
            "try swap_batch_size=100."
        )
    return Energies(target, int(np.asarray(batch_size)))


class Replicas(eqx.Module):
    """What the replicas have, the coldest first; every leaf has a leading axis of R."""

    position: PyTree
    auxiliary: dict[str, PyTree]
    gradient: PyTree
    estimate: Any

    @classmethod
    def of(cls, state: State) -> "Replicas":
        """The replicas that a State of `replica_exchange` holds."""
        auxiliary = dict(state.auxiliary)
        hotter = auxiliary.pop("hotter")
        del auxiliary["swap_rate"]
        position = jax.tree.map(
            lambda cold, hot: jnp.concatenate([cold[None], hot]), state.position, hotter
        )
        return cls(position, auxiliary, state.gradient, state.estimate)

    def state(self, swap_rate: Float[Array, " pairs"], step: Int[Array, ""]) -> State:
        """The State that holds them."""
        cold = jax.tree.map(lambda x: x[0], self.position)
        hotter = jax.tree.map(lambda x: x[1:], self.position)
        auxiliary = {**self.auxiliary, "hotter": hotter, "swap_rate": swap_rate}
        return State(cold, auxiliary, self.gradient, self.estimate, step)

    def exchanged(
        self, order: Int[Array, " replicas"], temperatures: Float[Array, " replicas"]
    ) -> "Replicas":
        """The replica order[i] in place i, its momentum in proportion to the root of T_i."""
        new = jax.tree.map(lambda x: x[order], self)
        if "momentum" not in new.auxiliary:
            return new
        root = jnp.sqrt(temperatures / temperatures[order])
        momentum = jax.vmap(tree.scale)(root, new.auxiliary["momentum"])
        return dataclasses.replace(new, auxiliary={**new.auxiliary, "momentum": momentum})


def stack(kernels: list[Any]) -> tuple[Any, tuple[int | None, ...]]:
    """One kernel for several that differ in their numbers alone, and which leaves have an axis.

    Arrays that are the same for all are kept once; single numbers have an axis always, so that
    the program does not depend on which of them happen to be equal. Raises: TypeError for others.
    """
    parts = [eqx.partition(kernel, eqx.is_array) for kernel in kernels]
    (arrays, rest), *others = parts
    shape = jax.tree.structure(arrays)
    if any(jax.tree.structure(a) != shape or not eqx.tree_equal(r, rest) for a, r in others):
        raise TypeError(
            "step_size must be of one kind for all temperatures: all numbers, or all schedules of "
            "one class. Try ex.schedule.Phases for each."
        )
    rows = list(zip(*(jax.tree.leaves(own) for own, _ in parts), strict=True))
    axes = tuple(None if _shared(row) else 0 for row in rows)
    pairs = zip(rows, axes, strict=True)
    leaves = [row[0] if axis is None else jnp.stack(row) for row, axis in pairs]
    return eqx.combine(shape.unflatten(leaves), rest), axes


def _shared(row: tuple[Array, ...]) -> bool:
    first = row[0]
    if first.ndim == 0 or any(tree.is_traced(x) for x in row):
        return all(x is first for x in row)
    return all(np.array_equal(x, first) for x in row)


class Outcome(eqx.Module):
    """What became of the attempts of one step, an entry for each neighbouring pair."""

    active: Bool[Array, " pairs"]  # whether it made an attempt
    probability: Float[Array, " pairs"]  # of a swap; 0 where there was no attempt
    accepted: Bool[Array, " pairs"]

    @classmethod
    def none(cls, rate: Float[Array, " pairs"]) -> "Outcome":
        """No attempt of any pair."""
        no = jnp.zeros(rate.shape, bool)
        return cls(no, jnp.zeros_like(rate), no)


class ReplicaExchange(Kernel):
    """The kernel that `replica_exchange` returns."""

    kernels: Kernel  # of all replicas: leaves that differ between them have a leading axis
    axes: tuple[int | None, ...] = eqx.field(static=True)  # of these leaves: 0, or None if shared
    energies: Energies
    temperatures: Float[Array, " replicas"]
    swap_every: int = eqx.field(static=True)
    correction: bool = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """All replicas start at `position`, with momenta of their own."""
        keys = jax.random.split(key, self.temperatures.size)
        states = self._each(lambda kernel, key: kernel.init(key, position), keys)
        others = sorted(set(states.auxiliary) - {"momentum"})
        if others:
            raise ValueError(
                "replica_exchange knows how positions and momenta change places, but this "
                f"sampler also has {others}. Try ex.sgld, ex.sghmc or ex.langevin."
            )
        replicas = Replicas(states.position, states.auxiliary, states.gradient, states.estimate)
        rate = jnp.zeros(self.temperatures.size - 1, tree.result_dtype(states.position))
        return replicas.state(rate, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State, batch: PyTree = None) -> tuple[State, Info]:
        """Move every replica; where a round is due, let neighbours exchange places.

        A batch of the user's is that of every replica's gradient; swaps draw their own.
        """
        keys = jax.random.split(key, self.temperatures.size + 1)
        given = {} if batch is None else {"batch": batch}

        def move(kernel: Kernel, key: PRNGKeyArray, own: Replicas) -> tuple[Replicas, Info]:
            begin = State(own.position, own.auxiliary, own.gradient, own.estimate, state.step)
            end, info = kernel.step(key, begin, **given)
            return Replicas(end.position, end.auxiliary, end.gradient, end.estimate), info

        moved, infos = self._each(move, keys[:-1], Replicas.of(state))
        rate, count = state.auxiliary["swap_rate"], state.step + 1
        round_number = count // self.swap_every - 1
        if self.swap_every == 1:
            replicas, rate, outcome = self._swap(keys[-1], moved, rate, round_number)
        else:
            replicas, rate, outcome = when(
                count % self.swap_every == 0,
                lambda: self._swap(keys[-1], moved, rate, round_number),
                lambda: (moved, rate, Outcome.none(rate)),
            )
        return replicas.state(rate, count), self._info(infos, outcome)

    def _each(self, function: Callable[..., Any], keys: Key[Array, " replicas"], *own: Any) -> Any:
        """function(kernel, key, *own) of every replica; leaves in common are not copied."""
        arrays, rest = eqx.partition(self.kernels, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)

        def one(leaves: list[Array], key: PRNGKeyArray, *own: Any) -> Any:
            return function(eqx.combine(structure.unflatten(leaves), rest), key, *own)

        return jax.vmap(one, in_axes=(list(self.axes), 0, *[0] * len(own)))(leaves, keys, *own)

    def _swap(
        self,
        key: PRNGKeyArray,
        replicas: Replicas,
        rate: Float[Array, " pairs"],
        number: Int[Array, ""],
    ) -> tuple[Replicas, Float[Array, " pairs"], "Outcome"]:
        """A round of attempts: the replicas in their new places, and the new mean rates."""
        key_energy, key_accept = jax.random.split(key)
        difference, variance = self.energies.differences(key_energy, replicas.position)
        if not self.correction:
            variance = jnp.zeros_like(variance)
        gap = tree.cast(-jnp.diff(1.0 / self.temperatures), difference)
        active = neighbours(self.temperatures.size, number)
        probability = swap_probability(difference, variance, gap)
        # A replica that has diverged passes, for then it reaches the cold one and
        # ends the run, which would go on without it otherwise.
        refused = jax.random.uniform(key_accept, gap.shape, gap.dtype) >= probability
        accepted = active & ~refused
        up, down = jnp.pad(accepted, (0, 1)), jnp.pad(accepted, (1, 0))
        places = jnp.arange(self.temperatures.size, dtype=jnp.int32)
        order = places + up.astype(jnp.int32) - down.astype(jnp.int32)
        outcome = Outcome(active, jnp.where(active, probability, 0.0).astype(rate.dtype), accepted)
        new = replicas.exchanged(order, self.temperatures)
        return new, _updated(rate, outcome, number), outcome

    def _info(self, infos: Info, outcome: Outcome) -> Info:
        """The cold replica's Info, and what concerns them all."""
        cold = jax.tree.map(lambda x: x[0], infos)
        count, total = jnp.sum(outcome.active), jnp.sum(outcome.probability)
        swaps = jnp.where(count > 0, self.temperatures.size * self.energies.evaluations, 0)
        return dataclasses.replace(
            cold,
            finite=jnp.all(infos.finite),
            evaluations=jnp.sum(infos.evaluations, dtype=jnp.int32) + swaps,
            acceptance=total / tree.cast(jnp.maximum(count, 1), total),
            accepted=outcome.accepted[0],
            feasible=None if infos.feasible is None else jnp.all(infos.feasible),
            clipped=None if infos.clipped is None else jnp.any(infos.clipped),
        )


def _updated(
    rate: Float[Array, " pairs"], outcome: Outcome, number: Int[Array, ""]
) -> Float[Array, " pairs"]:
    """The mean probability of each pair's attempts, after this round."""
    before = number  # attempts of the pair
    if rate.size > 1:
        before = (number - jnp.arange(rate.size, dtype=jnp.int32) % 2) // 2
    change = (outcome.probability - rate) / tree.cast(before + 1, rate)
    return rate + jnp.where(outcome.active, change, 0.0)


@named
def replica_exchange(
    sampler: Callable[..., Kernel],
    gradient: GradientEstimator,
    step_size: Any,
    *,
    temperatures: Any = (1.0, 2.0, 4.0, 8.0),
    swap_every: int | np.integer = 10,
    correction: bool = True,
    swap_batch_size: int | np.integer | None = None,
    **more: Any,
) -> ReplicaExchange:
    """Run replicas at several temperatures and let neighbours exchange places.

    A hot replica crosses between modes, and what it finds reaches the cold one with the right
    weight; plain chains stay in the mode where they started.

    State: the cold replica's position x_1, those of the hotter ones x_2, ..., x_R, and a momentum
    each where the sampler has one. H, D and Q: the sampler's, for replica i at temperature T_i;
    the law is the product of exp(-U(x_i) / T_i). Update:
        every replica takes a step of the sampler at its temperature;
        after every `swap_every` steps the pairs (i, i + 1), with i even and odd in turn, exchange
        their places with probability
            min(1, exp(delta D - delta^2 s^2 / 2)),   delta = 1 / T_i - 1 / T_(i+1)
        with D an estimate of U(x_i) - U(x_(i+1)) and s^2 the variance of its noise
    Position, gradient state and carried gradient go together, momenta times
    sqrt(T_to / T_from). D comes from one fresh batch of distinct rows for all replicas, so that
    most of its noise cancels, and s^2 from the differences of that batch's log-likelihoods;
    where U is exact (no data, or batches of all of them) s^2 = 0.

    Swaps are exact for Gaussian noise of known variance; s^2 is itself estimated from n
    examples, which leaves an error of relative order 1 / n in it. Everything else has the
    sampler's bias, at every temperature. Swaps become rare where delta s is above about 2: put
    the temperatures closer, or raise `swap_batch_size`. Without the correction the noise makes
    swaps too likely, and the cold replica too hot.

    All replicas are one batched step; data are not copied. R replicas cost about as much as R
    chains. `state.auxiliary` has "hotter", leading axis R - 1; "momentum", leading axis R; and
    "swap_rate", the mean probability of each pair's attempts so far, shape (R - 1,): in the end
    `samples.final_state.auxiliary["swap_rate"]`. A rate below about 0.2 is a bottleneck. Info is
    the cold replica's but for `evaluations`, of all replicas and swaps; `finite`, of all
    replicas; `acceptance`, the mean probability of this step's attempts, 0 where there are none;
    and `accepted`, whether the cold replica changed places.

    Args:
        sampler: ex.sgld, ex.sghmc, ex.langevin or another function (gradient, step_size, ...,
            temperature=) whose states have no variables but position and momentum.
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule, or a sequence with one for each
            temperature.
        temperatures: T_1 < T_2 < ..., at least two; T_1 is that of the draws. A constant
            ratio is a good first choice; the hottest should cross between modes by itself.
        swap_every: steps to a round of attempts.
        correction: subtract delta^2 s^2 / 2; without it swaps are biased.
        swap_batch_size: examples to a round of attempts, for each replica; by default the
            gradient's batch size, or all data where it has none.
        more: further arguments of the sampler, by name.

    Returns:
        A kernel whose `position` is the cold replica's.

    Raises:
        TypeError: not a sampler, or an argument that is not a number or an integer.
        ValueError: a number out of range, temperatures that do not rise, or another number of
            step sizes than of temperatures; at `init`, a sampler with other variables.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> wells = ex.Target(lambda x: (x**2 - 4.0) ** 2 / 8.0)  # at 2 and at -2
        >>> kernel = ex.replica_exchange(ex.sgld, ex.FullGradient(wells), 0.02, swap_every=5)
        >>> samples = ex.sample(kernel, jnp.float32(2), 5000, key=jax.random.key(0), progress=False)
        >>> bool(samples.position.min() < -1.0)  # it has been at both
        True

    Reference:
        Deng, Feng, Gao, Liang and Lin, Non-convex learning via replica exchange stochastic
        gradient MCMC, 2020; Ceperley and Dewing, The penalty method for random walks with
        uncertain energies, 1999.
    """
    check_sampler(sampler)
    ladder = _checked_temperatures(temperatures)
    sizes = _one_for_each(step_size, len(ladder))
    swap_every = whole_number("swap_every", swap_every)
    flag("correction", correction)
    kernels = [
        sampler(gradient, h, temperature=t, **more) for h, t in zip(sizes, ladder, strict=True)
    ]
    energies = energies_for(gradient, swap_batch_size, correction=correction)
    stacked, axes = stack(kernels)
    return ReplicaExchange(
        stacked, axes, energies, jnp.asarray(ladder), swap_every, bool(correction)
    )


def _checked_temperatures(temperatures: Any) -> list[float]:
    try:
        ladder = np.asarray(temperatures, float)
    except (TypeError, ValueError):
        ladder = np.zeros(())
    if ladder.ndim != 1 or ladder.size < 2:
        raise ValueError(
            f"temperatures must be two numbers or more, not {temperatures!r}. Try (1.0, 2.0, 4.0)."
        )
    if not (np.isfinite(ladder).all() and ladder[0] > 0.0 and (np.diff(ladder) > 0.0).all()):
        raise ValueError(
            f"temperatures must be positive, finite and rising, not {temperatures!r}. The first "
            "is that of the draws: try (1.0, 2.0, 4.0)."
        )
    return [float(t) for t in ladder]


def _one_for_each(step_size: Any, count: int) -> list[Any]:
    scalar = isinstance(step_size, np.ndarray | jax.Array) and step_size.ndim == 0
    if scalar or not isinstance(step_size, list | tuple | np.ndarray | jax.Array):
        return [step_size] * count
    sizes: list[Any] = list(step_size)
    if len(sizes) != count:
        raise ValueError(
            f"step_size has {len(sizes)} entries for {count} temperatures. Pass one for each, or "
            "a single number for all."
        )
    return sizes
