"""Langevin dynamics with a momentum."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.batching import ShuffledEpochs
from ergodax.data.source import Source
from ergodax.gradient.base import GradientEstimator, known_covariance
from ergodax.gradient.batches import BatchEstimator
from ergodax.integrator import flows
from ergodax.integrator.euler_maruyama import EulerMaruyama, check_scheme, euler_maruyama
from ergodax.integrator.splitting import Splitting, splitting
from ergodax.integrator.stepper import Moved, Stepper
from ergodax.kernel import State, kinetic_temperature, named
from ergodax.recipe import dynamics
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.operators import Operator, as_definite
from ergodax.schedule import Schedule, as_schedule


@named
def langevin(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    scheme: str = "BAOAB",
) -> Splitting:
    """Underdamped Langevin dynamics, split into exactly solved parts.

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = diag(0, gamma M),
    Q = [[0, -I], [I, 0]]. The update applies the letters of `scheme` in order, each with its
    share t of the step:
        A: x += t M^-1 r     B: r -= t g     O: r = e^(-gamma t) r + N(0, T M (1 - e^(-2 gamma t)))
        U: A and O at once, the exact flow of all but the force

    BAOAB, the default, is second order in h and exact for the position on Gaussian targets at
    every stable step, h^2 k < 4 m; one gradient a step. UBU is second order too, also along a
    path, and stable for h k tanh(gamma h / 2) < 2 gamma m; see `sms_ubu`. BU is UBU seen where
    the gradient is taken, for two normal numbers a coordinate instead of four: there the bias of
    x is half as large and of the other sign, while that of r is first order.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma, a number or a schedule.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.
        scheme: any string of A, B and O, each at least once, or of U and B.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or an unknown or missing letter.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.langevin(ex.Minibatch(model, 10), 0.02, friction=10.0, scheme="BAOAB")
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Leimkuhler and Matthews, Rational construction of stochastic numerical methods for
        molecular sampling, 2013.
    """
    return splitting(scheme, gradient, step_size, friction, mass=mass, temperature=temperature)


@named
def sms_ubu(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
) -> Splitting:
    """Symmetric minibatch splitting with UBU steps (Paulin, Whalley, Chada and Leimkuhler).

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = diag(0, gamma M),
    Q = [[0, -I], [I, 0]]. The rows are cut in random order into m = N / n batches, which two
    passes go through, forward and then backward; then the order is drawn anew. Each step of
    `langevin`'s scheme UBU takes one, with g its estimate of grad U:
        U(h / 2);   r -= h g;   U(h / 2)

    Second order in h for the position at every step, although the batches are noisy: the kicks of
    the second pass undo the first-order error of those of the first. With independent batches UBU
    is first order, as every scheme that does not know their covariance: it raises the temperature
    of x by h V / (2 gamma m). The momentum is second order where an order ends, after every 2 m
    steps. This is an expansion in the time of a pass, which must be short compared with the
    shortest period of x: a pass does about the work of one full gradient, not more. It needs no
    covariance; in `python -m benchmarks dynamics` `nogin` needs fewer passes where that is known to
    10 %. Where n does not divide N, see `data.ShuffledEpochs`.

    Args:
        gradient: an estimator from batches, such as ex.Minibatch; the scheme that draws its
            batches is replaced by the sweep.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma, a number or a schedule.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`; one gradient a step.

    Raises:
        TypeError: not an estimator from batches of rows in memory, or an argument that is not a
            number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> posterior = ex.Posterior(
        ...     lambda w: -0.5 * jnp.sum(w**2),
        ...     lambda w, y: -0.5 * jnp.sum((y - w) ** 2),
        ...     data=jnp.linspace(-1.0, 1.0, 40)[:, None],
        ... )
        >>> kernel = ex.sms_ubu(ex.Minibatch(posterior, 10), 0.02)
        >>> samples = ex.sample(kernel, jnp.zeros(1), 800, key=jax.random.key(0))
        >>> samples.position.shape
        (1, 800, 1)

    Reference:
        Paulin, Whalley, Chada and Leimkuhler, Sampling from Bayesian neural network posteriors
        with symmetric minibatch splitting Langevin dynamics, 2024; for UBU, Sanz-Serna and
        Zygalakis, Wasserstein distance estimates for the distributions of numerical
        approximations to ergodic stochastic differential equations, 2021.
    """
    if not isinstance(gradient, BatchEstimator) or isinstance(gradient.target.data, Source):
        raise TypeError(
            "gradient must draw its batches from data in memory, as ex.Minibatch(posterior, 100) "
            f"does, not {type(gradient).__name__}. For others try ex.langevin(..., scheme='UBU')."
        )
    swept = gradient.drawing(ShuffledEpochs(symmetric=True), gradient.batch_size)
    return splitting("UBU", swept, step_size, friction, mass=mass, temperature=temperature)


@named
def sghmc(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    scheme: str = "semi-implicit",
    resample_every: int | np.integer | None = None,
    compensate: bool = False,
    clip: bool = False,
) -> EulerMaruyama:
    """Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin).

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = diag(0, C) with C = gamma M,
    Q = [[0, -I], [I, 0]]. Update, with g an estimate of grad U of covariance V:
        r+ = r - h g - h gamma r + N(0, 2 h T C - h^2 V)       (V only with `compensate`)
        x+ = x + h M^-1 r+      (semi-implicit)      or      x + h M^-1 r      (euler)

    The semi-implicit scheme is second order in h for the marginal of x and stable for
    2 gamma h + h^2 k / m < 4; the Euler scheme is first order and unstable where h k >= C.
    Without compensation a noise V raises the temperature of x by h V / (2 C).

    Args:
        gradient: an estimator of grad U, such as ex.Minibatch.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma > 0, a number or a schedule; C = gamma M.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.
        scheme: "semi-implicit" or "euler".
        resample_every: draw r ~ N(0, T M) anew before every step whose number is a multiple of
            this; None for never. It does not change the law.
        compensate: subtract the estimator's covariance from the injected noise; the estimator
            must know it, and 2 T C - h V must be positive semidefinite.
        clip: with `compensate`, inject none where the variance would be negative.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or an unknown scheme.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sghmc(ex.Minibatch(model, 10), 0.02, friction=10.0)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Chen, Fox and Guestrin, Stochastic gradient Hamiltonian Monte Carlo, 2014.
    """
    return euler_maruyama(
        dynamics.underdamped(friction, mass),
        gradient,
        step_size,
        temperature=temperature,
        compensate=compensate,
        clip=clip,
        semi_implicit=check_scheme(scheme),
        resample_every=resample_every,
    )


@named
def sgrhmc(
    gradient: GradientEstimator,
    step_size: Any,
    metric: Any,
    friction: Any = 1.0,
    *,
    temperature: Any = 1.0,
    scheme: str = "semi-implicit",
    resample_every: int | np.integer | None = None,
    compensate: bool = False,
    clip: bool = False,
) -> EulerMaruyama:
    """Generalised stochastic-gradient Riemannian Hamiltonian Monte Carlo (Ma, Chen and Fox).

    State: position x, momentum r. H = U + r^T r / 2, D = diag(0, C) with C = gamma L^T L,
    Q = [[0, -L], [L^T, 0]], where L(x) L(x)^T = G^-1(x); Gamma = (0, div L^T). Update, with g an
    estimate of grad U of covariance V, and L, C and Gamma at x:
        r+ = r - h L^T g + h T div L^T - h C r + N(0, 2 h T C - h^2 L^T V L)
        x+ = x + h L r+      (semi-implicit)      or      x + h L r      (euler)
    with V only where `compensate` is set. Without div L^T, as one would naively write it, the
    law is wrong at every step size (see `counterexamples.naive_sgrhmc`).

    First order in h, in general; with a constant metric it is `sghmc` with mass G.

    Args:
        gradient: an estimator of grad U, such as ex.Minibatch.
        step_size: h, a positive number or a schedule.
        metric: function of the position that returns G^-1, the inverse metric: a number, a
            vector or tree like the position, a matrix or an operator; or an ex.Metric with its
            divergence, or an ex.PotentialMetric.
        friction: gamma > 0, a number or a schedule; 1 is Ma, Chen and Fox's.
        temperature: T, a number or a schedule; multiplies the noise and Gamma.
        scheme: "semi-implicit" or "euler".
        resample_every: draw r ~ N(0, T I) anew before every step whose number is a multiple of
            this; None for never. It does not change the law.
        compensate: subtract the estimator's covariance from the injected noise; the estimator
            must know it, and 2 T gamma I - h V must be positive semidefinite, whatever G.
        clip: with `compensate`, inject none where the variance would be negative.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, a metric that is not a function, or an argument that is not
            a number.
        ValueError: a number out of range, or an unknown scheme.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))
        >>> kernel = ex.sgrhmc(ex.FullGradient(target), 0.1, metric, friction=1.0)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 20_000, num_chains=4, key=jax.random.key(0),
        ...     progress=False)
        >>> bool(jnp.all(jnp.abs(samples.position.mean(axis=(0, 1))) < jnp.array([0.25, 0.5])))
        True

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Algorithm 1.
    """
    return euler_maruyama(
        dynamics.riemannian_underdamped(metric, friction),
        gradient,
        step_size,
        temperature=temperature,
        compensate=compensate,
        clip=clip,
        semi_implicit=check_scheme(scheme),
        resample_every=resample_every,
    )


class NoisyGradientIntegrator(Stepper):
    """The kernel that `nogin` returns."""

    friction: Schedule
    mass: Operator

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """Draw r ~ N(0, T M)."""
        key_momentum, key_gradient = jax.random.split(key)
        temperature = self.temperature(jnp.int32(0))
        momentum = draw_momentum(key_momentum, position, self.mass, temperature)
        return {"momentum": momentum}, key_gradient

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """Half drift, damped kick, half drift: together h times the mean velocity."""
        key_gradient, key_noise = jax.random.split(key)
        momentum = state.auxiliary["momentum"]
        middle = flows.drift(state.position, momentum, self.mass, 0.5 * h)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, middle)
        covariance = known_covariance(estimate, self.gradient, "nogin")
        damping = jnp.tanh(0.5 * self.friction(state.step) * h)
        noise = draw_momentum(key_noise, middle, self.mass, temperature)
        impulse = tree.add_scaled(tree.scale(jnp.sqrt(damping), noise), -0.5 * h, estimate.gradient)
        weight = h**2 / (4.0 * temperature)
        velocity, momentum = flows.damped_kick(
            momentum, impulse, self.mass, covariance, weight=weight, damping=damping
        )
        position = tree.add_scaled(state.position, h, velocity)
        kinetic = kinetic_temperature(momentum, self.mass.solve(momentum))
        return Moved(
            position, {"momentum": momentum}, estimate, gradient, {"kinetic_temperature": kinetic}
        )


@named
def nogin(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
) -> NoisyGradientIntegrator:
    """Underdamped Langevin dynamics corrected for the gradient's noise (Matthews and Weare).

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = diag(0, mu M), Q = [[0, -I], [I, 0]],
    with mu = gamma I + (h / 2T) V M^-1: the friction that takes out what a gradient of covariance V
    adds. Update, with g an estimate of grad U at x + (h/2) M^-1 r and l = tanh(gamma h / 2):
        p  = -(h/2) g + N(0, l T M)
        w  = ((1 + l) M + (h^2 / 4T) V)^-1 (r + p)
        x+ = x + h w,      r+ = 2 M w - r
    Written out it is a half drift; r += p; r = (I - K) (I + K)^-1 r with
    K = l I + (h^2 / 4T) V M^-1; r += p with the same p; a half drift. Algorithm 2 of the paper
    prints (h^2 T / 4) M V in K, which is right only for M = I and T = 1.

    On a Gaussian target of covariance T L^-1 with Gaussian gradient noise, x has exactly the
    target's law at every stable step, h^2 lambda_max(M^-1 L) < 4, even where V depends on x. At
    the end of a step r is independent of x with covariance T (M^-1 - (h^2/4) M^-1 L M^-1)^-1, so
    `Info.kinetic_temperature` is above T: by 1 / (1 - h^2 omega^2 / 4) in a mode of frequency
    omega. No V, however large, makes the kick unstable. On other targets it is second order in
    h, given V.

    An unbiased V estimated from the batch that gives g keeps the order, but its error, its
    correlation with g and the noise's third moment enter the constant, which is large once
    (h^2 / 4T) V is not small. Logistic regression with N = 2000, d = 20, n = 100 and
    (h^2 / 4T) V up to 1/2: with each batch's own V a mean is off by 0.7 posterior standard
    deviations and variances are 1.2 times too large; with V averaged over batches
    (ex.ScoreCovariance with `average`) neither is seen.

    Nothing is inverted but a number or a diagonal; a low rank is solved through a matrix of its
    rank, anything dense by a Cholesky factor at each step.

    Args:
        gradient: an estimator that knows its covariance, such as ex.KnownCovariance.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma, at least 0, a number or a schedule; what is added to the
            friction that V needs. With 0 and no noise the chain is not ergodic.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T > 0, a number or a schedule.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`; one gradient a step.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or, at the first step, an estimator that does not know
            its covariance.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> gradient = ex.ScoreCovariance(ex.Minibatch(model, 10))
        >>> kernel = ex.nogin(gradient, 0.05, friction=10.0)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Matthews and Weare, Langevin Markov chain Monte Carlo with stochastic gradients, 2018,
        Algorithms 1 and 2.
    """
    return NoisyGradientIntegrator(
        gradient,
        as_schedule(step_size, "step_size"),
        as_schedule(temperature, "temperature"),
        as_schedule(friction, "friction", allow_zero=True),
        as_definite(mass, "mass"),
    )
