"""Logistic regression on a table: minibatch SGHMC in whitened coordinates, and its reference.

The posterior is whitened (`tune.whiten`): position = centre + L u, the centre being the mean of a
Gaussian fitted to it. A linear model allows the change of coordinates to be done once, on the
design matrix, so that a step costs what it would without: X w = X centre + (X L) u.
"""

import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.apps.tables import Table
from ergodax.cluster.distributed import gather
from ergodax.driver import Samples, sample
from ergodax.gradient import FullGradient, KnownCovariance, Minibatch
from ergodax.recipe import Diagonal
from ergodax.sampler import hmc, sghmc
from ergodax.target import Posterior
from ergodax.target.mode import Mode, find_mode
from ergodax.tune import Whitening, whiten

FRICTION = 2.0  # critical damping of unit curvature
RELAXATIONS = 10  # of burn-in, from starts over-dispersed by half


class GaussianPrior(eqx.Module):
    """log N(w; 0, scale^2 I), for w = centre + basis u."""

    scale: Float[Array, ""]
    centre: Float[Array, " d"]
    basis: Float[Array, "d d"] | None = None

    def __call__(self, u: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density up to a constant."""
        w = u if self.basis is None else self.centre + self.basis @ u
        return -0.5 * jnp.sum(w**2) / self.scale**2


def bernoulli(w: Float[Array, " d"], example: PyTree) -> Float[Array, ""]:
    """The log-likelihood of one (features, offset, label in {0, 1})."""
    x, offset, y = example
    logit = x @ w + offset
    return y * logit - jax.nn.softplus(logit)


def logistic_posterior(table: Table, prior_scale: float) -> Posterior:
    """The posterior of the coefficients w, with w ~ N(0, prior_scale^2 I).

    Args:
        table: standardised, with its intercept.
        prior_scale: standard deviation of each coefficient.
    """
    x = jnp.asarray(table.features, jnp.float32)
    y = jnp.asarray(table.target, jnp.float32)
    prior = GaussianPrior(jnp.asarray(prior_scale, x.dtype), jnp.zeros(x.shape[1], x.dtype))
    return Posterior(prior, bernoulli, (x, jnp.zeros_like(y), y))


def whitened(posterior: Posterior, whitening: Whitening) -> Posterior:
    """The same posterior in the coordinates u, w = centre + basis u."""
    x, _, y = posterior.data
    prior = GaussianPrior(posterior.log_prior.scale, whitening.centre, whitening.basis)  # pyright: ignore
    return Posterior(prior, bernoulli, (x @ whitening.basis, x @ whitening.centre, y))


class Unwhiten(eqx.Module):
    """u -> w, applied to what is stored."""

    whitening: Whitening

    def __call__(self, u: Float[Array, " d"]) -> PyTree:
        """The coefficients."""
        return {"w": self.whitening.centre + self.whitening.basis @ u}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What was chosen for a run, by the user or by `choose`.

    Attributes:
        batch_size: n.
        step_size: h, in whitened coordinates, where the posterior's scale is 1.
        num_steps: of each chain after burn-in.
        thin: steps to a draw.
        burn_in: steps before.
    """

    batch_size: int
    step_size: float
    num_steps: int
    thin: int
    burn_in: int


def choose(
    whitening: Whitening,
    batch_size: int,
    step_size: float | None = None,
    num_steps: int | None = None,
    *,
    heating: float = 0.1,
    draws: int = 2000,
) -> Settings:
    """Choose step size and length from the noise that was measured.

    In whitened coordinates minibatch noise lambda would heat a direction by h lambda / (2 gamma)
    if it were left uncompensated. The step is chosen so that this is at most `heating`: what
    compensation must remove is then small, and so is its error where the noise varies over
    the posterior. h <= 0.15 keeps the discretisation error h^2 / 4 below 0.6%.

    Args:
        whitening: from `tune.whiten`, for this batch size.
        batch_size: n.
        step_size: overrides h.
        num_steps: overrides the length, which otherwise gives `draws` draws two relaxation
            times 1 / h apart, but at most a million steps.
        heating: see above.
        draws: to be stored from each chain.

    Raises:
        ValueError: a step size that is not positive.
    """
    worst = float(jnp.max(whitening.noise))
    safe = float(min(0.15, 2.0 * FRICTION * heating / max(worst, 1e-6)))
    h = safe if step_size is None else step_size
    if not h > 0:
        raise ValueError(f"step_size must be positive, not {h}.")
    relaxation = max(1, round(1.0 / h))
    steps = num_steps or min(1_000_000, max(20_000, 2 * draws * relaxation))
    return Settings(batch_size, h, steps, max(1, steps // draws), RELAXATIONS * relaxation)


@dataclasses.dataclass(frozen=True)
class Fit:
    """A finished run.

    Attributes:
        samples: draws of {"w": coefficients}.
        seconds: wall time of sampling, compilation included.
        passes: how many times each chain read the data.
    """

    samples: Samples
    seconds: float
    passes: float


@dataclasses.dataclass(frozen=True)
class Model:
    """A posterior made ready to sample.

    Attributes:
        posterior: of the coefficients.
        round: the same in whitened coordinates.
        mode: the mode of the coefficients.
        whitening: between the two.
    """

    posterior: Posterior
    round: Posterior
    mode: Mode
    whitening: Whitening


def prepare_model(table: Table, prior_scale: float, batch_size: int, key: PRNGKeyArray) -> Model:
    """Find the mode and whiten there.

    Raises:
        ValueError: no mode was found, or a batch size outside [1, N].
    """
    posterior = logistic_posterior(table, prior_scale)
    Minibatch(posterior, batch_size)  # refuses a bad batch size before the work begins
    mode = find_mode(posterior, jnp.zeros(table.features.shape[1], jnp.float32))
    if not bool(mode.converged):
        raise ValueError(
            f"no mode was found in {int(mode.iterations)} iterations (gradient norm "
            f"{float(mode.gradient_norm):.3g}). Standardise the features or tighten the prior."
        )
    whitening = whiten(posterior, mode.position, batch_size, key=key)
    return Model(posterior, whitened(posterior, whitening), mode, whitening)


def _starts(key: PRNGKeyArray, model: Model, num_chains: int) -> Float[Array, "chains d"]:
    return 1.5 * jax.random.normal(key, (num_chains, model.whitening.centre.size), jnp.float32)


def run_sghmc(
    model: Model,
    settings: Settings,
    key: PRNGKeyArray,
    *,
    num_chains: int = 4,
    progress: bool = True,
    mesh: Mesh | None = None,
) -> Fit:
    """Minibatch SGHMC with the noise measured around the mode compensated (Eq. 9).

    Raises:
        DivergenceError: the step size is too large for the noise.
    """
    key_start, key_run = jax.random.split(key)
    batches = Minibatch(model.round, settings.batch_size)
    gradient = KnownCovariance(batches, Diagonal(model.whitening.noise))
    kernel = sghmc(gradient, settings.step_size, FRICTION, compensate=True, clip=True)
    begin = time.perf_counter()
    samples = sample(
        kernel,
        positions=_starts(key_start, model, num_chains),
        num_steps=settings.num_steps,
        key=key_run,
        num_chains=num_chains,
        thin=settings.thin,
        burn_in=settings.burn_in,
        collect=Unwhiten(model.whitening),
        progress=progress,
        mesh=mesh,
    )
    samples = samples if mesh is None else gather(samples, mesh)
    steps = settings.num_steps + settings.burn_in
    passes = steps * settings.batch_size / model.posterior.num_data
    return Fit(samples, time.perf_counter() - begin, passes)


def run_reference(
    model: Model,
    key: PRNGKeyArray,
    *,
    num_draws: int,
    num_chains: int = 4,
    progress: bool = True,
    mesh: Mesh | None = None,
) -> Fit:
    """The same posterior by HMC with full gradients and a Metropolis test: no bias."""
    key_start, key_run = jax.random.split(key)
    kernel = hmc(FullGradient(model.round), 0.3, num_leapfrog_steps=6)
    burn_in = 100
    begin = time.perf_counter()
    samples = sample(
        kernel,
        positions=_starts(key_start, model, num_chains),
        num_steps=num_draws,
        key=key_run,
        num_chains=num_chains,
        burn_in=burn_in,
        collect=Unwhiten(model.whitening),
        progress=progress,
        mesh=mesh,
    )
    samples = samples if mesh is None else gather(samples, mesh)
    return Fit(samples, time.perf_counter() - begin, 6.0 * (num_draws + burn_in))


def draws_of(fit: Fit) -> np.ndarray:
    """The coefficients, shape (chains, draws, d), in double precision."""
    return np.asarray(fit.samples.position["w"], np.float64)
