"""Forty groups of few and of many rows: what a group's effect takes from the other groups."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.scipy.stats import norm
from jaxtyping import Float

import ergodax as ex
from gallery.figures import tables

SIZES = (2, 5, 15, 40)  # rows of a group; ten groups of each size
ROWS = np.repeat(SIZES, 10)
GROUP = np.repeat(np.arange(len(ROWS)), ROWS)
PRIOR_MEAN, PRIOR_SD = 5.0, 2.0  # sds of the priors of the mean and of tau
CENTRE = 1.0  # the mean of the groups that the data are made with
CHAINS, STEPS, BURN_IN, STEP_SIZE, LEAPFROG = 16, 500, 50, 0.3, 4
MASS = {"mean": 60.0, "tau": 6.0}  # of log(tau); the mean's sd is .04 to .3
OWN, COMMON, POOLED = "mean of its own rows", "mean of all rows", "posterior mean"
FOUND = "HMC, effects integrated out"


@dataclasses.dataclass(frozen=True)
class Pooled:
    """Draws of a hierarchy, and the exact posterior by quadrature.

    Attributes:
        effects: the true ones.
        own: the means of the groups' own rows.
        everybody: the mean of all rows.
        spread: draws of tau.
        drawn: draws of the effects.
        grid: values of tau.
        density: of tau, on the grid.
        exact_means: of the effects.
        exact_sds: likewise.
    """

    effects: Float[np.ndarray, " groups"]
    own: Float[np.ndarray, " groups"]
    everybody: float
    spread: Float[np.ndarray, "chains draws"]
    drawn: Float[np.ndarray, "chains draws groups"]
    grid: Float[np.ndarray, " points"]
    density: Float[np.ndarray, " points"]
    exact_means: Float[np.ndarray, " groups"]
    exact_sds: Float[np.ndarray, " groups"]

    @property
    def means(self) -> Float[np.ndarray, " groups"]:
        """Of the effects, over all draws."""
        return self.drawn.mean(axis=(0, 1), dtype=np.float64)

    def shrinkage(self) -> pd.DataFrame:
        """A row for each group: its own rows' mean, the posterior mean, its rows."""
        rows = [f"{n} rows" for n in ROWS]
        return pd.DataFrame({OWN: self.own, POOLED: self.means, "rows": rows})

    def densities(self) -> pd.DataFrame:
        """Of tau, drawn and exact: columns tau, density and law."""
        edge = float(self.grid[-1])
        found = tables.histogram(self.spread, 0.0, edge, 50)
        middle = 0.5 * (found["left"] + found["right"]).to_numpy()
        values = {
            FOUND: found["density"].to_numpy(),
            "exact": np.interp(middle, self.grid, self.density),
        }
        return tables.curves("tau", middle, "density", values, by="law")

    def errors(self) -> dict[str, float]:
        """Root mean squares of what three estimates of the effects miss the true ones by."""
        estimates = {OWN: self.own, COMMON: self.everybody, POOLED: self.means}
        return {
            name: float(np.sqrt(np.mean((value - self.effects) ** 2)))
            for name, value in estimates.items()
        }


def _log_prior(shared: Any) -> Any:
    return norm.logpdf(shared["mean"], 0.0, PRIOR_MEAN) + norm.logpdf(shared["tau"], 0.0, PRIOR_SD)


def _log_latent(effect: Any, shared: Any) -> Any:
    return norm.logpdf(effect, shared["mean"], shared["tau"])


def _log_likelihood(shared: Any, effect: Any, y: Any) -> Any:
    return norm.logpdf(y, effect, 1.0)


def _exact(own: Float[np.ndarray, " groups"]) -> tuple[np.ndarray, ...]:
    """A grid of tau, its density there, and means and sds of the effects.

    Given tau everything is normal: with w_j = 1 / (tau^2 + 1 / n_j) the mean of the groups has
    the precision P = sum of w_j + 1 / 5^2, and an effect is a mixture of normals over tau.
    """
    tau = (np.arange(4000) + 0.5) * 1.5e-3
    within = 1.0 / ROWS
    weight = 1.0 / (tau[:, None] ** 2 + within)
    precision = weight.sum(axis=1) + PRIOR_MEAN**-2
    mean = weight @ own / precision
    log_density = (
        0.5 * np.log(weight).sum(axis=1)
        - 0.5 * np.log(precision)
        - 0.5 * (weight @ own**2 - precision * mean**2)
        - 0.5 * (tau / PRIOR_SD) ** 2
    )
    density = np.exp(log_density - log_density.max())
    share = density / density.sum()
    pull = weight * within  # of the groups' mean; 1 - pull of the group's own rows
    means = (1.0 - pull) * own + pull * mean[:, None]
    variances = (1.0 - pull) * within + pull**2 / precision[:, None]
    average = share @ means
    sds = np.sqrt(share @ (variances + means**2) - average**2)
    last = int(np.searchsorted(np.cumsum(share), 0.9995)) + 1
    return tau[:last], (share / 1.5e-3)[:last], average, sds


@functools.lru_cache(maxsize=8)
def run(tau: float, seed: int) -> Pooled:
    """Make rows, integrate the effects out, draw the mean and tau, then the effects.

    Args:
        tau: the sd of the effects that the rows are made with; a row's own sd is 1.
        seed: of everything random.
    """
    rng = np.random.default_rng(seed)
    effects = CENTRE + tau * rng.normal(size=len(ROWS))
    y = (effects[GROUP] + rng.normal(size=len(GROUP))).astype(np.float32)
    posterior = ex.groups.GroupedPosterior(
        _log_prior, _log_latent, _log_likelihood, y, GROUP,
        constraints={"tau": ex.transform.positive},
    )  # fmt: skip
    start = {"mean": jnp.float32(0.0), "tau": jnp.float32(2.0)}
    marginal = ex.FullGradient(posterior.marginal(start))
    samples = ex.sample(
        ex.hmc(marginal, STEP_SIZE, num_leapfrog_steps=LEAPFROG, mass=MASS), start, STEPS,
        burn_in=BURN_IN, thin=2, num_chains=CHAINS, key=jax.random.key(seed), progress=False,
    )  # fmt: skip
    drawn = posterior.latents(samples, key=jax.random.key(seed + 1))
    own = np.bincount(GROUP, y) / ROWS
    spread = np.asarray(samples.position["tau"], float)
    return Pooled(effects, own, float(y.mean()), spread, np.asarray(drawn, float), *_exact(own))
