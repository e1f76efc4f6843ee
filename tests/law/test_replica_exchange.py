"""Swaps keep the product of the tempered laws, and carry the cold replica between modes."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import ergodax as ex
from ergodax.kernel import report_step
from ergodax.sampler.replica_exchange import differences_on, swap_probability

from . import batches, faults, sampled

# `ergodax.sampler.replica_exchange` is the function; its module has the same name.
EXCHANGE = sys.modules[ex.replica_exchange.__module__]
S2 = 2.0


def acceptance(difference, corrected=True):
    """E min(1, exp(D + noise - s^2 / 2)) over noise of variance s^2, by quadrature of the code."""
    given = jnp.asarray(S2 if corrected else 0.0)

    def integrand(e):
        p = swap_probability(jnp.asarray(difference + e), given, jnp.asarray(1.0))
        return float(p) * stats.norm.pdf(e, scale=np.sqrt(S2))

    kink = (0.5 * S2 if corrected else 0.0) - difference
    return sum(
        integrate.quad(integrand, *ends, epsabs=1e-12)[0] for ends in ((-15, kink), (kink, 15))
    )


def test_noisy_swaps_are_in_detailed_balance(x64):
    up, down = acceptance(0.3), acceptance(-0.3)
    assert up == pytest.approx(0.5519139059, abs=1e-9)
    assert down == pytest.approx(0.4088678777, abs=1e-9)
    assert up / down == pytest.approx(np.exp(0.3), rel=1e-9)
    s, d = np.sqrt(S2), 0.3
    closed = stats.norm.cdf((d - S2 / 2) / s) + np.exp(d) * stats.norm.cdf(-(d + S2 / 2) / s)
    assert up == pytest.approx(closed, abs=1e-9)
    naive = acceptance(0.3, corrected=False) / acceptance(-0.3, corrected=False)
    assert naive < 0.95 * np.exp(0.3)


class Still(ex.Kernel):
    """A sampler that does not move, so that a step of the exchange is its swaps alone."""

    gradient: ex.GradientEstimator
    step_size: jax.Array
    temperature: jax.Array

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        estimate = ex.Estimate(state.position, jnp.zeros(()))
        info = report_step(estimate, state.position, self.step_size)
        return ex.State(state.position, {}, None, None, state.step + 1), info


def still(gradient, step_size, *, temperature):
    return Still(gradient, jnp.asarray(step_size), jnp.asarray(temperature))


def swapped(kernel, x, key, rounds=1):
    """Rows of replicas after some rounds of swaps, from given places, shape (chains, R, d)."""

    def chain(key, own):
        state = kernel.init(key, own[0])
        state = ex.State(own[0], {**state.auxiliary, "hotter": own[1:]}, None, None, state.step)
        for k in jax.random.split(key, rounds):
            state, _ = kernel.step(k, state)
        return jnp.concatenate([state.position[None], state.auxiliary["hotter"]])

    x = jnp.asarray(x, jnp.float32)
    return np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(key, len(x)), x), float)


def inverted(difference, variance, gap):
    """The fault of a published library: the branches of the swap exchanged."""
    return 1.0 - jnp.exp(jnp.minimum(gap * difference, 0.0))


def without_sign(difference, variance, gap):
    return swap_probability(-difference, variance, gap)


def invariance(kernel, temperatures, key, rounds, chains=100_000):
    """The largest deviation of E x_i^2 / T_i from 1, in standard errors, after swaps."""
    key_draw, key_swap = jax.random.split(key)
    root = np.sqrt(np.asarray(temperatures))[None, :, None]
    x = root * np.asarray(jax.random.normal(key_draw, (chains, root.size, 2)))
    square = swapped(kernel, x, key_swap, rounds) ** 2 / root**2
    return np.abs((square.mean(axis=(0, 2)) - 1.0) / np.sqrt(2.0 / (2 * chains))).max()


@pytest.mark.slow
@pytest.mark.parametrize("temperatures", [(1.0, 4.0), (0.5, 1.0, 2.0, 8.0)])
def test_swaps_keep_the_product_of_the_laws(temperatures, key):
    """Exact draws at every temperature are still that after swaps: E x_i^2 = T_i."""
    gradient = ex.FullGradient(ex.targets.gaussian(np.zeros(2), np.ones(2)))
    kernel = ex.replica_exchange(still, gradient, 0.1, temperatures=temperatures, swap_every=1)
    assert invariance(kernel, temperatures, key, rounds=3) < 5.5
    for wrong in (inverted, without_sign):
        planted = faults.Planted(kernel, faults.replacing(EXCHANGE, "swap_probability", wrong))
        assert invariance(planted, temperatures, key, rounds=3) > 20.0


NUM_DATA, BATCH = 400, 20


def noisy(correction):
    """A posterior N(0, 1) of 400 examples with swaps decided by 20 of them.

    The examples cancel in pairs, so that what they add to a batch's energy is pure noise,
    c x sum of +-1: normal to a good approximation, and of a variance that batches know.
    """
    data = np.tile([1.0, -1.0], NUM_DATA // 2).astype(np.float32)
    posterior = ex.Posterior(
        lambda x: -0.5 * jnp.sum(x**2), lambda x, e: 0.012 * e * jnp.sum(x), data
    )
    return ex.replica_exchange(
        still,
        ex.Minibatch(posterior, BATCH),
        0.1,
        temperatures=(1.0, 4.0),
        swap_every=1,
        correction=correction,
    )


@pytest.mark.slow
def test_the_correction_takes_out_the_noise_of_the_energies(key):
    """What is left is of order 1 / n: a tenth of the naive swap's error at most."""
    naive = invariance(noisy(correction=False), (1.0, 4.0), key, rounds=4)
    assert naive > 20.0
    assert invariance(noisy(correction=True), (1.0, 4.0), key, rounds=4) < max(5.5, 0.1 * naive)


