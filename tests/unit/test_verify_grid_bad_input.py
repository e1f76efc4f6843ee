"""Wrong arguments of `curl` and of the grid solvers end in errors that say what to try."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.verify.curl import curl
from ergodax.verify.fokker_planck import fokker_planck
from ergodax.verify.grid import Axis
from ergodax.verify.transition import transition_law

LINE = Axis(-5.0, 5.0, 50)
WRONG: Any = "wrong"


def pull(z):
    return -z


def one(z):
    return 1.0


def round_(z):
    return 0.5 * z @ z


def quartic(z):
    return jnp.sum(z**4)


def solved():
    return fokker_planck(pull, one, LINE)


CASES = {
    "axis ends": (lambda: Axis(1.0, 1.0, 50), ValueError, ["low < high", "1.0"]),
    "axis infinite": (lambda: Axis(0.0, np.inf, 50), ValueError, ["finite", "inf"]),
    "axis points": (lambda: Axis(0.0, 1.0, 3), ValueError, ["points", "at least 8", "3"]),
    "curl method": (
        lambda: curl(pull, one, round_, dimension=2, method="magic"),
        ValueError,
        ["method", "closed form", "magic"],
    ),
    "curl temperature": (
        lambda: curl(pull, one, round_, dimension=2, temperature=0.0),
        ValueError,
        ["temperature", "positive", "0.0"],
    ),
    "curl dimension": (
        lambda: curl(pull, one, round_, dimension=0),
        ValueError,
        ["dimension", "at least 1", "0"],
    ),
    "curl drift": (
        lambda: curl(WRONG, one, round_, dimension=2),
        TypeError,
        ["drift", "function", "wrong"],
    ),
    "curl drift shape": (
        lambda: curl(lambda z: z[0], one, round_, dimension=2),
        ValueError,
        ["drift", "(2,)", "()"],
    ),
    "curl diffusion shape": (
        lambda: curl(pull, lambda z: jnp.eye(3), round_, dimension=2),
        ValueError,
        ["diffusion", "matrix", "2 numbers"],
    ),
    "curl potential shape": (
        lambda: curl(pull, one, lambda z: z**2, dimension=2),
        ValueError,
        ["potential", "one number", "jnp.sum"],
    ),
    "curl not linear": (
        lambda: curl(pull, one, quartic, dimension=2, method="linear"),
        ValueError,
        ["linear", "affine", "auto"],
    ),
    "curl too many dimensions": (
        lambda: curl(pull, one, quartic, dimension=4),
        ValueError,
        ["dimension is 4", "up to 3"],
    ),
    "curl method and dimension": (
        lambda: curl(pull, one, quartic, dimension=1, method="closed form"),
        ValueError,
        ["closed form", "1", "fourier"],
    ),
    "curl grid type": (
        lambda: curl(pull, one, quartic, dimension=2, grid=WRONG),
        TypeError,
        ["grid", "Axis", "wrong"],
    ),
    "curl grid dimension": (
        lambda: curl(pull, one, quartic, dimension=2, grid=LINE),
        ValueError,
        ["grid", "2 axes", "1"],
    ),
    "curl grid and points": (
        lambda: curl(pull, one, quartic, dimension=2, grid=[LINE, LINE], points=64),
        ValueError,
        ["points", "grid"],
    ),
    "curl few points": (
        lambda: curl(pull, one, quartic, dimension=2, points=8),
        ValueError,
        ["points", "at least 32", "8"],
    ),
    "curl coarse": (
        lambda: curl(
            lambda z: -jnp.array([[1.0, -1.0], [1.0, 1.0]]) @ z,
            one,
            round_,
            dimension=2,
            method="fourier",
            grid=[Axis(-200.0, 200.0, 200)] * 2,
        ),
        ValueError,
        ["too coarse", "points=400"],
    ),
    "curl diffusion negative": (
        lambda: curl(pull, lambda z: -1.0, quartic, dimension=2),
        ValueError,
        ["diffusion", "positive semidefinite", "-1"],
    ),
    "fokker_planck three axes": (
        lambda: fokker_planck(pull, one, [LINE] * 3),
        ValueError,
        ["grid", "one or two axes", "3"],
    ),
    "fokker_planck asymmetric": (
        lambda: fokker_planck(pull, lambda z: jnp.array([[1.0, 0.5], [0.0, 1.0]]), [LINE] * 2),
        ValueError,
        ["diffusion", "symmetric"],
    ),
    "fokker_planck correlated": (
        lambda: fokker_planck(
            pull, lambda z: jnp.array([[1.0, 0.9], [0.9, 1.0]]), [LINE, Axis(-5.0, 5.0, 100)]
        ),
        ValueError,
        ["too correlated", "0.9", "1.11", "points"],
    ),
    "fokker_planck drift": (
        lambda: fokker_planck(lambda z: z / (0.0 * z), one, LINE),
        ValueError,
        ["drift", "finite", "box"],
    ),
    "evolve time": (
        lambda: solved().evolve(solved().point_mass([0.0]), -1.0),
        ValueError,
        ["time", "-1.0"],
    ),
    "evolve shape": (lambda: solved().evolve(np.ones(7), 1.0), ValueError, ["(50,)", "(7,)"]),
    "evolve negative": (
        lambda: solved().evolve(-np.ones(50), 1.0),
        ValueError,
        ["density", "negative", "-1.0"],
    ),
    "density negative": (
        lambda: solved().density(lambda z: z[0]),
        ValueError,
        ["function", "not negative", "-4.9"],
    ),
    "density type": (lambda: solved().density(WRONG), TypeError, ["function", "wrong"]),
    "point outside": (lambda: solved().point_mass([9.0]), ValueError, ["where", "box", "9.0"]),
    "mean shape": (
        lambda: fokker_planck(pull, one, [LINE] * 2).mean(lambda z: z),
        ValueError,
        ["function", "one number", "(2,)"],
    ),
    "transition axis": (lambda: transition_law(pull, one, 0.1, WRONG), TypeError, ["axis", "Axis"]),
    "transition step": (
        lambda: transition_law(pull, one, 0.0, LINE),
        ValueError,
        ["step_size", "positive", "0.0"],
    ),
    "transition cells": (
        lambda: transition_law(pull, one, 1e-4, LINE),
        ValueError,
        ["too narrow", "points=1414"],
    ),
    "transition without noise": (
        lambda: transition_law(pull, lambda z: 0.0, 0.1, LINE),
        ValueError,
        ["diffusion", "variance 0", "noise"],
    ),
    "transition short axis": (
        lambda: transition_law(pull, one, 0.1, Axis(-2.0, 2.0, 100)),
        ValueError,
        ["axis loses", "longer"],
    ),
    "transition steps": (
        lambda: transition_law(pull, one, 0.1, Axis(-8.0, 8.0, 100)).evolve(np.ones(100), -1),
        ValueError,
        ["steps", "-1"],
    ),
}


def outcome(name):
    """The class of what a call ends in, and its message."""
    try:
        CASES[name][0]()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


@pytest.fixture(scope="module")
def seen_by_users():
    """What every wrong call ends in, without the type checker that the tests install."""
    here = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "unit.test_verify_grid_bad_input"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(here)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_the_error_says_what_to_try(name, seen_by_users):
    kind, message = seen_by_users[name]
    assert kind == CASES[name][1].__name__, message
    for word in CASES[name][2]:
        assert word in message, message
    assert len(message) < 500 and "\n" not in message


def test_in_single_precision():
    """Found in float64, used in the precision of the position."""
    spin = np.array([[1.0, -1.0], [1.0, 1.0]], "f4")
    found = curl(
        lambda z: -jnp.asarray(spin, z.dtype) @ (z + z**3),
        one,
        lambda z: jnp.sum(z**2 / 2.0 + z**4 / 4.0),
        dimension=2,
        points=64,
    )
    q = found(jnp.ones(2)).matrix
    assert q.dtype == jnp.float32
    np.testing.assert_allclose(q, [[0.0, -1.0], [1.0, 0.0]], atol=1e-5)


if __name__ == "__main__":
    print(json.dumps({name: outcome(name) for name in CASES}))
