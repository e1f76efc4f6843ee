"""Stochastic-gradient Nose-Hoover thermostat."""

from typing import Any

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.splitting import Splitting, Thermostat, splitting


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
