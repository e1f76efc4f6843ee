"""Constraints of a target: what users see, where they are refused, what goes to disk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import transform, tree
from ergodax.target import unconstrained

START = {"mean": 0.5, "scale": {"sd": 2.0}}
ROWS = np.linspace(-1.0, 2.0, 12)


def log_prior(p):
    return -0.5 * p["mean"] ** 2 - p["scale"]["sd"]


def log_likelihood(p, x):
    return -0.5 * ((x - p["mean"]) / p["scale"]["sd"]) ** 2 - jnp.log(p["scale"]["sd"])


def posterior(constraints):
    return ex.Posterior(log_prior, log_likelihood, ROWS, constraints=constraints)


POSTERIOR = posterior({"scale": {"sd": transform.positive}})


def run(kernel, position=START, steps=6, **options):
    options = {"key": jax.random.key(0), "num_chains": 2, "progress": False} | options
    return ex.sample(kernel, position, steps, **options)


@pytest.mark.parametrize(
    "constraints",
    [{"scale.sd": transform.positive}, {"scale": transform.positive},
     {"mean": None, "scale": {"sd": transform.positive}}],
)  # fmt: skip
def test_a_name_a_path_and_a_prefix_are_one_constraint(constraints):
    ours = posterior(constraints).freeze(START)
    assert jax.tree.structure(ours) == jax.tree.structure(POSTERIOR.freeze(START))
    np.testing.assert_allclose(ours["scale"]["sd"].value, np.log(2.0), rtol=1e-6)
    assert tree.thaw(ours)["mean"] == 0.5


def test_a_module_and_a_bare_array_may_be_constrained():
    linear = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    positive = eqx.tree_at(lambda m: m.weight, linear, jnp.ones((1, 2)))
    target = ex.Target(lambda m: jnp.zeros(()), constraints={"weight": transform.positive})
    assert isinstance(tree.thaw(target.freeze(positive)), eqx.nn.Linear)
    whole = ex.Target(jnp.sum, constraints=transform.interval(0.0, 1.0))
    np.testing.assert_allclose(tree.thaw(whole.freeze(jnp.full(3, 0.2))), 0.2, rtol=1e-6)


def test_draws_summaries_and_files_have_the_user_s_values(tmp_path):
    kernel = ex.sghmc(ex.Minibatch(POSTERIOR, 4), 0.05)
    samples = run(kernel)
    assert (samples.position["scale"]["sd"] > 0).all()
    assert list(samples.summary().index) == ["mean", "scale.sd"]
    held = samples.final_state.position
    last = jax.tree.map(lambda x: x[:, -1], samples.position)
    jax.tree.map(np.testing.assert_allclose, tree.thaw(held), last)
    loaded = ex.Samples.load(samples.save(tmp_path / "draws"))
    jax.tree.map(np.testing.assert_array_equal, loaded.position, samples.position)
    whole = run(kernel, steps=10)
    more = run(kernel, None, 4, num_chains=None, state=loaded.final_state)
    after = jax.tree.map(lambda x: x[:, 6:], whole.position)
    jax.tree.map(np.testing.assert_array_equal, more.position, after)


def test_a_run_is_resumed_and_its_store_is_constrained(tmp_path):
    kernel = ex.sgld(ex.FullGradient(POSTERIOR), 0.01)
    whole = run(kernel, steps=8)
    run(kernel, steps=4, checkpoint=ex.Checkpoint(tmp_path / "run"))
    again = run(kernel, steps=8, checkpoint=ex.Checkpoint(tmp_path / "run", resume=True))
    jax.tree.map(np.testing.assert_array_equal, again.position, whole.position)
    stored = ex.Samples.load(tmp_path / "run" / "draws.zarr")
    jax.tree.map(np.testing.assert_array_equal, stored.position, whole.position)


def test_every_function_of_the_user_sees_constrained_values():
    kernel = ex.online.accumulate(
        ex.sgld(ex.FullGradient(POSTERIOR), 0.01), moments=ex.online.Moments()
    )
    samples = run(kernel, steps=50, collect=lambda p: {"variance": p["scale"]["sd"] ** 2})
    moments = kernel.results(samples)["moments"]
    mean = np.sqrt(samples.position["variance"]).mean()
    np.testing.assert_allclose(moments["mean"]["scale"]["sd"], mean, rtol=1e-5)


def test_masses_and_metrics_have_the_user_s_structure():
    ones = jax.tree.map(jnp.ones_like, START)
    gradient = ex.FullGradient(POSTERIOR)
    plain = run(ex.sghmc(gradient, 0.05))
    for kernel in (ex.sghmc(gradient, 0.05, mass=ones),):
        draws = run(kernel).position
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), draws, plain.position
        )
    metric = run(ex.sgrld(gradient, 0.05, lambda p: jax.tree.map(jnp.ones_like, p)))
    other = run(ex.sgld(gradient, 0.05))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5)  # noqa: E731
    jax.tree.map(close, metric.position, other.position)


def test_a_mode_is_one_of_unconstrained_numbers_and_centres_control_variates():
    mode = ex.find_mode(POSTERIOR, START)
    slope = POSTERIOR.gradient(POSTERIOR.freeze(mode.position))
    assert float(tree.norm(slope)) < 1e-2 and float(mode.position["scale"]["sd"]) > 0
    samples = run(ex.sgld(ex.ControlVariate(POSTERIOR, 4, mode), 0.01))
    assert (samples.position["scale"]["sd"] > 0).all()


def test_a_kernel_by_itself_begins_at_constrained_values():
    kernel = ex.sgld(ex.FullGradient(POSTERIOR), 0.01)
    state = kernel.init(jax.random.key(0), START)
    state, _ = jax.jit(kernel.step)(jax.random.key(0), state)
    assert float(tree.thaw(state.position)["scale"]["sd"]) > 0


@pytest.mark.parametrize("kind", [ex.Posterior, ex.Target])
def test_a_target_of_unconstrained_numbers_is_the_same_density(kind):
    target = POSTERIOR
    if kind is ex.Target:
        target = ex.Target(lambda p: -log_prior(p), constraints={"scale": transform.positive})
    free, start = unconstrained(target, START)
    held = target.freeze(START)
    np.testing.assert_allclose(start["scale"]["sd"], np.log(2.0), rtol=1e-6)
    np.testing.assert_allclose(
        free.potential(free.freeze(start)), target.potential(held), rtol=1e-6
    )
    draws = jax.tree.map(lambda x: np.broadcast_to(x, (2, 3)), start)
    values = free.constrain(draws)  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(values["scale"]["sd"], np.full((2, 3), 2.0), rtol=1e-6)
    back = free.constrain.inverse(values)  # pyright: ignore[reportAttributeAccessIssue]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), back, draws)
    same = ex.Target(lambda p: jnp.zeros(()))
    assert unconstrained(same, START) == (same, START)


BAD_START = {
    r"position\['scale.sd'\] must be positive.*it is -1.0": START | {"scale": {"sd": -1.0}},
    r"position\['scale.sd'\] must be positive.*it is nan": START | {"scale": {"sd": jnp.nan}},
    r"constraints has 'scale.sd', but position has \['mean'\]": {"mean": 0.0},
}


@pytest.mark.parametrize("message", BAD_START)
def test_a_start_that_violates_a_constraint_is_refused(message):
    with pytest.raises(ValueError, match=message):
        run(ex.sgld(ex.FullGradient(POSTERIOR), 0.01), BAD_START[message])
    with pytest.raises(ValueError, match=message.replace("position", "init")):
        ex.infer(POSTERIOR, BAD_START[message], key=jax.random.key(0))


BAD_VALUES = {
    "between 0 and 1": (transform.interval(0.0, 1.0), 1.0),
    "at least 2 numbers, which sum to 1": (transform.simplex, 0.5),
    "positive and sum to 1": (transform.simplex, [0.5, 0.6]),
    "a last axis, along which it increases": (transform.ordered, 1.0),
    "increase along its last axis": (transform.ordered, [1.0, 1.0, 2.0]),
    "a square matrix": (transform.correlation, np.ones((2, 3))),
    "lower triangular, with a positive diagonal": (transform.correlation, [[1.0, 0.2], [0.2, 1.0]]),
}


@pytest.mark.parametrize("message", BAD_VALUES)
def test_a_value_that_violates_its_constraint_is_refused(message):
    constraint, value = BAD_VALUES[message]
    target = ex.Target(lambda p: jnp.zeros(()), constraints={"x": constraint})
    with pytest.raises(ValueError, match=rf"position\['x'\] must .*{message}"):
        target.freeze({"x": np.asarray(value)})


@pytest.mark.parametrize(
    "wrong", [transform.interval, "positive", {"x": 3.0}, [transform.positive, "simplex"]]
)
def test_what_is_no_transform_is_refused(wrong):
    with pytest.raises(TypeError, match=r"constraints.* must be one of ex.transform"):
        ex.Target(lambda p: jnp.zeros(()), constraints=wrong)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (), (np.inf, np.inf)])
def test_bounds_must_increase(bounds):
    with pytest.raises(ValueError, match="must be below upper"):
        transform.interval(*bounds)
    with pytest.raises(TypeError, match="lower must be a number"):
        transform.interval("0")


def test_gradients_of_other_numbers_than_the_draws_are_refused():
    samples = run(ex.sgld(ex.FullGradient(POSTERIOR), 0.01))
    with pytest.raises(ValueError, match="gradient: the target has constraints"):
        ex.postprocess.gradients(samples, POSTERIOR)
    transformation = ex.bridge.optax(
        ex.sgld(ex.FullGradient(POSTERIOR), 0.01), key=jax.random.key(0)
    )
    with pytest.raises(ValueError, match="kernel: its target has constraints"):
        transformation.init(START)
