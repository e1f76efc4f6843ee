"""The metric as printed, C = 1/2, on U = x^4 - 2 x^2: where U = -C it vanishes.

There G^-1 = 0 and Gamma is infinite, at x = +-0.541 and +-1.307. In the coordinate in which the
metric is flat a barrier -log|y| / 3 stands at each of these points, so the exact dynamics does
not pass, and the line falls into five pieces. A chain with steps of finite size jumps over, the
less often the smaller they are, or is thrown beyond the largest numbers.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

import ergodax as ex
from experiments.ma_chen_fox_2015 import samplers
from experiments.ma_chen_fox_2015.line import Line

STEPS = (0.02, 0.005, 0.00125)
PRINTED, POSITIVE = 0.5, 1.5
# x^2 = 1 +- sqrt(1 - C)
ZEROS = np.sqrt(1 + np.sqrt(1 - PRINTED) * np.array([1.0, -1.0, -1.0, 1.0])) * [-1, -1, 1, 1]
START = 1.0  # the bottom of the right well
PIECES = ("left tail", "left well", "barrier", "right well", "right tail")


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    num_chains: int = 1000  # all from the bottom of the right well
    duration: float = 50.0  # time, steps times step size, that each runs


class Watching(eqx.Module):
    """A chain's state, whether it is still finite, and how often it went to another piece."""

    position: Float[Array, " 1"]
    inner: Any
    alive: Bool[Array, ""]
    crossings: Int[Array, ""]
    age: Int[Array, ""]


class Watched(ex.Kernel):
    """A kernel whose chains stop, and do not end the run, where they leave the finite numbers."""

    kernel: ex.Kernel

    def init(self, key: PRNGKeyArray, position: PyTree) -> Watching:
        """Alive, with nothing crossed."""
        inner = self.kernel.init(key, position)
        return Watching(inner.position, inner, jnp.array(True), jnp.int32(0), jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: Watching) -> tuple[Watching, None]:
        """One step, which counts if its result is finite."""
        new, _ = self.kernel.step(key, state.inner)
        alive = state.alive & ex.tree.all_finite((new.position, new.auxiliary))
        inner = jax.tree.map(lambda a, b: jnp.where(alive, a, b), new, state.inner)
        crossed = piece_of(inner.position) != piece_of(state.position)
        crossings = state.crossings + crossed.astype(jnp.int32)
        age = state.age + alive.astype(jnp.int32)
        return Watching(inner.position, inner, alive, crossings, age), None


def piece_of(position: Float[Array, " 1"]) -> Int[Array, ""]:
    """Which of the five pieces of the line, from the left."""
    return jnp.sum(position[0] > jnp.asarray(ZEROS, position.dtype)).astype(jnp.int32)


def run(size: Size, key: PRNGKeyArray, progress: bool = False) -> pd.DataFrame:
    """gSGRHMC with exact gradients: with the printed metric, and with one that is positive.

    Returns:
        A row for each metric and step size: fraction of chains that diverged,
        crossings of a zero of the printed metric per chain and unit of time, and where the
        other chains are at the end; and the target's own probabilities.
    """
    rows = {}
    for offset in (PRINTED, POSITIVE):
        for place, step in enumerate(STEPS):
            own = jax.random.fold_in(jax.random.fold_in(key, place), int(10 * offset))
            name = f"C = {offset:g}, h = {step:g}"
            rows[name] = occupation(offset, step, size, own, progress)
    exact = Line(lambda x: 2.0 * x**2 - x**4, 4.0).probabilities(ZEROS)
    rows["target"] = dict(zip(PIECES, exact.tolist(), strict=True))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric and step")


def verdict(table: pd.DataFrame) -> str:
    """How often the zeros are crossed at the largest and at the smallest step size."""
    parts = []
    for offset in (PRINTED, POSITIVE):
        first, last = (table.loc[f"C = {offset:g}, h = {h:g}"] for h in (STEPS[0], STEPS[-1]))
        parts.append(
            f"with C = {offset:g} crossings of its zeros go from {first['crossings']:.2f} to "
            f"{last['crossings']:.2f} a unit of time as h goes from {STEPS[0]:g} to {STEPS[-1]:g}, "
            f"and {100 * first['diverged']:.1f}% of the chains diverge at the first"
        )
    return f"The printed metric on the double well: {'; '.join(parts)}."


def occupation(
    offset: float, step: float, size: Size, key: PRNGKeyArray, progress: bool
) -> dict[str, float]:
    """One row of the table."""
    gradient = samplers.noisy(ex.Target(samplers.Quartic(-2.0, 1.0)), 0.0)
    kernel = Watched(samplers.samplers(gradient, offset)["gSGRHMC"](step))
    steps = round(size.duration / step)
    start = jnp.full(1, START)
    samples = ex.sample(
        kernel, start, steps, thin=steps, num_chains=size.num_chains, key=key, progress=progress
    )
    state = samples.final_state
    alive = np.asarray(state.alive)
    pieces = np.asarray(jax.vmap(piece_of)(state.position))[alive]
    shares = np.bincount(pieces, minlength=len(PIECES)) / max(1, pieces.size)
    time = step * float(np.asarray(state.age, np.float64).sum())
    return {
        "diverged": float(1.0 - alive.mean()),
        "crossings": float(np.asarray(state.crossings).sum() / time),
        **dict(zip(PIECES, shares.tolist(), strict=True)),
    }
