"""Langevin dynamics whose friction adapts to the gradient's noise."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import choice
from ergodax.gradient.base import Estimate, GradientEstimator, known_covariance
from ergodax.integrator import flows
from ergodax.integrator.splitting import Splitting, Thermostat, splitting
from ergodax.integrator.stepper import Moved, Stepper
from ergodax.kernel import State, kinetic_temperature, named
from ergodax.recipe.dynamics.momentum import draw_momentum, thermostat_start
from ergodax.recipe.operators import Operator, as_definite
from ergodax.schedule import Schedule, as_schedule


@named
def sgnht(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    thermal_mass: Any = None,
    per_coordinate: bool = False,
    scheme: str = "BADODAB",
) -> Splitting:
    """Langevin dynamics whose friction adapts to the gradient's noise.

    State: position x, momentum r, thermostat zeta. H = U + r^T M^-1 r / 2 + mu (zeta - A)^2 / 2,
    D = diag(0, A M, 0), Q[r, x] = I, Q[r, zeta] = r / mu. In continuous time:
        dx = M^-1 r dt,   dr = -grad U dt - zeta r dt + sqrt(2 A T M) dW,
        dzeta = (r^T M^-1 r - d T) / mu dt
    split as `scheme` says (letters as in `langevin`, D moves zeta). Constant isotropic
    gradient noise V moves the mean of zeta to A + h V / (2 m T) and leaves x unbiased, with no
    estimate of V; anisotropic noise needs `per_coordinate`.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        friction: A > 0, a rate: how much noise is injected.
        mass: M: number or vector; a matrix only with the scalar thermostat.
        temperature: T, a number or a schedule.
        thermal_mass: mu; by default the dimension, or 1 for each coordinate. zeta relaxes over
            about mu gamma / (d T) units of time; lower mu where that outlasts the burn-in.
        per_coordinate: one zeta for each coordinate.
        scheme: any string of A, B, O and D, each at least once.

    Returns:
        A kernel whose states have "momentum" and "thermostat" in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or an unknown or missing letter.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sgnht(ex.Minibatch(model, 10), 0.02, friction=10.0)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Ding, Fang, Babbush, Chen, Skeel and Neven, Bayesian sampling using stochastic gradient
        thermostats, 2014; Leimkuhler and Shang, Adaptive thermostats for noisy gradient
        systems, 2016 (BADODAB).
    """
    return splitting(
        scheme,
        gradient,
        step_size,
        friction,
        mass=mass,
        temperature=temperature,
        thermostat=Thermostat(thermal_mass, per_coordinate),
    )


SCHEMES = ("euler", "splitting")


class CovarianceControlled(Stepper):
    """The kernel that `ccadl` returns."""

    friction: Schedule
    mass: Operator
    thermostat: Thermostat
    scheme: str = eqx.field(static=True)

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """Draw r ~ N(0, T M); zeta = A."""
        key_momentum, key_gradient = jax.random.split(key)
        start = jnp.int32(0)
        momentum = draw_momentum(key_momentum, position, self.mass, self.temperature(start))
        zeta = thermostat_start(self.friction(start), position, per_coordinate=False)
        return {"momentum": momentum, "thermostat": zeta}, key_gradient

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """One gradient, and the scheme's order of the parts."""
        move = self._euler if self.scheme == "euler" else self._split
        return move(key, state, h, self.friction(state.step), temperature)

    def _euler(
        self, key: PRNGKeyArray, state: State, h: Array, friction: Array, temperature: Array
    ) -> Moved:
        key_gradient, key_noise = jax.random.split(key)
        momentum, zeta = state.auxiliary["momentum"], state.auxiliary["thermostat"]
        velocity = self.mass.solve(momentum)
        position = tree.add_scaled(state.position, h, velocity)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, position)
        drag = known_covariance(estimate, self.gradient, "ccadl").mv(velocity)
        noise = draw_momentum(key_noise, momentum, self.mass, temperature)
        kept = tree.scale(1.0 - tree.cast(h, zeta) * zeta, momentum)
        kicked = flows.kick(kept, estimate.gradient, h)
        damped = tree.add_scaled(kicked, -(h**2) / (2.0 * temperature), drag)
        momentum = tree.add_scaled(damped, jnp.sqrt(2.0 * friction * h), noise)
        zeta = self._heat(zeta, momentum, temperature, h)
        return self._moved(position, momentum, zeta, estimate, gradient)

    def _split(
        self, key: PRNGKeyArray, state: State, h: Array, friction: Array, temperature: Array
    ) -> Moved:
        key_gradient, key_noise = jax.random.split(key)
        position, zeta = state.position, state.auxiliary["thermostat"]
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, position)
        _, momentum = flows.damped_kick(
            state.auxiliary["momentum"],
            tree.scale(-0.5 * h, estimate.gradient),
            self.mass,
            known_covariance(estimate, self.gradient, "ccadl"),
            weight=h**2 / (4.0 * temperature),
        )
        position = flows.drift(position, momentum, self.mass, 0.5 * h)
        zeta = self._heat(zeta, momentum, temperature, 0.5 * h)
        momentum = flows.thermostatted_noise(
            key_noise, momentum, zeta, self.mass, friction, temperature, h
        )
        zeta = self._heat(zeta, momentum, temperature, 0.5 * h)
        position = flows.drift(position, momentum, self.mass, 0.5 * h)
        return self._moved(position, momentum, zeta, estimate, gradient)

    def _moved(
        self, position: PyTree, momentum: PyTree, zeta: Array, estimate: Estimate, gradient: PyTree
    ) -> Moved:
        auxiliary = {"momentum": momentum, "thermostat": zeta}
        kinetic = kinetic_temperature(momentum, self.mass.solve(momentum))
        return Moved(position, auxiliary, estimate, gradient, {"kinetic_temperature": kinetic})

    def _heat(self, zeta: Array, momentum: PyTree, temperature: Array, t: Array) -> Array:
        inertia = self.thermostat.inertia(momentum)
        return flows.thermostat_drift(
            zeta, momentum, self.mass, inertia, temperature, t, per_coordinate=False
        )


