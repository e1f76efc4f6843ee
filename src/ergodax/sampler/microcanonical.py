"""Langevin dynamics at constant speed: gradients turn a step and never make it longer."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.stepper import Moved, Stepper
from ergodax.kernel import State, named
from ergodax.recipe.operators import LowRank, Operator, as_definite
from ergodax.schedule import Schedule, as_schedule
from ergodax.tree import Number


class Microcanonical(Stepper):
    """The kernel that `microcanonical` returns."""

    length: Schedule = eqx.field(converter=partial(as_schedule, name="length"))
    root: Operator  # S with S S^T the preconditioner

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """A direction, uniform on the sphere.

        Raises:
            ValueError: a position of one number.
        """
        if tree.size(position) < 2:
            raise ValueError(
                "microcanonical needs a position of at least 2 numbers: on a line there is nothing "
                "to turn to. Try ex.langevin."
            )
        key_direction, key = jax.random.split(key)
        return {"direction": _unit(tree.normal_like(key_direction, position))}, key

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """Half a flight, a turn towards the force, half a flight, and a turn at random."""
        key_gradient, key_noise = jax.random.split(key)
        u = state.auxiliary["direction"]
        middle = _fly(self, state.position, u, h)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, middle)
        u, _ = turn(u, _force(self, estimate.gradient, temperature), h)
        position = _fly(self, middle, u, h)
        u = scatter(key_noise, u, h / self.length(state.step))
        return Moved(position, {"direction": u}, estimate, gradient)


def energy_error(kernel: Microcanonical, key: PRNGKeyArray, state: State) -> Float[Array, ""]:
    """What a step from here adds to U / T and the kinetic energy: the flow itself adds nothing.

    Of order h^3. One batch serves for the whole step, so that noise between batches is left out;
    three gradients.

    Args:
        kernel: of `microcanonical`, with a gradient that has a potential.
        key: a fresh key.
        state: of a chain.
    """
    h, temperature = kernel.step_size(state.step), kernel.temperature(state.step)
    u = state.auxiliary["direction"]

    def at(position: PyTree) -> Any:
        return kernel.gradient.estimate(key, state.gradient, position)[0]

    middle = _fly(kernel, state.position, u, h)
    turned, kinetic = turn(u, _force(kernel, at(middle).gradient, temperature), h)
    potential = at(_fly(kernel, middle, turned, h)).potential - at(state.position).potential
    return potential / temperature + kinetic


def turn(direction: PyTree, force: PyTree, h: Number) -> tuple[PyTree, Float[Array, ""]]:
    """The exact flow of du = (I - u u^T) F dt / (d - 1) for a time h, and what it adds to K.

    With e = F / |F|, delta = h |F| / (d - 1) and Z = cosh delta + (e . u) sinh delta,
        u+ = (u + e (sinh delta + (e . u) (cosh delta - 1))) / Z,   K+ = K + (d - 1) log Z

    Args:
        direction: u, a tree of norm one.
        force: F, a tree like it.
        h: the time.
    """
    freedom = tree.size(direction) - 1
    norm = tree.norm(force)
    towards = tree.scale(1.0 / jnp.where(norm > 0.0, norm, 1.0), force)
    delta = jnp.asarray(h, norm.dtype) * norm / freedom
    cosine = tree.dot(towards, direction)
    decay = jnp.exp(-delta)  # all is multiplied by 2 decay, so that nothing overflows
    sine = (1.0 - decay) * (1.0 + decay + cosine * (1.0 - decay))
    turned = tree.add(tree.scale(2.0 * decay, direction), tree.scale(sine, towards))
    total = 0.5 * (1.0 + cosine + (1.0 - cosine) * decay**2)  # Z decay
    kinetic = freedom * (delta + jnp.log(total))
    return _unit(turned), kinetic


def _fly(kernel: Microcanonical, position: PyTree, direction: PyTree, h: Array) -> PyTree:
    """Half a flight."""
    return tree.add_scaled(position, 0.5 * h, kernel.root.mv(direction))


def _force(kernel: Microcanonical, gradient: PyTree, temperature: Array) -> PyTree:
    """-S^T grad U / T."""
    return tree.scale(-1.0 / temperature, kernel.root.transpose().mv(gradient))


def scatter(key: PRNGKeyArray, direction: PyTree, rate: Number) -> PyTree:
    """(u + nu n) / |u + nu n|, n standard normal, nu^2 = (exp(2 rate) - 1) / d.

    It leaves the uniform law on the sphere as it is, whatever the rate.
    """
    size = tree.size(direction)
    nu = jnp.sqrt(jnp.expm1(2.0 * jnp.asarray(rate)) / size)
    return _unit(tree.add_scaled(direction, nu, tree.normal_like(key, direction)))


def _unit(x: PyTree) -> PyTree:
    return tree.scale(1.0 / tree.norm(x), x)


@named
def microcanonical(
    gradient: GradientEstimator,
    step_size: Any,
    length: Any,
    *,
    preconditioner: Any = 1.0,
    temperature: Any = 1.0,
) -> Microcanonical:
    """Microcanonical Langevin dynamics (Robnik and Seljak), also of batches (Sommer et al.).

    State: position x in d >= 2 dimensions, direction u with |u| = 1. Not of the recipe's form,
    since u lives on a sphere:
        dx = S u dt,   du = (I - u u^T) F dt / (d - 1) + eta (I - u u^T) o dW,   F = -S^T grad U / T
    with S S^T the preconditioner and eta^2 = 2 / (length d); exp(-U / T) times the uniform law on
    the sphere is stationary. Update, with g an estimate of grad U at the middle:
        x  = x + (h / 2) S u
        u  = the exact flow of the turn for a time h, with -S^T g / T for F
        x+ = x + (h / 2) S u
        u+ = (u + nu n) / |u + nu n|,   nu^2 = (exp(2 h / length) - 1) / d,   n standard normal
    Every step is of length h: a steep gradient turns it and never makes it longer, so that it does
    not diverge, and posteriors of networks are crossed quickly.

    Second order in h with exact gradients. A gradient of covariance V adds a bias of first order,
    and none where S^T V S is a multiple of the identity: precondition by about V^-1.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule; of the size sqrt(d) times that of Langevin
            dynamics, since it is a length in all dimensions together.
        length: after which the direction is forgotten, positive, a number or a schedule; about
            sqrt(d) standard deviations.
        preconditioner: constant: number, vector, tree or matrix.
        temperature: T > 0, a number or a schedule.

    Returns:
        A kernel with state.position; `auxiliary` has the direction.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, a preconditioner that is not positive definite or is of
            low rank; at the start, a position of one number.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2)))
        >>> kernel = ex.microcanonical(target, 1.0, 3.0)
        >>> samples = ex.sample(kernel, jnp.ones(10), 4000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.var() - 1.0) < 0.1)
        True

    Reference:
        Robnik and Seljak, Fluctuation without dissipation: microcanonical Langevin Monte Carlo,
        2024; Sommer, Robnik, Nozadze, Seljak and Rügamer, Microcanonical Langevin ensembles, 2025.
    """
    operator = as_definite(preconditioner, "preconditioner")
    if isinstance(operator, LowRank):
        raise ValueError(
            "preconditioner must be a number, a vector, a tree or a matrix for microcanonical, not "
            "of low rank. Give ex.Dense(matrix)."
        )
    root, _ = operator.factors()
    return Microcanonical(
        gradient, step_size, as_schedule(temperature, "temperature"), length, root
    )
