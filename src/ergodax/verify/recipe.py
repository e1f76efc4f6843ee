"""Proving or refuting a recipe: the equation that the library would discretise."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number
from ergodax.graph import depends_on
from ergodax.kernel import check_key
from ergodax.recipe.metric import with_potential
from ergodax.recipe.operators import as_operator
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.recipe.returns import made
from ergodax.target.analytic import AnalyticTarget
from ergodax.target.base import AbstractTarget
from ergodax.verify import auxiliary, marginal
from ergodax.verify.equation import (
    Drift,
    Equation,
    Product,
    Vector,
    check_size,
    compiled,
    divergence,
    double,
    draw_points,
    first_of,
)
from ergodax.verify.region import NUM_DRAWN, tails
from ergodax.verify.report import Case, Report, judge
from ergodax.verify.sde import names_of

PROBES = 256  # draws of a Gamma that is estimated by random probes


class Flat:
    """D, Q, H and the drift of a recipe on a target, as functions of the raveled state.

    Args:
        recipe: the recipe.
        target: what has the potential.
        z: one state, for its structure.
    """

    def __init__(self, recipe: Recipe, target: AbstractTarget, z: Variables) -> None:
        self.recipe = with_potential(recipe, target.potential)
        self.target, self.z = target, z
        self.unravel = tree.ravel(z)[1]

    def energy(self, x: Vector) -> Float[Array, ""]:
        """H = U + g."""
        z = self.unravel(x)
        return self.target.potential(z["position"]) + self.recipe.energy(z)

    def diffusion(self, x: Vector, v: Vector) -> Vector:
        """D v."""
        z, v_ = self.unravel(x), self.unravel(v)
        out = {name: block.mv(v_[name]) for name, block in self.recipe.diffusion_at(z).items()}
        return self._ravel(out)

    def curl(self, x: Vector, v: Vector) -> Vector:
        """Q v."""
        z, v_ = self.unravel(x), self.unravel(v)
        out: Variables = {}
        for row, column, sign, field in self.recipe.curl_blocks(z):
            part = tree.scale(sign, field(z).mv(v_[column]))
            out[row] = tree.add(out[row], part) if row in out else part
        return self._ravel(out)

    def drift(self, x: Vector, *, exact: bool = False) -> Vector:
        """-(D + Q) grad H, as the samplers compute it, or with the gradient of the potential."""
        z = self.unravel(x)
        slope = jax.grad(self.target.potential) if exact else self.target.gradient
        gradient = self.recipe.gradient(z, slope(z["position"]))
        return self._ravel(self.recipe.drift(z, gradient))

    def gamma(self, x: Vector, key: PRNGKeyArray) -> Vector:
        """The Gamma that the samplers use."""
        return self._ravel(self.recipe.correction(self.unravel(x), key))

    def both(self, x: Vector, v: Vector) -> Vector:
        """(D + Q) v."""
        return self.diffusion(x, v) + self.curl(x, v)

    def root(self, x: Vector, v: Vector) -> Vector:
        """R v, for the R with R R^T = D that the samplers multiply their noise by."""
        z, v_ = self.unravel(x), self.unravel(v)
        blocks = self.recipe.diffusion_at(z)
        return self._ravel({name: block.sqrt_mv(v_[name]) for name, block in blocks.items()})

    def root_at(self, x: Vector) -> Product | None:
        """`root`, or None where D has none; nothing is computed."""
        try:
            jax.eval_shape(self.root, x, x)
        except TypeError:
            return None
        return self.root

    def noisy(self, covariance: Any, step_size: float, temperature: float) -> Product:
        """Products with D + h P V P^T / (2 T): the gradient's noise as a diffusion."""
        factor = 0.5 * step_size / temperature

        def product(x: Vector, v: Vector) -> Vector:
            z = self.unravel(x)
            given = covariance(tree.thaw(z["position"])) if callable(covariance) else covariance
            noise = as_operator(given, "noise_covariance")

            def entered(p: PyTree) -> Vector:
                zero = tree.zeros_like(z)
                return self.both(x, tree.ravel({**zero, "position": p})[0])

            back = jax.linear_transpose(entered, z["position"])(v)[0]
            return self.diffusion(x, v) + factor * entered(noise.mv(back))

        return product

    def _ravel(self, parts: Variables) -> Vector:
        full = {name: parts.get(name, tree.zeros_like(value)) for name, value in self.z.items()}
        return tree.ravel(full)[0]


