"""Wrong functions of a Recipe: where it is verified, and where it is run."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import ergodax as ex
from unit.wrong_calls.case import Case

PLANE = ex.targets.gaussian(jnp.zeros(2), 1.0)


def one(z):
    return {"position": 1.0}


def verified(**functions):
    return ex.verify.recipe(ex.Recipe(**{"diffusion": one} | functions), PLANE)


def run(**functions):
    recipe = ex.Recipe(**{"diffusion": one} | functions)
    kernel = ex.euler_maruyama(recipe, ex.FullGradient(PLANE), 0.1)
    return ex.sample(kernel, jnp.zeros(2), 2, key=jax.random.key(0), progress=False)


Wrong = tuple[dict[str, Callable[..., Any]], type[Exception], tuple[str, ...]]

WRONG: dict[str, Wrong] = {
    "energy, a vector": (
        {"energy": lambda z: z["position"]}, TypeError, ("energy", "(2,)", "one real number")
    ),
    "energy, none": ({"energy": lambda z: None}, TypeError, ("energy", "None")),
    "diffusion, a number": (
        {"diffusion": lambda z: 1.0}, TypeError, ("diffusion", "dict", "1.0", '{"position": 1.0}')
    ),
    "diffusion, none": ({"diffusion": lambda z: None}, TypeError, ("diffusion", "dict", "None")),
    "diffusion, an array": (
        {"diffusion": lambda z: z["position"]}, TypeError, ("diffusion", "dict", "shape (2,)")
    ),
    "diffusion, a block too large": (
        {"diffusion": lambda z: {"position": jnp.ones(3)}},
        ValueError,
        ("diffusion['position']", "(2,)", "(3,)"),
    ),
    "curl, a matrix": (
        {"curl": lambda z: jnp.eye(2)}, TypeError, ("curl", "pairs", "shape (2, 2)")
    ),
    "curl, none": ({"curl": lambda z: None}, TypeError, ("curl", "pairs", "None")),
    "curl, a key that is no pair": (
        {"curl": lambda z: {"position": 1.0}}, TypeError, ("curl", "pairs", "{'position': 1.0}")
    ),
    "curl, from one shape to another": (
        {
            "auxiliary": lambda key, x: {"s": jnp.zeros((), x.dtype)},
            "curl": lambda z: {("s", "position"): ex.Column(z["position"])},
        },
        ValueError,
        ("curl[('s', 'position')]", "(2,)", "()"),
    ),
    "gamma, too large": (
        {"gamma": lambda z: {"position": jnp.ones(3)}},
        ValueError,
        ("gamma['position']", "(3,)", "(2,)"),
    ),
    "gamma, an array": ({"gamma": lambda z: jnp.ones(2)}, TypeError, ("gamma", "dict", "(2,)")),
    "auxiliary, an array": (
        {"auxiliary": lambda key, x: x}, TypeError, ("auxiliary", "dict", "(2,)", "ex.normal_like")
    ),
    "auxiliary, none": ({"auxiliary": lambda key, x: None}, TypeError, ("auxiliary", "dict")),
    "auxiliary, a number": ({"auxiliary": lambda key, x: 1.0}, TypeError, ("auxiliary", "1.0")),
    "auxiliary, a number by name": (
        {"auxiliary": lambda key, x: {"n": 1.0}}, TypeError, ("auxiliary['n']", "1.0", "asarray")
    ),
    "auxiliary, integers": (
        {"auxiliary": lambda key, x: {"n": jnp.array(1)}}, TypeError, ("auxiliary['n']", "int")
    ),
    "auxiliary, a position": (
        {"auxiliary": lambda key, x: {"position": x}}, ValueError, ("auxiliary", "'position'")
    ),
}  # fmt: skip

CASES = {
    f"{name}, {how.__name__}": Case(lambda how=how, given=given: how(**given), error, words)
    for name, (given, error, words) in WRONG.items()
    for how in (verified, run)
} | {
    "Recipe, a number": Case(lambda: ex.Recipe(1.0), TypeError, ("diffusion", "function", "1.0")),
    "Recipe, an energy that is none": Case(
        lambda: ex.Recipe(one, energy=0.0), TypeError, ("energy", "function", "0.0")
    ),
}
