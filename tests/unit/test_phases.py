"""Schedules that follow one another, and the draws of the sampling stage."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ergodax as ex
from ergodax.schedule import Cyclical, Phases, Polynomial

GRADIENT = ex.FullGradient(ex.targets.gaussian(jnp.zeros(2), 1.0))


def values(schedule, steps):
    return [float(schedule(jnp.int32(t))) for t in range(steps)]


def test_each_phase_counts_from_its_own_start():
    falling = Polynomial(0.3, offset=2.0, power=0.5)
    schedule = Phases([(2, 0.5), (3, Cyclical(0.2, 2)), (None, falling)])
    expected = [0.5, 0.5, 0.2, 0.1, 0.2, *values(falling, 4)]
    np.testing.assert_allclose(values(schedule, 9), expected, rtol=1e-6)
    assert values(Phases([(None, 0.25)]), 3) == [0.25] * 3


def test_it_is_what_optax_joins():
    first, second = optax.exponential_decay(0.3, 5, 0.5), optax.linear_schedule(0.1, 0.01, 4)
    joined = optax.join_schedules([first, second], [6])
    ours = Phases([(6, first), (None, second)])
    np.testing.assert_allclose(
        values(ours, 12), [float(np.asarray(joined(t))) for t in range(12)], rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["step_size", "temperature", "friction"])
def test_other_numbers_and_lengths_share_a_program(name, key):
    traces = []

    @eqx.filter_jit
    def step(kernel, state):
        traces.append(1)
        return kernel.step(key, state)

    def kernel(length, first, offset):
        phases = Phases([(length, first), (None, Polynomial(0.1, offset))])
        return ex.langevin(GRADIENT, **{"step_size": 0.1, name: phases})

    state = kernel(2, 0.2, 10.0).init(key, jnp.ones(2))
    one, _ = step(kernel(2, 0.2, 10.0), state)
    two, _ = step(kernel(5, 0.3, 20.0), state)
    assert len(traces) == 1
    assert (one.position != two.position).all() or (one.auxiliary != two.auxiliary)


def test_a_run_follows_its_phases(key, x64):
    steps = Phases([(3, 0.5), (None, Polynomial(0.4, 5.0))])
    kernel = ex.sgld(GRADIENT, steps, temperature=Phases([(4, 0.0), (None, 1.0)]))
    samples = ex.sample(kernel, jnp.ones(2), 8, key=key, progress=False)
    np.testing.assert_allclose(samples.info.step_size[0], values(steps, 8), rtol=1e-12)
    descent = np.cumprod(1.0 - samples.info.step_size[0])
    np.testing.assert_allclose(samples.position[0, :4, 0], descent[:4], rtol=1e-12)
    assert (samples.position[0, 4:] != descent[4:, None]).all()


def test_single_precision_in_double(x64):
    mixed = Phases([(2, lambda t: jnp.float32(0.5)), (None, 0.25)])
    assert values(mixed, 3) == [0.5, 0.5, 0.25] and mixed(jnp.int32(0)).dtype == jnp.float64


def samples(sampling):
    shape = np.shape(sampling)
    draws = {"a": np.arange(np.prod(shape)).reshape(shape), "f": jnp.tanh}
    return ex.Samples(draws, Told(sampling), {})


class Told(eqx.Module):
    """An Info with nothing but the stage."""

    sampling: np.ndarray


def test_the_sampling_stage_alone():
    stage = np.array([[False, True, True, False, True]] * 2)
    kept = samples(stage).sampling_stage()
    np.testing.assert_array_equal(kept.position["a"], [[1, 2, 4], [6, 7, 9]])
    assert kept.position["f"] is jnp.tanh
    assert kept.info.sampling.all() and kept.num_draws == 3
    with pytest.raises(ValueError, match="count must be at least 0"):
        kept.without(-1)


def test_the_mask_is_that_of_all_chains():
    with pytest.raises(ValueError, match="chains are at different stages"):
        samples(np.array([[True, False], [False, True]])).sampling_stage()
    with pytest.raises(ValueError, match="no draw lies in a sampling stage.*thin"):
        samples(np.zeros((2, 3), bool)).sampling_stage()


def test_draws_without_stages(key):
    run = ex.sample(ex.sgld(GRADIENT, 0.1), jnp.ones(2), 4, key=key, progress=False)
    with pytest.raises(ValueError, match=r"no info.sampling.*ex.cyclical"):
        run.sampling_stage()
    assert jax.tree.leaves(run.info)
