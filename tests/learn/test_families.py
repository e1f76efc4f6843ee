"""Likelihoods by JAX and by SciPy are of one law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from ergodax.learn import families

ETAS, Y = np.array([-1.0, 0.3, 2.0]), np.array([0.0, 1.0, 7.0, 150.0])
# Unbounded shapes, two settings each.
SHAPES = {
    "LINEAR": [[0.3], [-1.0]],
    "ROBUST": [[0.3, 0.5], [-1.0, 4.0]],
    "LOGISTIC": [[], []],
    "POISSON": [[], []],
    "NEGATIVE_BINOMIAL": [[0.5], [-2.0]],
}


@pytest.mark.parametrize("name", SHAPES)
def test_likelihood_density_and_law_agree(name, x64):
    """The likelihood up to a number for each y; SciPy's own density to rounding."""
    family = getattr(families, name)
    y = Y[:2] if name == "LOGISTIC" else Y
    gaps = []
    for shapes in SHAPES[name]:
        told = family.units(np.asarray([shapes]), 1.0)
        density = family.log_density(y[:, None], ETAS, told)
        law = family.law(ETAS, told)
        other = law.logpmf if hasattr(law.dist, "pmf") else law.logpdf
        np.testing.assert_allclose(density, other(y[:, None]), rtol=1e-6)
        at = jax.vmap(jax.vmap(family.log_likelihood, (None, 0, None)), (0, None, None))
        gaps.append(density - np.asarray(at(jnp.array(y), jnp.array(ETAS), jnp.array(shapes))))
    constant = gaps[0][:, :1] * np.ones(len(ETAS))
    for gap in gaps:  # 1e-5: Stirling's series ends after 1 / (12 z)
        np.testing.assert_allclose(gap, constant, atol=2e-5)


def test_the_multinomial_density_is_the_softmax():
    eta = np.random.default_rng(0).normal(size=(5, 2, 3))
    y = np.array([2.0, 0.0])
    found = families.MULTINOMIAL.log_density(y, eta, {})
    expected = special.log_softmax(eta, axis=-1)[:, [0, 1], [2, 0]]
    np.testing.assert_allclose(found, expected)
    one = families.MULTINOMIAL.log_likelihood(jnp.float32(2), jnp.float32(eta[0, 0]), jnp.zeros(0))
    np.testing.assert_allclose(one, expected[0, 0], rtol=1e-5)


@pytest.mark.parametrize("count", [0.0, 30.0, 1e5, 1e7])
@pytest.mark.parametrize("name", ["POISSON", "NEGATIVE_BINOMIAL"])
def test_counts_of_any_size_keep_their_figures_in_single_precision(name, count):
    family = getattr(families, name)
    shapes = [[]] if name == "POISSON" else [[-9.0], [-3.0], [0.0], [1.5]]
    near = np.log(max(count, 0.5))
    etas = (near + np.array([-2.0, -0.1, 0.2, 1.0]) / max(count**0.25, 1.0)).astype(np.float32)
    found, expected, slopes = [], [], []
    for shape in shapes:
        told = family.units(np.asarray([shape]), 1.0)
        expected.append(family.log_density(count, etas.astype(np.float64), told).ravel())
        both = jax.value_and_grad(family.log_likelihood, argnums=1)
        rows = (jnp.float32(count), jnp.asarray(etas), jnp.array(shape, jnp.float32))
        value, slope = jax.vmap(both, (None, 0, None))(*rows)
        found.append(np.asarray(value, np.float64))
        slopes.append(np.asarray(slope))
    found, expected = (np.concatenate(x) - x[0][0] for x in (found, expected))
    # What the rounding of eta does to the density is not the formula's.
    inherent = np.abs(np.concatenate(slopes)) * np.spacing(np.tile(np.abs(etas), len(shapes)))
    assert (np.abs(found - expected) < 1e-4 * np.maximum(1.0, np.abs(expected)) + inherent).all()


def test_hardly_any_dispersion_is_poisson_in_single_precision():
    """r = 1 / a is 1e8, where the difference of two log Gammas has no figures left."""
    shape = jnp.array([-9.2], jnp.float32)
    with_a = [families.NEGATIVE_BINOMIAL.log_likelihood(jnp.float32(40), jnp.float32(e), shape)
              for e in (3.0, 3.5)]  # fmt: skip
    poisson = stats.poisson.logpmf(40, np.exp([3.0, 3.5]))
    assert float(with_a[1] - with_a[0]) == pytest.approx(np.diff(poisson)[0], abs=1e-3)
    naive = [
        jax.scipy.special.gammaln(jnp.float32(40) + r) - jax.scipy.special.gammaln(r)
        - jnp.float32(40) * jnp.log(r) for r in (jnp.exp(-2 * shape[0]),)
    ]  # fmt: skip
    assert abs(float(naive[0])) > 1.0, "the plain form fails here, and should be 8e-6"
