"""From continuous time to a kernel: Euler-Maruyama, splittings, leapfrog."""

from ergodax.integrator.euler_maruyama import euler_maruyama
from ergodax.integrator.splitting import Thermostat, splitting

__all__ = ["Thermostat", "euler_maruyama", "splitting"]
