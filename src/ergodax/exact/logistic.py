"""What logistic regression offers to these tests: a range, and a lower bound, of its likelihood."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.checks import numbers, real_number
from ergodax.data.arrays import as_data
from ergodax.exact.firefly import LowerBound
from ergodax.exact.proposal import centre_of


class LogisticRange(eqx.Module):
    """A bound for `confidence` on how much the rows of a logistic regression differ.

    The log-likelihood of a row is log sigma(s) with s = y x . w and y = +1 or -1. Its slope lies in
    (0, 1), so |l_i| <= |x_i| |w' - w|. Its third derivative is -u (1 - u^2) / 4, u = 1 - 2 sigma,
    so at most 1 / (6 sqrt 3), at u = 1 / sqrt 3; with Taylor polynomials about w*,
        |l_i - xi_i| <= |x_i|^3 (|w - w*|^3 + |w' - w*|^3) / (36 sqrt 3)
    A range is twice the greatest of these.

    Args:
        features: shape (N, d); a constant column for an intercept must be among them.
    """

    greatest_norm: Float[Array, ""]

    def __init__(self, features: Any) -> None:
        self.greatest_norm = jnp.max(jnp.linalg.norm(_matrix(features), axis=1))

    def __call__(
        self, position: PyTree, proposal: PyTree, centre: PyTree | None = None
    ) -> Float[Array, ""]:
        """R for this move; with a centre, for what the proxies leave."""
        x, y = (tree.ravel(tree.freeze(z))[0] for z in (position, proposal))
        norm = self.greatest_norm.astype(x.dtype)
        if centre is None:
            return 2.0 * norm * jnp.linalg.norm(y - x)
        about = tree.ravel(tree.freeze(centre))[0].astype(x.dtype)
        cubes = jnp.linalg.norm(x - about) ** 3 + jnp.linalg.norm(y - about) ** 3
        return norm**3 * cubes / (18.0 * 3.0**0.5)


class LogisticBound(LowerBound):
    """Jaakkola and Jordan's Gaussian bounds of the likelihoods of a logistic regression.

    With s = y x . w, y = +1 or -1, and a tangent point t >= 0 for each row,
        log sigma(s) >= a s^2 + s / 2 + c
        a = -tanh(t / 2) / (4 t),  c = -a t^2 - log(2 cosh(t / 2))
    with equality at s = t and s = -t. Bounds that touch at the posterior's mode, t_i = |x_i . w*|,
    leave of the order of one bright row whatever N is; with one t for all, a share of N.

    Args:
        features: shape (N, d), in the order of the posterior's rows; the position, raveled, is w.
        labels: shape (N,), 0 and 1, or -1 and +1.
        centre: w*, where the bounds touch: a position or ex.Mode.
        tangent: t for all rows, used where there is no centre.

    Raises:
        TypeError: features that are no matrix of numbers.
        ValueError: labels that are not of two classes, or shapes that do not fit.

    Reference:
        Jaakkola and Jordan, A variational approach to Bayesian logistic regression models, 1997.
    """

    signed: Float[Array, "N d"]  # y_i x_i
    curvature: Float[Array, " N"]  # a_i
    constant: Float[Array, " N"]  # c_i
    centre: Float[Array, " d"]
    slope: Float[Array, " d"]  # of the sum over all rows, at the centre
    quadratic: Float[Array, "d d"]

    def __init__(
        self, features: Any, labels: Any, *, centre: Any = None, tangent: Any = 1.5
    ) -> None:
        x = np.asarray(_matrix(features), np.float64)
        x = x * _signs(labels, x.shape[0])[:, None]
        about = np.zeros(x.shape[1])
        if centre is not None:
            about = np.asarray(tree.ravel(centre_of(centre))[0], np.float64)
        if about.shape != (x.shape[1],):
            raise ValueError(
                f"centre must have one number for each of the {x.shape[1]} features, not "
                f"{about.size}."
            )
        s = x @ about
        t = (
            np.full(len(s), real_number("tangent", tangent, at_least=0.0))
            if centre is None
            else np.abs(s)
        )
        a, c = tangent_parabola(t)
        self.signed, self.curvature, self.constant = (jnp.asarray(z, float) for z in (x, a, c))
        self.centre = jnp.asarray(about, float)
        # Expanded about the centre, and in double precision: at N = 10^6 the sum itself is so
        # large that single precision would not resolve its changes.
        self.slope = jnp.asarray((2.0 * a * s + 0.5) @ x, float)
        self.quadratic = jnp.asarray((x * a[:, None]).T @ x, float)

    def log_bounds(self, position: PyTree, rows: Int[Array, " n"]) -> Float[Array, " n"]:
        """a s^2 + s / 2 + c for these rows."""
        w = tree.ravel(position)[0]
        signed, a, c = (
            z.at[rows].get(mode="promise_in_bounds").astype(w.dtype)
            for z in (self.signed, self.curvature, self.constant)
        )
        s = signed @ w
        return a * s**2 + 0.5 * s + c

    def log_bound_sum(self, position: PyTree) -> Float[Array, ""]:
        """The sum over all rows, less its value at the centre, in O(d^2)."""
        w = tree.ravel(position)[0]
        apart = w - self.centre.astype(w.dtype)
        return self.slope.astype(w.dtype) @ apart + apart @ (self.quadratic.astype(w.dtype) @ apart)


def tangent_parabola(tangent: Any) -> tuple[np.ndarray, np.ndarray]:
    """a and c of the parabola a s^2 + s / 2 + c that touches log sigma(s) at s = +-tangent."""
    t = np.asarray(tangent, np.float64)
    small = np.abs(t) < 1e-4
    safe = np.where(small, 1.0, t)
    a = np.where(small, -0.125 + t**2 / 96.0, -np.tanh(safe / 2.0) / (4.0 * safe))
    return a, -a * t**2 - np.logaddexp(t / 2.0, -t / 2.0)


def _matrix(features: Any) -> Array:
    array = as_data(features)
    if not eqx.is_array(array) or array.ndim != 2:
        raise TypeError("features must be one matrix, shape (N, d).")
    return array.astype(float)


def _signs(labels: Any, num_rows: int) -> np.ndarray:
    y = np.asarray(numbers("labels", labels), np.float64)
    if y.shape != (num_rows,):
        raise ValueError(f"labels must have shape ({num_rows},) like the features, not {y.shape}.")
    if np.isin(y, (0.0, 1.0)).all():
        return 2.0 * y - 1.0
    if np.isin(y, (-1.0, 1.0)).all():
        return y
    raise ValueError("labels must be 0 and 1, or -1 and +1; for more classes try ex.exact.tuna.")
