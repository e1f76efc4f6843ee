"""The permutation that is evaluated, not stored: a bijection, and as good as uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ergodax.data import permutation
from ergodax.data.permutation import Permutation

# Below SMALL rows it sorts; the others are primes, squares, powers of two and their neighbours.
SIZES = [1, 2, 3, 7, 97, 255, 256, 257, 258, 509, 1000, 1024, 1025, 4099, 65_537, 1_000_003]
FALSE_ALARM = 1e-4  # of each chi-square test below, seven in all


def rows_at(n: int, key, places) -> np.ndarray:
    family = Permutation(n)

    @jax.jit
    def at(key, places):
        return family(family.draw(key), places)

    return np.asarray(at(key, jnp.asarray(places, jnp.int32)))


@pytest.mark.parametrize("n", SIZES)
def test_bijection(n, key, monkeypatch):
    # Asked for all places at once it would sort; asked in parts, it must not.
    monkeypatch.setattr(permutation, "SMALL", 0 if n > 256 else 256)
    parts = np.array_split(np.arange(n), 5) if n > 256 else [np.arange(n)]
    rows = np.concatenate([rows_at(n, key, part) for part in parts])
    np.testing.assert_array_equal(np.sort(rows), np.arange(n))
    assert n < 90 or not np.array_equal(rows, np.arange(n))


def test_grid_covers_and_hardly_exceeds():
    for n in [*SIZES, 2**31 - 1, 12_214, 581_012]:
        height, width = permutation._grid(n)
        assert n <= height * width <= 1.01 * n + 2 and max(height, width) < 2**16


@pytest.mark.parametrize("n", [0, 2**31])
def test_sizes_out_of_range(n):
    with pytest.raises(ValueError, match=r"number of rows must lie in \[1, 2\^31\)"):
        Permutation(n)


def draws(n: int, places: list[int], repeats: int, key) -> np.ndarray:
    """Rows at some places of many permutations, shape (repeats, places)."""
    family = Permutation(n)

    def one(key):
        return family(family.draw(key), jnp.asarray(places, jnp.int32))

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, repeats)))


def uniform(counts: np.ndarray) -> None:
    """A chi-square test of equal frequencies."""
    assert counts.min() >= 0 and counts.sum() / counts.size >= 20
    assert stats.chisquare(counts.ravel()).pvalue > FALSE_ALARM


@pytest.mark.parametrize("n", [97, 257, 1000])
def test_every_row_is_as_likely_at_every_place(n, key):
    found = draws(n, [0, 1, n // 2, n - 1], 40_000, key)
    table = np.stack([np.bincount(column, minlength=n) for column in found.T])
    uniform(table)


@pytest.mark.parametrize("n", [97, 257, 1000])
def test_pairs_of_places_hold_every_pair_of_rows_as_often(n, key):
    """Neighbouring places and places of one grid line, by the difference of their rows."""
    width = Permutation(n).width
    first, second, third = draws(n, [0, 1, min(width, n - 1)], 60_000, key).T
    table = [np.bincount((other - first) % n, minlength=n)[1:] for other in (second, third)]
    uniform(np.stack(table))


def test_joint_law_of_two_places(key):
    """All 257 x 256 ordered pairs, in 32 x 32 classes of rows."""
    n, repeats = 257, 100_000
    first, second = draws(n, [3, 4], repeats, key).T
    classes = np.arange(n) % 32
    counts = np.zeros((32, 32))
    np.add.at(counts, (classes[first], classes[second]), 1)
    size = np.bincount(classes)
    expected = np.outer(size, size) - np.diag(size)  # a row is not drawn twice
    expected = expected / expected.sum() * repeats
    assert stats.chisquare(counts.ravel(), expected.ravel()).pvalue > FALSE_ALARM
