"""The exact law of Euler-Maruyama in one dimension, from its transition density."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from ergodax.checks import real_number
from ergodax.verify.grid import Axis, Cells, as_drift, as_matrix_field, cell_volume, mesh, tabulate

Weights = Float[np.ndarray, "*cells"]

LOST = 1e-9  # of the mass, past the ends of the axis in a step


@dataclasses.dataclass(frozen=True)
class TransitionLaw(Cells):
    """A Markov chain on the cells of a grid, and its stationary law.

    `transition_law` and `stationary_law` make it. Densities are arrays of the grid's shape.

    Args:
        grid: the axes.
        step: from the probabilities of the cells to those a step later.
        weights: the stationary probabilities, of the grid's shape; interpolation and rounding
            leave some a little below zero where there is no mass.
        lost: the stationary probability that a step leaves the grid.
    """

    step: Callable[[Weights], Weights]
    weights: Weights
    lost: float

    def stationary(self) -> Weights:
        """The stationary density of the chain."""
        return self.weights / cell_volume(self.grid)

    def evolve(self, density: Weights, steps: int) -> Weights:
        """The density after some steps.

        Args:
            density: shape of the grid.
            steps: how many, not negative.

        Raises:
            ValueError: a negative number of steps.
        """
        if steps < 0:
            raise ValueError(f"steps must not be negative, not {steps}.")
        p = self.checked(density)
        for _ in range(steps):
            p = self.step(p)
        return p


def transition_law(
    drift: Callable[..., Any],
    diffusion: Callable[..., Any],
    step_size: float,
    axis: Axis,
    *,
    gradient_noise: Callable[..., Any] | None = None,
) -> TransitionLaw:
    """The law of x+ = x + h (f(x) + noise) + N(0, 2 h D(x)) with its discretisation error in h.

    A step from x is N(x + h f, 2 h D + h^2 V). Quadrature at the centres of the cells turns its
    density into a matrix, and the stationary law solves a linear system. The error falls faster
    than any power of the width: about 1e-12 where the noise of a step is three cells wide; below
    one cell it is refused, with the points that would do. Where the scheme is transient (a drift
    that grows faster than linearly) this is the law of the chain kept on the axis; an axis whose
    ends throw the chain off is refused.

    Args:
        drift: f, a function of z of shape (1,) that returns shape (1,), in JAX.
        diffusion: D, a function of z that returns a number or shape (1,), not negative.
        step_size: h, positive.
        axis: must hold the mass.
        gradient_noise: V, the variance of an unbiased estimate of f that takes its place, a
            function of z that returns a number or shape (1,); Gaussian. None: f is exact.

    Returns:
        A `TransitionLaw`, with `weights`, `stationary()`, `mean(function)`,
        `evolve(density, steps)`, `density(function)` and `points`.

    Raises:
        TypeError: an argument that is not a function, or `axis` is not an Axis.
        ValueError: a step size that is not positive, a variance that is negative or too small
            for the cells, or an axis that a step leaves with probability above 1e-9.

    Example:
        The bias of SGLD on N(0, 1), whose variance is 1 / (1 - h / 2).

        >>> law = transition_law(lambda z: -z, lambda z: 1.0, 0.2, Axis(-9.0, 9.0, 200))
        >>> round(law.mean(lambda z: z[0] ** 2), 9)
        1.111111111
    """
    if not isinstance(axis, Axis):
        raise TypeError(f"axis must be an Axis, not {axis!r}.")
    step_size = real_number("step_size", step_size, above=0.0)
    force = as_drift(drift, 1)
    heat = as_matrix_field(diffusion, 1)
    noise = None if gradient_noise is None else as_matrix_field(gradient_noise, 1, "gradient_noise")

    def step(z: Float[Array, " 1"]) -> tuple[Array, Array]:
        extra = jnp.zeros_like(heat(z)) if noise is None else noise(z)
        variance = 2.0 * step_size * heat(z) + step_size**2 * extra
        return (z + step_size * force(z))[0], variance[0, 0]

    mean, variance = tabulate(step, mesh([axis]))
    _check_variance(variance, axis)
    spread = np.sqrt(variance)
    scaled = (axis.centres[None, :] - mean[:, None]) / spread[:, None]
    matrix = scipy.special.softmax(-0.5 * scaled**2, axis=1)
    weights = _stationary(matrix)
    past = scipy.special.ndtr((axis.low - mean) / spread) + scipy.special.ndtr(
        (mean - axis.high) / spread
    )
    lost = float(weights @ past)
    if not lost <= LOST:
        raise ValueError(
            f"axis loses {lost:.1e} of the mass in a step: it ends at {axis.low:g} and "
            f"{axis.high:g}. Try a longer one; or a shorter one, or a smaller step_size, if the "
            "drift throws the chain off from far out."
        )
    return TransitionLaw((axis,), lambda p: p @ matrix, weights, lost)


def _check_variance(variance: Float[np.ndarray, " points"], axis: Axis) -> None:
    least = variance.min()
    if not least > axis.width**2:
        enough = int(2.0 * (axis.high - axis.low) / least**0.5) if least > 0 else None
        advice = f"Try points={enough}." if enough else "A step without noise has no density."
        raise ValueError(
            f"diffusion makes a step of variance {least:.3g} somewhere, too narrow for cells of "
            f"width {axis.width:.3g}. {advice}"
        )


def _stationary(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    system = np.eye(len(matrix)) - matrix.T
    system[-1] = 1.0
    weights = np.linalg.solve(system, np.eye(len(matrix))[-1])
    weights = np.maximum(weights, 0.0)  # rounding, far out
    return weights / weights.sum()


def leading_weights(step: Callable[[Weights], Weights], guess: Weights) -> tuple[Weights, float]:
    """The probabilities that a linear step leaves as they are, and the mass that it loses."""
    count = guess.size
    operator: Any = scipy.sparse.linalg.LinearOperator(
        (count, count), matvec=lambda p: step(p.reshape(guess.shape)).ravel(), dtype=float
    )
    options: dict[str, Any] = {"which": "LR", "v0": guess.ravel(), "ncv": min(40, count)}
    values, vectors = scipy.sparse.linalg.eigs(operator, k=1, tol=1e-12, **options)
    weights = np.real(vectors[:, 0]).reshape(guess.shape)
    return weights / weights.sum(), float(abs(values[0] - 1.0))
