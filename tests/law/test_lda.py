"""The law of the topics where it is known: one topic, whose tokens all belong to it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.apps.lda.batch import Batch
from ergodax.apps.lda.gradient import TopicGradient
from ergodax.apps.lda.kernels import Reflected, topic_sampler

COUNTS = np.array([0.0, 2.0, 7.0])
BETA = 1.5
CHAINS = 400
SIGMAS = 5.5  # two-sided 4e-8, and more than a dozen comparisons


def chains(kernel, steps, burn_in, key):
    """The mean over time of phi and of the sum of theta: a row for each of CHAINS chains."""
    gradient = kernel.kernel.gradient
    words, counts = jnp.array([[0, 1, 2]]), jnp.asarray(COUNTS[None], jnp.float32)
    batch = gradient.feed(None, Batch(words, counts))

    @jax.jit
    def run(key):
        key_init, key_run = jax.random.split(key)
        state = kernel.init(key_init, jnp.asarray(exact()[None, :3] * 4.5, jnp.float32))

        def step(state, number):
            fed = dataclasses.replace(state, gradient=batch)
            state, _ = kernel.step(jax.random.fold_in(key_run, number), fed)
            theta = state.position[0]
            seen = jnp.append(theta / jnp.sum(theta), jnp.sum(theta))
            return dataclasses.replace(state, gradient=None), seen

        _, seen = jax.lax.scan(step, state, jnp.arange(steps))
        return jnp.mean(seen[burn_in:], axis=0)

    return np.asarray(jax.vmap(run)(jax.random.split(key, CHAINS)), float)


def made(name, step_size, beta=BETA, scale=1.0):
    return topic_sampler(name, TopicGradient(beta, 1.0, scale, sweeps=1, burn_in=0), step_size)


def exact(beta=BETA):
    """E phi, and the mean of theta's sum, which is Gamma(3 beta, 1) whatever the counts."""
    alpha = beta + COUNTS
    return np.append(alpha / alpha.sum(), 3 * beta)


def agree(means, truth, bias):
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    return np.abs(means.mean(0) - truth) < SIGMAS * error + bias


# Steps are small enough for the bias to be below a hundredth of each mean's scale.
BIAS = np.array([0.003, 0.003, 0.003, 0.05])


@pytest.mark.parametrize(("name", "step_size"), [("sgrld", 0.005), ("sgrhmc", 0.005)])
def test_the_posterior_of_one_topic(name, step_size, key):
    means = chains(made(name, step_size), 6_000, 1_000, key)
    assert agree(means, exact(), BIAS).all(), (means.mean(0), exact())
    # Other priors, and counts that are taken twice, would be seen.
    for wrong in (exact(1.0), exact(2.0), np.append((BETA + 2 * COUNTS) / (22.5), 4.5)):
        assert not agree(means, wrong, BIAS).all()


def test_forgetting_the_scale_of_the_batch_is_seen(key):
    means = chains(made("sgrld", 0.005, scale=2.0), 6_000, 1_000, key)
    assert not agree(means, exact(), BIAS).all()


@pytest.mark.parametrize("flip", [True, False])
def test_reflection_keeps_the_law_of_a_half_normal(flip, key):
    # Flat at the wall, so that nothing but the reflection decides: E x = sqrt(2 / pi).
    target = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
    kernel = Reflected(ex.sghmc(ex.FullGradient(target), 0.05), flip=flip)
    samples = ex.sample(kernel, jnp.ones(1), 2_000, num_chains=CHAINS, burn_in=400, key=key)
    position = np.asarray(samples.position, float)[..., 0]
    means = np.stack([position.mean(1), (position**2).mean(1)], axis=1)
    assert position.min() > 0
    # Second order in h = 0.05: the bias is below 1e-3.
    assert agree(means, np.array([np.sqrt(2 / np.pi), 1.0]), 0.003).all() == flip, means.mean(0)
