"""Closed forms of the stationary law on a Gaussian target, one function a scheme.

For one mode of curvature k, mass m, friction rate gamma (C = gamma m), step h, temperature T
and residual gradient-noise variance s2, each returns Var x, Cov(x, r) and Var r; nan where no
closed form is known to us. Derived with the discrete Lyapunov equation in computer algebra.

`Modes` carries them to any dimension: with L W = M W diag(k) and W^T M W = I, the modes
q = W^-1 x of a chain on the precision L with mass M are independent and have mass 1.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh


class Mode(NamedTuple):
    """The numbers of one mode, or arrays of them."""

    k: np.ndarray | float
    m: float
    gamma: float
    h: float
    t: float
    s2: np.ndarray | float

    @property
    def heated(self):
        """The temperature with the heat of the gradient's noise, for the Euler schemes."""
        return self.t + self.h * self.s2 / (2.0 * self.gamma * self.m)

    @property
    def brought(self):
        """The factor h^2 s2 (1 + c) / (1 - c) of the splittings, c = e^(-gamma h)."""
        return self.h**2 * self.s2 / np.tanh(0.5 * self.gamma * self.h)


def sgld(z: Mode):
    return z.t / z.k * (1 + z.h * z.s2 / (2 * z.t)) / (1 - z.h * z.k / 2), np.nan, np.nan


def euler(z: Mode):
    c = z.gamma * z.m
    stable = 4 * z.m - 2 * c * z.h + z.h**2 * z.k
    common = z.heated * 2 * c / ((c - z.h * z.k) * stable)
    x = common / z.k * (2 * z.m - c * z.h + z.h**2 * z.k)
    return x, -z.h * z.m * common, 2 * z.m**2 * common


def semi_implicit(z: Mode):
    above = 4 * z.m - 2 * z.gamma * z.m * z.h
    below = above - z.h**2 * z.k
    return (
        z.heated / z.k * above / below,
        2 * z.h * z.m * z.heated / below,
        (4 * z.m**2 * z.heated / below),
    )


def baoab(z: Mode):
    x = z.t / z.k + z.brought / (z.k * (4 * z.m - z.h**2 * z.k))
    clean = np.where(np.asarray(z.s2) == 0, 1.0, np.nan)
    return x, 0.0 * clean, z.t * (z.m - z.h**2 * z.k / 4) * clean


def aboba(z: Mode):
    x = z.t / z.k + z.brought / (4 * z.m * z.k)
    return x, 0.0 * x, 4 * z.m**2 * z.k / (4 * z.m - z.h**2 * z.k) * x


def obabo(z: Mode):
    clean = np.where(np.asarray(z.s2) == 0, 1.0, np.nan)
    x = 4 * z.m * z.t / (z.k * (4 * z.m - z.h**2 * z.k))
    return x * clean, 0.0 * clean, z.t * z.m * clean


def baoa(z: Mode):
    clean = np.where(np.asarray(z.s2) == 0, 1.0, np.nan)
    return baoab(z)[0], 0.5 * z.h * z.t * clean, z.t * z.m * clean


def abao(z: Mode):
    # A half drift, the full kick, a half drift, then the noise.
    clean = np.where(np.asarray(z.s2) == 0, 1.0, np.nan)
    x = z.t * (4 * z.m - z.h**2 * z.k) / (4 * z.m * z.k)
    return x * clean, 0.0 * clean, z.t * z.m * clean


SPLITTINGS = {"BAOAB": baoab, "ABOBA": aboba, "OBABO": obabo, "BAOA": baoa, "ABAO": abao}


class Modes(NamedTuple):
    """The modes of a Gaussian target of precision `precision` under the mass `mass`."""

    precision: np.ndarray
    mass: np.ndarray
    k: np.ndarray
    shapes: np.ndarray  # W

    @classmethod
    def of(cls, precision: np.ndarray, mass: np.ndarray) -> "Modes":
        """Solve the generalised eigenproblem."""
        return cls(precision, mass, *eigh(precision, mass))

    def noise(self, s2: np.ndarray) -> np.ndarray:
        """The covariance V of a gradient noise with variance s2 in each mode: dense."""
        root = self.mass @ self.shapes
        return root @ np.diag(s2) @ root.T

    def covariances(self, x, cross, r) -> dict[tuple[str, str], np.ndarray]:
        """From the modes' (Var x, Cov(x, r), Var r) to the blocks that are known."""
        w, mw = self.shapes, self.mass @ self.shapes
        ones = np.ones_like(self.k)
        blocks = {
            ("position", "position"): w @ np.diag(x * ones) @ w.T,
            ("position", "momentum"): w @ np.diag(cross * ones) @ mw.T,
            ("momentum", "momentum"): mw @ np.diag(r * ones) @ mw.T,
        }
        return {pair: block for pair, block in blocks.items() if np.isfinite(block).all()}


def assert_covariance(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-10) -> None:
    """Equal up to `tolerance` of the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())
