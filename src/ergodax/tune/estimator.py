"""The cheapest gradient estimator, batch size and step of little enough noise.

In whitened coordinates: the posterior's scale is 1 and the longest stable step is 2.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.data.arrays import num_rows
from ergodax.driver.compile import compiled_at
from ergodax.gradient import ControlVariate, FullGradient, KnownCovariance, Minibatch
from ergodax.gradient.covariance import SUMS, centred
from ergodax.gradient.expansion import Expansion, remainders
from ergodax.graph import lowered
from ergodax.recipe.operators import Dense, Diagonal
from ergodax.target.posterior import Posterior
from ergodax.tune.curvature import LARGEST_DENSE
from ergodax.tune.host import on_device

LONGEST_STEP = 1.0
INFLATION = 0.15  # the largest h v / 2: the variance inflation by the gradient's noise
OVERHEAD = 64.0  # what a step costs besides its gradients, in gradients of one example
LARGEST_SECOND_ORDER = 256  # dimensions for which a d x d product in each step pays
SMALLEST_BATCH = 8
NUMBERS = 2**24  # of scores that are held at a time

# Evaluations for an example of the batch.
COSTS = {"Minibatch": 1, "ControlVariate": 2, "ControlVariate, order 2": 3, "FullGradient": 1}


@dataclasses.dataclass(frozen=True)
class Plan:
    """An estimator, a batch size and a step that go together.

    Attributes:
        name: of the estimator, a key of `COSTS`.
        batch_size: n.
        step_size: h.
        covariance: of one example's score, shape (d, d), or its diagonal, shape (d,).
        noise: v, the largest variance of the gradient's noise in any direction.
        costs: evaluations for one effective draw, as predicted, for each estimator.
    """

    name: str
    batch_size: int
    step_size: float
    covariance: Float[np.ndarray, "..."]
    noise: float
    costs: dict[str, float]

    def build(self, posterior: Posterior, dtype: Any = None) -> Any:
        """The estimator with the variances of its noise, which are those of each coordinate.

        Args:
            posterior: in whitened coordinates in which `covariance` is diagonal.
            dtype: of the position; by default JAX's.
        """
        dtype = jnp.result_type(float) if dtype is None else dtype
        n, total = self.batch_size, posterior.num_data
        d = self.covariance.shape[0]
        if self.name == "FullGradient":
            return KnownCovariance(FullGradient(posterior), 0.0)
        if self.name == "Minibatch":
            estimator = Minibatch(posterior, n)
        else:
            centre = on_device(np.zeros(d), dtype)
            estimator = ControlVariate(posterior, n, centre, order=1 + ("2" in self.name))
        one = self.covariance if self.covariance.ndim == 1 else np.diag(self.covariance)
        noise = on_device(total * (total - n) / n * one, dtype)
        return KnownCovariance(estimator, Diagonal(noise))


def choose_estimator(
    posterior: Posterior,
    rows: PyTree,
    points: Float[Array, "points d"],
    *,
    longest_step: float = LONGEST_STEP,
    smallest_batch: int = SMALLEST_BATCH,
) -> Plan:
    """Measure the noise of each estimator; choose estimator, batch size and step together.

    A step of size h brings about h / 2 effective draws, and noise of variance v inflates variances
    by h v / 2, all of which NOGIN's friction takes out again if v is the same everywhere, which it
    is not. For each estimator the batch size and step that make an effective draw cheapest are
    found, subject to h v / 2 <= 0.15.

    Args:
        posterior: in whitened coordinates; its position is a vector.
        rows: examples that stand for all.
        points: places at which the noise is measured, draws of the posterior or near it.
        longest_step: the largest h to consider.
        smallest_batch: the smallest n.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 1000)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> white = ex.tune.Coordinates(jnp.float32(1.0), jnp.full(1, 0.0316))  # mode and sd
        >>> inside, points = ex.tune.in_coordinates(model, white), jnp.array([[-1.0], [1.0]])
        >>> ex.tune.choose_estimator(inside, x, points).name  # a batch with it has no noise here
        'ControlVariate'
    """
    best, costs = None, {}
    for name, covariance in _covariances(posterior, rows, points).items():
        top = covariance.max()
        if covariance.ndim == 2 and np.isfinite(covariance).all():
            top = np.linalg.eigvalsh(covariance)[-1]
        limits = longest_step, smallest_batch
        cost, n, h, noise = _cheapest(posterior.num_data, float(top), name, *limits)
        costs[name] = cost
        if best is None or cost < best[0]:
            best = cost, Plan(name, n, h, covariance, noise, costs)
    assert best is not None
    return best[1]


def _cheapest(
    total: int, top: float, name: str, longest_step: float, smallest: int = SMALLEST_BATCH
) -> tuple[float, int, float, float]:
    """(cost, n, h, v) of the cheapest effective draw."""
    if name == "FullGradient":
        return (OVERHEAD + total) * 2.0 / longest_step, total, longest_step, 0.0
    largest = max(1, total // 2)
    if not np.isfinite(top):
        return np.inf, largest, longest_step, np.inf
    options, n = [], min(smallest, largest)
    while n <= largest:
        noise = total * (total - n) / n * top
        h = min(longest_step, 2.0 * INFLATION / max(noise, 1e-30))
        options.append(((OVERHEAD + COSTS[name] * n) * 2.0 / h, n, h, noise))
        n *= 2
    return min(options)


def _covariances(
    posterior: Posterior, rows: PyTree, points: Float[Array, "points d"]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Of one example's part of each estimate, averaged over the points."""
    d = points.shape[1]
    found = _measured(posterior, _few(rows, d), points)
    measured = {k: np.asarray(v, np.float64) for k, v in found.items()}
    unmeasured = {"FullGradient": np.zeros(d), "ControlVariate, order 2": np.full(d, np.inf)}
    return {name: measured[name] if name in measured else unmeasured[name] for name in COSTS}


