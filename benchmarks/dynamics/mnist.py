"""Sevens against nines: passes until the bias is small, by the exact law and by running the chains.

A logistic regression on 128 principal components of MNIST's pixels, N = 12,214, d = 129, prior
N(0, 1), batches of 100, in the components as they are: no method is given a metric. Settings are
sought by the exact law of the normal approximation at the mode. The chains then run with them on
the posterior itself, whose noise depends on the position.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.dynamics.passes import METHODS, Normal, best
from benchmarks.report import Table
from benchmarks.strangers.reference import newton
from benchmarks.strangers.tables import sevens_and_nines

BATCH, COMPONENTS = 100, 128
CHAINS = 64
TIMES = 75  # of relaxation, that a chain runs after five of them
LEAPS, TRAJECTORIES = 20, 250
KERNELS: dict[str, Callable[..., ex.Kernel]] = {
    "langevin, BAOAB": ex.langevin,
    "sms_ubu": ex.sms_ubu,
    "nogin, V known": lambda gradient, h, gamma: ex.nogin(_known(gradient), h, gamma),
}


class Sevens(NamedTuple):
    """The posterior along the eigenvectors of its Hessian at the mode, the least curvature 1.

    Attributes:
        posterior: of z, where w = mode + vectors z / sqrt(curvature of the least mode).
        law: its normal approximation.
    """

    posterior: ex.Posterior
    law: Normal


@functools.cache
def sevens() -> Sevens:
    """Rotated and shifted alone, and all coordinates in one unit, so that a run is the same run."""
    x, y = sevens_and_nines(COMPONENTS)
    number = len(x)
    with jax.enable_x64(True):
        mode, hessian = newton(lambda w: _energy(w, x, y), jnp.zeros(x.shape[1]))
        k, vectors = np.linalg.eigh(np.asarray(hessian))
    probability = 1.0 / (1.0 + np.exp(-x @ np.asarray(mode)))
    scores = (x * (y - probability)[:, None]) @ vectors
    variance = number**2 / BATCH * (number - BATCH) / (number - 1) * scores.var(axis=0)
    law = Normal(k / k[0], variance / k[0], round(number / BATCH))
    design, offset = jnp.float32(x @ vectors / np.sqrt(k[0])), jnp.float32(x @ np.asarray(mode))
    shift = jnp.float32(vectors.T @ np.asarray(mode))

    def log_likelihood(z: jax.Array, row: tuple) -> jax.Array:
        columns, at_mode, label = row
        score = at_mode + columns @ z
        return label * score - jax.nn.softplus(score)

    def log_prior(z: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum((shift + z / np.float32(np.sqrt(k[0]))) ** 2)

    data = (design, offset, jnp.float32(y))
    return Sevens(ex.Posterior(log_prior, log_likelihood, data), law)


def _energy(w: jax.Array, x: np.ndarray, y: np.ndarray) -> jax.Array:
    score = x @ w
    return 0.5 * jnp.sum(w**2) - jnp.sum(y * score - jax.nn.softplus(score))


def moments(draws: np.ndarray) -> np.ndarray:
    """Mean and mean square of each chain, shape (chains, 2, d), of draws (chains, draws, d)."""
    return np.stack([draws.mean(axis=1), (draws**2).mean(axis=1)], axis=1)


@functools.cache
def reference() -> np.ndarray:
    """Mean and mean square of each coordinate by chain, shape (chains, 2, d): HMC on all rows."""
    posterior, law = sevens()
    quarter = 0.5 * np.pi  # of the slowest mode's period
    kernel = ex.hmc(ex.FullGradient(posterior), quarter / LEAPS, num_leapfrog_steps=LEAPS)
    samples = _run(kernel, law, TRAJECTORIES, 1)
    return moments(samples[:, TRAJECTORIES // 10 :])


def bias(kernel: ex.Kernel, relaxation: int) -> tuple[float, float, float]:
    """Root mean square bias of means and of sds, over modes, in sds; the standard error of one sd.

    Args:
        kernel: on this posterior.
        relaxation: steps in which it forgets.
    """
    thin = max(1, relaxation // 10)
    found = moments(_run(kernel, sevens().law, (TIMES + 5) * relaxation, thin)[:, 50:])
    means, errors = [], []
    for chains in (found, reference()):
        means.append(chains.mean(axis=0))
        errors.append(chains.std(axis=0, ddof=1) / np.sqrt(len(chains)))
    sd = np.sqrt(means[1][1] - means[1][0] ** 2)
    # Of a mean in sds, and of an sd by half the relative error of a variance.
    scale = np.stack([1.0 / sd, 0.5 / sd**2])
    centred = np.array([m[1] - m[0] ** 2 for m in means])
    off = np.stack([means[0][0] - means[1][0], centred[0] - centred[1]]) * scale
    noise = np.hypot(*errors) * scale
    rms = np.sqrt(np.maximum(0.0, np.mean(off**2 - noise**2, axis=1)))
    return float(rms[0]), float(rms[1]), float(noise[1].mean())


def _run(kernel: ex.Kernel, law: Normal, steps: int, thin: int) -> np.ndarray:
    """Draws (chains, draws, d) from the law of the normal approximation."""
    starts = jax.random.normal(jax.random.key(0), (CHAINS, law.curvature.size))
    starts = starts / jnp.sqrt(jnp.float32(law.curvature))
    samples = ex.sample(
        kernel, num_steps=steps, thin=thin, positions=starts, key=jax.random.key(1), progress=False
    )
    return np.asarray(samples.position, np.float64)


def _known(gradient: Any) -> Any:
    """Told the variance at the mode along each of the Hessian's eigenvectors."""
    return ex.KnownCovariance(gradient, jnp.float32(sevens().law.variance))


def relaxation(h: float, gamma: float) -> int:
    """Steps in which the slowest mode, of curvature 1, forgets."""
    rate = gamma / 2.0 - np.sqrt(max(0.0, gamma**2 / 4.0 - 1.0))
    return int(np.ceil(1.0 / (rate * h)))


def table() -> Table:
    """Passes by the exact law, and the bias measured on the posterior with those settings."""
    found = Table(
        "MNIST, sevens against nines: passes over the data until means and sds are within 0.05 sd",
        ["method", "passes", "x sms_ubu", "h", "friction", "bias of means", "of sds", "+-"],
    )
    posterior, law = sevens()
    with jax.enable_x64(True):
        settings = {name: best(METHODS[name], law) for name in KERNELS}
    gradient = ex.Minibatch(posterior, BATCH)
    for name, make in KERNELS.items():
        passes, h, gamma = settings[name]
        measured = bias(make(gradient, h, gamma), relaxation(h, gamma))
        cells = [f"{passes:,.1f}", f"{passes / settings['sms_ubu'][0]:.2f}", f"{h:.2g}"]
        found.rows.append([name, *cells, f"{gamma:g}", *(f"{x:.3f}" for x in measured)])
        print(" ", *found.rows[-1], flush=True)
    found.data = dict(settings)
    found.notes += [
        f"N = {posterior.num_data:,}, d = {law.curvature.size}, {COMPONENTS} principal components "
        f"as they are, no metric, batches of {BATCH}, condition {law.curvature.max():.0f}. Passes, "
        "h and friction as in the table before, by the normal approximation; h and friction in the "
        "units of the slowest mode.",
        "Bias: on the posterior itself with these settings against HMC on all rows, root mean "
        "square over the modes, in sds; the standard error is that of one sd.",
    ]
    return found
