"""Wrong calls of verify.sde and verify.recipe."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from unit.wrong_calls.case import Case

POINTS = np.ones((4, 2))


def potential(x):
    return 0.5 * jnp.sum(x**2)


def drift(x):
    return -x


def one(x):
    return 1.0


def sde(drift=drift, diffusion=one, potential=potential, points=POINTS, **options):
    return ex.verify.sde(drift, diffusion, potential, points, **options)


def recipe(recipe=None, target=None, points=None, **options):
    recipe = ex.dynamics.langevin() if recipe is None else recipe
    target = ex.targets.banana() if target is None else target
    return ex.verify.recipe(recipe, target, points, **options)


def no_draws():
    return ex.Target(potential)


CASES = {
    "drift, a matrix": Case(lambda: sde(POINTS), TypeError, ("drift", "function")),
    "diffusion, a number": Case(lambda: sde(diffusion=1.0), TypeError, ("diffusion", "function")),
    "potential, none": Case(lambda: sde(potential=None), TypeError, ("potential", "function")),
    "curl, a matrix": Case(lambda: sde(curl=np.eye(2)), TypeError, ("curl", "function")),
    "drift, a number": Case(
        lambda: sde(drift=lambda x: jnp.sum(x)), ValueError, ("drift", "(1,)", "2 numbers")
    ),
    "diffusion, three axes": Case(
        lambda: sde(diffusion=lambda x: np.ones((2, 2, 2))), ValueError, ("diffusion", "3-d")
    ),
    "diffusion, too large": Case(
        lambda: sde(diffusion=lambda x: np.eye(3)), ValueError, ("diffusion", "(3, 3)")
    ),
    "diffusion, text": Case(lambda: sde(diffusion=lambda x: "D"), ValueError, ("diffusion", "'D'")),
    "curl, too large": Case(lambda: sde(curl=lambda x: np.eye(3)), ValueError, ("curl", "(3, 3)")),
    "potential, a vector": Case(
        lambda: sde(potential=lambda x: x**2), ValueError, ("potential", "(2,)")
    ),
    "temperature, zero": Case(
        lambda: sde(temperature=0.0), ValueError, ("temperature", "positive", "0.0")
    ),
    "temperature, NaN": Case(
        lambda: recipe(temperature=float("nan")), ValueError, ("temperature", "positive")
    ),
    "points, none": Case(lambda: sde(points=None), ValueError, ("points", "dimension")),
    "points and dimension": Case(lambda: sde(dimension=2), ValueError, ("points", "dimension")),
    "points, no leading axis": Case(
        lambda: sde(drift=lambda x: x[0] * x, points=np.ones(2)),
        ValueError,
        ("drift", "points", "leading axis"),
    ),
    "points, a number": Case(
        lambda: sde(points=np.ones(())), ValueError, ("points", "leading axis", "x[None]")
    ),
    "points, empty": Case(lambda: sde(points=POINTS[:0]), ValueError, ("points", "one point")),
    "points, axes that disagree": Case(
        lambda: sde(points={"x": np.ones((3, 2)), "r": np.ones((4, 2))}),
        ValueError,
        ("points", "leading axis", "(3, 2)", "(4, 2)"),
    ),
    "points, infinite": Case(
        lambda: sde(points=np.full((3, 2), np.inf)), ValueError, ("points", "finite")
    ),
    "points, where it has no derivative": Case(
        lambda: sde(drift=lambda x: -jnp.sqrt(x), points=np.zeros((1, 2))),
        ValueError,
        ("not finite", "[0.0, 0.0]", "points="),
    ),
    "dimension, too large": Case(
        lambda: sde(points=None, dimension=10_000),
        ValueError,
        ("10000 numbers", "fewer dimensions"),
    ),
    "dimension, zero": Case(
        lambda: sde(points=None, dimension=0), ValueError, ("dimension", "at least 1")
    ),
    "recipe, a function": Case(lambda: recipe(drift), TypeError, ("recipe", "ex.Recipe", "sde")),
    "target, a function": Case(
        lambda: recipe(target=potential), TypeError, ("target", "ex.Target")
    ),
    "recipe, too large": Case(
        lambda: recipe(target=no_draws(), position=jnp.zeros(10_000)),
        ValueError,
        ("10000 numbers", "fewer dimensions"),
    ),
    "recipe, no numbers": Case(
        lambda: recipe(target=no_draws(), position=jnp.zeros(0)), ValueError, ("no numbers",)
    ),
    "recipe, points without numbers": Case(
        lambda: recipe(target=no_draws(), points=np.zeros((3, 0))), ValueError, ("no numbers",)
    ),
    "recipe, no points": Case(
        lambda: recipe(target=no_draws()), ValueError, ("points", "position")
    ),
    "recipe, points of integers": Case(
        lambda: recipe(points=np.ones((3, 2), int)), TypeError, ("points", "floating point")
    ),
    "recipe, points and axes": Case(
        lambda: recipe(target=no_draws(), points={"a": np.ones((2, 1)), "b": np.ones((3, 1))}),
        ValueError,
        ("points", "leading axis"),
    ),
    "recipe, a position that does not fit": Case(
        lambda: recipe(target=ex.Target(lambda x: x["w"] @ x["w"]), position={"w": jnp.ones(())}),
        ValueError,
        ("target", "position"),
    ),
    "noise_covariance without step_size": Case(
        lambda: recipe(noise_covariance=1.0), ValueError, ("noise_covariance", "step_size")
    ),
    "step_size without noise_covariance": Case(
        lambda: recipe(step_size=0.1), ValueError, ("noise_covariance", "step_size")
    ),
    "step_size, negative": Case(
        lambda: recipe(noise_covariance=1.0, step_size=-0.1), ValueError, ("step_size", "-0.1")
    ),
    "noise_covariance, text": Case(
        lambda: recipe(noise_covariance="V", step_size=0.1), TypeError, ("noise_covariance", "'V'")
    ),
    "diffusion names no variable": Case(
        lambda: recipe(ex.Recipe(lambda z: {"momentum": 1.0})),
        ValueError,
        ("diffusion", "'momentum'", "auxiliary"),
    ),
}
