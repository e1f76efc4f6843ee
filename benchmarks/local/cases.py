"""Losses whose learning coefficient is known: exactly, by quadrature, or by long exact runs."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.local import formulas
from benchmarks.local.gibbs import by_gibbs

REFERENCE_CHAINS, REFERENCE_DRAWS, REFERENCE_BURN_IN = 8, 5000, 500
PILOT = 200, 400, 2  # draws after a burn-in, of chains whose acceptance chooses the step
MANY = 1_000  # parameters, from which long trajectories are slow


@dataclasses.dataclass(frozen=True)
class Case:
    """A loss, its weights and data, and what lambda-hat is there."""

    loss: Callable[[Any, Any], Any]
    weights: Any
    data: Any
    localization: float
    reference: Callable[[], tuple[float, float]]  # and its standard error
    asymptotic: float  # lambda
    temperature: Any = "log n"


def _exactly(value: float) -> Callable[[], tuple[float, float]]:
    return lambda: (value, 0.0)


def linear_regression(d: int, n: int, localization: float = 1.0) -> Case:
    """Regular, with curvatures over three orders of magnitude, at the least squares solution."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(n, d)) * np.geomspace(3.0, 0.1, d)
    y = x @ rng.normal(size=d) + rng.normal(size=n)
    w = np.linalg.lstsq(x, y)[0]
    curvatures = np.linalg.eigvalsh(x.T @ x / n)
    exact = formulas.regular(curvatures, n / math.log(n), localization)
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def loss(w: Any, row: Any) -> Any:
        return 0.5 * (row[1] - row[0] @ w) ** 2

    return Case(loss, jnp.asarray(w, jnp.float32), data, localization, _exactly(exact), 0.5 * d)


def _of_one_row(loss: Any, weights: Any, n: float, gamma: float, exact: Any, limit: float) -> Case:
    """A loss that needs no rows, at the t of n of them."""
    row = jnp.zeros(1)
    return Case(lambda w, _: loss(w), weights, row, gamma, exact, limit, math.log(n) / n)


def quadratic(d: int, n: float, localization: float) -> Case:
    """Regular, with curvatures from 10 to 10^-6."""
    k = np.geomspace(10.0, 1e-6, d)
    curvatures = jnp.asarray(k, jnp.float32)
    exact = _exactly(formulas.regular(k, n / math.log(n), localization))
    loss = lambda w: 0.5 * jnp.sum(curvatures * w**2)  # noqa: E731
    return _of_one_row(loss, jnp.zeros(d), n, localization, exact, 0.5 * d)


def crossing(power: int, n: float, localization: float) -> Case:
    """x^2 y^p: no curvature at all at w*, and arms that become stiffer along their length."""
    exact = _exactly(formulas.crossing(power, n / math.log(n), localization))
    loss = lambda w: w[0] ** 2 * w[1] ** power  # noqa: E731
    return _of_one_row(loss, jnp.zeros(2), n, localization, exact, 1.0 / max(2, power))


def _product(weights: Sequence[Any]) -> Any:
    whole = weights[0]
    for each in weights[1:]:
        whole = each @ whole
    return whole


def _truth(widths: Sequence[int], rank: int, seed: int) -> list[Any]:
    """Layers of rank `rank` whose other entries are 0: the most singular place of the fibre."""
    rng = np.random.default_rng(seed)
    layers = []
    for into, out in zip(widths[:-1], widths[1:], strict=True):
        layer = np.zeros((out, into))
        layer[:rank, :rank] = (
            np.eye(rank) + 0.3 * rng.normal(size=(rank, rank)) / max(rank, 1) ** 0.5
        )
        layers.append(jnp.asarray(layer, jnp.float32))
    return layers


def linear_network(widths: Sequence[int], rank: int, n: int, localization: float = 1.0) -> Case:
    """Regression by layers without activations, n noisy rows, w* the truth.

    The reference is by `ex.hmc` with settings found by hand, on sums over the same rows.
    """
    rng = np.random.default_rng(n)
    w = _truth(widths, rank, 0)
    x = rng.normal(size=(n, widths[0])).astype(np.float32)
    y = x @ np.asarray(_product(w)).T + rng.normal(size=(n, widths[-1])).astype(np.float32)

    def loss(w: Any, row: Any) -> Any:
        x, y = row
        for layer in w:
            x = layer @ x
        return 0.5 * jnp.sum((y - x) ** 2)

    xx, noise = x.T @ x / n, (y - x @ np.asarray(_product(w)).T).T @ x / n

    def excess(v: Any) -> Any:
        off = _product(v) - _product(w)
        return 0.5 * jnp.sum((off @ xx) * off) - jnp.sum(off * noise)

    t = n / math.log(n)
    limit = float(formulas.deep_linear(widths, rank)[0])
    data = jnp.asarray(x), jnp.asarray(y)
    return Case(loss, w, data, localization, lambda: by_hmc(excess, w, t, localization), limit)


