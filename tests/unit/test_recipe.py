"""Recipes: the drift against the method table, Q skew by construction, Gamma where it exists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import dynamics, tree

X = np.array([0.4, -1.2, 0.9])
R = np.array([1.1, 0.3, -0.8])
G = np.array([0.7, -0.2, 1.5])  # a gradient of U
MASS = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 1.5]])


def state(**others):
    return {name: jnp.asarray(value) for name, value in {"position": X, **others}.items()}


def drift(recipe, z):
    moved = recipe.drift(z, recipe.gradient(z, jnp.asarray(G)))
    return {name: np.asarray(value) for name, value in moved.items()}


def test_overdamped(x64):
    moved = drift(dynamics.langevin(MASS), state())
    np.testing.assert_allclose(moved["position"], -MASS @ G, rtol=1e-12)


def test_underdamped(x64):
    """dx = M^-1 r dt, dr = -grad U dt - gamma r dt: C M^-1 = gamma."""
    moved = drift(dynamics.underdamped(0.7, MASS), state(momentum=R))
    np.testing.assert_allclose(moved["position"], np.linalg.solve(MASS, R), rtol=1e-12)
    np.testing.assert_allclose(moved["momentum"], -G - 0.7 * R, rtol=1e-12)


@pytest.mark.parametrize("mu", [None, 2.5])
def test_nose_hoover(mu, x64):
    """dr = -grad U - zeta r, dzeta = (r^T M^-1 r - d T) / mu: mu is d by default, here 3."""
    recipe = dynamics.nose_hoover(0.7, MASS, mu)
    z = state(momentum=R, thermostat=1.3)
    moved, inertia = drift(recipe, z), mu or 3.0
    kinetic = R @ np.linalg.solve(MASS, R)
    np.testing.assert_allclose(moved["momentum"], -G - 1.3 * R, rtol=1e-12)
    np.testing.assert_allclose(moved["thermostat"], kinetic / inertia, rtol=1e-12)
    gamma = recipe.correction(z, jax.random.key(0))
    assert set(gamma) == {"thermostat"}
    np.testing.assert_allclose(gamma["thermostat"], -3.0 / inertia, rtol=1e-12)


def test_nose_hoover_per_coordinate(x64):
    zeta, mass = np.array([0.2, 1.3, 0.5]), np.array([2.0, 1.0, 0.5])
    recipe = dynamics.nose_hoover(0.7, mass, 2.0, per_coordinate=True)
    z = state(momentum=R, thermostat=zeta)
    moved = drift(recipe, z)
    np.testing.assert_allclose(moved["momentum"], -G - zeta * R, rtol=1e-12)
    np.testing.assert_allclose(moved["thermostat"], R**2 / mass / 2.0, rtol=1e-12)
    gamma = recipe.correction(z, jax.random.key(0))
    assert set(gamma) == {"thermostat"}
    np.testing.assert_allclose(gamma["thermostat"], -0.5 * np.ones(3), rtol=1e-12)


@pytest.mark.parametrize(
    ("recipe", "others"),
    [(dynamics.langevin(MASS), {}), (dynamics.underdamped(0.7, MASS), {"momentum": R})],
)
def test_constant_matrices_have_no_gamma(recipe, others):
    z = jax.tree.map(lambda x: x.astype(jnp.float32), state(**others))
    assert recipe.correction(z, jax.random.key(0)) == {}


def test_a_friction_of_the_position_alone_has_no_gamma():
    """D[momentum, momentum](x) does not depend on the momentum, whose derivative is meant."""
    recipe = ex.Recipe(diffusion=lambda z: {"momentum": ex.Diagonal(jnp.exp(z["position"]))})
    z = {"position": jnp.ones(3), "momentum": jnp.ones(3)}
    assert recipe.correction(z, jax.random.key(0)) == {}


def random_recipe():
    """Blocks that are neither symmetric nor constant, one of them on the diagonal of Q."""
    a = jnp.asarray(np.arange(9.0).reshape(3, 3) / 5.0)
    return ex.Recipe(
        diffusion=lambda z: {"position": 1.0},
        curl=lambda z: {
            ("momentum", "position"): ex.Dense(a + jnp.outer(z["position"], z["momentum"])),
            ("position", "position"): ex.Dense(a * z["position"][0]),
        },
    )


def curl_matrix(recipe, z):
    names = sorted(z)
    size = sum(tree.size(z[name]) for name in names)

    def apply(flat):
        x = {n: flat[3 * k : 3 * k + 3] for k, n in enumerate(names)}
        out = {n: jnp.zeros(3) for n in names}
        for row, column, sign, field in recipe.curl_blocks(z):
            out[row] = out[row] + sign * field(z).mv(x[column])
        return jnp.concatenate([out[n] for n in names])

    return np.asarray(jax.vmap(apply, out_axes=1)(jnp.eye(size)))


def test_the_curl_is_skew_symmetric_whatever_is_given(x64):
    z = state(momentum=R)
    q = curl_matrix(random_recipe(), z)
    np.testing.assert_array_equal(q, -q.T)
    assert np.abs(q).max() > 0.5 and np.abs(q[3:, 3:]).max() > 0.01
    energy = drift(random_recipe(), z)
    assert np.isfinite(energy["momentum"]).all()


def test_gamma_is_the_divergence_of_the_whole_matrix(x64):
    recipe, z = random_recipe(), state(momentum=R)

    def rows(flat):
        return jnp.asarray(curl_rows(recipe, {"momentum": flat[:3], "position": flat[3:]}))

    jacobian = jax.jacfwd(rows)(jnp.concatenate([z["momentum"], z["position"]]))
    expected = np.einsum("ijj->i", jacobian)
    gamma = recipe.correction(z, jax.random.key(0))
    ours = np.concatenate([gamma["momentum"], gamma["position"]])
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def curl_rows(recipe, z):
    """As `curl_matrix`, but differentiable: momentum first, then position."""
    eye, names = jnp.eye(3), ("momentum", "position")
    total = {(a, b): jnp.zeros((3, 3)) for a in names for b in names}
    for row, column, sign, field in recipe.curl_blocks(z):
        block = jax.vmap(field(z).mv, out_axes=1)(eye)
        total[row, column] = total[row, column] + sign * block
    return jnp.block([[total[a, b] for b in names] for a in names])


def test_the_energy_of_a_user_enters_the_gradient():
    recipe = ex.Recipe(lambda z: {"position": 1.0}, energy=lambda z: jnp.sum(z["position"] ** 3))
    z = {"position": jnp.array([1.0, 2.0])}
    gradient = recipe.gradient(z, jnp.array([10.0, 20.0]))
    np.testing.assert_allclose(gradient["position"], [13.0, 32.0])


def test_both_a_block_and_its_transpose_are_refused():
    both = {("momentum", "position"): 1.0, ("position", "momentum"): -1.0}
    recipe = ex.Recipe(lambda z: {}, curl=lambda z: both)
    with pytest.raises(ValueError, match="give one, the other is minus its transpose"):
        list(recipe.curl_blocks({"position": jnp.ones(2), "momentum": jnp.ones(2)}))


def test_unknown_variables_are_refused():
    recipe = ex.Recipe(lambda z: {"momentun": 1.0})
    with pytest.raises(ValueError, match="diffusion names the variable 'momentun'.*position"):
        recipe.diffusion_at({"position": jnp.ones(2)})


def test_a_rotation_is_skew_symmetric(x64):
    """dx = -(I + Q) grad U dt; to 1e-6 of the entries, and no further."""
    q = np.array([[0.0, 0.7, 0.0], [-0.7, 0.0, -0.2], [0.0, 0.2, 0.0]])
    moved = drift(dynamics.irreversible_langevin(q), state())
    np.testing.assert_allclose(moved["position"], -(np.eye(3) + q) @ G, rtol=1e-12)
    with pytest.raises(ValueError, match="skew-symmetric"):
        dynamics.irreversible_langevin(q + 1e-3 * np.eye(3))
    dynamics.irreversible_langevin(q + 1e-8 * np.eye(3))
