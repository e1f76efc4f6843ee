"""From continuous time to a kernel: Euler-Maruyama, splittings, leapfrog."""

from ergodax.integrator.euler_maruyama import euler_maruyama
from ergodax.integrator.splitting import splitting

__all__ = ["euler_maruyama", "splitting"]
