"""Analytic targets: their moments by quadrature and oracle, and their exact samplers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import ergodax as ex
from ergodax import network, targets

COVARIANCE = np.array([[2.0, 0.7], [0.7, 1.0]])
TARGETS = {
    "gaussian": lambda: targets.gaussian([1.0, -2.0], COVARIANCE),
    "gaussian, one number": lambda: targets.gaussian(0.5, 4.0),
    "double well": lambda: targets.double_well(),
    "double well, flat and wide": lambda: targets.double_well(0.25, 1.5, dimension=3),
    "banana": lambda: targets.banana(),
    "funnel": lambda: targets.funnel(3, scale=1.0),
    "mixture": lambda: targets.mixture([[-2.0, 0.0], [1.0, 1.0]], 0.5, [0.3, 0.7]),
    "mixture, full": lambda: targets.mixture(
        [[-2.0, 0.0], [1.0, 1.0]], np.stack([COVARIANCE, np.eye(2)])
    ),
}
DRAWS, Z = 100_000, 5.0


@pytest.mark.parametrize("name", TARGETS)
def test_exact_draws_have_the_exact_moments(name, key, x64):
    """Independent draws, so a gate of 5 standard errors: 6e-7 for each of the 60 numbers."""
    target = TARGETS[name]()
    x = np.asarray(jax.jit(lambda key: target.sample(key, DRAWS))(key))
    d = x.shape[1]
    assert x.shape == (DRAWS, target.mean.size)
    offset = x - np.asarray(target.mean)
    error = x.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(offset.mean(axis=0)) < Z * error).all()
    products = offset[:, :, None] * offset[:, None, :]
    error = products.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(products.mean(axis=0) - target.covariance) < Z * error).all()
    assert target.covariance.shape == (d, d)


@pytest.mark.parametrize("name", TARGETS)
def test_the_potential_belongs_to_the_draws(name, key, x64):
    """E[(x - mean) . grad U] = d and E[grad U] = 0, whatever the target."""
    target = TARGETS[name]()

    @jax.jit
    def drawn(key):
        x = target.sample(key, DRAWS)
        return x, jax.vmap(target.gradient)(x)

    x, gradient = map(np.asarray, drawn(key))
    virial = np.sum((x - np.asarray(target.mean)) * gradient, axis=1)
    for values, expected in ((virial, x.shape[1]), *((g, 0.0) for g in gradient.T)):
        assert abs(values.mean() - expected) < Z * values.std() / np.sqrt(DRAWS)


def quadrature(target, function, edge=8.0):
    """E[function] of a one-dimensional target."""

    def density(x):
        return np.exp(-float(target.potential(jnp.array([x]))))

    mass = integrate.quad(density, -edge, edge, epsabs=0, epsrel=1e-10)[0]
    weighted = integrate.quad(lambda x: function(x) * density(x), -edge, edge, epsrel=1e-10)[0]
    return weighted / mass


@pytest.mark.parametrize(("height", "second"), [(0.25, 1.04179729648716), (1.0, 0.83274548712838)])
def test_double_well_oracles(height, second, x64):
    """Moments by quadrature: (x^2 - 1)^2 / 4 and x^4 - 2 x^2."""
    target = targets.double_well(height)
    np.testing.assert_allclose(target.covariance, [[second]], rtol=1e-10)
    np.testing.assert_allclose(quadrature(target, lambda x: x * x, 4.0), second, rtol=1e-6)
    x = jnp.array([0.3])
    np.testing.assert_allclose(target.gradient(x), height * 4.0 * 0.3 * (0.09 - 1.0), rtol=1e-12)


def test_a_scaled_double_well_scales_its_variance(x64):
    wide, unit = targets.double_well(0.7, 2.5), targets.double_well(0.7)
    np.testing.assert_allclose(wide.covariance, 6.25 * unit.covariance, rtol=1e-12)
    np.testing.assert_allclose(wide.potential(jnp.array([2.5])), 0.0, atol=1e-12)


def test_banana_oracle(x64):
    """Moments in closed form."""
    target = targets.banana()
    np.testing.assert_allclose(target.mean, [0.0, -0.932796139084411], rtol=1e-12)
    expected = np.diag([1.06881544366236, 0.147352096711803])
    np.testing.assert_allclose(target.covariance, expected, rtol=1e-10)


def test_funnel_oracle(key, x64):
    """Moments by quadrature; Var x = e^{4.5} is not tested by draws: their tail is too heavy."""
    target = targets.funnel(2, scale=3.0)
    np.testing.assert_allclose(target.covariance, np.diag([9.0, 90.0171313005]), rtol=1e-10)
    v, x = np.asarray(target.sample(key, DRAWS)).T
    for event, p in ((np.abs(x) < 1, 0.622315543471449), (v < -2, 0.252492537546923)):
        assert abs(event.mean() - p) < Z * np.sqrt(p * (1 - p) / DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_potentials_work_in_both_precisions(name, x64):
    target = TARGETS[name]()
    for dtype in ("float32", "float64"):
        x = jnp.ones(target.mean.size, dtype)
        assert target.potential(x).dtype == dtype and target.gradient(x).dtype == dtype


def test_mixture_density_is_the_weighted_sum(x64):
    target = TARGETS["mixture, full"]()
    points = np.array([[0.0, 0.0], [-2.0, 0.5], [3.0, -1.0]])
    parts = []
    for mean, c in zip([[-2.0, 0.0], [1.0, 1.0]], [COVARIANCE, np.eye(2)], strict=True):
        offset = points - np.array(mean)
        square = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(c), offset)
        parts.append(0.5 * np.exp(-0.5 * square) / np.sqrt(np.linalg.det(c)))
    ours = np.array([float(target.potential(jnp.asarray(p))) for p in points])
    np.testing.assert_allclose(np.diff(ours), np.diff(-np.log(np.sum(parts, axis=0))), rtol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: targets.gaussian([0.0, 0.0], np.eye(3)),
        lambda: targets.gaussian([0.0, 0.0], -np.eye(2)),
        lambda: targets.gaussian([0.0, 0.0], [[1.0, 2.0], [0.0, 1.0]]),
        lambda: targets.double_well(height=-1.0),
        lambda: targets.funnel(1),
        lambda: targets.mixture([[0.0], [1.0]], 1.0, [1.0]),
        lambda: targets.mixture([[0.0], [1.0]], 1.0, [1.0, -1.0]),
        lambda: targets.mixture([[0.0], [1.0]], np.ones((3, 1, 1))),
    ],
)
def test_refused(make):
    with pytest.raises(ValueError, match="must|needs"):
        make()


ROWS = {"x": jnp.arange(6.0).reshape(3, 2), "y": jnp.ones(3)}


def network_posterior():
    module = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    return network.posterior(module, (ROWS["x"], ROWS["y"]), network.likelihoods.Gaussian(0.1))


COMPILED = {
    "posterior": lambda: (
        ex.Posterior(lambda w: -jnp.sum(w**2), lambda w, d: -((d["x"] @ w - d["y"]) ** 2), ROWS),
        jnp.ones(2),
    ),
    "constrained": lambda: (
        ex.Target(lambda p: p["s"], constraints={"s": ex.transform.positive}),
        {"s": jnp.ones(())},
    ),
    "target": lambda: (targets.gaussian([1.0, -2.0], COVARIANCE), jnp.ones(2)),
    "network": lambda: ((found := network_posterior()), found.start),
}


@pytest.mark.parametrize("name", COMPILED)
def test_methods_are_compiled_and_mapped(name, key):
    """As users write `jax.jit(target.potential)`, whatever the data are."""
    target, position = COMPILED[name]()
    position = target.freeze(position)
    value, gradient = target.value_and_gradient(position)
    for found in (
        jax.jit(target.value_and_gradient)(position),
        jax.vmap(target.value_and_gradient)(jax.tree.map(lambda x: x[None], position)),
    ):
        np.testing.assert_allclose(np.squeeze(found[0]), value, rtol=1e-5)
        for x, y in zip(jax.tree.leaves(found[1]), jax.tree.leaves(gradient), strict=True):
            np.testing.assert_allclose(np.reshape(x, y.shape), y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jit(target.potential)(position), value, rtol=1e-5)
    assert jax.tree.structure(jax.jit(target.gradient)(position)) == jax.tree.structure(gradient)
