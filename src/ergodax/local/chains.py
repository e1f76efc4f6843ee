"""Chains of trajectories about w*: their step and length are found, then they are run on."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.sample import sample
from ergodax.local.law import LocalLaw, squared_distance
from ergodax.local.trajectories import Trajectories
from ergodax.tune.budget import Deadline

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
        away = tree.subtract(position, self.centre)

        def projected(key: PRNGKeyArray) -> Float[Array, ""]:
            return tree.dot(tree.rademacher_like(key, away), away)

        sketch = jax.lax.map(projected, jax.random.split(jax.random.key(0), SKETCH))
        return {"distance": squared_distance(position, self.centre), "sketch": sketch}


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
    def stuck(self) -> float:
        """The share of trajectories that found the place too stiff for their step."""
        return float((self.acceptance < STUCK).mean())

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

    def run(self, draws: int, law: LocalLaw | None = None) -> Trace:
        """So many trajectories of each chain; fewer where the time is up."""
        law = law or self.law
        dtype = tree.result_dtype(law.centre)
        start: dict[str, Any] = {"positions": self.positions}
        if self.positions is None:
            start = {"position": law.centre, "num_chains": self.num_chains}
        samples = sample(
            Trajectories(law, jnp.asarray(self.step, dtype), jnp.int32(self.length)),
            num_steps=draws,
            key=jax.random.fold_in(self.key, self.runs),
            collect=Watch(law.centre),
            progress=False,
            max_seconds=self.deadline.left(),
            **start,
        )
        self.runs += 1
        self.positions = samples.final_state.position
        self.evaluations += law.num_data * self.length * samples.num_draws * self.num_chains
        distance, sketch, potential, acceptance = (
            np.asarray(x, np.float64)
            for x in (*samples.position.values(), samples.info.potential, samples.info.acceptance)
        )
        energy = potential - 0.5 * float(law.localization) * distance
        return Trace(energy, distance, sketch, np.nan_to_num(acceptance))

    def find_step(self) -> None:
        """Shorten the first step until some trajectories are accepted."""
        first = self.step
        while not self.deadline.over and self.step > SHORTEST * first:
            self.positions = None
            if self.run(BLOCK).acceptance.mean() > HARDLY:
                return
            self.step *= SHORTER

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
