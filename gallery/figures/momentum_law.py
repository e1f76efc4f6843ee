"""SGHMC on N(0, 1) with Gaussian gradient noise, exactly: the chain is linear and Gaussian."""

import numpy as np
from jaxtyping import Float

import ergodax as ex

Frictions = Float[np.ndarray, " k"]


class Law:
    """A step z+ = A z + noise of z = (x, r), for several frictions at once.

    Args:
        step_size: h.
        frictions: gamma of each.
        noise: V, the variance of the gradient's noise.
        compensate: whether V is taken out of the injected noise, as far as there is any.

    Attributes:
        matrix: A of each friction.
        spread: the covariance of the noise of a step.
    """

    def __init__(
        self, step_size: float, frictions: Frictions, noise: float, *, compensate: bool
    ) -> None:
        h, brought = step_size, step_size**2 * noise
        kept, injected = 1.0 - h * frictions, 2.0 * h * frictions
        rows = [[1.0 - h**2 + 0.0 * kept, h * kept], [-h + 0.0 * kept, kept]]
        self.matrix = np.moveaxis(np.array(rows), -1, 0)
        heat = np.maximum(injected, brought) if compensate else injected + brought
        self.spread = heat[:, None, None] * np.outer([h, 1.0], [h, 1.0])[None]

    @property
    def covariance(self) -> Float[np.ndarray, "k 2 2"]:
        """Of the stationary law: S = A S A^T + spread."""
        steps = map(ex.verify.AffineStep, self.matrix, self.spread)
        return np.stack([ex.verify.stationary_law(step).covariance for step in steps])

    @property
    def variance(self) -> Frictions:
        """Of x under the stationary law."""
        return self.covariance[:, 0, 0]

    def autocorrelation_times(self) -> dict[str, Frictions]:
        """Steps to an effective draw of the mean of x, and of its variance.

        With rho the autocorrelation of x, that of x^2 is rho^2.
        """
        rho = self.covariance[:, :, 0] / self.variance[:, None]
        one = np.linalg.solve(np.eye(2)[None] - self.matrix, rho[..., None])[:, 0, 0]
        pairs = np.stack([np.kron(a, a) for a in self.matrix])
        both = np.einsum("ki,kj->kij", rho, rho).reshape(-1, 4, 1)
        two = np.linalg.solve(np.eye(4)[None] - pairs, both)[:, 0, 0]
        return {"mean": 2.0 * one - 1.0, "variance": 2.0 * two - 1.0}

    def error_of_variance(self, steps: int) -> Frictions:
        """Root mean square error of the average of x^2 over steps 1 ... n.

        The chain starts at a draw of N(0, 1) with r ~ N(0, 1). Cov(x_s^2, x_t^2) is
        2 Cov(x_s, x_t)^2, and Cov(x_s, x_t) the first row of A^(t - s) times Cov(z_s, x_s).

        Args:
            steps: n.
        """
        k = len(self.matrix)
        covariances, products = np.empty((steps, k, 2)), np.zeros((steps, k, 2, 2))
        z, row = np.tile(np.eye(2), (k, 1, 1)), np.tile([[1.0, 0.0]], (k, 1))
        for t in range(steps):
            z = self.matrix @ z @ self.matrix.transpose(0, 2, 1) + self.spread
            covariances[t] = z[:, :, 0]
            row = np.einsum("ki,kij->kj", row, self.matrix)
            if t + 1 < steps:
                products[t + 1] = products[t] + np.einsum("ki,kj->kij", row, row)
        # At step s + 1, n - s - 1 later ones follow.
        later = np.einsum("ski,skij,skj->sk", covariances, products[::-1], covariances)
        own = covariances[:, :, 0]
        spread = 2.0 / steps**2 * np.sum(own**2 + 2.0 * later, axis=0)
        return np.sqrt(spread + (own.mean(axis=0) - 1.0) ** 2)