def recipe(
    recipe: Recipe,
    target: AbstractTarget,
    points: PyTree = None,
    *,
    position: PyTree = None,
    temperature: float = 1.0,
    noise_covariance: Any = None,
    step_size: float | None = None,
    tolerance: float = 1e-6,
    key: PRNGKeyArray | None = None,
) -> Report:
    """Does a recipe leave exp(-H / T) invariant, H = U + energy?

    The drift is what `euler_maruyama` would discretise, Gamma included, and D, Q and H are read
    off the recipe; the residual div J / pi is evaluated by exact differentiation, in double
    precision. With D positive semidefinite, Q skew-symmetric and Gamma = div(D + Q) it is zero
    whatever they are; so what is found is a wrong Gamma in closed form, an operator that is not
    what it says, or, with `noise_covariance`, what a gradient's noise does. What automatic
    differentiation can't see (stop_gradient, rounding, the jump of a `where`) is looked for along
    segments between the points, to 1e-3 of the changes; a kink is no fault. That `auxiliary`
    draws from exp(-energy) is tested by Stein's identities on 16,384 draws, and that the integral
    of exp(-energy / T) over the other variables does not depend on the position, with a false
    alarm of 1e-6 in all. A variable that begins at a constant is told, and so is an integral that
    can't be found.

    Args:
        recipe: H, D and Q.
        target: what has the potential U.
        points: positions with a leading axis, to evaluate at; a dict with an entry for every
            variable is taken as whole states. By default 64 or more: 40 drawn from the target, and
            the others on rays to where it has 1e-4 of its mass.
        position: one position, like what the recipe moves, where the target can't be sampled
            exactly: points are then drawn from about it.
        temperature: T.
        noise_covariance: V of the gradient's noise: number, vector, matrix, operator or a
            function of the position. Its diffusion h P V P^T / (2 T), with P the position's
            columns of D + Q, is then added to D, and nothing to the drift: what an
            uncompensated sampler does to first order in h.
        step_size: h, needed with `noise_covariance`.
        tolerance: of the residual, relative to the terms that cancel in it.
        key: for points and auxiliary variables.

    Returns:
        A Report; print it.

    Raises:
        TypeError: not a recipe or not a target; a function of the recipe that returns what it
            must not.
        ValueError: no way to draw points, a noise without a step size, a residual that is not
            finite, a state without numbers, or a function's result of another shape.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Theorem 1.

    Example:
        >>> import ergodax as ex
        >>> report = ex.verify.recipe(ex.dynamics.underdamped(), ex.targets.banana())
        >>> report.ok, report.reversible
        (True, False)
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be an ex.Recipe, not {recipe!r}. For functions see sde.")
    if not isinstance(target, AbstractTarget):
        raise TypeError(f"target must be an ex.Target or ex.Posterior, not {target!r}.")
    real_number("temperature", temperature, above=0.0)
    tolerance = real_number("tolerance", tolerance, above=0.0)
    key = jax.random.key(0) if key is None else check_key(key)
    if (noise_covariance is None) != (step_size is None):
        raise ValueError("noise_covariance and step_size go together: the noise acts as h V / 2.")
    if step_size is not None:
        real_number("step_size", step_size, above=0.0)
    with jax.enable_x64(True):
        key_points, key_gamma, key_draws, key_tails = jax.random.split(key, 4)
        given = _positions(recipe, target, points, position, temperature, key_points)
        known = with_potential(recipe, target.potential)
        _check(known, first_of(given["position"]))
        drawn = auxiliary.draw(known, given["position"], names_of, key_draws)
        states = {**_shaken(drawn, temperature, key_draws), **given}
        z = first_of(states)
        check_size(tree.size(z))
        flat, x = Flat(recipe, target, z), jax.vmap(lambda s: tree.ravel(s)[0])(states)
        num_drawn = None
        if points is None:
            num_drawn, x = len(x), _with_tails(flat, x, temperature, key_tails)
        used, gamma_error = _gamma_used(flat, x, key_gamma, tolerance)
        gamma = lambda y: temperature * used(y)  # noqa: E731
        fields = {"the potential's gradient in place of the target's own": _own_gradient(flat)}
        parts: dict[str, Any] = {"gamma": gamma, "root": flat.root_at(x[0])}
        spread = flat.diffusion
        if noise_covariance is not None:
            parts = {}
            assert step_size is not None
            spread = flat.noisy(noise_covariance, step_size, temperature)
            fields["the friction h P V P^T / (2 T) added"] = (
                _friction(flat, spread, temperature),
                "the gradient's noise has no friction against it",
            )
        equation = Equation(lambda y: flat.drift(y) + gamma(y), spread, flat.energy, temperature)
        case = Case(
            equation, flat.curl, x, names_of(z), tolerance, num_drawn, fields=fields, **parts
        )
        report = judge(case)
        start = _begun(flat, x, drawn, given["position"], temperature, key_draws)
    told: dict[str, Any] = {} if gamma_error is None else {"gamma_error": gamma_error}
    if start is not None:
        told |= {"auxiliary": start.words, "auxiliary_right": start.right}
        told |= {"untested": start.untested}
    return dataclasses.replace(report, **told)


def _begun(
    flat: Flat,
    points: Float[Array, "n d"],
    drawn: auxiliary.Drawn | None,
    positions: PyTree,
    temperature: float,
    key: PRNGKeyArray,
) -> auxiliary.Verdict | None:
    """How the other variables begin, and what they do to the law of the position."""
    if drawn is None:
        places = jax.vmap(flat.unravel)(points)["position"]
        return marginal.alone(flat.recipe, places, temperature)
    count = drawn.value.shape[1]

    def integrate() -> auxiliary.Pulls | None:
        return marginal.weighted_pulls(flat.recipe, positions, drawn.first, temperature, key, count)

    return auxiliary.judged(drawn, temperature, integrate)


def _friction(flat: Flat, spread: Product, temperature: float) -> Drift:
    """-B grad H + T div B, where B is what the noise adds to D."""

    def extra(x: Vector, v: Vector) -> Vector:
        return spread(x, v) - flat.diffusion(x, v)

    def field(x: Vector) -> Vector:
        return temperature * divergence(extra, x) - extra(x, jax.grad(flat.energy)(x))

    return field


def _positions(
    recipe: Recipe,
    target: AbstractTarget,
    points: PyTree,
    position: PyTree,
    temperature: float,
    key: PRNGKeyArray,
) -> Variables:
    """Positions with a leading axis, by the name "position"; and all variables, if given."""
    if points is None:
        return {"position": _drawn(target, position, temperature, key)}
    found = double(target.freeze(points, "points"))
    one = first_of(found)
    inner = one["position"] if isinstance(one, dict) and "position" in one else one
    check_size(tree.size(inner))
    names = _others(recipe, inner)
    if isinstance(found, dict) and set(found) == {"position", *names}:
        return found
    target.check(one)
    return {"position": found}


def _others(recipe: Recipe, position: PyTree) -> Variables:
    """The shapes of the variables beside the position."""
    return jax.eval_shape(lambda k, x: made(recipe.auxiliary, k, x), jax.random.key(0), position)


def _check(recipe: Recipe, position: PyTree) -> None:
    """Hold the functions of a recipe to what they must return."""
    recipe.check({"position": position, **_others(recipe, position)})


def _shaken(drawn: auxiliary.Drawn | None, temperature: float, key: PRNGKeyArray) -> Variables:
    """One draw of the auxiliary variables at each position, spread and shaken.

    A variable that begins at a constant would be looked at there alone.
    """
    if drawn is None:
        return {}

    def shake(x: Array, key: PRNGKeyArray) -> Array:
        centre, spread = jnp.median(x, axis=0)[None], jnp.std(x, axis=0)[None]
        noise = jnp.where(spread > 0, spread, 1.0) * jax.random.normal(key, x.shape, x.dtype)
        return centre + temperature**0.5 * (x - centre + 0.5 * noise)

    leaves, structure = jax.tree.flatten(drawn.first)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten(map(shake, leaves, keys))


def _drawn(
    target: AbstractTarget, position: PyTree, temperature: float, key: PRNGKeyArray
) -> PyTree:
    """Positions about where the target has its mass."""
    if position is None and isinstance(target, AnalyticTarget):
        return target.sample(key, NUM_DRAWN).astype(float)
    if position is None:
        raise ValueError("pass points, or position: this target has no exact draws of its own.")
    one = double(target.freeze(position))
    check_size(tree.size(one))
    target.check(one)
    flat, unravel = tree.ravel(one)
    energy = lambda x: target.potential(unravel(x)) / temperature  # noqa: E731
    return jax.vmap(unravel)(draw_points(energy, flat, NUM_DRAWN, key))


def _own_gradient(flat: Flat) -> tuple[Drift, str]:
    """What the drift lacks if the target's gradient is not that of its potential."""
    fault = "the target's gradient is not that of its potential"
    return (lambda y: flat.drift(y, exact=True) - flat.drift(y)), fault


