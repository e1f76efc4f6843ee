"""Stochastic gradient descent with Newton's metric, whose own noise is made the wanted law."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import take
from ergodax.data.batching import Independent
from ergodax.gradient.batches import Minibatch, check_resident
from ergodax.gradient.control_variate import LARGEST_HESSIAN
from ergodax.gradient.covariance import factor_of_all, sample_covariance_in_chunks
from ergodax.gradient.expansion import CHUNK, whole_hessian
from ergodax.integrator.stepper import Moved, PositionStepper
from ergodax.kernel import State, named
from ergodax.schedule import as_schedule
from ergodax.target.mode import Mode
from ergodax.target.posterior import Posterior

ROWS = 20_000  # of which the Hessians' spread is measured
COVARIANCES = ("sandwich", "posterior")
ROUNDING = 1e-5  # of a variance, by which it may be negative


class ConstantSGD(PositionStepper):
    """The kernel that `constant_sgd` returns.

    Attributes:
        metric: H^-1, (d, d).
        root: R, (d, d), with S = R R^T, the wanted covariance.
        heat: (d,), at least 1, with S + K = R diag(heat) R^T: W is R diag(2 h - h^2 heat) R^T.
    """

    infeasible = (
        "at this step size the gradient's noise alone is more than the wanted covariance. Leave "
        "step_size out, for the largest that is possible."
    )

    metric: Float[Array, "d d"]
    root: Float[Array, "d d"]
    heat: Float[Array, " d"]

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """x - h H^-1 g + R sqrt(2 h - h^2 heat) xi."""
        key_gradient, key_noise = jax.random.split(key)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        slope, unravel = tree.ravel(estimate.gradient)
        normal, _ = tree.ravel(tree.normal_like(key_noise, state.position))
        metric, root, heat = (x.astype(slope.dtype) for x in (self.metric, self.root, self.heat))
        h = tree.cast(h, slope)
        variance = 2.0 * h - h**2 * heat
        noise = root @ (jnp.sqrt(jnp.maximum(variance, 0.0)) * normal)
        position = tree.add(state.position, unravel(noise - h * (metric @ slope)))
        told = {"feasible": jnp.all(variance >= -ROUNDING * h)}
        return Moved(position, {}, estimate, gradient, told)


@named
def constant_sgd(
    gradient: Any, mode: PyTree | Mode, *, step_size: Any = None, covariance: Any = "sandwich"
) -> ConstantSGD:
    """Constant-step SGD with the covariance that is wanted, by default the sandwich.

    State: position x. With H the Hessian of U at the mode, J the sum over rows of the outer
    products of their centred scores, and g a batch's estimate of grad U:
        x+ = x - h H^-1 g + N(0, W),   W = 2 h S - h^2 (S + K),
        K  = H^-1 (V + E (Hhat - H) S (Hhat - H)) H^-1
    V is the covariance of g at the mode, Hhat a batch's estimate of H, S what `covariance` says.
    Where U is quadratic the covariance is exactly S at every h, also with the multiplicative noise
    of regressions, whose Hessians differ from row to row; without the second term of K it would be
    too large. Elsewhere S holds as far as the posterior is normal.

    The sandwich H^-1 J H^-1 is the sampling covariance of the mode, whether or not the model is
    right; H^-1, the posterior's, is only where it is right.

    **Step and batch.** W >= 0 up to h = 2 / (1 + k), k the largest eigenvalue of K relative to S;
    for the sandwich k is about N / n, and there hardly any noise is injected: plain SGD with this
    step is the sampler. The memory is (2 - h) / h = k steps, which cost n k, about N, gradients of
    rows: an independent draw costs one pass, whatever the batch, until n k < N.

    Args:
        gradient: ex.Minibatch of a posterior in memory, with independent batches.
        mode: the minimum of U: a position, or the Mode that ex.find_mode returns.
        step_size: h, a number or a schedule; by default the smaller of 1 and 2 / (1 + k).
        covariance: "sandwich", "posterior", or S as a (d, d) matrix over the raveled position.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: not such an estimator.
        ValueError: a mode where the posterior can't be evaluated or is not finite, an unknown
            covariance or one that is not positive definite, a Hessian that is not, or more than
            2,000 dimensions. A step size that is too large stops the chain.

    Example:
        Least squares where the noise grows with x: the posterior's sd of the slope is too small.

        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x, e = jax.random.normal(jax.random.key(0), (2, 2000))
        >>> model = ex.Posterior(
        ...     lambda w: 0.0, lambda w, row: -0.5 * (row[1] - w * row[0]) ** 2, (x, x * e)
        ... )
        >>> kernel = ex.constant_sgd(ex.Minibatch(model, 100), ex.find_mode(model, jnp.zeros(())))
        >>> samples = ex.sample(kernel, jnp.zeros(()), 4000, key=jax.random.key(1), progress=False)
        >>> bool(samples.position.std() > 1.5 * 2000**-0.5)  # the posterior's is 2000**-0.5
        True

    Reference:
        Mandt, Hoffman and Blei, Stochastic gradient descent as approximate Bayesian inference,
        2017; Wang, Ding and Huggins, 2026, arXiv 2606.00293.
    """
    if not isinstance(gradient, Minibatch) or not isinstance(gradient.batching, Independent):
        raise TypeError(
            "constant_sgd needs an ex.Minibatch with independent batches, whose noise makes the "
            f"law, not {gradient!r}. Try ex.Minibatch(posterior, batch_size=100)."
        )
    check_resident(gradient.target, "constant_sgd", "ex.sgld")
    position = mode.position if isinstance(mode, Mode) else mode
    position = gradient.target.freeze(position, "mode")
    if tree.size(position) > LARGEST_HESSIAN:
        raise ValueError(
            f"constant_sgd keeps d x d matrices, and d = {tree.size(position)} is more than "
            f"{LARGEST_HESSIAN}. Try ex.sgld."
        )
    try:
        gradient.target.check(position)
    except ValueError as error:
        raise ValueError(f"mode: {error}") from error
    if not tree.known_finite(position):
        raise ValueError("mode: it has numbers that are not finite. Try what ex.find_mode returns.")
    rows, factor = gradient.target.num_data, factor_of_all(gradient)
    lower = _cholesky(whole_hessian(gradient.target, position), "the Hessian at the mode")
    metric = scipy.linalg.cho_solve((lower, True), np.eye(len(lower)))
    scores = _score_covariance(gradient.target, position)
    root = _cholesky(_wanted(covariance, metric, (rows - 1) * scores), "covariance")
    noise = factor * (scores + _hessian_covariance(gradient.target, position, root))
    left = scipy.linalg.solve_triangular(root, metric, lower=True)
    excess, turn = scipy.linalg.eigh(left @ noise @ left.T)
    heat = 1.0 + np.maximum(excess, 0.0)
    h = min(1.0, 2.0 / float(heat[-1])) if step_size is None else step_size
    kind = tree.result_dtype(position)
    return ConstantSGD(
        gradient,
        as_schedule(h, "step_size"),
        as_schedule(1.0, "temperature"),
        *(jnp.asarray(x, kind) for x in (metric, root @ turn, heat)),
    )


def _score_covariance(posterior: Posterior, position: PyTree) -> np.ndarray:
    """Of the scores of all rows, divisor N - 1."""
    return np.asarray(_of_scores(posterior, position), float)


@eqx.filter_jit  # or the next kernel of the same posterior would compile it again
def _of_scores(posterior: Posterior, position: PyTree) -> Float[Array, "d d"]:
    def scores(numbers: Int[Array, " k"]) -> PyTree:
        return posterior.per_example_gradients(position, take(posterior.data, numbers))

    return sample_covariance_in_chunks(scores, posterior.num_data, "dense", CHUNK)


def _hessian_covariance(posterior: Posterior, position: PyTree, root: np.ndarray) -> np.ndarray:
    """The sum over the columns a of `root` of the covariance of H_i a over rows i, divisor N - 1.

    Of rows at even distances, where there are more than `ROWS`.
    """
    rows = min(posterior.num_data, ROWS)
    places = jnp.asarray(np.arange(rows) * posterior.num_data // rows, jnp.int32)
    columns = jnp.asarray(root.T, tree.result_dtype(position))
    return np.asarray(_of_products(posterior, position, places, columns), float)


@eqx.filter_jit
def _of_products(
    posterior: Posterior,
    position: PyTree,
    places: Int[Array, " rows"],
    columns: Float[Array, "d d"],
) -> Float[Array, "d d"]:
    """The sum over columns a, as rows, of the covariance of H_i a over the rows i at `places`."""
    _, unravel = tree.ravel(position)

    def along(column: Float[Array, " d"]) -> Float[Array, "d d"]:
        def products(numbers: Int[Array, " k"]) -> PyTree:
            some = take(posterior.data, places[numbers])

            def scores(x: PyTree) -> PyTree:
                return posterior.per_example_gradients(x, some)

            return jax.jvp(scores, (position,), (unravel(column),))[1]

        return sample_covariance_in_chunks(products, places.size, "dense", CHUNK)

    first = jnp.zeros_like(columns)
    return jax.lax.scan(lambda sum_, a: (sum_ + along(a), None), first, columns)[0]


def _wanted(covariance: Any, metric: np.ndarray, information: np.ndarray) -> np.ndarray:
    """S as a matrix. Raises: ValueError."""
    if isinstance(covariance, str):
        if covariance not in COVARIANCES:
            raise ValueError(
                f"covariance must be one of {COVARIANCES} or a matrix, not {covariance!r}."
            )
        return metric @ information @ metric if covariance == "sandwich" else metric
    matrix = np.asarray(covariance, float)
    if matrix.shape != metric.shape:
        raise ValueError(f"covariance must be {metric.shape}, not {matrix.shape}.")
    return matrix


def _cholesky(matrix: np.ndarray, name: str) -> np.ndarray:
    """The lower root. Raises: ValueError."""
    try:
        return scipy.linalg.cholesky(matrix, lower=True)
    except (scipy.linalg.LinAlgError, ValueError) as error:
        raise ValueError(
            f"{name} is not positive definite. Try another start of ex.find_mode, a tighter prior, "
            "or, where rows are fewer than parameters, covariance='posterior'."
        ) from error
