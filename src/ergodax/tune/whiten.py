"""Coordinates in which a posterior is round and its gradient noise is diagonal.

Let H be the Hessian of the potential and V the covariance of the minibatch gradient, both
averaged over a Gaussian approximation N(centre, H^-1) of the posterior (`tune.gaussian`). The
generalised eigenvectors V w = lambda H w, scaled so that w^T H w = 1, are the columns of a
matrix L. In the coordinates u, position = centre + L u, the averaged Hessian is the identity and
the averaged noise covariance is diag(lambda): one step size suits every direction, and the noise
can be compensated at the cost of an elementwise product.
"""

import equinox as eqx
import numpy as np
import scipy
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.scores import sample_covariance
from ergodax.target.posterior import Posterior
from ergodax.tune.gaussian import averaged_gaussian
from ergodax.tune.host import on_device


class Whitening(eqx.Module):
    """The affine map position = centre + basis u.

    Attributes:
        centre: of the posterior, raveled, shape (d,).
        basis: L, shape (d, d).
        noise: lambda, shape (d,): the variances of the minibatch gradient in the coordinates u.
    """

    centre: Float[Array, " d"]
    basis: Float[Array, "d d"]
    noise: Float[Array, " d"]


def whiten(
    posterior: Posterior,
    mode: PyTree,
    batch_size: int,
    *,
    key: PRNGKeyArray,
    num_pairs: int = 4,
    num_rounds: int = 4,
    max_rows: int = 10_000,
) -> Whitening:
    """Measure H and V around the posterior's centre and diagonalise both.

    Args:
        posterior: with data. Each draw of each round costs d gradients on `max_rows` rows, so
            this is for d up to some thousands.
        mode: where; the Hessian must be positive definite there.
        batch_size: n of batches drawn without replacement, V = N(N-n)/n S_1.
        key: for the rows and the draws.
        num_pairs: antithetic pairs of draws that the averages are over; on a Gaussian
            posterior one pair is exact.
        num_rounds: how often the Gaussian is improved.
        max_rows: rows that stand for all, where there are more.

    Raises:
        ValueError: the Hessian is not positive definite: not a mode, or a flat direction.
    """
    gaussian = averaged_gaussian(
        posterior, mode, key=key, num_pairs=num_pairs, num_rounds=num_rounds, max_rows=max_rows
    )
    n, total = batch_size, posterior.num_data
    covariances = [_score_covariance(posterior, x, gaussian.rows) for x in gaussian.points]
    scores = np.mean([np.asarray(x, np.float64) for x in covariances], axis=0)
    values, basis = scipy.linalg.eigh(total * (total - n) / n * scores, gaussian.hessian)
    noise = np.clip(values, 0.0, None)
    dtype = tree.result_dtype(tree.freeze(mode))
    return Whitening(*(on_device(x, dtype) for x in (gaussian.centre, basis, noise)))


@eqx.filter_jit
def _score_covariance(posterior: Posterior, position: PyTree, rows: PyTree) -> Float[Array, "d d"]:
    """S_1, the covariance of the rows' scores."""
    return sample_covariance(posterior.per_example_gradients(position, rows), "dense")