def _with_tails(
    flat: Flat, drawn: Float[Array, "n d"], temperature: float, key: PRNGKeyArray
) -> Float[Array, "m d"]:
    """The states drawn, and those on rays from them."""
    return jnp.concatenate([drawn, tails(lambda y: flat.energy(y) / temperature, drawn, key)])


def _gamma_used(
    flat: Flat, points: Float[Array, "n d"], key: PRNGKeyArray, tolerance: float
) -> tuple[Callable[[Vector], Vector], float | None]:
    """The mean of the Gamma that the samplers use, and its relative distance from div(D + Q).

    Where it is drawn at random: else it is looked at as it is, and the distance is None here.
    """
    if not depends_on(lambda k: flat.gamma(points[0], k), key):
        return (lambda x: flat.gamma(x, key)), None
    keys = jax.random.split(key, (len(points), PROBES))

    @compiled
    def look(points: Float[Array, "n d"]) -> tuple[Array, Array, Array]:
        drift = jax.vmap(flat.drift)(points)
        draws = jax.vmap(jax.vmap(flat.gamma, (None, 0)))(points, keys)
        exact = jax.vmap(lambda x: divergence(flat.both, x))(points)
        return draws, exact, drift

    draws, exact, drift = map(np.asarray, look(points))
    mean, spread = draws.mean(axis=1), draws.std(axis=1) / PROBES**0.5
    sizes = [np.abs(exact).max(), np.abs(mean).max(), tolerance * np.abs(drift).max(), 1e-300]
    gap, slack = mean - exact, tolerance * max(sizes)
    far = np.abs(gap) > 6.0 * spread + slack  # a false alarm in a million at a thousand numbers
    # Along div(D + Q) itself, all numbers together: a wrong factor shows there first.
    along = abs(np.vdot(gap, exact)) > 6.0 * np.linalg.norm(spread * exact) + slack * exact.size
    error = float(np.abs(gap).max()) / max(sizes) if far.any() or along else 0.0
    if error > 0:
        return (lambda x: _mean_gamma(flat, x, keys[0])), error
    return (lambda x: divergence(flat.both, x)), 0.0


def _mean_gamma(flat: Flat, x: Vector, keys: Key[Array, " probes"]) -> Vector:
    return jnp.mean(jax.vmap(flat.gamma, in_axes=(None, 0))(x, keys), axis=0)