@named
def ccadl(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    thermal_mass: Any = None,
    scheme: str = "euler",
) -> CovarianceControlled:
    """Adaptive Langevin dynamics with the gradient's noise damped by its covariance (Shang et al.).

    State: position x, momentum r, thermostat zeta. H = U + r^T M^-1 r / 2 + mu (zeta - A)^2 / 2,
    D = diag(0, A M + (h / 2T) V, 0), Q[r, x] = I, Q[r, zeta] = r / mu. In continuous time, V the
    covariance of the gradient estimate, which may depend on x:
        dx = M^-1 r dt,   dzeta = (r^T M^-1 r - d T) / mu dt,
        dr = -grad U dt - (h / 2T) V M^-1 r dt - zeta r dt + sqrt(2 A T M) dW + sqrt(h V) dW'
    where dW' is the gradient's own noise: the friction beside it takes out what it brings, and
    the thermostat has only to absorb the error of V. Update, with g an estimate of grad U:
        euler:      x+ = x + h M^-1 r
                    r+ = r - h g(x+) - (h^2 / 2T) V M^-1 r - h zeta r + N(0, 2 A h T M)
                    zeta+ = zeta + h (r+^T M^-1 r+ - d T) / mu
        splitting:  K(h) A(h/2) D(h/2) O(h) D(h/2) A(h/2), with A, D and O of `sgnht` and the kick
                    K: r+ = 2 M w - r,   w = (M + (h^2 / 4T) V)^-1 (r - (h/2) g(x))

    "euler", as published, is first order: its thermostat holds a biased kinetic energy at T. On a
    Gaussian with a heavy thermostat the variance of x is too small by the factor
    1 - h (zeta + h V / 2T) / 2, for M = I. It is unstable where h zeta + h^2 V / 2T nears 2.
    "splitting" is second order in x, with V known, and its kick is stable for every V.

    Args:
        gradient: an estimator that knows its covariance. Shang et al. average the batches'
            covariances over the run: that belongs to the estimator.
        step_size: h, a positive number or a schedule.
        friction: A > 0, a rate: how much noise is injected, and where zeta starts.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T > 0, a number or a schedule.
        thermal_mass: mu; by default the dimension. A light one in few dimensions lets zeta swing
            by sqrt(T / mu), and "euler" may then run away.
        scheme: "euler" or "splitting".

    Returns:
        A kernel whose states have "momentum" and "thermostat" in `auxiliary`; one gradient a
        step.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, an unknown scheme, or, at the first step, an estimator
            that does not know its covariance.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.ccadl(ex.ScoreCovariance(ex.Minibatch(model, 10)), 0.02, friction=10.0)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Shang, Zhu, Leimkuhler and Storkey, Covariance-controlled adaptive Langevin thermostat
        for large-scale Bayesian sampling, 2015.
    """
    choice("scheme", scheme, SCHEMES)
    return CovarianceControlled(
        gradient,
        step_size,
        as_schedule(temperature, "temperature"),
        as_schedule(friction, "friction"),
        as_definite(mass, "mass"),
        Thermostat(thermal_mass),
        scheme,
    )
