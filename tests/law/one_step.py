"""What one step of the code does, exactly: drift and diffusion, and whether they are stationary.

A step of Euler's scheme is affine in its normal numbers. Its mean and covariance, read off the
kernel itself and divided by h, are the drift f and the diffusion T D of the dynamics that the
code follows, and can be differentiated. exp(-H / T) is stationary where
R = div g - g . grad H / T vanishes, with g = f - div(T D) + D grad H; reversible where g does.
"""

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

from . import normals
from .transfer import has_momentum, placed


def law(kernel: ex.Kernel, position, momentum=()):
    """Mean and covariance of (position, momentum) after a step from here."""
    state = placed(kernel, jnp.asarray(position), jnp.asarray(momentum, float))

    def step(numbers):
        with normals.dealt(numbers):
            new, _ = kernel.step(normals.key(), state)
        return jnp.concatenate([new.position, *new.auxiliary.values()])

    zero = jnp.zeros(normals.count(kernel, state))
    root = jax.jacfwd(step)(zero)
    return step(zero), root @ root.T


def residual(kernel: ex.Kernel, energy, h: float, t: float, z):
    """R and the vector g at a state z = (position, momentum), for Euler's scheme.

    Args:
        kernel: of step h, at temperature t.
        energy: H of z.
        h: the step size.
        t: the temperature.
        z: shape (d,) or, with a momentum, (2 d,).
    """
    d = z.size // 2 if has_momentum(kernel) else z.size

    def dynamics(z):
        mean, covariance = law(kernel, z[:d], z[d:])
        return (mean - z) / h, covariance / (2.0 * h)

    def current(z):
        drift, diffusion = dynamics(z)
        divergence = jnp.einsum("ijj->i", jax.jacfwd(lambda z: dynamics(z)[1])(z))
        return drift - divergence + diffusion @ jax.grad(energy)(z) / t

    g = current(z)
    return jnp.trace(jax.jacfwd(current)(z)) - g @ jax.grad(energy)(z) / t, g


def residuals(kernel, energy, h, t, dimension):
    """R at five states drawn at random, which lie on no plane of symmetry, and the largest g."""
    points = np.random.default_rng(0).normal(size=(5, dimension))
    r, g = jax.jit(jax.vmap(lambda z: residual(kernel, energy, h, t, z)))(jnp.asarray(points))
    return np.asarray(r), float(np.abs(g).max())
