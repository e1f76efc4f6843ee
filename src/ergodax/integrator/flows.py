"""The exactly solvable pieces of Langevin dynamics, one letter each.

A: the position moves with constant momentum.      B: the momentum is kicked by the force.
O: friction and noise, solved exactly.             D: the thermostat follows the kinetic energy.
U: all of it without the force, A and O at once.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.recipe.operators import Operator
from ergodax.recipe.operators.algebra import solve_sum
from ergodax.tree import Number

LETTERS = {
    "A": "drift of the position",
    "B": "kick of the momentum",
    "O": "friction and noise",
    "D": "thermostat",
    "U": "drift, friction and noise at once",
}


def drift(position: PyTree, momentum: PyTree, mass: Operator, t: Number) -> PyTree:
    """A: position + t M^-1 r."""
    return tree.add_scaled(position, t, mass.solve(momentum))


def kick(momentum: PyTree, gradient: PyTree, t: Number) -> PyTree:
    """B: r - t grad U."""
    return tree.add_scaled(momentum, -t, gradient)


def ornstein_uhlenbeck(
    key: PRNGKeyArray,
    momentum: PyTree,
    mass: Operator,
    friction: Number,
    temperature: Number,
    t: Number,
) -> PyTree:
    """O: r e^(-gamma t) + N(0, T M (1 - e^(-2 gamma t)))."""
    noise = mass.sqrt_mv(tree.normal_like(key, momentum))
    spread = jnp.sqrt(-temperature * jnp.expm1(-2.0 * friction * t))
    return tree.add_scaled(tree.scale(jnp.exp(-friction * t), momentum), spread, noise)


def free_flight(
    key: PRNGKeyArray,
    position: PyTree,
    momentum: PyTree,
    mass: Operator,
    friction: Number,
    temperature: Number,
    t: Number,
) -> tuple[PyTree, PyTree]:
    """U: the exact flow of dx = M^-1 r dt, dr = -gamma r dt + sqrt(2 gamma T) M^(1/2) dW.

    With a = gamma t and F = (1 - e^-a) / gamma, and n1, n2 independent standard normal:
        xi = sqrt(T (1 - e^-2a)) M^(1/2) n1,     r+ = e^-a r + xi
        x+ = x + M^-1 [F (r + xi / (1 + e^-a)) + sqrt(2 T (a - 2 tanh(a / 2))) / gamma M^(1/2) n2]
    """
    one, other = jax.random.split(key)
    a = jnp.asarray(friction * t)
    decay = jnp.exp(-a)
    noise = tree.scale(
        jnp.sqrt(-temperature * jnp.expm1(-2.0 * a)), mass.sqrt_mv(tree.normal_like(one, momentum))
    )
    # F / t and (a - 2 tanh(a / 2)) / a^3, which are 1 and 1/12 without friction.
    safe = jnp.where(a > 0.0, a, 1.0)
    mean_decay = jnp.where(a > 0.0, -jnp.expm1(-safe) / safe, 1.0)
    excess = jnp.where(a < 0.2, _excess_series(a**2), (safe - 2.0 * jnp.tanh(0.5 * safe)) / safe**3)
    arc = tree.add_scaled(momentum, 1.0 / (1.0 + decay), noise)
    path = tree.add_scaled(
        tree.scale(t * mean_decay, arc),
        t * jnp.sqrt(2.0 * temperature * a * excess),
        mass.sqrt_mv(tree.normal_like(other, momentum)),
    )
    position = tree.add(position, mass.solve(path))
    return position, tree.add(tree.scale(decay, momentum), noise)


def _excess_series(s: Array) -> Array:
    """(a - 2 tanh(a / 2)) / a^3 of s = a^2 < 0.04, to rounding; the difference would lose it."""
    terms = (1 / 12, -1 / 120, 17 / 20160, -31 / 362880, 691 / 79833600, -5461 / 6227020800)
    return jnp.polyval(jnp.asarray(terms[::-1], s.dtype), s)


def thermostatted_noise(
    key: PRNGKeyArray,
    momentum: PyTree,
    thermostat: PyTree,
    mass: Operator,
    friction: Number,
    temperature: Number,
    t: Number,
) -> PyTree:
    """O with friction zeta and noise A: r e^(-zeta t) + N(0, A T M (1 - e^(-2 zeta t)) / zeta).

    zeta may be negative or zero; the variance is then still positive.
    """
    noise = mass.sqrt_mv(tree.normal_like(key, momentum))

    def leaf(r: Array, zeta: Array, xi: Array) -> Array:
        time, power = tree.cast(t, r), tree.cast(friction * temperature, r)
        small = jnp.abs(zeta * time) < 1e-4
        safe = jnp.where(small, 1.0, zeta)
        series = 2.0 * time * (1.0 - zeta * time)
        spread = jnp.where(small, series, -jnp.expm1(-2.0 * safe * time) / safe)
        return jnp.exp(-zeta * time) * r + jnp.sqrt(power * spread) * xi

    shared = jax.tree.structure(thermostat) != jax.tree.structure(momentum)
    zeta = jax.tree.map(lambda r: tree.cast(thermostat, r), momentum) if shared else thermostat
    return jax.tree.map(leaf, momentum, zeta, noise)


def thermostat_drift(
    thermostat: PyTree,
    momentum: PyTree,
    mass: Operator,
    thermal_mass: Number,
    temperature: Number,
    t: Number,
    *,
    per_coordinate: bool,
) -> PyTree:
    """D: zeta + t (r^T M^-1 r - d T) / mu, or (r_i^2 / m_i - T) / mu for each coordinate."""
    velocity = mass.solve(momentum)
    if per_coordinate:
        excess = jax.tree.map(lambda r, v: r * v - tree.cast(temperature, r), momentum, velocity)
        return tree.add_scaled(thermostat, t / thermal_mass, excess)
    excess = tree.dot(momentum, velocity) - tree.size(momentum) * temperature
    return thermostat + tree.cast(t / thermal_mass * excess, thermostat)


def damped_kick(
    momentum: PyTree,
    impulse: PyTree,
    mass: Operator,
    covariance: Operator,
    *,
    weight: Number,
    damping: Number = 0.0,
) -> tuple[PyTree, PyTree]:
    """The impulse p twice, and between them the friction that undoes its heat.

    r + p, then (I - K) (I + K)^-1 times that, then + p again, with K = damping I + weight V M^-1.
    This is r+ = 2 M w - r with w = ((1 + damping) M + weight V)^-1 (r + p), the mean of the
    velocities before and after. Where p = sqrt(damping) N(0, T M) + N(0, T weight V) it leaves
    N(0, T M) invariant, and it is a contraction whatever V is.

    Here p is half of the kick, damping tanh(gamma h / 2), weight h^2 / (4 T), and V the covariance
    of the gradient. Returns w and r+.
    """
    velocity = solve_sum(1.0 + damping, mass, weight, covariance, tree.add(momentum, impulse))
    return velocity, tree.subtract(tree.scale(2.0, mass.mv(velocity)), momentum)
