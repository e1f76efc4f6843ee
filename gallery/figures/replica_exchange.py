"""Two modes far apart: plain chains, and replicas at several temperatures that exchange places."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

import ergodax as ex
from gallery.figures import tables

CHAINS, STEPS, BURN_IN, THIN, STEP_SIZE = 16, 12_000, 2_000, 10, 0.05
REPLICAS, SHARE, VARIANCE = 4, 0.7, 0.25  # of the right-hand mode
PLAIN, EXCHANGED = "plain SGLD", "replica exchange"


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Chains that all begin in the left mode, which has 0.3 of the mass.

    Attributes:
        apart: the distance of the modes from 0.
        hottest: the temperature of the last replica.
        draws: of the plain chains and of the cold replicas.
        swap_rates: the mean probability that two neighbours change places.
    """

    apart: float
    hottest: float
    draws: dict[str, Float[np.ndarray, "chains draws"]]
    swap_rates: Float[np.ndarray, " pairs"]

    def traces(self) -> pd.DataFrame:
        """A chain of each: columns step, x, sampler."""
        paths = {name: x[0, ::3] for name, x in self.draws.items()}
        steps = 3.0 * THIN * np.arange(len(paths[PLAIN]))
        return tables.curves("step", steps, "x", paths, by="sampler")

    def densities(self) -> pd.DataFrame:
        """Histograms beside the exact density: columns x, density and sampler."""
        sd = VARIANCE**0.5

        def density(x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
            normal = [np.exp(-((x - m) ** 2) / (2.0 * VARIANCE)) for m in (-self.apart, self.apart)]
            return ((1.0 - SHARE) * normal[0] + SHARE * normal[1]) / (sd * np.sqrt(2.0 * np.pi))

        return tables.laws("x", self.apart + 2.5, 80, density, self.draws, by="sampler")

    def share(self, sampler: str) -> tuple[float, float]:
        """Of the draws, how many are in the right-hand mode, and the standard error."""
        each = np.mean(self.draws[sampler] > 0.0, axis=1)
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


def run(apart: float, hottest: float, seed: int) -> Exchange:
    """Run both, from the left mode.

    Args:
        apart: the distance of the modes from 0.
        hottest: the temperature of the last of four replicas, above 1; their ratio is constant.
        seed: of everything random.
    """
    target = ex.targets.mixture([[-apart], [apart]], VARIANCE, [1.0 - SHARE, SHARE])
    gradient = ex.FullGradient(target)
    ladder = tuple(np.geomspace(1.0, hottest, REPLICAS).tolist())
    kernels = {
        PLAIN: ex.sgld(gradient, STEP_SIZE),
        EXCHANGED: ex.replica_exchange(ex.sgld, gradient, STEP_SIZE, temperatures=ladder),
    }
    draws, rates = {}, np.zeros(REPLICAS - 1)
    for name, kernel in kernels.items():
        samples = ex.sample(
            kernel, jnp.full(1, -apart), STEPS, burn_in=BURN_IN, thin=THIN, num_chains=CHAINS,
            key=jax.random.key(seed), progress=False,
        )  # fmt: skip
        draws[name] = np.asarray(samples.position[..., 0], float)
        if name == EXCHANGED:
            rates = np.asarray(samples.final_state.auxiliary["swap_rate"]).mean(axis=0)
    return Exchange(apart, hottest, draws, rates)
