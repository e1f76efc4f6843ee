"""SGLD on the mean of normal data, where the law of every variant is known."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from scipy import stats

import ergodax as ex
from gallery.figures import tables
from gallery.figures.autoregression import variance

ROWS, PRIOR_SD = 1024, 10.0
CHAINS, STEPS, SHOWN = 32, 2000, 800
OFFSET = 20.0  # steps for which a falling step size stays near its first value
BATCH_SIZES = (2, 8, 32, 128)  # a program is compiled for each
FULL, BATCH, FALLING = "full gradient", "minibatch", "minibatch, falling steps"


def log_prior(mean: Float[Array, " 1"]) -> Float[Array, ""]:
    """N(0, 100)."""
    return -0.5 * jnp.sum(mean**2) / PRIOR_SD**2


def log_likelihood(mean: Float[Array, " 1"], x: Float[Array, " 1"]) -> Float[Array, ""]:
    """N(mean, 1)."""
    return -0.5 * jnp.sum((x - mean) ** 2)


@functools.cache
def posterior() -> ex.Posterior:
    """Of the mean of `ROWS` draws of N(1, 1), the same ones always."""
    data = 1.0 + jax.random.normal(jax.random.key(0), (ROWS, 1))
    return ex.Posterior(log_prior, log_likelihood, data)


@dataclasses.dataclass(frozen=True)
class Normal:
    """The posterior, and the noise of a batch.

    Attributes:
        mean: of the posterior.
        precision: k, one over its variance.
        noise: V, the variance of the gradient of a batch.
    """

    mean: float
    precision: float
    noise: float


def exact(batch_size: int) -> Normal:
    """The posterior in closed form, and V = N (N - n) / n S for batches without replacement.

    Args:
        batch_size: n.
    """
    x = np.asarray(posterior().data, float)
    k = ROWS + PRIOR_SD**-2
    noise = ROWS * (ROWS - batch_size) / batch_size * x.var(ddof=1)
    return Normal(float(x.sum() / k), k, float(noise))


def variances(steps: Float[np.ndarray, " steps"], noise: float) -> Float[np.ndarray, " steps"]:
    """Exact variances along a chain from the posterior mean, in units of the posterior's.

    A step is z+ = (1 - a) z + N(0, 2 a + a^2 V / k), so v+ = (1 - a)^2 v + 2 a + a^2 V / k.

    Args:
        steps: a = h k for each step.
        noise: V / k.
    """
    v, out = 0.0, []
    for a in steps:
        v = (1.0 - a) ** 2 * v + 2.0 * a + a**2 * noise
        out.append(v)
    return np.array(out)


def stationary_sd(relative_step: float, noise: float) -> float:
    """The sd of constant steps, sqrt((1 + a V / (2 k)) / (1 - a / 2)), in posterior sds.

    Args:
        relative_step: a = h k, below 2.
        noise: V / k.
    """
    return float(np.sqrt(variance(np.array([relative_step]), noise)[0]))


@dataclasses.dataclass(frozen=True)
class Run:
    """Draws of one variant, in posterior sds from the posterior mean.

    Attributes:
        draws: of each chain.
        weights: of each draw: its step size.
        expected: the exact variance at each step.
    """

    draws: Float[np.ndarray, "chains draws"]
    weights: Float[np.ndarray, " draws"]
    expected: Float[np.ndarray, " draws"]

    @property
    def sd(self) -> float:
        """The weighted root mean square of all draws."""
        return float(self.running()[-1])

    @property
    def exact_sd(self) -> float:
        """What `sd` would be with infinitely many chains."""
        return float(self.exact_running()[-1])

    def running(self) -> Float[np.ndarray, " draws"]:
        """`sd` of the draws up to each step."""
        return self._average(np.mean(self.draws**2, axis=0))

    def exact_running(self) -> Float[np.ndarray, " draws"]:
        """The same with infinitely many chains."""
        return self._average(self.expected)

    def _average(self, squares: Float[np.ndarray, " draws"]) -> Float[np.ndarray, " draws"]:
        return np.sqrt(np.cumsum(self.weights * squares) / np.cumsum(self.weights))


@dataclasses.dataclass(frozen=True)
class Variants:
    """SGLD with full gradients, with minibatches, and with minibatches and falling steps.

    Attributes:
        relative_step: a = h k, the first step size in posterior variances.
        batch_size: n.
        runs: by name.
    """

    relative_step: float
    batch_size: int
    runs: dict[str, Run]

    def trace_table(self) -> pd.DataFrame:
        """The first chain of each: columns step, posterior sds from the mean, variant."""
        each = {name: run.draws[0, :SHOWN:2] for name, run in self.runs.items()}
        steps = np.arange(0.0, SHOWN, 2.0)
        return tables.curves("step", steps, "posterior sds from the mean", each, "variant")

    def density_table(self) -> pd.DataFrame:
        """Outlines of weighted histograms, and the exact posterior."""
        edges = np.linspace(-5.0, 5.0, 51)
        middle = 0.5 * (edges[1:] + edges[:-1])
        each = {
            name: np.histogram(
                run.draws, edges, weights=np.broadcast_to(run.weights, run.draws.shape)
            )[0]
            / (run.weights.sum() * len(run.draws) * np.diff(edges))
            for name, run in self.runs.items()
        }
        each["posterior"] = stats.norm.pdf(middle)
        return tables.curves("posterior sds from the mean", middle, "density", each, "variant")

    def running_table(self) -> pd.DataFrame:
        """The sd of the draws so far, measured: columns step, sd so far, variant."""
        at = np.unique(np.geomspace(20, STEPS, 60).astype(int))
        each = {name: run.running()[at - 1] for name, run in self.runs.items()}
        return tables.curves("step", at.astype(float), "sd so far", each, "variant")

    def exact_running_table(self) -> pd.DataFrame:
        """The same with infinitely many chains."""
        at = np.unique(np.geomspace(20, STEPS, 60).astype(int))
        each = {name: run.exact_running()[at - 1] for name, run in self.runs.items()}
        return tables.curves("step", at.astype(float), "sd so far", each, "variant")

    def batch_table(self) -> pd.DataFrame:
        """The exact stationary sd by batch size, for this step size and two others."""
        sizes = 2 ** np.arange(1, 11)
        ratio = [exact(int(n)).noise / exact(int(n)).precision for n in sizes]
        each = {
            f"h k = {a:.3g}": np.array([stationary_sd(a, one) for one in ratio])
            for a in (self.relative_step, self.relative_step / 4, self.relative_step / 16)
        }
        return tables.curves("batch size", sizes.astype(float), "stationary sd", each, "step size")


def run(relative_step: float, batch_size: int, power: float, seed: int) -> Variants:
    """Run the three variants from the posterior mean.

    Args:
        relative_step: a = h k: the step size in posterior variances, below 2.
        batch_size: n.
        power: of the falling step size h (1 + t / 20)^-power.
        seed: of everything random.
    """
    law = exact(batch_size)
    h = relative_step / law.precision
    # The full gradient is that of the exact law, which costs no pass over the rows.
    normal = ex.targets.gaussian(jnp.full(1, law.mean), 1.0 / law.precision)
    full, batch = ex.FullGradient(normal), ex.Minibatch(posterior(), batch_size)
    falling = ex.schedule.Polynomial(h, offset=OFFSET, power=power)
    ratio = law.noise / law.precision
    key = jax.random.key(seed)
    made = {}
    for name, gradient, step, noise in (
        (FULL, full, h, 0.0),
        (BATCH, batch, h, ratio),
        (FALLING, batch, falling, ratio),
    ):
        samples = ex.sample(
            ex.sgld(gradient, step), jnp.full(1, law.mean), STEPS,
            num_chains=CHAINS, key=key, progress=False,
        )  # fmt: skip
        z = (np.asarray(samples.position[:, :, 0], float) - law.mean) * law.precision**0.5
        sizes = np.asarray(samples.info.step_size[0], float)
        made[name] = Run(z, sizes, variances(sizes * law.precision, noise))
    return Variants(relative_step, batch_size, made)
