"""The Lyapunov equation of any splitting, built anew in NumPy from the letters' definitions.

The state is (x, r, n), where n is the noise of the last gradient: kicks at one position share
it, also across steps, and the first kick after an A draws a fresh one.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import expm, solve_discrete_lyapunov


class Numbers(NamedTuple):
    """Precision, mass matrix, rate, step, temperature and gradient-noise covariance."""

    precision: np.ndarray
    mass: np.ndarray
    gamma: float
    h: float
    t: float
    noise: np.ndarray


def of_letter(letter: str, share: float, fresh: bool, z: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """The linear map of a letter and the covariance of the noise it adds."""
    d = len(z.precision)
    x, r, n = (slice(i * d, (i + 1) * d) for i in range(3))
    one, matrix, noise = np.eye(d), np.eye(3 * d), np.zeros((3 * d, 3 * d))
    if letter == "A":
        matrix[x, r] = share * np.linalg.inv(z.mass)
    elif letter == "O":
        damping = z.gamma * one
        matrix[r, r] = expm(-share * damping)
        noise[r, r] = z.t * (z.mass - matrix[r, r] @ z.mass @ matrix[r, r].T)
    elif letter == "U":
        # Van Loan: the flow of dz = F z dt + N(0, W dt) from one matrix exponential.
        flow, heat = np.zeros((2 * d, 2 * d)), np.zeros((2 * d, 2 * d))
        flow[x, r], flow[r, r] = np.linalg.inv(z.mass), -z.gamma * one
        heat[r, r] = 2.0 * z.gamma * z.t * z.mass
        both = expm(share * np.block([[-flow, heat], [np.zeros_like(flow), flow.T]]))
        matrix[: 2 * d, : 2 * d] = both[2 * d :, 2 * d :].T
        noise[: 2 * d, : 2 * d] = both[2 * d :, 2 * d :].T @ both[: 2 * d, 2 * d :]
    else:
        matrix[r, x], matrix[r, n] = -share * z.precision, -share * one
        if fresh:
            matrix[n, n] = matrix[r, n] = 0.0
            arrow = np.zeros((3 * d, d))
            arrow[n], arrow[r] = one, -share * one
            noise = arrow @ z.noise @ arrow.T
    return matrix, noise


def covariances(scheme: str, z: Numbers) -> dict[tuple[str, str], np.ndarray]:
    """The stationary covariance blocks of position and momentum at the end of a step."""
    d = len(z.precision)
    # In the long run a step begins as the one before ended: is the gradient still that of x?
    stale = max(scheme.rfind("A"), scheme.rfind("U")) > scheme.rfind("B")
    matrix, noise = np.eye(3 * d), np.zeros((3 * d, 3 * d))
    for letter in scheme:
        m, s = of_letter(letter, z.h / scheme.count(letter), letter == "B" and stale, z)
        stale = letter in "AU" or (stale and letter != "B")
        matrix, noise = m @ matrix, m @ noise @ m.T + s
    law = solve_discrete_lyapunov(matrix, noise)
    x, r = slice(0, d), slice(d, 2 * d)
    return {
        ("position", "position"): law[x, x],
        ("position", "momentum"): law[x, r],
        ("momentum", "momentum"): law[r, r],
    }
