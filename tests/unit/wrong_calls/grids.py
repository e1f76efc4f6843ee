"""Wrong calls of verify.curl and the grid solvers."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ergodax.verify.curl import curl
from ergodax.verify.fokker_planck import fokker_planck
from ergodax.verify.grid import Axis
from ergodax.verify.transition import transition_law
from unit.wrong_calls.case import Case

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
    "axis ends": Case(
        lambda: Axis(1.0, 1.0, 50),
        ValueError,
        (
            "low < high",
            "1.0",
        ),
    ),
    "axis infinite": Case(
        lambda: Axis(0.0, np.inf, 50),
        ValueError,
        (
            "finite",
            "inf",
        ),
    ),
    "axis points": Case(
        lambda: Axis(0.0, 1.0, 3),
        ValueError,
        (
            "points",
            "at least 8",
            "3",
        ),
    ),
    "curl method": Case(
        lambda: curl(pull, one, round_, dimension=2, method="magic"),
        ValueError,
        (
            "method",
            "closed form",
            "magic",
        ),
    ),
    "curl temperature": Case(
        lambda: curl(pull, one, round_, dimension=2, temperature=0.0),
        ValueError,
        (
            "temperature",
            "positive",
            "0.0",
        ),
    ),
    "curl dimension": Case(
        lambda: curl(pull, one, round_, dimension=0),
        ValueError,
        (
            "dimension",
            "at least 1",
            "0",
        ),
    ),
    "curl drift": Case(
        lambda: curl(WRONG, one, round_, dimension=2),
        TypeError,
        (
            "drift",
            "function",
            "wrong",
        ),
    ),
    "curl drift shape": Case(
        lambda: curl(lambda z: z[0], one, round_, dimension=2),
        ValueError,
        (
            "drift",
            "(2,)",
            "()",
        ),
    ),
    "curl diffusion shape": Case(
        lambda: curl(pull, lambda z: jnp.eye(3), round_, dimension=2),
        ValueError,
        (
            "diffusion",
            "matrix",
            "2 numbers",
        ),
    ),
    "curl potential shape": Case(
        lambda: curl(pull, one, lambda z: z**2, dimension=2),
        ValueError,
        (
            "potential",
            "one number",
            "jnp.sum",
        ),
    ),
    "curl not linear": Case(
        lambda: curl(pull, one, quartic, dimension=2, method="linear"),
        ValueError,
        (
            "linear",
            "affine",
            "auto",
        ),
    ),
    "curl too many dimensions": Case(
        lambda: curl(pull, one, quartic, dimension=4),
        ValueError,
        (
            "dimension is 4",
            "up to 3",
        ),
    ),
    "curl method and dimension": Case(
        lambda: curl(pull, one, quartic, dimension=1, method="closed form"),
        ValueError,
        (
            "closed form",
            "1",
            "fourier",
        ),
    ),
    "curl grid type": Case(
        lambda: curl(pull, one, quartic, dimension=2, grid=WRONG),
        TypeError,
        (
            "grid",
            "Axis",
            "wrong",
        ),
    ),
    "curl grid dimension": Case(
        lambda: curl(pull, one, quartic, dimension=2, grid=LINE),
        ValueError,
        (
            "grid",
            "2 axes",
            "1",
        ),
    ),
    "curl grid and points": Case(
        lambda: curl(pull, one, quartic, dimension=2, grid=[LINE, LINE], points=64),
        ValueError,
        (
            "points",
            "grid",
        ),
    ),
    "curl few points": Case(
        lambda: curl(pull, one, quartic, dimension=2, points=8),
        ValueError,
        (
            "points",
            "at least 32",
            "8",
        ),
    ),
    "curl coarse": Case(
        lambda: curl(
            lambda z: -jnp.array([[1.0, -1.0], [1.0, 1.0]]) @ z,
            one,
            round_,
            dimension=2,
            method="fourier",
            grid=[Axis(-200.0, 200.0, 200)] * 2,
        ),
        ValueError,
        (
            "too coarse",
            "points=400",
        ),
    ),
    "curl diffusion negative": Case(
        lambda: curl(pull, lambda z: -1.0, quartic, dimension=2),
        ValueError,
        (
            "diffusion",
            "positive semidefinite",
            "-1",
        ),
    ),
    "fokker_planck three axes": Case(
        lambda: fokker_planck(pull, one, [LINE] * 3),
        ValueError,
        (
            "grid",
            "one or two axes",
            "3",
        ),
    ),
    "fokker_planck asymmetric": Case(
        lambda: fokker_planck(pull, lambda z: jnp.array([[1.0, 0.5], [0.0, 1.0]]), [LINE] * 2),
        ValueError,
        (
            "diffusion",
            "symmetric",
        ),
    ),
    "fokker_planck correlated": Case(
        lambda: fokker_planck(
            pull, lambda z: jnp.array([[1.0, 0.9], [0.9, 1.0]]), [LINE, Axis(-5.0, 5.0, 100)]
        ),
        ValueError,
        (
            "too correlated",
            "0.9",
            "1.11",
            "points",
        ),
    ),
    "fokker_planck drift": Case(
        lambda: fokker_planck(lambda z: z / (0.0 * z), one, LINE),
        ValueError,
        (
            "drift",
            "finite",
            "box",
        ),
    ),
    "evolve time": Case(
        lambda: solved().evolve(solved().point_mass([0.0]), -1.0),
        ValueError,
        (
            "time",
            "-1.0",
        ),
    ),
    "evolve shape": Case(
        lambda: solved().evolve(np.ones(7), 1.0),
        ValueError,
        (
            "(50,)",
            "(7,)",
        ),
    ),
    "evolve negative": Case(
        lambda: solved().evolve(-np.ones(50), 1.0),
        ValueError,
        (
            "density",
            "negative",
            "-1.0",
        ),
    ),
    "density negative": Case(
        lambda: solved().density(lambda z: z[0]),
        ValueError,
        (
            "function",
            "not negative",
            "-4.9",
        ),
    ),
    "density type": Case(
        lambda: solved().density(WRONG),
        TypeError,
        (
            "function",
            "wrong",
        ),
    ),
    "point outside": Case(
        lambda: solved().point_mass([9.0]),
        ValueError,
        (
            "where",
            "box",
            "9.0",
        ),
    ),
    "mean shape": Case(
        lambda: fokker_planck(pull, one, [LINE] * 2).mean(lambda z: z),
        ValueError,
        (
            "function",
            "one number",
            "(2,)",
        ),
    ),
    "transition axis": Case(
        lambda: transition_law(pull, one, 0.1, WRONG),
        TypeError,
        (
            "axis",
            "Axis",
        ),
    ),
    "transition step": Case(
        lambda: transition_law(pull, one, 0.0, LINE),
        ValueError,
        (
            "step_size",
            "positive",
            "0.0",
        ),
    ),
    "transition cells": Case(
        lambda: transition_law(pull, one, 1e-4, LINE),
        ValueError,
        (
            "too narrow",
            "points=1414",
        ),
    ),
    "transition without noise": Case(
        lambda: transition_law(pull, lambda z: 0.0, 0.1, LINE),
        ValueError,
        (
            "diffusion",
            "variance 0",
            "noise",
        ),
    ),
    "transition short axis": Case(
        lambda: transition_law(pull, one, 0.1, Axis(-2.0, 2.0, 100)),
        ValueError,
        (
            "axis loses",
            "longer",
        ),
    ),
    "transition steps": Case(
        lambda: transition_law(pull, one, 0.1, Axis(-8.0, 8.0, 100)).evolve(np.ones(100), -1),
        ValueError,
        (
            "steps",
            "-1",
        ),
    ),
}
