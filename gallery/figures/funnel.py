"""Neal's funnel with and without a metric: how often chains reach the neck."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import stats

import ergodax as ex
from experiments.formalml.funnel import Enduring, inverse_metric
from gallery.figures import tables

CHAINS, NECK = 40, -2.0
STEPS, THIN = 8000, 8  # of the Langevin samplers
TRAJECTORIES, LEAPFROGS = 400, 5  # of the Hamiltonian one
SHOWN = 800  # draws in a picture
REACH = 3.5  # of the picture, in standard deviations of v
BINS = 60
SGLD, SGRLD, RMHMC = "SGLD", "SGRLD", "RMHMC"
SAMPLERS = (SGLD, SGRLD, RMHMC)
METRIC = ex.Metric(inverse_metric, divergence=jnp.zeros_like)


@dataclasses.dataclass(frozen=True)
class Funnel:
    """Draws of (v, x) with v ~ N(0, scale^2) and x ~ N(0, exp(v)), by each sampler.

    Attributes:
        scale: standard deviation of v.
        step_size: h of the Langevin samplers.
        draws: by sampler, shape (chains, draws, 2), the first quarter left out.
        diverged: by sampler, the share of chains that diverged. Such a chain stays
            where it was last.
        gradients: by sampler, of each chain.
    """

    scale: float
    step_size: float
    draws: dict[str, Float[np.ndarray, "chains draws 2"]]
    diverged: dict[str, float]
    gradients: dict[str, float]

    @property
    def unstable(self) -> float:
        """log(h / 2): below this v a step of SGLD throws x further out."""
        return float(np.log(0.5 * self.step_size))

    @property
    def exact_share(self) -> float:
        """P(v < -2)."""
        return float(stats.norm.cdf(NECK / self.scale))

    def share(self, sampler: str) -> tuple[float, float]:
        """The share of draws in the neck and its standard error over chains."""
        each = (self.draws[sampler][..., 0] < NECK).mean(axis=1)
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(CHAINS))

    def cloud(self, sampler: str) -> pd.DataFrame:
        """Some of the draws: columns x and v."""
        return tables.cloud(self.draws[sampler], ["v", "x"], SHOWN)

    def outline(self) -> pd.DataFrame:
        """Where |x| = 2 exp(v / 2), which holds 95 % of x at each v: columns x, v, side."""
        v = np.linspace(-REACH * self.scale, REACH * self.scale, 121)
        sides = [
            pd.DataFrame({"x": side * 2.0 * np.exp(0.5 * v), "v": v, "side": side})
            for side in (-1.0, 1.0)
        ]
        return pd.concat(sides, ignore_index=True)

    def unstable_line(self) -> pd.DataFrame:
        """The line v = log(h / 2) across the picture: columns x, v."""
        return pd.DataFrame({"x": self.outline()["x"].agg(["min", "max"]), "v": self.unstable})

    def densities(self) -> pd.DataFrame:
        """Histograms of v beside N(0, scale^2): columns v, density, sampler."""
        draws = {name: each[..., 0] for name, each in self.draws.items()}
        exact = functools.partial(stats.norm.pdf, scale=self.scale)
        return tables.laws("v", REACH * self.scale, BINS, exact, draws, by="sampler")

    def table(self) -> pd.DataFrame:
        """A row for each sampler: share in the neck, error, chains that ended, gradients."""
        rows = []
        for name in self.draws:
            share, error = self.share(name)
            rows.append(
                {
                    "sampler": name,
                    "P(v < -2)": share,
                    "standard error": error,
                    "chains that diverged": self.diverged[name],
                    "gradients a chain": self.gradients[name],
                }
            )
        return pd.DataFrame(rows)


def run(step_size: float, scale: float, seed: int) -> Funnel:
    """Run the three samplers from exact draws of the mouth's middle, v = 0.

    Args:
        step_size: h of SGLD and SGRLD; RMHMC takes leapfrogs of size sqrt(2 h), by which a single
            one moves as far.
        scale: standard deviation of v.
        seed: of everything random.
    """
    key_start, key = jax.random.split(jax.random.key(seed))
    x = jax.random.normal(key_start, (CHAINS, 1))
    starts = jnp.concatenate([jnp.zeros_like(x), x], axis=1)
    draws, diverged, gradients = {}, {}, {}
    for name in SAMPLERS:
        steps = TRAJECTORIES if name == RMHMC else STEPS
        thin = 1 if name == RMHMC else THIN
        kept, alive = _draws(sampler(name, step_size, scale), starts, steps, thin, key)
        draws[name] = kept[:, kept.shape[1] // 4 :]
        diverged[name] = 1.0 - alive
        gradients[name] = float(steps * (LEAPFROGS if name == RMHMC else 1))
    return Funnel(scale, step_size, draws, diverged, gradients)


def sampler(name: str, step_size: float, scale: float) -> ex.Kernel:
    """A sampler with exact gradients.

    Args:
        name: of `SAMPLERS`.
        step_size: h of the Langevin samplers.
        scale: standard deviation of v.
    """
    gradient = ex.FullGradient(ex.targets.funnel(2, scale))
    if name == SGLD:
        return Enduring(ex.sgld(gradient, step_size))
    if name == SGRLD:
        return Enduring(ex.sgrld(gradient, step_size, METRIC))
    leapfrog = float(np.sqrt(2.0 * step_size))
    return Enduring(
        ex.rmhmc(
            gradient, leapfrog, inverse_metric, num_leapfrog_steps=LEAPFROGS, max_iterations=20
        )
    )


def _draws(
    kernel: ex.Kernel, starts: Float[Array, "chains 2"], steps: int, thin: int, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, "chains draws 2"], float]:
    """The draws, and the share of chains that stayed finite."""
    samples = ex.sample(
        kernel, positions=starts, num_steps=steps, thin=thin, num_chains=CHAINS, key=key,
        progress=False,
    )  # fmt: skip
    return samples.position, float(np.asarray(samples.final_state.alive).mean())
