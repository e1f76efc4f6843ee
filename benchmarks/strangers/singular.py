"""Singular models: the data see fewer parameters than there are; likely ones are a surface."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows
from benchmarks.strangers.reference import Reference, nuts

RIDGE = r"singular|identif|flat direction|symmetr|modes|ridge|rotation|curvature var|curved"


def reduced_rank(num_rows: int, prior_sd: float, tempered: bool) -> Problem:
    """y = B A x + noise from 6 through 4 to 6, of true rank 2; 48 parameters."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((num_rows, 6))
    truth = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 6)) / 2.0
    x, y = rows(x, x @ truth.T + rng.standard_normal((num_rows, 6)))
    power = 1.0 / np.log(num_rows) if tempered else 1.0

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["A"], 0.0, prior_sd).sum() + norm.logpdf(p["B"], 0.0, prior_sd).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return power * norm.logpdf(y, p["B"] @ (p["A"] @ x)).sum()

    wide_x, wide_y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    gram, cross = wide_x.T @ wide_x, wide_y.T @ wide_x

    def potential(p: Any) -> Array:
        product = p["B"] @ p["A"]
        off = jnp.sum(product * (product @ gram)) - 2.0 * jnp.sum(product * cross)
        return 0.5 * power * off - log_prior(p)

    start = {"A": jnp.zeros((4, 6)), "B": jnp.zeros((6, 4))}

    def compute() -> Reference:
        """By symmetry: rotations of the four hidden units change nothing.

        So the means are 0, and the second moments follow from A'A and BB', which mix better.
        """
        near = jax.tree.map(lambda a: 0.5 * jax.random.normal(jax.random.key(1), a.shape), start)
        made = nuts(
            potential, near, draws=6_000, warm_up=1_500, dense=False, spread=0.3,
            position=lambda p: {"A": (p["A"] ** 2).mean(axis=0), "B": (p["B"] ** 2).mean(axis=1)},
        )  # fmt: skip
        second = np.concatenate([np.tile(made.mean[:6], 4), np.repeat(made.mean[6:], 4)])
        error = float((made.error_mean * made.sd / (2.0 * made.mean)).max())
        return Reference(np.zeros(48), np.sqrt(second), 0.0, error, f"symmetry; {made.how}")

    # A user starts off the saddle at zero.
    begin = jax.tree.map(lambda a: jnp.full(a.shape, 0.1), start)
    return Problem(ex.Posterior(log_prior, log_likelihood, (x, y)), begin, compute=compute)


@case(
    "reduced-rank-tempered",
    "reduced rank 6-4-6, rank 2, 10,000 rows, tempered, N(0, 3^2)",
    causes=RIDGE,
)
def reduced_rank_tempered() -> Problem:
    return reduced_rank(10_000, 3.0, tempered=True)


@case("reduced-rank", "reduced rank 6-4-6, rank 2, 10,000 rows, N(0, 1) prior", causes=RIDGE)
def reduced_rank_normal() -> Problem:
    return reduced_rank(10_000, 1.0, tempered=False)


@case("tanh-network", "a network of 2 hidden tanh units, 200 rows", causes=RIDGE)
def tanh_network() -> Problem:
    rng = np.random.default_rng(2)
    x = rng.uniform(-2.0, 2.0, 200)
    x, y = rows(x, np.tanh(2.0 * x) + 0.3 * rng.standard_normal(200))

    def log_prior(p: Any) -> Array:
        return (
            norm.logpdf(p["inner"]).sum()
            + norm.logpdf(p["bias"]).sum()
            + norm.logpdf(p["outer"]).sum()
        )

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, jnp.tanh(p["inner"] * x + p["bias"]) @ p["outer"], 0.3)

    target = ex.Posterior(log_prior, log_likelihood, (x, y))
    start = {"inner": jnp.array([0.5, -0.5]), "bias": jnp.zeros(2), "outer": jnp.array([0.5, 0.5])}

    def images(p: Any) -> list[Any]:
        flipped = [
            {name: value * jnp.array([a, b]) for name, value in p.items()}
            for a in (1.0, -1.0)
            for b in (1.0, -1.0)
        ]
        return [*flipped, *({name: v[::-1] for name, v in q.items()} for q in flipped)]

    def folded(p: Any) -> Any:
        """The image with outer weights that are positive and in order, so that chains agree."""
        sign = jnp.sign(p["outer"])
        p = {name: value * sign for name, value in p.items()}
        order = jnp.argsort(p["outer"])
        return {name: value[order] for name, value in p.items()}

    return Problem(
        target,
        start,
        compute=lambda: nuts(
            target.potential, start, draws=8_000, acceptance=0.95, spread=0.5,
            position=folded, images=images,
        ),
    )  # fmt: skip


@case("overparametrised", "y = a b c + noise, 3,000 rows, N(0, 1) priors", causes=RIDGE)
def overparametrised() -> Problem:
    y = rows(0.5 + np.random.default_rng(3).standard_normal(3_000))

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w).sum()

    def log_likelihood(w: Array, y: Array) -> Array:
        return norm.logpdf(y, w[0] * w[1] * w[2])

    target = ex.Posterior(log_prior, log_likelihood, y)
    wide = np.asarray(y, np.float64)
    return Problem(target, jnp.ones(3), compute=lambda: _product_reference(wide.mean(), len(wide)))


def _product_reference(middle: float, count: int) -> Reference:
    """By symmetry of signs the means are 0; the second moment of each on a polar grid of two."""
    found = []
    for points in (3_000, 2_000):
        # Given the product q = a b, c is normal; q / (a, b) on logarithmic axes.
        log = np.linspace(-9.0, 1.8, points)
        a, b = np.meshgrid(np.exp(log), np.exp(log), indexing="ij", sparse=True)
        q2 = (a * b) ** 2
        precision = 1.0 + count * q2
        fit = 0.5 * (count * a * b * middle) ** 2 / precision
        logs = fit - 0.5 * np.log(precision) - 0.5 * (a**2 + b**2) + np.log(a) + np.log(b)
        mass = np.exp(logs - logs.max())
        mass /= mass.sum()
        second = (mass * a**2).sum()
        third = (mass * (1.0 / precision + (count * a * b * middle / precision) ** 2)).sum()
        found.append((second, third))
    (fine, same), (rough, _) = found
    error = max(abs(np.sqrt(rough / fine) - 1.0), abs(np.sqrt(same / fine) - 1.0))
    how = "quadrature on 3000 x 3000 points, the third in closed form"
    return Reference(np.zeros(3), np.full(3, np.sqrt(fine)), 0.0, float(error), how)
