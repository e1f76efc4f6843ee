"""Normal and Gamma numbers: the words are Threefry's, the map is exact, the law is normal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import special, stats

import ergodax as ex
from ergodax import random_numbers

DRAWS = 1 << 21


def flat_words(key):
    return tuple(
        w.ravel() for w in random_numbers.threefry(key, DRAWS // 2 // random_numbers.LANES)
    )


@pytest.fixture(scope="module")
def words():
    return jax.jit(flat_words)(jax.random.key_data(jax.random.key(4)))


@pytest.fixture(scope="module")
def drawn(words):
    return np.asarray(jax.jit(random_numbers.box_muller)(*words), np.float64)


def test_the_words_are_those_of_threefry(words):
    count = jnp.concatenate(
        [jnp.full(1000, random_numbers.STREAM, jnp.uint32), jnp.arange(1000, dtype=jnp.uint32)]
    )
    theirs = threefry_2x32(jax.random.key_data(jax.random.key(4)), count)
    np.testing.assert_array_equal(jnp.concatenate([w[:1000] for w in words]), theirs)


def test_the_map_is_box_and_mullers_to_rounding(words):
    """Against double precision, at random words and at the ends of their range."""
    ends = np.array([0, 1, 255, 256, 2**29 - 1, 2**29, 2**30, 2**31, 2**32 - 1], np.uint32)
    corners = [each.ravel() for each in np.meshgrid(ends, ends)]
    x, y = (np.concatenate(both) for both in zip(words, corners, strict=True))
    found = np.asarray(random_numbers.box_muller(jnp.asarray(x), jnp.asarray(y)))
    radius = np.sqrt(-2.0 * np.log(((x >> 9) + 0.5) * 2.0**-23))
    angle = 2.0 * np.pi * y.astype(float) / 2.0**32
    right = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    assert np.abs(found - right).max() < 1e-6
    assert np.isfinite(found).all() and np.abs(found).max() < 5.78


def fits(numbers):
    """Kolmogorov's test at 1e-6, and five standard errors for the first four moments."""
    n, powers = numbers.size, np.arange(1, 5)
    moments = np.array([np.mean(numbers**p) for p in powers])
    exact, variances = np.array([0.0, 1.0, 0.0, 3.0]), np.array([1.0, 2.0, 15.0, 96.0])
    near = np.abs(moments - exact) < 5.0 * np.sqrt(variances / n)
    return near.all() and stats.kstest(numbers, "norm").pvalue > 1e-6


def test_they_are_normal(drawn):
    assert fits(drawn)
    assert not fits(1.003 * drawn) and not fits(drawn + 0.005), "the test sees this much"


def test_they_are_independent(drawn, words):
    """Correlations of numbers, their squares and their signs: five standard errors each."""
    half = DRAWS // 2
    other = np.asarray(random_numbers.box_muller(*flat_words(jnp.array([0, 5], jnp.uint32))))
    pairs = {f"lag {k}": (drawn[k:], drawn[:-k]) for k in (1, 2, 3, 128, 784, half)}
    pairs |= {"the next key": (drawn, other), "radius": (drawn[:half], drawn[half:])}
    for name, (a, b) in pairs.items():
        for change in (lambda z: z, lambda z: z**2 - 1.0, np.sign):
            product = change(a) * change(b)
            assert abs(product.mean()) < 5.0 * product.std() / len(product) ** 0.5, name


def test_every_bit_of_the_words_is_fair(words):
    bits = np.stack([(w[None] >> np.arange(32, dtype=np.uint32)[:, None]) & 1 for w in words])
    ones = bits.reshape(64, -1).mean(axis=1)
    assert np.abs(ones - 0.5).max() < 0.5 * 5.5 / (DRAWS / 2) ** 0.5


def test_signs_are_fair_and_independent(key):
    size = 200_000
    one, two = (
        np.asarray(random_numbers.rademacher(k, (2, size // 2), jnp.float32))
        for k in jax.random.split(key)
    )
    assert one.shape == (2, size // 2) and set(np.unique(one)) == {-1.0, 1.0}
    for product in (one, one[0] * one[1], one * two, one[:, 1:] * one[:, :-1]):
        assert abs(product.mean()) < 5.0 / product.size**0.5
    np.testing.assert_array_equal(
        random_numbers.rademacher(key, (9,), jnp.float32),
        jax.random.rademacher(key, (9,), jnp.float32),
    )


def test_small_shapes_and_double_precision_are_jaxs_own(key):
    np.testing.assert_array_equal(
        random_numbers.normal(key, (7, 3), jnp.float32), jax.random.normal(key, (7, 3))
    )
    with jax.enable_x64(True):
        wide = random_numbers.normal(key, (random_numbers.LARGE,), jnp.float64)
        np.testing.assert_array_equal(
            wide, jax.random.normal(key, (random_numbers.LARGE,), jnp.float64)
        )


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_keys_of_any_kind(kind):
    keys = [jax.random.key(seed, impl=kind) for seed in range(2)]
    one, two = (random_numbers.normal(k, (random_numbers.LARGE + 1,), jnp.float32) for k in keys)
    assert one.shape == (random_numbers.LARGE + 1,) and (one != two).mean() > 0.999
    old = random_numbers.normal(jax.random.key_data(jax.random.key(0)), one.shape, jnp.float32)
    assert (old == one).all() == (kind == "threefry2x32")


def test_trees_and_chains_see_the_same_numbers(key):
    """A nested tree those of a flat vector, and mapped chains what each draws alone."""
    like = {"a": jnp.zeros((100, 200)), "b": jnp.zeros(7, jnp.bfloat16), "c": jnp.zeros(3)}
    flat = ex.normal_like(key, jnp.zeros(20_010))
    tree = ex.normal_like(key, like)
    np.testing.assert_array_equal(tree["a"].ravel(), flat[:20_000])
    np.testing.assert_array_equal(tree["b"], flat[20_000:20_007].astype(jnp.bfloat16))
    keys = jax.random.split(key, 2)
    mapped = jax.vmap(lambda k: ex.normal_like(k, flat))(keys)
    np.testing.assert_array_equal(mapped[1], ex.normal_like(keys[1], flat))


@pytest.mark.parametrize("shape", [0.002, 0.05, 0.7, 1.0, 3.0, 150.0, 1e5])
def test_gamma_numbers_have_their_law(shape, key):
    found = np.asarray(jax.jit(random_numbers.log_gamma)(key, jnp.full(40_000, shape)), float)
    # u = F(x) is uniform; for small shapes x^shape is compared, since x is less than any float.
    if shape < 0.1:
        law, value = stats.uniform, np.exp(shape * (found - special.gammaln(shape + 1) / shape))
        value = value[value < 0.5]  # where F(x) is x^shape / Gamma(shape + 1) to x itself
        assert len(value) > 10_000 and stats.kstest(2 * value, law.cdf).pvalue > 1e-6
    else:
        assert stats.kstest(np.exp(found), stats.gamma(shape).cdf).pvalue > 1e-6
        assert stats.kstest(np.exp(found), stats.gamma(1.05 * shape).cdf).pvalue < 1e-6
    np.testing.assert_allclose(
        found.mean(), special.digamma(shape), atol=6 * (special.polygamma(1, shape) / 40_000) ** 0.5
    )


def test_a_gamma_number_of_no_shape_is_none_and_ends(key):
    found = np.asarray(random_numbers.log_gamma(key, jnp.array([1.0, np.nan, 2.0])))
    assert np.isnan(found).tolist() == [False, True, False]
