"""Chains all at once or one after another: which, and that the draws are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver import executor, loop
from ergodax.driver.loop import Way

KEY = jax.random.key(8)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        jax.default_backend() != "cpu", reason="elsewhere chains are always run at once"
    ),
]


def posterior(d, size=600):
    rng = np.random.default_rng(d)
    x = rng.normal(size=(size, d)).astype(np.float32)
    y = (rng.random(size) < 0.5).astype(np.float32)

    def log_likelihood(w, row):
        score = w @ row[0]
        return row[1] * score - jax.nn.softplus(score)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))


def way(kernel, d, chains=4):
    return executor.start(None, kernel, KEY, jnp.zeros((chains, d)))[-1]


def test_which():
    wide, narrow = posterior(128), posterior(10)
    batches = ex.sgld(ex.Minibatch(wide, 128), 1e-4)
    assert way(batches, 128) == Way(apart=True)
    assert way(batches, 128, chains=1) == Way(), "there is one chain"
    assert way(ex.sgld(ex.Minibatch(narrow, 500), 1e-4), 10) == Way(), "the products are narrow"
    assert way(ex.sgld(ex.Minibatch(narrow, 8), 1e-4), 10) == Way(small=True)
    everything = ex.sgld(ex.FullGradient(posterior(128)), 1e-4)
    assert way(everything, 128) == Way(), "the data are those of all chains"


def test_products_of_matrices_are_wide_by_their_numbers():
    """A layer of 16 units with many rows is; with few it is not, and so is one vector's product."""

    def layers(rows):
        x = jnp.ones((16, rows))
        log_likelihood = lambda w, x: -jnp.sum((w["b"] @ jnp.tanh(w["a"] @ x.T)) ** 2, axis=0)  # noqa: E731
        target = ex.Posterior(lambda w: 0.0, log_likelihood, x.T, batched=True)
        kernel = ex.sgld(ex.FullGradient(target), 1e-6)
        starts = {name: jnp.ones((4, 16, 16)) for name in "ab"}
        return executor.start(None, kernel, KEY, starts)[-1]

    assert layers(1024).apart and not layers(128).apart


def kernels():
    wide = posterior(128)
    batch = ex.Minibatch(wide, 128)
    return {
        "sgld": ex.sgld(batch, 1e-4),
        "sghmc": ex.sghmc(batch, 1e-3, 1.0),
        "svrg": ex.sgld(ex.SVRG(wide, 128, 5), 1e-4),
        "control variates": ex.sgld(ex.ControlVariate(wide, 128, jnp.zeros(128), order=2), 1e-4),
    }


@pytest.mark.slow
@pytest.mark.parametrize("thin, burn_in", [(1, 0), (3, 2)])
@pytest.mark.parametrize("name", kernels())
def test_the_draws_are_those_of_all_at_once(name, thin, burn_in, monkeypatch):
    kernel = kernels()[name]
    run = {"num_steps": 12, "key": KEY, "num_chains": 3, "thin": thin, "burn_in": burn_in}
    assert way(kernel, 128, chains=3).apart
    apart = ex.sample(kernel, jnp.zeros(128), progress=False, **run)
    monkeypatch.setattr(loop, "WIDE_PRODUCT", 10**9)
    jax.clear_caches()
    assert not way(kernel, 128, chains=3).apart
    together = ex.sample(kernel, jnp.zeros(128), progress=False, **run)
    for got, wanted in zip(*map(jax.tree.leaves, (apart, together)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
    assert (np.ptp(apart.position, axis=0) > 0.0).all(), "three chains are three"


@pytest.mark.slow
def test_a_chain_that_diverges_is_named():
    """The one that begins above a gap in which the density is not a number, and slides into it."""
    wide = posterior(128)

    def log_prior(w):
        gap = (3.0 < w[0]) & (w[0] < 4.0)
        return -0.5 * jnp.sum(w**2) * jnp.where(gap, jnp.nan, 1.0)

    kernel = ex.sgld(
        ex.Minibatch(ex.Posterior(log_prior, wide.log_likelihood, wide.data), 128), 1e-3
    )
    assert way(kernel, 128, chains=3).apart
    starts = jnp.zeros((3, 128)).at[1, 0].set(5.0)
    with pytest.raises(ex.DivergenceError) as stop:
        ex.sample(kernel, positions=starts, num_steps=500, key=KEY, num_chains=3, progress=False)
    assert stop.value.chain == 1 and 0 < stop.value.step < 500
