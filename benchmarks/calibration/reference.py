"""Means and standard deviations that owe nothing to `infer`: quadrature, or importance sampling."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

NODES, WIDTH = 2_001, 8.0  # of the last parameter, within so many of its prior's sds
PAIRS, FREEDOM, WIDER = 8_192, 8.0, 1.1  # of importance sampling, all in antithetic pairs
LEAST = 0.2  # share of the draws that the effective sample size has to be


class Answer(NamedTuple):
    """Means and sds of each component, and their own errors in posterior sds."""

    mean: np.ndarray
    sd: np.ndarray
    error_mean: np.ndarray
    error_sd: np.ndarray


class Linear(NamedTuple):
    """y = design @ b + noise * normal."""

    design: np.ndarray
    noise: float


def quadrature(given: Callable[[float], Linear], y: np.ndarray, scale: np.ndarray) -> Answer:
    """Of a model that is linear and normal given its last parameter, which is summed over.

    Args:
        given: the last parameter -> the linear model of the others.
        y: outcomes.
        scale: sds of the normal prior about 0, the last parameter's last.
    """
    nodes = scale[-1] * np.linspace(-WIDTH, WIDTH, NODES)
    prior, log, means, squares = np.diag(scale[:-1] ** -2.0), [], [], []
    for node in nodes:
        design, noise = given(node)
        precision = design.T @ design / noise**2 + prior
        root = np.linalg.cholesky(precision)
        half = np.linalg.solve(root, design.T @ y / noise**2)
        mean, inverse = np.linalg.solve(root.T, half), np.linalg.inv(root)
        # log N(y; 0, noise^2 I + design prior^-1 design^T), up to a constant.
        fit = half @ half - y @ y / noise**2
        size = np.log(np.diag(root)).sum() + len(y) * np.log(noise)
        log.append(0.5 * fit - size - 0.5 * (node / scale[-1]) ** 2)
        means.append(np.append(mean, node))
        squares.append(np.append(mean**2 + (inverse**2).sum(axis=0), node**2))
    weight = np.exp(np.array(log) - np.max(log))
    weight /= weight.sum()
    mean = weight @ np.array(means)
    nothing = np.zeros_like(mean)
    return Answer(mean, np.sqrt(weight @ np.array(squares) - mean**2), nothing, nothing)


@eqx.filter_jit
def _potentials(posterior: ex.Posterior, x: jax.Array) -> jax.Array:
    return jax.lax.map(posterior.potential, x, batch_size=256)


def importance(posterior: ex.Posterior, draws: np.ndarray) -> Answer:
    """Of draws from a Student distribution with about the right moments, weighted by the density.

    Args:
        posterior: of vectors.
        draws: (number, d), which give the moments.

    Raises:
        ValueError: the effective sample size is too small for a reference.
    """
    rng, d = np.random.default_rng(0), draws.shape[1]
    root = WIDER * np.linalg.cholesky(np.cov(draws, rowvar=False))
    one = rng.standard_normal((PAIRS, d)) / np.sqrt(rng.chisquare(FREEDOM, (PAIRS, 1)) / FREEDOM)
    both = np.stack([one, -one])
    x = draws.mean(axis=0) + both @ root.T
    with jax.enable_x64(True):
        double = jax.tree.map(lambda part: jnp.asarray(part, float), posterior.data)
        posterior = eqx.tree_at(lambda p: p.data, posterior, double)
        potential = np.asarray(_potentials(posterior, jnp.asarray(x.reshape(-1, d))))
    proposal = -0.5 * (FREEDOM + d) * np.log1p((both**2).sum(axis=-1) / FREEDOM)
    log = -potential.reshape(2, PAIRS) - proposal
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    effective = 1.0 / (weight**2).sum()
    if not effective > LEAST * weight.size:
        raise ValueError(f"an effective sample size of {effective:.0f} of {weight.size}")
    mean = np.einsum("ij,ijk->k", weight, x)
    sd = np.sqrt(np.einsum("ij,ijk->k", weight, (x - mean) ** 2))
    off = (x - mean) / sd
    errors = [  # a pair is one draw: its two terms are correlated
        np.sqrt(np.sum(np.einsum("ij,ijk->jk", weight, term) ** 2, axis=0))
        for term in (off, 0.5 * (off**2 - 1.0))
    ]
    return Answer(mean, sd, *errors)
