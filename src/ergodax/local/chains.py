"""Chains of trajectories about w*: their step and length are found, then they are run on."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.sample import sample
from ergodax.local import in_place
from ergodax.local.law import LocalLaw, squared_distance
from ergodax.local.trajectories import Trajectories
from ergodax.tune.budget import Deadline

LARGE = 5_000_000  # parameters, from which one chain runs by default, and in place
BLOCK = 10  # trajectories between two changes of step or length
ACCEPTANCE = 0.75  # that the step is adapted to
TOO_FEW = 0.5  # an acceptance at which a step that was found is made shorter again
STUCK = 0.01  # a trajectory's acceptance, below which the step is too long for the place
MOST_STUCK = 0.02  # the share of such trajectories, above which the step is made shorter
HARDLY = 0.2  # an acceptance at which the first step is a quarter
SHORTER = 0.25
SHORTEST = 1e-12  # times the first step
GAIN = 1.0  # of the logarithm of the step
FIRST_LENGTH = 8
TRIALS = 4  # single steps of a large network, by which its first step is found
LONGER_PAYS = 1.2  # times the squared jump a leapfrog, for which a length is doubled
QUARTER_PERIOD = 0.5 * np.pi
MEAN_SHARE = 0.54  # of the step size, that a trajectory takes
HOT = 4.0  # times the temperature, at which half of the chains begin
SKETCH = 12  # random projections of the weights that are watched


class Watch(eqx.Module):
    """What is kept of a position: |w - w*|^2 and random projections of w - w*."""

    centre: PyTree

    def __call__(self, position: PyTree) -> dict[str, Array]:
        """The squared distance, and for each projection the sum of random signs times w - w*."""
        distance = squared_distance(position, self.centre)

        def projected(key: PRNGKeyArray) -> Float[Array, ""]:
            total = jnp.zeros_like(distance)
            pairs = zip(jax.tree.leaves(position), jax.tree.leaves(self.centre), strict=True)
            for number, (x, centre) in enumerate(pairs):
                # The barrier makes the compiler draw one array of signs after the other.
                key, total = jax.lax.optimization_barrier((key, total))
                signs = tree.rademacher_like(jax.random.fold_in(key, number), x)
                total = total + tree.cast(jnp.sum(signs * (x - centre)), total)
            return total

        sketch = jax.lax.map(projected, jax.random.split(jax.random.key(0), SKETCH))
        return {"distance": distance, "sketch": sketch}


class Drawn(NamedTuple):
    """What trajectories came to, on axes of chains and draws."""

    collected: PyTree
    potential: Float[np.ndarray, "chains draws"]
    acceptance: Float[np.ndarray, "chains draws"]


class Trace(NamedTuple):
    """What was seen of the chains."""

    energy: Float[np.ndarray, "chains draws"]  # t (L_n(w) - L_n(w*))
    distance: Float[np.ndarray, "chains draws"]  # |w - w*|^2
    sketch: Float[np.ndarray, "chains draws k"]
    acceptance: Float[np.ndarray, "chains draws"]

    def joined(self, other: "Trace") -> "Trace":
        """This and then the other."""
        pairs = zip(self, other, strict=True)
        return Trace(*(np.concatenate([a, b], axis=1) for a, b in pairs))

    def energies(self) -> "Trace":
        """The same without the projections."""
        return self._replace(sketch=self.sketch[..., :0])

    @property
    def fits(self) -> bool:
        """Whether the step does for all places, as far as trajectories have told."""
        if not self.acceptance.size:
            return True
        stuck = float((self.acceptance < STUCK).mean())
        return stuck <= MOST_STUCK and float(self.acceptance.mean()) >= TOO_FEW

    def after(self, start: int) -> "Trace":
        """From a draw on."""
        return Trace(*(x[:, start:] for x in self))


@dataclasses.dataclass
class Chains:
    """Chains, their kernel and where they stand."""

    law: LocalLaw
    key: PRNGKeyArray
    num_chains: int
    deadline: Deadline
    step: float
    length: int = FIRST_LENGTH
    positions: PyTree = None
    runs: int = 0
    evaluations: int = 0  # losses of single examples with their gradients

    @property
    def alone(self) -> bool:
        """Whether a single chain of a large network runs in as little memory as can be."""
        return self.num_chains == 1 and tree.size(self.law.centre) >= LARGE

    def run(self, draws: int, law: LocalLaw | None = None) -> Trace:
        """So many trajectories of each chain, watched; fewer where the time is up."""
        law = law or self.law
        key = jax.random.fold_in(self.key, self.runs)
        self.runs += 1
        drawn = self.drawn(draws, key, Watch(law.centre), law)
        distance, sketch, potential, acceptance = (
            np.asarray(x, np.float64)
            for x in (*drawn.collected.values(), drawn.potential, drawn.acceptance)
        )
        energy = potential - 0.5 * float(law.localization) * distance
        return Trace(energy, distance, sketch, np.nan_to_num(acceptance))

    def drawn(
        self,
        draws: int,
        key: PRNGKeyArray,
        collect: Callable[[PyTree], PyTree],
        law: LocalLaw | None = None,
    ) -> Drawn:
        """So many trajectories of each chain, and what `collect` sees of them."""
        law = law or self.law
        step, length = jnp.asarray(self.step, tree.result_dtype(law.centre)), jnp.int32(self.length)
        if self.alone:
            drawn = self._in_place(law, key, in_place.Leaps(step, length), draws, collect)
        else:
            start: dict[str, Any] = {"positions": self.positions}
            if self.positions is None:
                start = {"position": law.centre, "num_chains": self.num_chains}
            samples = sample(
                Trajectories(law, step, length),
                num_steps=draws,
                key=key,
                collect=collect,
                progress=False,
                max_seconds=self.deadline.left(),
                **start,
            )
            self.positions = samples.final_state.position
            drawn = Drawn(samples.position, samples.info.potential, samples.info.acceptance)
        made = np.shape(drawn.acceptance)[1]
        gradients = self.length + self.alone  # in place that of the start is not kept
        self.evaluations += law.num_data * gradients * made * self.num_chains
        return drawn

    def _in_place(
        self, law: LocalLaw, key: PRNGKeyArray, leaps: in_place.Leaps, draws: int, collect: Any
    ) -> Drawn:
        """The same of a chain whose position is given up on the way."""
        start, self.positions = self.positions, None
        if start is None:
            place = jax.tree.map(jnp.copy, law.centre)
        else:
            place = jax.tree.map(lambda x: x[0], start)
        del start
        place, seen = in_place.run(law, key, place, leaps, draws, collect, self.deadline)
        self.positions = jax.tree.map(lambda x: x[None], place)
        return Drawn(*jax.tree.map(lambda x: x[None], seen))

    def find_step(self) -> None:
        """Shorten the first step until some trajectories are accepted."""
        first = self.step
        draws, self.length = (TRIALS, 1) if self.alone else (BLOCK, FIRST_LENGTH)
        while not self.deadline.over and self.step > SHORTEST * first:
            self.positions = None
            acceptance = self.run(draws).acceptance
            if acceptance.size and acceptance.mean() > HARDLY:
                break
            self.step *= SHORTER
        self.length = FIRST_LENGTH

    def settle(self) -> None:
        """Adapt the step, and double the length while that pays or until it is long enough.

        It pays where the squared jump of the projections, over the leapfrogs that it took, grows.
        The localization bounds the longest period by 2 pi / sqrt(gamma).
        """
        paid, blocks = 0.0, 0
        while not self.deadline.over:
            trace = self._adapted(blocks).joined(self._adapted(blocks + 1))
            blocks += 2
            jumps = np.diff(trace.sketch, axis=1) ** 2
            pays = float(jumps.mean()) / self.length if jumps.size else 0.0
            if pays < LONGER_PAYS * paid:
                self.length //= 2 if pays < paid else 1
                return
            if not self.lengthen():
                return
            paid = pays

    def lengthen(self) -> bool:
        """Double the length, unless it is a quarter of the longest period already."""
        longest = QUARTER_PERIOD / np.sqrt(float(self.law.localization))
        if MEAN_SHARE * self.step * self.length >= longest:
            return False
        self.length *= 2
        return True

    def shorten(self) -> None:
        """Take half of the step, and twice as many of them."""
        self.step, self.length = 0.5 * self.step, 2 * self.length

    def _adapted(self, number: int) -> Trace:
        trace = self.run(BLOCK)
        off = float(trace.acceptance.mean()) - ACCEPTANCE if trace.acceptance.size else 0.0
        self.step *= float(np.exp(GAIN * off / np.sqrt(1.0 + 0.25 * number)))
        return trace


def settled_chains(law: LocalLaw, key: PRNGKeyArray, num_chains: int, deadline: Deadline) -> Chains:
    """Chains of which half come from w* and half from where a hotter law has taken them.

    Those from w* have energies below the law's own, the hot ones mostly above: where they agree,
    the start is forgotten. From w* they come while the step is still short: a step that suits the
    law is refused at w*, whose energy is so much lower in many dimensions.
    """
    first = float(1.0 / np.sqrt(float(law.localization)))
    chains = Chains(law, key, num_chains, deadline, first)
    chains.find_step()
    chains.settle()
    if num_chains > 1 and chains.positions is not None:  # None where the time was up before
        cold, before = np.arange(num_chains) % 2 == 0, chains.positions
        chains.run(2 * BLOCK, law.at_temperature(HOT * law.temperature))

        def mixed(hot: Array, old: Array) -> Array:
            return jnp.where(cold.reshape(-1, *[1] * (hot.ndim - 1)), old, hot)

        chains.positions = jax.tree.map(mixed, chains.positions, before)
    return chains
