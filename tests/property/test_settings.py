"""Numbers of every kind as step size, temperature, friction, counts and batch sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ergodax as ex
from property.outcomes import few, finite, many, outcome

pytestmark = pytest.mark.slow
X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
POSTERIOR = ex.Posterior(
    lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((x - w) ** 2), X
)
START = jnp.zeros(2, jnp.float32)
KEY = jax.random.key(0)

numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(1e-6, 0.1),
    st.integers(-3, 3),
    st.sampled_from([True, None, "0.1", np.float64(0.01), np.int32(1), 1e300, 1e-320]),
)
counts = st.one_of(
    st.integers(-2, 12),
    st.sampled_from([True, 3.0, "3", None, np.int64(4), 2**31, 2**63, -(2**40)]),
)
SAMPLERS = {
    "sgld": lambda h, t, f: ex.sgld(ex.Minibatch(POSTERIOR, 3), h, temperature=t),
    "sghmc": lambda h, t, f: ex.sghmc(ex.Minibatch(POSTERIOR, 3), h, f, temperature=t),
    "langevin": lambda h, t, f: ex.langevin(ex.FullGradient(POSTERIOR), h, f, temperature=t),
}


@many
@given(st.sampled_from(sorted(SAMPLERS)), numbers, numbers, numbers)
@example("sgld", 1e300, 1.0, 1.0)
@example("sghmc", 0.05, float("nan"), 1.0)
@example("langevin", 0.0, 0.0, 0.0)
def test_step_size_temperature_and_friction(name, step_size, temperature, friction):
    """Finite draws, a refusal, or a divergence that is said to be one."""

    def run():
        kernel = SAMPLERS[name](step_size, temperature, friction)
        return ex.sample(kernel, START, 5, key=KEY, progress=False)

    result = outcome(run)
    if isinstance(result, ex.Samples):
        assert finite(result)
        assert all(isinstance(x, float | int | np.number) for x in (step_size, temperature))


@many
@given(counts, counts, counts, counts)
@example(5, 1, 1, 0)
@example(5, 2, 6, 0)
@example(5, None, 1, 0)
def test_counts(num_steps, num_chains, thin, burn_in):
    def run():
        if isinstance(num_steps, int) and num_steps > 100:  # right, but too long for a test
            raise ValueError("too long")
        if isinstance(num_chains, int) and num_chains > 100:
            raise ValueError("too many")
        if isinstance(burn_in, int) and burn_in > 100 and isinstance(num_steps, int):
            raise ValueError("too long")
        return ex.sample(
            SAMPLERS["sgld"](0.01, 1.0, 1.0), START, num_steps, num_chains=num_chains, thin=thin,
            burn_in=burn_in, key=KEY, progress=False,
        )  # fmt: skip

    result = outcome(run)
    if isinstance(result, ex.Samples):
        chains = 1 if num_chains is None else num_chains  # that of the positions
        assert (result.num_chains, result.num_draws) == (chains, num_steps // thin)
        assert finite(result)


@few
@given(counts, st.booleans())
def test_batch_size(batch_size, replace):
    gradient = outcome(lambda: ex.Minibatch(POSTERIOR, batch_size, replace))
    if isinstance(gradient, ex.Minibatch):
        assert 1 <= gradient.batch_size <= 12
        estimate, _ = gradient.estimate(KEY, gradient.init(KEY, START), START)
        assert np.isfinite(np.asarray(estimate.gradient)).all()


@many
@given(numbers, numbers, numbers)
def test_schedules(a, b, power):
    schedule = outcome(lambda: ex.schedule.Polynomial(a, b, power))
    if isinstance(schedule, ex.schedule.Polynomial):
        values = [float(schedule(jnp.int32(t))) for t in (0, 1, 1000)]
        assert np.isfinite(values).all() and min(values) >= 0, values


@few
@given(
    st.sampled_from(["float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([0.0, 1.0, float("nan"), float("inf"), -1e30]),
    st.sampled_from(["array", "dict", "tuple", "nested", "empty", "text"]),
)
def test_positions(dtype, shape, value, structure):
    """Trees of every kind: sampled in their own structure and dtypes, or refused."""
    leaf = jnp.full(shape, value).astype(dtype) if dtype != "bool" else jnp.ones(shape, bool)
    other = jnp.ones(2, jnp.float32)
    position = {
        "array": leaf, "dict": {"a": leaf, "b": other}, "tuple": (leaf, other),
        "nested": [{"a": (leaf,)}, other], "empty": {}, "text": {"a": leaf, "b": "relu"},
    }[structure]  # fmt: skip

    def potential(p):
        leaves = [x for x in jax.tree.leaves(p) if not isinstance(x, str)]
        return 0.5 * sum((jnp.sum(x.astype(jnp.float32) ** 2) for x in leaves), jnp.float32(0))

    def run():
        kernel = ex.sgld(ex.FullGradient(ex.Target(potential)), 0.1)
        return ex.sample(kernel, position, 3, key=KEY, num_chains=2, progress=False)

    result = outcome(run)
    if isinstance(result, ex.Samples):
        assert np.isfinite(value) or leaf.size == 0 or structure == "empty"
        assert finite(result)
        for before, after in zip(
            jax.tree.leaves(position), jax.tree.leaves(result.position), strict=True
        ):
            if not isinstance(before, str):
                assert after.dtype == before.dtype and after.shape == (2, 3, *before.shape)
