"""Posteriors on which an automatic answer was once wrong, an error, or far too late.

Means and sds are compared with exact ones at 5 of the errors that the result itself reports, below
one false alarm in a million for each figure.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ergodax as ex

KEY = jax.random.key(20261123)
ERRORS = 5.0


def run(target, init, **options):
    return ex.infer(target, init, **{"key": KEY, "progress": False} | options)


def off_by(table, mean, sd):
    """How far means and sds are off, in units of the errors that are reported."""
    means = np.abs(table["mean"] - mean) / (table["sd"] * table["mcse_mean"])
    sds = np.abs(table["sd"] - sd) / (table["sd"] * table["mcse_sd"])
    return max(means.max(), sds.max())


@pytest.mark.parametrize("rows", [500, 5_000])
def test_a_mode_at_the_edge_of_the_support(rows):
    """Normal rows whose mean must be positive, and is estimated to be negative."""
    x = np.random.default_rng(1).normal(-0.03, 1.0, rows).astype(np.float32)
    prior = lambda u: jnp.where(u > 0, 0.0, -jnp.inf)  # noqa: E731
    result = run(ex.Posterior(prior, lambda u, x: -0.5 * (x - u) ** 2, x), jnp.float32(0.5))
    mean, sd = float(x.mean(dtype=np.float64)), rows**-0.5
    exact = scipy.stats.truncnorm(-mean / sd, np.inf, loc=mean, scale=sd)
    assert result.converged, result.verdict()
    assert (result.samples.position > 0).all()
    assert off_by(result.table, exact.mean(), exact.std()) < ERRORS
    # The negative control: the law without the edge.
    assert off_by(result.table, mean, sd) > ERRORS


def test_an_edge_that_the_data_set():
    """Rows of U(0, theta): theta is above the largest row, with a Pareto law."""
    x = np.random.default_rng(2).uniform(0.0, 3.0, 500).astype(np.float32)
    likelihood = lambda t, x: jnp.where(x < t, -jnp.log(t), -jnp.inf)  # noqa: E731
    result = run(ex.Posterior(lambda t: -jnp.log(t), likelihood, x), jnp.float32(5.0))
    exact = scipy.stats.pareto(500, scale=x.max())
    assert result.converged, result.verdict()
    assert off_by(result.table, exact.mean(), exact.std()) < ERRORS


def test_a_density_of_positive_numbers_that_is_not_a_number_elsewhere():
    result = run(ex.Target(lambda x: jnp.sum(x - jnp.log(x))), jnp.ones(2))
    assert result.converged, result.verdict()
    assert off_by(result.table, 2.0, np.sqrt(2.0)) < ERRORS


def test_rows_that_tell_a_sum_alone_are_called_improper():
    x = np.random.default_rng(3).normal(size=300).astype(np.float32)
    likelihood = lambda p, x: -0.5 * (x - p["a"] - p["b"]) ** 2  # noqa: E731
    init = {"a": jnp.zeros(()), "b": jnp.zeros(()), "c": jnp.zeros(())}
    flat = ex.Posterior(lambda p: -0.5 * p["c"] ** 2, likelihood, x)
    verdict = run(flat, init).verdict()
    assert "improper" in verdict and "direction of a, b:" in verdict
    # The negative control: a wide prior makes it proper.
    wide = ex.Posterior(
        lambda p: -0.5 * (p["c"] ** 2 + (p["a"] ** 2 + p["b"] ** 2) / 1e4), likelihood, x
    )
    assert run(wide, init).converged


def test_separable_rows_with_a_flat_prior_are_called_improper():
    x = np.random.default_rng(4).normal(size=(200, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.float32)
    likelihood = lambda w, row: row[1] * (row[0] @ w) - jax.nn.softplus(row[0] @ w)  # noqa: E731
    flat = ex.Posterior(lambda w: 0.0, likelihood, (x, y))
    assert "improper" in run(flat, jnp.zeros(2)).verdict()
    proper = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), likelihood, (x, y))
    assert run(proper, jnp.zeros(2)).converged


def two_normals(x):
    """Sixteen sds apart in each of two components."""
    return -jnp.logaddexp(-0.5 * jnp.sum((x - 8) ** 2), -0.5 * jnp.sum((x + 8) ** 2))


def curved(p):
    """The ridges a b = 1, one for each sign of both, with a saddle between them at the start."""
    return 5.0 * (p["a"] * p["b"] - 1.0) ** 2 + 0.5 * (p["a"] ** 2 + p["b"] ** 2)


def test_chains_jump_between_far_modes():
    result = run(ex.Target(two_normals), jnp.zeros(2))
    assert result.converged, result.verdict()
    assert off_by(result.table, 0.0, np.sqrt(65.0)) < ERRORS


def test_a_narrow_mode_that_few_descents_come_to_is_found():
    """A normal law 7.8 sds away, of sds .3 to .7, from the mode of the other one."""
    centre = jnp.array([6.0, -4.0, 3.0])
    root = jnp.array([[0.5, 0.0, 0.0], [0.4, 0.3, 0.0], [-0.2, 0.1, 0.6]])
    log = jax.scipy.stats.multivariate_normal.logpdf

    def potential(x):
        first = jnp.log(0.8) + log(x, jnp.zeros(3), jnp.eye(3))
        return -jnp.logaddexp(first, jnp.log(0.2) + log(x, centre, root @ root.T))

    result = run(ex.Target(potential), jnp.zeros(3))
    mean, squares = 0.2 * centre, 0.8 + 0.2 * (jnp.diag(root @ root.T) + centre**2)
    assert result.converged, result.verdict()
    assert off_by(result.table, np.asarray(mean), np.sqrt(squares - mean**2)) < ERRORS


def test_a_narrow_mode_in_ten_dimensions_is_found():
    """One place in some thousands leads to it, and a look at 600 places found it with no key."""
    centre = jnp.zeros(10).at[0].set(15.0)

    def potential(x):
        first = jnp.log(0.6) - 0.5 * jnp.sum(x**2)
        narrow = jnp.log(0.4 * 2.0**10) - 2.0 * jnp.sum((x - centre) ** 2)
        return -jnp.logaddexp(first, narrow)

    mean, sd = 0.4 * centre, jnp.full(10, 0.7**0.5).at[0].set((0.7 + 0.24 * 225.0) ** 0.5)
    result = run(ex.Target(potential), jnp.zeros(10))
    assert result.converged, result.verdict()
    assert off_by(result.table, np.asarray(mean), np.asarray(sd)) < ERRORS


def test_chains_jump_where_they_turn_out_to_stay_apart(tmp_path):
    """No search has told the two apart, since the saddle is where it begins."""
    begin = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    result = run(ex.Target(curved), begin, checkpoint=ex.Checkpoint(tmp_path / "kept"))
    assert result.converged, result.verdict()
    a, step = np.linspace(-8.0, 8.0, 4_001, retstep=True)
    # Given a, b is normal with precision 1 + 10 a^2 and mean 10 a over it.
    precision = 1.0 + 10.0 * a**2
    mass = np.exp(50.0 * a**2 / precision - 0.5 * a**2) / np.sqrt(precision)
    sd = np.sqrt(np.sum(a**2 * mass) / np.sum(mass))
    assert off_by(result.table, 0.0, sd) < ERRORS
    again = run(ex.Target(curved), begin, checkpoint=ex.Checkpoint(tmp_path / "kept", resume=True))
    jax.tree.map(np.testing.assert_array_equal, again.samples.position, result.samples.position)


@pytest.mark.parametrize(("components", "rows"), [(3, 800), (5, 800)])
def test_labels_are_exchanged_where_all_modes_are_found_and_else_named(components, rows):
    """Six settings of the labels are found, and 120 are not."""
    rng = np.random.default_rng(components)
    means = 4.0 * (np.arange(components) - 0.5 * (components - 1))
    x = means[rng.integers(0, components, rows)] + rng.standard_normal(rows)
    log = jax.scipy.stats.norm.logpdf
    target = ex.Posterior(
        lambda m: log(m, 0.0, 10.0).sum(),
        lambda m, x: jax.nn.logsumexp(log(x, m)),
        x.astype(np.float32),
    )
    result = run(target, jnp.zeros(components), max_seconds=150.0)
    if components == 3:
        assert result.converged, result.verdict()
        table = result.table
        alike = (table["mean"] - table["mean"].mean()) / (table["sd"] * table["mcse_mean"])
        assert np.abs(alike).max() < ERRORS, "labels can be exchanged, so all means are the same"
        assert table["sd"].min() > 2.0, "each is at all three"
    else:
        assert not result.converged and "replica_exchange" in result.verdict()


def test_a_mode_of_no_volume_is_none():
    """A random walk of unknown sd: the density is highest where the sd vanishes."""
    steps = np.random.default_rng(5).normal(size=30) * 0.1

    def potential(p):
        return 0.5 * jnp.sum((steps / jnp.exp(p)) ** 2) + 30 * p + 0.5 * p**2

    def narrow(p):
        walk = p[1:]
        observed = 0.5 * jnp.sum(((walk - jnp.cumsum(steps)) / 0.05) ** 2)
        return potential(p[0]) * 0.1 + observed + 0.5 * (p[0] / 3) ** 2

    result = run(ex.Target(narrow), jnp.zeros(31))
    assert not any(d.what == "modes" for d in result.account.decisions)


def test_a_singular_posterior_raises_nothing():
    """Reduced-rank regression of rank 2, its factors of rank 4 known up to a rotation."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(3_000, 6)).astype(np.float32)
    y = x @ rng.normal(size=(6, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(3_000, 6))

    def log_likelihood(p, row):
        return -0.5 * jnp.sum((row[1] - p["out"] @ (p["in"] @ row[0])) ** 2)

    def log_prior(p):
        return -0.5 * (jnp.sum(p["out"] ** 2) + jnp.sum(p["in"] ** 2))

    model = ex.Posterior(log_prior, log_likelihood, (x, y.astype(np.float32)))
    start = rng.normal(size=(2, 6, 4)).astype(np.float32)
    init = {"out": jnp.asarray(start[0]), "in": jnp.asarray(start[1].T)}
    result = run(model, init, max_seconds=20.0)
    # An answer by components can't be right: the chains are at different rotations.
    assert not result.converged and result.table["r_hat"].max() > 1.1
    assert any(cause in result.verdict() for cause in ("R-hat", "diverged", "was up"))


def test_double_precision_after_an_index_by_an_array():
    """A narrow law whose model has a NumPy array for an index, which JAX 0.12 keeps in its way."""
    seen = np.array([1, 0])
    narrow = ex.Target(lambda x: 0.5 * jnp.sum(((x[seen] - 1e4) / 3e-4) ** 2) + 0.0 * x[0])
    result = run(narrow, jnp.full(2, 1e4))
    assert result.converged and result.samples.position.dtype == np.float64
    assert float(jax.jit(narrow.potential)(jnp.full(2, 1e4))) == 0.0  # single again


class Line(eqx.Module):
    """A module of which one leaf is a function, as in most networks."""

    slope: jax.Array
    link: Callable = jnp.negative


@pytest.mark.parametrize("rows", [400, 5_000])
def test_a_module_with_a_function_among_its_leaves(rows):
    rng = np.random.default_rng(7)
    x = rng.normal(size=rows).astype(np.float32)
    y = (rng.normal(size=rows) - 2.0 * x).astype(np.float32)
    model = ex.Posterior(
        lambda m: -0.5 * m.slope**2,
        lambda m, row: -0.5 * (row[1] - m.link(m.slope * row[0])) ** 2,
        (x, y),
    )
    result = run(model, Line(jnp.zeros(())))
    precision = 1.0 + np.sum(x.astype(np.float64) ** 2)
    mean = -np.sum(x.astype(np.float64) * y) / precision
    assert result.converged, result.verdict()
    table = result.table  # by batches where there are many rows, with a bias
    error = table["sd"] * (table["mcse_mean"] + table["bias_mean"])
    assert (np.abs(table["mean"] - mean) < ERRORS * error).all()


@pytest.mark.parametrize("number", [0, 1])
def test_a_curved_valley_to_its_ends(number, x64):
    """x of N(1, 1), and y of N(x^2, 0.03^2), whose ends curve 40 times as much as its middle."""
    valley = lambda z: 0.5 * (z[0] - 1.0) ** 2 + 0.5 * ((z[1] - z[0] ** 2) / 0.03) ** 2  # noqa: E731
    result = run(ex.Target(valley), jnp.zeros(2), key=jax.random.key(number), max_seconds=120.0)
    exact = [1.0, 2.0], [1.0, np.sqrt(6.0 + 0.03**2)]
    assert not result.converged or off_by(result.table, *exact) < ERRORS, result.verdict()
    # The negative control: what a step that is too long for the ends had found.
    assert off_by(result.table, [0.8, 1.07], [0.66, 1.1]) > ERRORS
