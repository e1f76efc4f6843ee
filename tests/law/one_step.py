"""What one step of the code does, exactly: drift and diffusion, and whether they are stationary.

A step of Euler's scheme is affine in its normal numbers. Its mean and covariance, read off the
kernel itself and divided by h, are the drift f and the diffusion T D of the dynamics that the
code follows, and can be differentiated. exp(-H / T) is stationary where
R = div g - g . grad H / T vanishes, with g = f - div(T D) + D grad H; reversible where g does.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.verify.stationary_law import DealtStep

from . import normals


def stepping(kernel: ex.Kernel, d: int) -> tuple[Callable, int]:
    """(position, momentum) after a step as a function of them before it and of normal numbers.

    Each call of it differentiates the one program that the first call traced.

    Args:
        kernel: of dimension d.
        d: how many of the state's numbers are the position.

    Returns:
        The function, and how many normal numbers it takes.
    """
    dealt = DealtStep(kernel, jnp.zeros(d), kept=False)
    return jax.jit(lambda z, numbers: dealt(normals.key(), z, numbers)), dealt.count


def with_jacobian(function: Callable, x) -> tuple:
    """The value of a function and its Jacobian."""
    jacobian, value = jax.jacfwd(lambda x: 2 * (function(x),), has_aux=True)(x)
    return value, jacobian


def moments(step: Callable, count: int, z):
    """Mean and covariance after a step of `stepping` from z."""
    mean, root = with_jacobian(lambda numbers: step(z, numbers), jnp.zeros(count))
    return mean, root @ root.T


def law(kernel: ex.Kernel, position, momentum=()):
    """Mean and covariance of (position, momentum) after a step from here."""
    z = jnp.concatenate([jnp.asarray(position, float), jnp.asarray(momentum, float)])
    return moments(*stepping(kernel, len(position)), z)


def residuals(kernel, energy, h, t, dimension):
    """R at five states drawn at random, which lie on no plane of symmetry, and the largest g.

    Args:
        kernel: of step h, at temperature t, of Euler's scheme.
        energy: H of z = (position, momentum), or of z = position.
        h: the step size.
        t: the temperature.
        dimension: of z.
    """
    steps = stepping(kernel, dimension // 2 if normals.has_momentum(kernel) else dimension)

    def dynamics(z):
        mean, covariance = moments(*steps, z)
        diffusion = covariance / (2.0 * h)
        return diffusion, ((mean - z) / h, diffusion)

    def current(z):
        slopes, (drift, diffusion) = jax.jacfwd(dynamics, has_aux=True)(z)
        divergence = jnp.einsum("ijj->i", slopes)
        return drift - divergence + diffusion @ jax.grad(energy)(z) / t

    @jax.jit
    @jax.vmap
    def residual(z):
        g, slopes = with_jacobian(current, z)
        return jnp.trace(slopes) - g @ jax.grad(energy)(z) / t, g

    points = np.random.default_rng(0).normal(size=(5, dimension))
    r, g = residual(jnp.asarray(points))
    return np.asarray(r), float(np.abs(g).max())
