"""A module of PyTorch as a function of JAX, by torch2jax: what docs/bridges.md says of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

torch = pytest.importorskip("torch")
torch2jax = pytest.importorskip("torch2jax")


@pytest.fixture
def module():
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.LayerNorm(5), torch.nn.Linear(5, 2)
    return torch.nn.Sequential(*layers)


@pytest.fixture(autouse=True)
def usual_promotion():
    """torch2jax mixes dtypes and ranks, as users' programs may."""
    settings = {"jax_numpy_dtype_promotion": "standard", "jax_numpy_rank_promotion": "allow"}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def weights_of(module):
    return {name: torch2jax.t2j(p.data) for name, p in module.named_parameters()}


def test_outputs_and_gradients_are_torchs(module):
    x = torch.randn(7, 3)
    function, weights = torch2jax.t2j(module), weights_of(module)
    summed = lambda w: jnp.sum(function(jnp.asarray(x.numpy()), state_dict=w) ** 2)  # noqa: E731
    value, gradients = jax.jit(jax.value_and_grad(summed))(weights)
    expected = (module(x) ** 2).sum()
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_learning_coefficient_of_a_regular_module():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_000, 4)).astype(np.float32)
    y = x @ rng.normal(size=(4, 1)).astype(np.float32)
    y += rng.normal(size=y.shape).astype(np.float32)
    module = torch.nn.Linear(4, 1, bias=False)
    module.weight.data = torch.tensor(np.linalg.lstsq(x, y)[0].T.astype(np.float32))
    function = torch2jax.t2j(module)

    def loss(w, row):
        return 0.5 * jnp.sum((row[1] - function(row[0][None], state_dict=w)[0]) ** 2)

    data = jnp.asarray(x), jnp.asarray(y)
    found = ex.local.learning_coefficient(loss, weights_of(module), data, key=jax.random.key(0))
    t, k = 1_000 / np.log(1_000), np.linalg.eigvalsh(x.T @ x / 1_000)
    assert found.ok, str(found)
    assert abs(found.estimate - 0.5 * np.sum(t * k / (t * k + 1.0))) < 1.5 * found.error


def test_posterior_of_a_module(module):
    function = torch2jax.t2j(module)
    network = ex.network.Function(lambda w, x: function(x, state_dict=w), weights_of(module))
    data = jnp.ones((8, 3)), jnp.ones((8, 2))
    posterior = ex.network.posterior(network, data, ex.network.likelihoods.Gaussian(0.1))
    assert "0.weight" in posterior.paths()
    potential = jax.jit(lambda position: posterior.potential(position))
    assert np.isfinite(potential(ex.tree.freeze(posterior.start)))