def lowered_covariances(posterior: Posterior, rows: PyTree, points: Float[Array, "n d"]) -> Any:
    """The program that `choose_estimator` runs with these arguments, to be compiled."""
    return lowered(_measured, posterior, _few(rows, points.shape[1]), points)


def _few(rows: PyTree, d: int) -> PyTree:
    """As many of them as there is room for, of whose scores the covariances are."""
    return jax.tree.map(lambda x: x[: max(2, NUMBERS // d)], rows)


@compiled_at
def _measured(
    posterior: Posterior, rows: PyTree, points: Float[Array, "points d"]
) -> dict[str, Array]:
    """The covariances of all estimators in one program, which shares what they have in common."""
    d = points.shape[1]
    structure = "dense" if d <= LARGEST_DENSE else "diagonal"
    zero = jnp.zeros(d, points.dtype)
    # Only the rows' own terms are looked at, so the sums over all data are not needed.
    linear = Expansion(zero, jnp.zeros((), points.dtype), zero)
    expansions = {"Minibatch": None, "ControlVariate": linear}
    if d <= LARGEST_SECOND_ORDER:
        bend = Dense(jnp.zeros((d, d), points.dtype))
        expansions["ControlVariate, order 2"] = Expansion(zero, linear.value, zero, bend)

    def scores(about: Expansion | None, u: Float[Array, " d"]) -> Float[Array, "rows d"]:
        if about is None:
            return posterior.per_example_gradients(u, rows)
        return remainders(about, posterior, u, rows)[1]

    def at(u: Float[Array, " d"]) -> dict[str, Array]:
        sums = {k: SUMS[structure](centred(scores(e, u))) for k, e in expansions.items()}
        return tree.scale(1.0 / max(1, num_rows(rows) - 1), sums)  # 0 of a single row

    return jax.tree.map(lambda x: jnp.mean(x, axis=0), jax.lax.map(at, points))