def population(widths: Sequence[int], rank: int, n: float, localization: float = 1.0) -> Case:
    """The same as n grows: L = |W - W*|^2 / 2, without rows.

    The reference is likewise by `ex.hmc`, and of large networks by exact draws of their layers.
    """
    w, t = _truth(widths, rank, 0), n / math.log(n)
    whole = _product(w)
    loss = lambda v: 0.5 * jnp.sum((_product(v) - whole) ** 2)  # noqa: E731
    limit = float(formulas.deep_linear(widths, rank)[0])
    by = by_gibbs if sum(layer.size for layer in w) > MANY else partial(by_hmc, loss)
    return _of_one_row(loss, w, n, localization, lambda: by(w, t, localization), limit)


def by_hmc(excess: Any, w: Any, t: float, localization: float) -> tuple[float, float]:
    """The mean of t (L - L*) by long trajectories of a short step, and its standard error."""

    def distance(v: Any) -> Any:
        return sum(jnp.sum((a - b) ** 2) for a, b in zip(v, w, strict=True))

    target = ex.Target(lambda v: t * excess(v) + 0.5 * localization * distance(v))

    def drawn(step: float, draws: int, burn_in: int, chains: int) -> Any:
        """Steps vary, so that no trajectory is periodic."""
        length = min(512, int(1.3 / math.sqrt(localization) / step))
        vary = lambda k: step * (0.7 + 0.3 * jnp.cos(2.4 * k.astype(float)))  # noqa: E731
        kernel = ex.hmc(target, vary, num_leapfrog_steps=length)
        settings: Any = {"burn_in": burn_in, "num_chains": chains, "key": jax.random.key(7)}
        energy = lambda v: t * excess(v)  # noqa: E731
        return ex.sample(kernel, w, draws, collect=energy, progress=False, **settings)

    step, acceptance, samples = 0.35 / math.sqrt(8.0 * t + localization), 0.0, None
    while acceptance < 0.6:  # places that are stiffer than w* are reached after a while
        acceptance = float(drawn(step, *PILOT).info.acceptance.mean())
        if acceptance >= 0.6:
            samples = drawn(step, REFERENCE_DRAWS, REFERENCE_BURN_IN, REFERENCE_CHAINS)
            acceptance = float(samples.info.acceptance.mean())
        step *= 0.5
    assert samples is not None
    energy = np.asarray(samples.position, np.float64)
    means = energy.reshape(4 * len(energy), -1).mean(axis=1)  # quarters of the chains
    return float(energy.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


CASES: dict[str, Callable[[], Case]] = {
    "regression-2": lambda: linear_regression(2, 1_000),
    "regression-10": lambda: linear_regression(10, 1_000),
    "regression-100": lambda: linear_regression(100, 2_000),
    "regression-1000": lambda: linear_regression(1_000, 3_000, 10.0),
    "quadratic-1e4": lambda: quadratic(10_000, 1e4, 10.0),
    "quadratic-1e5": lambda: quadratic(100_000, 1e4, 10.0),
    "x2y2-1e3": lambda: crossing(2, 1e3, 1.0),
    "x2y2-1e4-gamma-10": lambda: crossing(2, 1e4, 10.0),
    "x2y2-1e4-gamma-100": lambda: crossing(2, 1e4, 100.0),
    "x2y2-1e6": lambda: crossing(2, 1e6, 1.0),
    "x2y4-1e3": lambda: crossing(4, 1e3, 1.0),
    "x2y4-1e4-gamma-10": lambda: crossing(4, 1e4, 10.0),
    "x2y4-1e6": lambda: crossing(4, 1e6, 1.0),
    "rank-1-1-1": lambda: linear_network((1, 1, 1), 0, 2_000),
    "rank-2-2-2": lambda: linear_network((2, 2, 2), 1, 2_000),
    "rank-6-4-6": lambda: linear_network((6, 4, 6), 2, 10_000),
    "rank-10-5-10": lambda: linear_network((10, 5, 10), 3, 2_000),
    "rank-20-20-20": lambda: population((20, 20, 20), 5, 1e4),
    "deep-2-2-2-2": lambda: linear_network((2, 2, 2, 2), 1, 2_000),
    "deep-3-2-4-3": lambda: linear_network((3, 2, 4, 3), 0, 2_000),
    "deep-5-4-6-5": lambda: linear_network((5, 4, 6, 5), 2, 2_000),
    "deep-15-15-15-15": lambda: population((15, 15, 15, 15), 3, 1e4),
    "deep-60-60-60-60": lambda: population((60, 60, 60, 60), 5, 1e4),
    "deep-40-40-40-40": lambda: population((40, 40, 40, 40), 5, 1e4),
}
