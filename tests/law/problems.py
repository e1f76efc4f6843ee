"""Gaussian targets of any dimension with dense precision, with masses that do not commute."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import ergodax as ex

from .theory import Mode, Modes


class Problem(NamedTuple):
    """A Gaussian target, a mass, and a gradient noise that the modes see as independent."""

    centre: np.ndarray
    precision: np.ndarray
    mass: Any  # as a user gives it: number, vector or matrix
    modes: Modes
    s2: np.ndarray  # the noise variance of each mode

    @property
    def target(self):
        return ex.targets.gaussian(self.centre, np.linalg.inv(self.precision))

    def noisy(self, noise: float = 1.0) -> ex.NoisyGradient:
        """The exact gradient plus dense Gaussian noise; noise = 0 leaves the exact one."""
        # 1e-30 for 0: a singular covariance has no inverse, and would be another program.
        scale = noise or 1e-30
        return ex.NoisyGradient(self.target, jnp.asarray(scale * self.modes.noise(self.s2)))

    def step(self, fraction: float) -> float:
        """This fraction of the largest step that leapfrog allows, h^2 k < 4."""
        return fraction * 2.0 / np.sqrt(self.modes.k.max())

    def mode(self, h: float, *, gamma: float = 1.0, t: float = 1.0, noise: float = 1.0) -> Mode:
        """The numbers for the closed forms of `theory`, whose modes have mass 1."""
        return Mode(self.modes.k, 1.0, gamma, h, t, noise * self.s2)


def line(variance: float = 1.0):
    """The target N(0, variance) in one dimension."""
    return ex.targets.gaussian(np.zeros(1), np.full(1, variance))


def problem(d: int, mass: str) -> Problem:
    """A target of dimension d with curvatures from 0.5 to 3 and a mass of the kind named."""
    rng = np.random.default_rng(d)
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    precision = turn @ np.diag(np.linspace(0.5, 3.0, d)) @ turn.T
    root = 0.3 * rng.normal(size=(d, d)) + np.eye(d)
    given = {"number": 1.7, "vector": rng.uniform(0.6, 2.0, d), "matrix": root @ root.T}[mass]
    matrix = given if mass == "matrix" else given * np.eye(d)
    modes = Modes.of(precision, matrix)
    return Problem(rng.normal(size=d), precision, given, modes, rng.uniform(0.5, 4.0, d))


KINDS = [(1, "number"), (2, "matrix"), (10, "vector")]  # dimension and mass
SETTINGS = [  # temperature, friction rate, step as a fraction of the stability limit
    (1.0, 1.0, 0.1),
    (0.25, 0.4, 0.5),
    (4.0, 2.5, 0.3),
    (1.0, 0.7, 0.9),
]
