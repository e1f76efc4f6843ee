"""The bias that batches bring to SGLD on a conjugate regression: exact, and by pairs of chains."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import PRNGKeyArray

import ergodax as ex
from experiments.formalml.linear_law import Regression, covariance_of_sgld

NUM_DATA, DATA_SEED = 64, 7
FRACTIONS = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125)  # of the step size that is stable
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
SHOWN = FRACTIONS[3]  # at which the batch's bias is measured too


def make_regression() -> Regression:
    """Two coefficients and NUM_DATA examples, the same for every seed of the chains."""
    rng = np.random.default_rng(DATA_SEED)
    x = np.stack([np.ones(NUM_DATA), rng.normal(size=NUM_DATA)], axis=1)
    return Regression(x, x @ [0.5, -1.0] + rng.normal(size=NUM_DATA))


def stable_step(problem: Regression) -> float:
    """The largest stable step size of SGLD with the full gradient."""
    return 2.0 / float(np.linalg.eigvalsh(problem.precision)[-1])


def inflation(problem: Regression, step_size: float, batch_size: int) -> float:
    """The exact bias of the sum of variances, relative; nan where the chain is unstable."""
    try:
        found = covariance_of_sgld(problem, step_size, batch_size)
    except ValueError:
        return float("nan")
    return float(np.trace(found) / np.trace(problem.covariance) - 1.0)


def exact_regression(problem: Regression) -> pd.DataFrame:
    """The bias of the variances for each step size and batch size, without replacement."""
    return pd.DataFrame(
        [
            {
                "fraction": fraction,
                "step_size": fraction * stable_step(problem),
                "batch_size": n,
                "bias": inflation(problem, fraction * stable_step(problem), n),
            }
            for fraction in FRACTIONS
            for n in BATCH_SIZES
        ]
    )


def measure_batches(
    problem: Regression,
    batch_sizes: tuple[int, ...],
    num_steps: int,
    num_chains: int,
    key: PRNGKeyArray,
    progress: bool = False,
) -> pd.DataFrame:
    """What a batch adds to the bias of mean and variance, by pairs of chains with n and 2 n."""
    h, mean = SHOWN * stable_step(problem), jnp.asarray(problem.mean, float)
    scale, full = np.trace(problem.covariance), inflation(problem, h, NUM_DATA)
    rows = []
    for n in batch_sizes:
        report = ex.diagnostics.batch_bias(
            lambda n: ex.sgld(ex.Minibatch(problem.posterior, n), h),
            mean,
            n,
            num_steps,
            key=jax.random.fold_in(key, n),
            num_data=NUM_DATA,
            function=lambda w: {"mean": w[0], "variance": jnp.sum((w - mean) ** 2)},
            num_chains=num_chains,
            burn_in=num_steps // 10,
            progress=progress,
        )
        table = report.table.xs("mean", level=1)
        units = {"mean": np.sqrt(problem.covariance[0, 0]), "variance": scale}
        row = {"batch_size": n, "exact": inflation(problem, h, n) - full}
        for name, unit in units.items():
            row[name] = float(table.loc[name, "bias_coarse"] / unit)
            row[f"{name}_error"] = float(report.ratio * table.loc[name, "bias_error"] / unit)
        rows.append(row)
    return pd.DataFrame(rows)


def constants(regression: pd.DataFrame) -> tuple[float, float]:
    """c_disc and c_noise: the bias of the variances is eta (c_disc + c_noise N^2 (1/n - 1/N)).

    From the smallest step size, by its full batch and by half of it.
    """
    rows = regression[regression["fraction"] == min(FRACTIONS)].set_index("batch_size")
    h = rows["step_size"].iloc[0]
    disc = float(rows.loc[NUM_DATA, "bias"] / h)
    half = float(rows.loc[NUM_DATA // 2, "bias"] / h)
    return disc, (half - disc) / (NUM_DATA**2 * (2.0 / NUM_DATA - 1.0 / NUM_DATA))