def test_the_noise_of_a_difference_is_known_without_bias(x64):
    """Over all batches: the mean is the exact difference, the mean variance its variance."""
    data = np.random.default_rng(3).normal(size=8)
    posterior = ex.Posterior(
        lambda x: -0.1 * jnp.sum(x**4), lambda x, e: -jnp.cosh(0.3 * (e - jnp.sum(x))), data
    )
    x = jnp.asarray(np.random.default_rng(4).normal(size=(4, 2)))
    rows = batches.every(8, 3, replace=False)
    each = jax.vmap(lambda r: differences_on(posterior, x, posterior.data[r]))
    difference, variance = (np.asarray(a) for a in each(rows))
    exact = -np.diff(np.asarray(jax.vmap(posterior.potential)(x)))
    np.testing.assert_allclose(difference.mean(axis=0), exact, rtol=1e-10)
    np.testing.assert_allclose(variance.mean(axis=0), difference.var(axis=0), rtol=1e-10)
    apart = np.var([float(posterior.potential_on(x[0], posterior.data[r])) for r in rows])
    assert difference[:, 0].var() != pytest.approx(apart, rel=0.05), "the batch is in common"


WEIGHTS, FAR = [0.3, 0.7], 7.0


@pytest.mark.slow
def test_two_far_modes_get_their_weights(key):
    """14 standard deviations apart; from the smaller one plain SGLD never leaves."""
    gradient = ex.FullGradient(ex.targets.mixture([[-FAR], [FAR]], 1.0, WEIGHTS))
    start = np.full(1, -FAR, np.float32)
    plain = sampled.run(ex.sgld(gradient, 0.1), start, 4_000, key, num_chains=32)
    assert (plain < 0.0).all()
    kernel = ex.replica_exchange(ex.sgld, gradient, 0.1, temperatures=(1.0, 3.0, 8.0, 20.0))
    x = sampled.run(kernel, start, 6_000, key, num_chains=96, burn_in=1_000, thin=5)
    sampled.assert_mean(x > 0.0, WEIGHTS[1], 0.08)
    # In each mode the law is SGLD's, of variance 1 / (1 - h / 2).
    sampled.assert_mean((np.abs(x) - FAR) ** 2, 1.0 / 0.95, 0.05)
