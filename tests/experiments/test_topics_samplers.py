"""The papers' samplers of topics: gradient, steps, training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.learn.topics import Document
from experiments.topics.samplers import SAMPLERS, Reflected, TopicGradient, stack, topic_sampler
from experiments.topics.train import Settings, topic_kernel, train

ALPHA = 0.3
THETA = np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 1.0]])
DRIFT = [[-0.17223591883, -3.73102598141, -1.79673809975],
         [-4.65981414754, -1.06096150199, 2.02077564954]]  # fmt: skip
SIGMAS = 5.0  # two-sided 6e-7


def document(words=(0, 1, 2), counts=(1, 1, 2), copies=1):
    return [Document(np.array(words), np.array(counts))] * copies


def batch_of(counts):
    return [Document(np.arange(len(row)), row) for row in counts]


def fed(documents, words=3):
    return jax.tree.map(lambda x: x[0], stack([documents], words))


def drift(theta, key, dtype):
    gradient = TopicGradient(0.1, ALPHA, 10.0 * 4096, sweeps=60, burn_in=20)
    batch = fed(document(copies=4096))
    theta = jnp.asarray(theta, dtype)
    estimate, _ = gradient.estimate(key, batch, theta)
    assert estimate.gradient.dtype == dtype
    assert int(estimate.evaluations) == 4096
    # 4096 copies of one document, of which |D| has 10 times as many: the drift per document.
    prior = 0.1 - theta
    return np.asarray(prior + (-theta * estimate.gradient + 1.0 - prior) / 4096)


def test_the_drift_is_the_known_one(key):
    runs = np.stack([drift(THETA, k, jnp.float32) for k in jax.random.split(key, 8)])
    error = runs.std(0, ddof=1) / np.sqrt(len(runs))
    assert np.all(np.abs(runs.mean(0) - DRIFT) < 18.0 * error)  # t, 7 degrees of freedom: 4e-7
    assert np.all(error < 0.02)


def test_the_float32_gradient_is_that_of_float64(x64):
    # One topic: the expectation is exact, and what differs is the arithmetic alone.
    theta = np.array([[1e-7, 0.3, 40.0]])
    found = []
    for dtype in (jnp.float32, jnp.float64):
        gradient = TopicGradient(0.1, ALPHA, 1e5, sweeps=2, burn_in=1)
        batch = fed(document())
        estimate, _ = gradient.estimate(jax.random.key(0), batch, jnp.asarray(theta, dtype))
        found.append(theta * np.asarray(estimate.gradient, float))
    np.testing.assert_allclose(found[0], found[1], rtol=3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_precision_is_the_positions(name, dtype, x64):
    gradient = TopicGradient(0.5, ALPHA, 10.0, sweeps=2, burn_in=1)
    kernel = topic_sampler(name, gradient, 0.01, 2.0)
    state = kernel.init(jax.random.key(0), jnp.ones((2, 3), dtype))
    held = ex.State(state.position, state.auxiliary, fed(document()), None, state.step)
    after, _ = kernel.step(jax.random.key(1), held)
    for before, now in zip(
        jax.tree.leaves((state.position, state.auxiliary)),
        jax.tree.leaves((after.position, after.auxiliary)),
        strict=True,
    ):
        assert before.dtype == now.dtype == dtype


def test_an_estimator_without_a_batch_says_so():
    gradient = TopicGradient(0.1, ALPHA, 10)
    with pytest.raises(ValueError, match="no batch"):
        gradient.estimate(jax.random.key(0), None, jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="beta must be positive"):
        TopicGradient(0.0, ALPHA, 10)
    with pytest.raises(ValueError, match="sampler must be one of"):
        topic_sampler("hmc", gradient, 0.1)


def test_reflection_mirrors_position_and_momentum(key):
    inner = ex.sghmc(ex.FullGradient(ex.Target(lambda x: 0.0 * jnp.sum(x))), 0.1, 1e-6)
    for flip, sign in ((True, -1.0), (False, 1.0)):
        kernel = Reflected(inner, flip=flip)
        state = kernel.init(key, jnp.array([0.05, 0.05]))
        state = ex.State(
            state.position, {"momentum": jnp.array([-3.0, 3.0])}, state.gradient, None, state.step
        )
        after, _ = kernel.step(key, state)
        np.testing.assert_allclose(after.position, [0.25, 0.35], atol=0.01)
        np.testing.assert_allclose(after.auxiliary["momentum"], [-3.0 * sign, 3.0], atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgrld", "sgrhmc", "sgld", "sghmc"])
def test_the_steps_are_the_written_formulas(name, key):
    theta, h, gamma, beta = np.array([[1e-3, 0.4, 7.0]]), 1e-3, 70.0, 1.5
    gradient = TopicGradient(beta, ALPHA, 20.0, sweeps=1, burn_in=0)
    kernel = topic_sampler(name, gradient, h, gamma).kernel
    state = kernel.init(key, jnp.asarray(theta, jnp.float32))
    batch = fed(document((0, 1, 2), (1, 2, 7)))
    momentum = state.auxiliary
    state = ex.State(state.position, momentum, batch, None, state.step)
    step = jax.jit(jax.vmap(kernel.step, in_axes=(0, None)))
    after = jax.tree.map(np.asarray, step(jax.random.split(key, 20_000), state)[0])
    n = np.array([[1.0, 2.0, 7.0]])
    force = -theta + 20.0 * (n - theta / theta.sum() * n.sum())
    if name == "sgrld":
        found, mean, var = after.position, theta + h * (beta + force), 2 * h * theta
    elif name == "sgld":
        found, mean = after.position, theta + h * (beta - 1 + force) / theta
        var = np.full_like(theta, 2 * h)
    else:
        root = np.sqrt(theta) if name == "sgrhmc" else np.ones_like(theta)
        prior = beta - 0.5 if name == "sgrhmc" else beta - 1.0
        kicked = np.asarray(momentum["momentum"]) + h * (prior + force) * root / theta
        middle = theta + h / 2 * root * kicked
        assert np.all(middle > 0)
        rate = gamma * middle if name == "sgrhmc" else np.full_like(theta, gamma)
        found = after.auxiliary["momentum"]
        mean, var = np.exp(-h * rate) * kicked, -np.expm1(-2 * h * rate)
        root = np.sqrt(middle) if name == "sgrhmc" else root
        np.testing.assert_allclose(after.position, middle + h / 2 * root * found, rtol=1e-5)
    found = np.asarray(found, float)
    error = np.sqrt(var / len(found))
    assert np.all(np.abs(found.mean(0) - mean) < SIGMAS * error + 1e-4 * np.abs(mean))
    assert np.all(np.abs(found.var(0) / var - 1) < SIGMAS * np.sqrt(2 / len(found)) + 1e-3)


def test_a_large_friction_does_not_blow_up(key):
    # The Euler step would multiply the momentum by 1 - h gamma theta = -49.
    gradient = TopicGradient(1.5, ALPHA, 1.0, sweeps=1, burn_in=0)
    kernel = topic_sampler("sgrhmc", gradient, 0.1, 10.0)
    state = kernel.init(key, jnp.full((1, 3), 50.0))
    batch = fed(document())
    for number in range(20):
        held = ex.State(state.position, state.auxiliary, batch, None, jnp.int32(number))
        state, info = kernel.step(jax.random.fold_in(key, number), held)
    assert info.kinetic_temperature is not None and info.kinetic_temperature < 20
    assert np.all((np.asarray(state.position) > 20) & (np.asarray(state.position) < 80))


def test_the_middle_of_a_step_is_mirrored(key):
    flat = TopicGradient(1.0, ALPHA, 1e-6, sweeps=1, burn_in=0)
    kernel = topic_sampler("sgrhmc", flat, 0.1, 1e-6).kernel
    state = kernel.init(key, jnp.ones((1, 3)))
    held = ex.State(state.position, {"momentum": jnp.full((1, 3), -30.0)}, fed(document()), None,
                    state.step)  # fmt: skip
    after, _ = kernel.step(key, held)
    # 1 + 0.05 (-30) = -0.5, so 0.5 with momentum +30; then 0.5 + 0.05 sqrt(0.5) 30.
    np.testing.assert_allclose(after.auxiliary["momentum"], 30.0, atol=0.1)
    np.testing.assert_allclose(after.position, 0.5 + 1.5 * 0.5**0.5, atol=0.02)


def stream(number, size=5, vocabulary=12, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield batch_of(rng.poisson(1.0, (size, vocabulary)))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["sgrld", "sgrhmc"])
def test_training_does_not_depend_on_the_blocks(sampler, key):
    runs = []
    for block in (1, 4):
        settings = Settings(
            sampler,
            num_topics=3,
            beta=0.5,
            gibbs_sweeps=4,
            batch_size=5,
            snapshot_every=20,
            block=block,
        )
        seen = []
        snapshots = train(
            settings,
            stream(9),
            num_documents=100,
            vocabulary_size=12,
            key=key,
            report=lambda documents, seconds, seen=seen: seen.append(documents),
        )
        out = list(snapshots)
        assert [snapshot.documents for snapshot in out] == [20, 40, 45]
        assert seen[-1] == 45
        np.testing.assert_allclose(out[-1].phi.sum(1), 1.0, rtol=1e-5)
        runs.append(out[-1].phi)
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-5)


@pytest.mark.slow
def test_training_refuses_what_it_cannot_use(key):
    with pytest.raises(ValueError, match="sampler must be"):
        Settings("adam")
    with pytest.raises(ValueError, match="beta must be positive"):
        Settings(beta=0.0)
    settings = Settings(num_topics=2, batch_size=4, gibbs_sweeps=2)
    with pytest.raises(ValueError, match="batch_size = 4"):
        next(train(settings, stream(1), num_documents=9, vocabulary_size=12, key=key))
    settings = Settings("sgld", num_topics=2, batch_size=5, gibbs_sweeps=2, step_size=1e38)
    with pytest.raises(ex.DivergenceError, match="step_size"):
        list(train(settings, stream(9), num_documents=100, vocabulary_size=12, key=key))


def test_a_run_has_the_schedule_and_counts_its_documents(key):
    kernel = topic_kernel(Settings(step_size=0.1, offset=10.0, power=1.0, gibbs_sweeps=2), 100)
    state = kernel.init(key, jnp.ones((2, 3)))
    state = ex.State(state.position, {}, fed(document(copies=7)), None, jnp.int32(10))
    _, info = kernel.step(key, state)
    assert float(info.step_size) == pytest.approx(0.05)
    assert int(info.evaluations) == 7
