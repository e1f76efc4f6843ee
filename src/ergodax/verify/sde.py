"""Proving or refuting any stochastic differential equation, given as plain functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, real_number, whole_number
from ergodax.kernel import check_key
from ergodax.recipe.operators import as_operator
from ergodax.verify.equation import (
    Equation,
    Product,
    Vector,
    check_size,
    double,
    draw_points,
    first_of,
)
from ergodax.verify.region import NUM_DRAWN, tails
from ergodax.verify.report import Case, Report, judge


def sde(
    drift: Callable[[PyTree], PyTree],
    diffusion: Callable[[PyTree], Any],
    potential: Callable[[PyTree], Any],
    points: PyTree = None,
    *,
    dimension: int | None = None,
    state: PyTree = None,
    curl: Callable[[PyTree], Any] | None = None,
    temperature: float = 1.0,
    tolerance: float = 1e-6,
    key: PRNGKeyArray | None = None,
) -> Report:
    """Does dz = drift dt + sqrt(2 T diffusion) dW leave exp(-potential / T) invariant?

    Evaluates the stationarity residual div J / pi by exact differentiation, in double precision,
    at points; it is zero everywhere if and only if the density is invariant. What it says is of
    the equation, not of a discretisation, and not of ergodicity. Where the residual is not
    zero, each term of the drift is changed by the factor that makes it least, so that the term at
    fault is named. What automatic differentiation can't see (stop_gradient, rounding, the jump
    of a `where`) is looked for along segments between the points.

    Args:
        drift: z -> f, like z.
        diffusion: z -> D: a number, a vector (diagonal), a matrix or an operator.
        potential: z -> H, a scalar: of the whole state z, kinetic energy included.
        points: where, with a leading axis: shape (n, d), or a tree like z with leading axes.
            By default 64 or more: 40 drawn from the density and the others on rays, to where a
            Gaussian has 1e-4 of its mass; then give `dimension` or `state`.
        dimension: d, where z is a vector.
        state: one z, where it is any tree: points are drawn from about it.
        curl: z -> Q, a skew-symmetric matrix or operator, if you know it: it is checked, and
            used for Gamma. By default the smallest Q that the drift allows is used.
        temperature: T.
        tolerance: of the residual, relative to the terms that cancel in it.
        key: for the points drawn here.

    Returns:
        A Report; print it.

    Raises:
        TypeError: an argument that is not a function.
        ValueError: not one of points, dimension and state, a temperature or shape that can't be,
            or a residual that is not finite.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Theorem 1.

    Example:
        Preconditioning that forgets its Gamma.

        >>> import jax, jax.numpy as jnp, ergodax as ex
        >>> U, D = lambda z: 0.5 * jnp.sum(z**2), lambda z: 1.0 + z**2
        >>> report = ex.verify.sde(lambda z: -D(z) * jax.grad(U)(z), D, U, dimension=2)
        >>> report.invariant, report.corrected_by.name
        (False, 'Gamma = div D added')
    """
    functions = {"drift": drift, "diffusion": diffusion, "potential": potential}
    for name, function in (functions | ({} if curl is None else {"curl": curl})).items():
        callable_function(name, function, hint="Try lambda z: ... for a constant.")
    temperature = real_number("temperature", temperature, above=0.0)
    tolerance = real_number("tolerance", tolerance, above=0.0)
    if [points is None, dimension is None, state is None].count(False) != 1:
        raise ValueError(
            "pass points, with a leading axis, or one of dimension and state, to draw them."
        )
    if dimension is not None:
        dimension = whole_number("dimension", dimension)
        check_size(dimension)
    with jax.enable_x64(True):
        points = None if points is None else double(points)
        start = jnp.zeros(dimension) if dimension is not None else double(state)
        z = start if points is None else first_of(points)
        flat, unravel = tree.ravel(z)
        check_size(flat.size)
        equation = Equation(
            lambda x: tree.ravel(drift(unravel(x)))[0],
            _product(diffusion, "diffusion", unravel),
            lambda x: jnp.asarray(potential(unravel(x))),
            temperature,
        )
        turn = None if curl is None else _product(curl, "curl", unravel)
        _check_shapes(equation, turn, flat)
        _check_structure(drift, z)
        if points is None:
            key_draw, key_tail = jax.random.split(
                jax.random.key(0) if key is None else check_key(key)
            )
            energy = lambda x: equation.energy(x) / temperature  # noqa: E731
            drawn = draw_points(energy, flat, NUM_DRAWN, key_draw)
            at = jnp.concatenate([drawn, tails(energy, drawn, key_tail)])
        else:
            at = jax.vmap(lambda x: tree.ravel(x)[0])(points)
        num_drawn = NUM_DRAWN if points is None else None
        return judge(Case(equation, turn, at, names_of(z), tolerance, num_drawn))


def _product(function: Callable[[PyTree], Any], name: str, unravel: Callable[..., Any]) -> Product:
    def product(x: Vector, v: Vector) -> Vector:
        return tree.ravel(as_operator(function(unravel(x)), name).mv(unravel(v)))[0]

    return product


def _check_structure(drift: Callable[[PyTree], PyTree], z: PyTree) -> None:
    """Hold the drift of a state of parts to parts of the same names, each of the same size."""
    if jax.tree.structure(z) == jax.tree.structure(0):
        return  # a vector: its size alone counts
    found = jax.eval_shape(drift, z)
    shapes, wanted = (jax.tree.map(np.shape, each) for each in (found, z))
    same = jax.tree.structure(found) == jax.tree.structure(z)
    if not same or jax.tree.map(np.size, found) != jax.tree.map(np.size, z):
        raise ValueError(
            f"drift must return what has the structure of the state, {wanted}, and not {shapes}: "
            "which part moves by what would be a guess."
        )


def _check_shapes(equation: Equation, curl: Product | None, z: Vector) -> None:
    calls = {
        "drift": (lambda: equation.drift(z), z.shape),
        "diffusion": (lambda: equation.diffusion(z, z), z.shape),
        "potential": (lambda: equation.energy(z), ()),
    }
    if curl is not None:
        calls["curl"] = (lambda: curl(z, z), z.shape)
    for name, (call, wanted) in calls.items():
        try:
            found = jax.eval_shape(call).shape
        except (TypeError, ValueError, IndexError, KeyError) as error:
            raise ValueError(
                f"{name} can't be evaluated at a state of {z.size} numbers: "
                f"{str(error).splitlines()[0].rstrip('.')}. Check the shape of the state, and "
                "that points have a leading axis."
            ) from error
        if found != wanted:
            raise ValueError(
                f"{name} returns {found} where {wanted} is needed for a state of {z.size} numbers."
            )


def names_of(z: PyTree) -> list[str]:
    """A name for each number of a tree, in the order of `tree.ravel`."""
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(z):
        name = tree.path_name(path) or "z"
        names += [name] if leaf.ndim == 0 else [f"{name}[{k}]" for k in range(leaf.size)]
    return names
