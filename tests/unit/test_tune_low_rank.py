"""The identity but for a few directions: its algebra, and finding the directions."""

import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.tune.curvature import sharpest
from ergodax.tune.whitening import Coordinates, LowRank

D = 300


def rng():
    return np.random.default_rng(20261122)


def a_low_rank(d=7, k=2):
    left, right = rng().normal(size=(2, d, k))
    back = -left @ np.linalg.inv(np.eye(k) + right.T @ left)
    return LowRank(*(jnp.asarray(x) for x in (left, back, right)))


@pytest.mark.usefixtures("x64")
def test_algebra():
    found, factor = a_low_rank(), np.linspace(-2.0, 3.0, 7)
    matrix, rows = np.eye(7) + np.asarray(found.left @ found.right.T), rng().normal(size=(4, 7))
    u = jnp.asarray(rows[0])
    np.testing.assert_allclose(found.times(u), matrix @ rows[0], rtol=1e-10)
    np.testing.assert_allclose(found.solve(u), np.linalg.solve(matrix, rows[0]), rtol=1e-10)
    np.testing.assert_allclose(found.times_rows(rows), rows @ matrix.T, rtol=1e-10)
    np.testing.assert_allclose(found.solve_rows(rows), rows @ np.linalg.inv(matrix).T, rtol=1e-10)
    np.testing.assert_allclose(found.row_norms(), np.linalg.norm(matrix, axis=1), rtol=1e-10)
    whole = Coordinates(jnp.zeros(7), jnp.asarray(factor), found)
    wanted = np.linalg.slogdet(factor[:, None] * matrix)[1]
    assert whole.log_volume == pytest.approx(wanted, rel=1e-10)
    assert abs(found.log_volume) > 0.1  # the control: without the directions it would be another
    past = factor[:, None] * found.past(factor).times_rows(np.eye(7)).T
    np.testing.assert_allclose(past, matrix * factor, rtol=1e-10, atol=1e-12)
    back = found.past(factor).solve_rows(np.eye(7)).T @ found.past(factor).times_rows(np.eye(7)).T
    np.testing.assert_allclose(back, np.eye(7), atol=1e-10)


def conditioning(matrix, basis, low_rank=None):
    """The largest curvature in the coordinates, in the smallest."""
    factor = np.diag(basis)
    if low_rank is not None:
        factor = basis[:, None] * low_rank.times_rows(np.eye(len(basis))).T
    values = np.abs(np.linalg.eigvalsh(factor.T @ matrix @ factor))
    return values.max() / values.min()


def with_sharp_directions(signs=(1.0, 1.0, 1.0)):
    """A diagonal that varies fourfold, and directions a hundred to a thousand times as sharp."""
    directions = np.linalg.qr(rng().normal(size=(D, 3)))[0]
    return (
        np.diag(np.linspace(0.5, 2.0, D))
        + directions * (np.array([1000.0, 300.0, 100.0]) * signs) @ directions.T
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("signs", [(1.0, 1.0, 1.0), (1.0, -1.0, 1.0)])
def test_a_diagonal_and_sharp_directions_are_rounded(signs):
    matrix = with_sharp_directions(signs)
    diagonal = 1.0 / np.sqrt(np.abs(np.diag(matrix)))
    assert conditioning(matrix, diagonal) > 100.0, "a diagonal does not do"
    found = sharpest(lambda v: matrix @ v, D, rng(), dtype=jnp.float64)
    assert found is not None and found[1].right.shape == (D, 3)
    assert conditioning(matrix, *found) < 3.0
    values = np.linalg.eigvalsh(with_sharp_directions())
    assert values[-1] / values[0] > 1000.0


@pytest.mark.usefixtures("x64")
def test_directions_that_share_a_factor():
    """As of a regression whose features have a common part, in units of their own scales."""
    matrix = 0.1 * np.eye(D) + 0.9 * np.ones((D, D))
    found = sharpest(lambda v: matrix @ v, D, rng(), dtype=jnp.float64)
    assert found is not None
    basis, low_rank = found
    factor = basis[:, None] * low_rank.times_rows(np.eye(D)).T
    np.testing.assert_allclose(
        factor.T @ matrix @ factor, np.eye(D), atol=0.1
    )  # 7 sds of the probes


NOTHING = {
    "identity": np.eye(D),
    "flat": np.zeros((D, D)),
    "diagonal": np.diag(np.linspace(1.0, 1.5, D)),
    "not finite": np.full((D, D), np.nan),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_sharp(name):
    matrix = NOTHING[name]
    assert sharpest(lambda v: matrix @ v, D, rng(), dtype=jnp.float32) is None


def test_chance_is_not_sharp():
    """The largest eigenvalue of a covariance of few draws is no direction of the law's."""
    draws = rng().normal(size=(2 * D, D))
    matrix = draws.T @ draws / (2 * D)
    edge = (1.0 + 0.5**0.5) ** 2
    assert np.linalg.eigvalsh(matrix)[-1] > 2.0
    product = lambda v: matrix @ v  # noqa: E731
    assert sharpest(product, D, rng(), dtype=jnp.float32, sharp=2.0 * edge) is None
    assert sharpest(product, D, rng(), dtype=jnp.float32) is not None
