"""The kernel Stein discrepancy: how far draws are from a density known up to a constant."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax.checks import choice, real_array, real_number, whole_number
from ergodax.gradient.at_draws import as_estimator, gradients_at, is_exact
from ergodax.kernel import check_key
from ergodax.stats.draws import columns, positions_of
from ergodax.stats.estimators import effective_size, standard_error
from ergodax.tree import Number


@dataclasses.dataclass(frozen=True)
class SteinDiscrepancy:
    """What `kernel_stein_discrepancy` found.

    Attributes:
        squared: KSD^2; the U-statistic is unbiased and may be negative.
        error: the standard error of `squared` where it is not zero, by the effective sample size.
        p_value: the probability of a `squared` this large if the draws had the right law.
        num_draws: how many were used.
        statistic: "u" or "v".
    """

    squared: float
    error: float
    p_value: float
    num_draws: int
    statistic: str

    @property
    def value(self) -> float:
        """KSD, 0 where the estimate of its square is negative."""
        return float(np.sqrt(max(self.squared, 0.0)))

    def __str__(self) -> str:
        """One line."""
        return (
            f"KSD^2 = {self.squared:.4g} +- {self.error:.2g} ({self.statistic.upper()}-statistic "
            f"of {self.num_draws} draws), p = {self.p_value:.3g}"
        )


def kernel_stein_discrepancy(
    draws: PyTree,
    gradient: Any = None,
    *,
    gradients: PyTree = None,
    temperature: float = 1.0,
    c: float = 1.0,
    power: float = -0.5,
    whitening: Any = None,
    statistic: str = "u",
    num_draws: int = 2000,
    num_resamples: int = 1000,
    block: int = 1024,
    key: Any = None,
) -> SteinDiscrepancy:
    """The kernel Stein discrepancy with the inverse multiquadric kernel (c^2 + |x - y|^2)^power.

    With s = -grad U / T, b = power, u = c^2 + |x - y|^2,
        k0(x, y) = u^b s(x).s(y) + 2b u^(b-1) (x-y).(s(y) - s(x)) - 2b d u^(b-1)
                   - 4b (b-1) u^(b-2) |x-y|^2
    has mean 0 over y ~ exp(-U / T) for every x. KSD^2 is its mean over pairs of draws: distinct
    pairs ("u", unbiased) or all ("v", not negative). It takes O(n^2) time and O(block^2) memory.
    Unlike R-hat it sees bias; like every local measure it does not see a mode that no draw is in.

    Gradients from a fresh batch for each draw leave the off-diagonal terms unbiased; the diagonal
    of the "v" statistic is then taken from the product of two independent batches.

    The p-value is of the wild bootstrap, whose signs stay the same for about eight times the
    integrated autocorrelation time of the draws.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).
        gradient: a target or posterior, or an estimator of grad U.
        gradients: instead, grad U at `draws`, a tree of the same structure.
        temperature: T of the density exp(-U / T).
        c: the kernel's length, in units of the (whitened) positions.
        power: b, in (-1, 0).
        whitening: None; "diagonal" or "dense" for coordinates in which the draws have unit
            variance or the covariance I; or a positive definite matrix (d, d) to do that with.
        statistic: "u" or "v".
        num_draws: at most so many, evenly spaced over the draws of all chains.
        num_resamples: of the bootstrap.
        block: rows and columns of the matrix k0 at once.
        key: of batches and bootstrap; None for key 0 of the bootstrap.

    Raises:
        ValueError: a number out of range, both or neither of gradient and gradients.

    Example:
        >>> import ergodax as ex, jax
        >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))  # chains, draws
        >>> target = ex.Target(lambda x: 0.5 * x**2)
        >>> measure = ex.diagnostics.kernel_stein_discrepancy
        >>> right = measure(draws, target, key=jax.random.key(1))
        >>> wrong = measure(draws + 1.0, target, key=jax.random.key(1))
        >>> bool(wrong.squared > 10.0 * abs(right.squared))
        True

    Reference:
        Gorham and Mackey, Measuring sample quality with kernels, 2017; Chwialkowski, Strathmann
        and Gretton, A kernel test of goodness of fit, 2016.
    """
    real_number("c", c, above=0.0)
    real_number("power", power, above=-1.0, below=0.0)
    real_number("temperature", temperature, above=0.0)
    whole_number("num_draws", num_draws, at_least=2)
    whole_number("num_resamples", num_resamples)
    whole_number("block", block)
    choice("statistic", statistic, ("u", "v"))
    if (gradient is None) == (gradients is None):
        raise ValueError("gradient or gradients must be given, and not both.")
    batches, again, signs = jax.random.split(
        jax.random.key(0) if key is None else check_key(key), 3
    )
    some = _thinned(positions_of(draws), num_draws)
    if gradient is not None:
        own = None if key is None else batches
        slopes = columns(gradients_at(some, gradient, key=own)).values
        second = slopes
        if statistic == "v" and not is_exact(as_estimator(gradient)):
            second = columns(gradients_at(some, gradient, key=again)).values
    else:
        slopes = second = columns(_thinned(positions_of(gradients, "gradients"), num_draws)).values
    x = columns(some).values
    if slopes.shape != x.shape:
        raise ValueError(f"gradients must have the shape of draws, {x.shape}, not {slopes.shape}.")
    x, slopes, second = _whitened(x, slopes, second, whitening)
    return _discrepancy(
        x, -slopes / temperature, -second / temperature, signs, c, power, statistic,
        num_resamples, block,
    )  # fmt: skip


def stein_matrix(
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
    y: Float[Array, "m d"],
    t: Float[Array, "m d"],
    c: Number = 1.0,
    power: Number = -0.5,
) -> Float[Array, "n m"]:
    """k0 of every point x with every point y, whose scores (grad log pi) are s and t."""
    b = jnp.asarray(power, x.dtype)
    inner = x @ y.T
    square = jnp.sum(x**2, axis=1)[:, None] + jnp.sum(y**2, axis=1)[None, :] - 2.0 * inner
    square = jnp.maximum(square, 0.0)
    u = jnp.asarray(c, x.dtype) ** 2 + square
    cross = x @ t.T + s @ y.T - jnp.sum(x * s, axis=1)[:, None] - jnp.sum(y * t, axis=1)[None, :]
    terms = s @ t.T + 2.0 * b * (cross - x.shape[1]) / u - 4.0 * b * (b - 1.0) * square / u**2
    return u**b * terms


@jax.jit
def _products(
    points: Float[Array, "blocks block d"],
    scores: Float[Array, "blocks block d"],
    weights: Float[Array, "blocks block r"],
    index: Int[Array, "blocks block"],
    c: Float[Array, ""],
    power: Float[Array, ""],
) -> Float[Array, "blocks block r"]:
    """K0 times the columns of `weights`, the diagonal of K0 left out."""

    def row(rows: tuple[Array, ...]) -> Array:
        def add(total: Array, cols: tuple[Array, ...]) -> tuple[Array, None]:
            matrix = stein_matrix(rows[0], rows[1], cols[0], cols[1], c, power)
            matrix = jnp.where(rows[2][:, None] == cols[2][None, :], 0.0, matrix)
            return total + matrix @ cols[3], None

        begin = jnp.zeros((points.shape[1], weights.shape[2]), points.dtype)
        return lax.scan(add, begin, (points, scores, index, weights))[0]

    return lax.map(row, (points, scores, index))


def _discrepancy(
    x: np.ndarray, s: np.ndarray, second: np.ndarray, key: PRNGKeyArray, c: float, power: float,
    statistic: str, num_resamples: int, block: int,
) -> SteinDiscrepancy:  # fmt: skip
    chains, draws, d = x.shape
    n = chains * draws
    signs = _signs(key, x, num_resamples)
    weights = np.concatenate([np.ones((n, 1)), signs], axis=1)
    block = min(block, n)
    rows = -(-n // block) * block

    def cut(a: np.ndarray) -> Array:
        flat = a.reshape(n, -1)
        padded = np.concatenate([flat, np.zeros((rows - n, flat.shape[1]))])
        return jnp.asarray(padded.reshape(rows // block, block, -1), float)

    index = jnp.arange(rows, dtype=jnp.int32).reshape(rows // block, block)
    numbers = jnp.asarray(c, float), jnp.asarray(power, float)
    product = _products(cut(x), cut(s), cut(weights), index, *numbers)
    product = np.asarray(product, np.float64).reshape(rows, -1)[:n]
    sums = np.sum(weights * product, axis=0)
    means = product[:, 0] / (n - 1)
    if statistic == "v":
        norms = np.sum(s * second, axis=-1).reshape(n)
        diagonal = c ** (2.0 * power) * (norms - 2.0 * power * d / c**2)
        sums = (sums + diagonal.sum()) / n**2
        means = (product[:, 0] + diagonal) / n
    else:
        sums = sums / (n * (n - 1))
    p_value = (1.0 + np.sum(sums[1:] >= sums[0])) / (1.0 + num_resamples)
    error = 2.0 * float(standard_error(means.reshape(chains, draws))) if draws > 3 else np.nan
    return SteinDiscrepancy(float(sums[0]), error, float(p_value), n, statistic)


def _signs(
    key: PRNGKeyArray, x: Float[np.ndarray, "c n d"], count: int
) -> Float[np.ndarray, "cn r"]:
    """Columns of signs +-1 that change along each chain more rarely than the draws do."""
    chains, draws, _ = x.shape
    time = chains * draws / np.min(effective_size(x)) if draws > 3 else 1.0
    stay = (8.0 * time - 1.0) / (8.0 * time + 1.0) if time > 1.5 else 0.0  # the correlation
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    change = rng.random((chains, draws, count)) < 0.5 * (1.0 - stay)
    change[:, 0] = rng.random((chains, count)) < 0.5
    return np.where(np.cumsum(change, axis=1) % 2, -1.0, 1.0).reshape(chains * draws, count)


def _thinned(positions: PyTree, num_draws: int) -> Any:
    """Evenly spaced draws of every chain, at most `num_draws` in all."""
    chains, draws = next(np.shape(x)[:2] for x in jax.tree.leaves(positions) if np.ndim(x))
    each = min(draws, max(1, num_draws // chains))
    places = np.linspace(0, draws - 1, each).round().astype(int)
    return jax.tree.map(lambda x: np.asarray(x)[:, places] if np.ndim(x) else x, positions)


def _whitened(
    x: np.ndarray, slopes: np.ndarray, second: np.ndarray, whitening: Any
) -> tuple[Any, Any, Any]:
    """L^-1 (x - mean) and L^T grad U, with L L^T the matrix to whiten with."""
    x = x - x.mean(axis=(0, 1))
    if whitening is None:
        return x, slopes, second
    if isinstance(whitening, str):
        flat = x.reshape(-1, x.shape[-1])
        if whitening == "dense":
            whitening = np.cov(flat, rowvar=False).reshape(x.shape[-1], -1)
        elif whitening == "diagonal":
            whitening = np.diag(flat.var(axis=0, ddof=1))
        else:
            raise ValueError(f"whitening must be 'diagonal' or 'dense', not {whitening!r}.")
    matrix = real_array("whitening", whitening)
    if matrix.shape != (x.shape[-1],) * 2:
        raise ValueError(f"whitening must be a matrix {(x.shape[-1],) * 2}, not {matrix.shape}.")
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError as error:
        raise ValueError("whitening must be positive definite. Try 'diagonal'.") from error
    return x @ np.linalg.inv(root).T, slopes @ root, second @ root
