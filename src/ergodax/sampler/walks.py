"""Walks whose coordinates go up or down by coins that the gradient biases, without rejections."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ergodax import tree
from ergodax.checks import flag, real_number
from ergodax.gradient.base import GradientEstimator, known_covariance
from ergodax.integrator.stepper import Moved, PositionStepper
from ergodax.kernel import State, named
from ergodax.recipe.operators import Diagonal, Operator, Scalar
from ergodax.schedule import as_schedule


class BarkerWalk(PositionStepper):
    """The kernel that `barker` returns."""

    spread: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    compensate: bool = eqx.field(static=True)

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """x + b z, with b = 1 with probability 1 / (1 + exp(g z / T)), else -1."""
        key_gradient, key_size, key_sign = jax.random.split(key, 3)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        length = jnp.sqrt(2.0 * h * temperature)
        normal = tree.normal_like(key_size, state.position)
        size = jax.tree.map(lambda n: tree.cast(length, n) * self._relative(n), normal)
        odds = jax.tree.map(
            lambda g, z: -g * z / tree.cast(temperature, g), estimate.gradient, size
        )
        if self.compensate:
            covariance = _diagonal(known_covariance(estimate, self.gradient, "barker"))
            variance = covariance.mv(jax.tree.map(jnp.ones_like, size))
            odds = jax.tree.map(
                lambda a, z, v: _deconvolved(a, v * (z / tree.cast(temperature, z)) ** 2),
                odds,
                size,
                variance,
            )
        signs = tree.signs(key_sign, jax.tree.map(jax.nn.sigmoid, odds))
        position = tree.add(state.position, tree.multiply(signs, size))
        return Moved(position, {}, estimate, gradient)

    def _relative(self, normal: Array) -> Array:
        spread = tree.cast(self.spread, normal)
        return jnp.sqrt(1.0 - spread**2) + spread * normal


def _diagonal(covariance: Operator) -> Operator:
    if not isinstance(covariance, Scalar | Diagonal):
        raise ValueError(
            "barker compensates each coordinate by itself and needs a gradient of diagonal "
            f"covariance, not {type(covariance).__name__}. Try ex.ScoreCovariance(gradient, "
            "'diagonal')."
        )
    return covariance


def _deconvolved(odds: Array, variance: Array) -> Array:
    """Log odds whose sigmoid, with noise of this variance in `odds`, has about the right mean."""
    left = 2.0 - variance
    safe = jnp.where(left > 0.0, left, 1.0)
    return jnp.where(left > 0.0, odds * jnp.sqrt(2.0 / safe), jnp.sign(odds) * jnp.inf)


@named
def barker(
    gradient: GradientEstimator,
    step_size: Any,
    *,
    temperature: Any = 1.0,
    spread: float | int = 0.1,
    compensate: bool = False,
) -> BarkerWalk:
    """Stochastic-gradient Barker dynamics (Mauri and Zanella).

    State: position x. H = U, D = I, Q = 0, but not by a discretised diffusion: each coordinate
    moves by b z, with g an estimate of grad U and n standard normal,
        z  = sqrt(2 h T) (sqrt(1 - spread^2) + spread n)
        b  = +1 with probability 1 / (1 + exp(g z / T)), else -1
        x+ = x + b z
    The probability is that of Barker's acceptance rule. E (x+ - x)^2 is 2 h T whatever the
    gradient: a steep gradient or a noisy one turns a step round and never makes it longer, which
    is what makes it robust where SGLD diverges.

    First order in h. On a Gaussian of curvature k, Var x = (T / k) (1 + q h (k + V / T) / 2) to
    first order in h, with V the gradient's variance and q = E z^4 / (2 h T)^2: 1 for spread 0,
    as for SGLD, 1.04 for 0.1 and 3 for 1.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        temperature: T > 0, a number or a schedule.
        spread: of the lengths, in [0, 1]; 1 is a normal proposal. With 0 each coordinate stays on
            a lattice and comes back only after an even number of steps, see
            `lattice_random_walk`.
        compensate: make the log odds steeper by 1 / sqrt(1 - V z^2 / (2 T^2)), which takes the
            first-order bias of noise with variance V out; where V z^2 >= 2 T^2 only their sign
            counts. The estimator must know its variances. (The paper's constant is 1.702^2 in
            place of 2, which leaves 31 % of that bias.)

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or, at the first step with `compensate`, an estimator
            without a diagonal covariance.

    Example:
        Where gradients grow like x^3, SGLD of this step size diverges from here.

        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> quartic = ex.FullGradient(ex.Target(lambda x: 0.25 * jnp.sum(x**4)))
        >>> samples = ex.sample(ex.barker(quartic, 0.1), 9.0 * jnp.ones(1), 2000,
        ...                     key=jax.random.key(0))
        >>> bool(abs(samples.position[0, -1, 0]) < 5.0)
        True

    Reference:
        Mauri and Zanella, Robust approximate sampling via stochastic gradient Barker dynamics,
        2024.
    """
    if real_number("spread", spread, at_least=0.0) > 1.0:
        raise ValueError(f"spread must be at most 1, not {spread!r}. Try 0.1.")
    power = as_schedule(temperature, "temperature")
    return BarkerWalk(gradient, step_size, power, spread, flag("compensate", compensate))


class LatticeWalk(PositionStepper):
    """The kernel that `lattice_random_walk` returns."""

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """x +- s, s = sqrt(2 h T), up with probability (1 - g s / (2 T)) / 2."""
        key_gradient, key_sign = jax.random.split(key)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        tilt = 0.25 * jnp.sqrt(2.0 * h / temperature)
        up = jax.tree.map(
            lambda g: jnp.clip(0.5 - tree.cast(tilt, g) * g, 0.0, 1.0), estimate.gradient
        )
        signs = tree.signs(key_sign, up)
        position = tree.add_scaled(state.position, jnp.sqrt(2.0 * h * temperature), signs)
        return Moved(position, {}, estimate, gradient)


@named
def lattice_random_walk(
    gradient: GradientEstimator, step_size: Any, *, temperature: Any = 1.0
) -> LatticeWalk:
    """Stochastic-gradient lattice random walk (Mensch et al.; Duffield et al.).

    State: position x. H = U, D = I, Q = 0. Each coordinate takes a step of one length with a coin
    of its own; with g an estimate of grad U and s = sqrt(2 h T):
        x+ = x + s  with probability clip((1 - g s / (2 T)) / 2, 0, 1),   else x - s

    First order in h. The probability is linear in g, so unbiased noise of a gradient leaves the law
    of each coordinate's step as it is: on a Gaussian in one dimension Var x = T / k exactly on the
    lattice that x = 0 is a point of, with any noise, up to the clipping. The noise inflates the
    variance through the clipping, where |g| > sqrt(2 T / h), and through the correlation of the
    noises of different coordinates.

    Each coordinate is on every second point of its lattice at even steps and on the others at
    odd ones: an even `thin` sees only one half. The law is that of averages over both.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        temperature: T > 0, a number or a schedule.

    Returns:
        A kernel with state.position; `auxiliary` is empty. It draws no normal numbers.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.lattice_random_walk(ex.Minibatch(model, 10), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Mensch et al., 2026, arXiv 2602.15925; Duffield et al., 2025, arXiv 2508.20883.
    """
    return LatticeWalk(gradient, step_size, as_schedule(temperature, "temperature"))
