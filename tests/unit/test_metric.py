"""Metrics: what a function may return, closed forms against automatic ones, trees, and memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ergodax as ex
from ergodax.recipe.dynamics.riemannian import RiemannianEnergy, exact_metric
from ergodax.recipe.metric import Linearised, as_metric, with_potential

POINT = np.array([0.3, -0.7, 1.1])
MATRIX = np.array([[1.0, 0.2, 0.0], [0.2, 1.3, 0.3], [0.0, 0.3, 0.8]])


# --- What a metric may be -------------------------------------------------------------------------

FORMS = {
    "number": (lambda x: 1.0 + x[0] ** 2, ex.Scalar),
    "integer": (lambda x: 2, ex.Scalar),
    "vector": (lambda x: 1.0 + x**2, ex.Diagonal),
    "matrix": (lambda x: jnp.asarray(MATRIX, x.dtype), ex.Dense),
    "operator": (lambda x: ex.LowRank(x[None], 1.0), ex.LowRank),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_structure_is_that_of_what_is_returned(form):
    function, kind = FORMS[form]
    assert isinstance(as_metric(function)(jnp.asarray(POINT)), kind)


def test_what_is_not_a_metric_is_refused_by_name():
    for wrong in (2.0, np.ones(3), None):
        with pytest.raises(TypeError, match="metric must be a function of the position"):
            as_metric(wrong)
    with pytest.raises(ValueError, match="metric must be a number, a vector or a matrix"):
        ex.Metric(lambda x: jnp.ones((3, 3, 3)))(jnp.asarray(POINT))


def test_the_potential_is_known_only_where_a_step_begins():
    metric = ex.PotentialMetric(lambda u: 1.0 + u)
    with pytest.raises(TypeError, match="works in sgrld and sgrhmc"):
        metric(jnp.asarray(POINT))
    with pytest.raises(TypeError, match="needs the metric along its way"):
        exact_metric(metric)


def test_the_linearised_potential_has_the_right_value_and_gradient(x64):
    target = ex.Target(lambda x: jnp.sum(x**4))
    at = jnp.asarray(POINT)
    near = Linearised(at, *target.value_and_gradient(at))
    metric = with_potential(ex.PotentialMetric(lambda u: 1.0 + u**2), near)
    ours = jax.value_and_grad(lambda x: metric(x).value)(at)
    expected = jax.value_and_grad(lambda x: 1.0 + target.potential(x) ** 2)(at)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), ours, expected)


# --- The kinetic energy of Riemannian HMC ---------------------------------------------------------

KINETIC = {
    "number": lambda x: 1.0 + 0.3 * jnp.tanh(x[0] * x[1]),
    "vector": lambda x: 1.0 + 0.5 * jnp.tanh(x + jnp.roll(x, 1)),
    "matrix": lambda x: jnp.asarray(MATRIX) + jnp.outer(jnp.sin(x), jnp.sin(x)),
    "low rank": lambda x: ex.LowRank(jnp.stack([jnp.sin(x), x * x[1]]), 0.8 + x[2] ** 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", KINETIC)
def test_energy_velocity_and_force_are_those_of_the_matrices(form, x64):
    """dK/dx_i = -1/2 v^T (d_i G) v + T/2 tr(G^-1 d_i G), with v = G^-1 r."""
    kinetic, t = RiemannianEnergy(ex.Metric(KINETIC[form])), 0.7
    x, r = jnp.asarray(POINT), jnp.array([0.4, 1.2, -0.5])

    def mass(x):
        operator = ex.Metric(KINETIC[form])(x)
        return jnp.linalg.inv(jax.vmap(operator.mv, out_axes=1)(jnp.eye(3)))

    g, slope = mass(x), jax.jacfwd(mass)(x)
    v = np.linalg.solve(g, r)
    energy = 0.5 * r @ v + 0.5 * t * np.linalg.slogdet(g)[1]
    trace = np.einsum("ij,jik->k", np.linalg.inv(g), slope)
    force = -0.5 * np.einsum("i,ijk,j->k", v, slope, v) + 0.5 * t * trace
    np.testing.assert_allclose(kinetic(x, r, t), energy, rtol=1e-12)
    np.testing.assert_allclose(kinetic.velocity(x, r), v, rtol=1e-12)
    np.testing.assert_allclose(kinetic.force(x, r, t), force, rtol=1e-10)


# --- Closed forms ---------------------------------------------------------------------------------


def coupled(x):
    return 2.0 + jnp.sin(x) * jnp.cos(jnp.roll(x, 1))


CLOSED = {
    "number": (lambda x: 1.0 + jnp.prod(x) ** 2, lambda x: 2.0 * jnp.prod(x) ** 2 / x),
    "elementwise": (lambda x: 1.0 / (1.0 + x**2), lambda x: -2.0 * x / (1.0 + x**2) ** 2),
    "coupled": (coupled, lambda x: jnp.cos(x) * jnp.cos(jnp.roll(x, 1))),
}


def correction(recipe):
    x = jnp.asarray(POINT)
    z = {"position": x, **recipe.auxiliary(jax.random.key(1), x)}
    return recipe.correction(z, jax.random.key(0))


RECIPES = {
    "sgrld": ex.dynamics.riemannian_langevin,
    "sgrhmc": ex.dynamics.riemannian_underdamped,
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("form", CLOSED)
def test_a_closed_form_is_the_automatic_gamma(form, recipe, x64, monkeypatch):
    monkeypatch.setattr(ex.Diagonal, "divergence", ex.Dense.divergence)  # exact, without a probe
    function, divergence = CLOSED[form]
    make = RECIPES[recipe]
    ours, automatic = correction(make(ex.Metric(function, divergence))), correction(make(function))
    assert ours.keys() == automatic.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], automatic[name], rtol=1e-12)
        assert np.abs(automatic[name]).min() > 1e-2, "a Gamma of zero would test nothing"


def test_a_closed_form_for_a_matrix(x64):
    def rotated(x):
        return jnp.asarray(MATRIX) + jnp.outer(jnp.sin(x), jnp.sin(x))

    def divergence(x):
        s, c = jnp.sin(x), jnp.cos(x)
        return s * jnp.sum(c) + s * c  # the sum over j of d_j (s_i s_j), with d_i s_i = c_i

    metric = ex.Metric(rotated, divergence)
    ours = correction(ex.dynamics.riemannian_langevin(metric))["position"]
    automatic = correction(ex.dynamics.riemannian_langevin(rotated))["position"]
    np.testing.assert_allclose(ours, automatic, rtol=1e-12)
    with pytest.raises(TypeError, match="only for a metric that is a number or a diagonal"):
        correction(ex.dynamics.riemannian_underdamped(metric))


# --- Trees ----------------------------------------------------------------------------------------


class Layer(eqx.Module):
    """A position with a function among its leaves."""

    weight: jax.Array
    bias: jax.Array
    activation: object


LAYER = Layer(jnp.asarray(POINT[:2]), jnp.asarray(POINT[2:]), jnp.tanh)
SAMPLERS = {
    "sgrld": lambda g, metric: ex.sgrld(g, 0.1, metric),
    "sgrhmc": lambda g, metric: ex.sgrhmc(g, 0.1, metric),
}


def flat(position):
    return ravel_pytree(eqx.filter(position, eqx.is_array))[0]


def on_a_layer(x):
    """A tree like the position, made of it: its function comes along."""
    return jax.tree.map(lambda w: 1.0 + 0.3 * w**2 if eqx.is_array(w) else w, x)


METRICS_OF_TREES = {
    "number": (lambda x: 1.0 + flat(x)[0] ** 2,) * 2,
    "tree": (on_a_layer, lambda x: 1.0 + 0.3 * x**2),
    "matrix": (lambda x: jnp.eye(3) + flat(x)[:, None] * flat(x)[None],) * 2,
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("form", METRICS_OF_TREES)
def test_a_tree_moves_as_the_vector_does(form, sampler, key):
    nested, vector = METRICS_OF_TREES[form]
    target = ex.Target(lambda x: 0.5 * jnp.sum(flat(x) ** 2))
    runs = [
        ex.sample(SAMPLERS[sampler](ex.FullGradient(target), metric), at, 5, key=key).position
        for metric, at in ((nested, LAYER), (vector, jnp.asarray(POINT, jnp.float32)))
    ]
    ours = np.concatenate([runs[0].weight, runs[0].bias], axis=-1)
    np.testing.assert_allclose(ours, runs[1], atol=1e-5)


# --- A million parameters -------------------------------------------------------------------------

SIZE = 10**6
MULTIPLE = 8  # of the position's bytes, as scratch memory


def softening(position):
    return jax.tree.map(lambda x: 1.0 / (1.0 + x**2), position)


def one_step(sampler, metric):
    """The compiled step at a tree of a million numbers, and what it is called with."""
    position = {"a": jnp.ones((1000, 900), jnp.float32), "b": jnp.ones(100_000, jnp.float32)}
    target = ex.Target(lambda p: 0.5 * ex.tree.dot(p, p))
    kernel = SAMPLERS[sampler](ex.FullGradient(target), metric)
    arguments = jax.random.key(0), kernel.init(jax.random.key(1), position)
    return jax.jit(lambda key, state: kernel.step(key, state)).lower(
        *arguments
    ).compile(), arguments


def scratch(compiled) -> float:
    """Temporary memory in multiples of the position's own."""
    return compiled.memory_analysis().temp_size_in_bytes / (4 * SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_step_takes_memory_of_the_order_of_the_position(sampler):
    compiled, arguments = one_step(sampler, softening)
    assert scratch(compiled) <= MULTIPLE
    state, info = compiled(*arguments)
    assert bool(info.finite) and ex.tree.size(state.position) == SIZE
    moved = np.asarray(state.position["b"]) - 1.0
    np.testing.assert_allclose(moved.std(), 0.1 ** (1.0 if sampler == "sgrhmc" else 0.5), rtol=0.5)


@pytest.mark.slow
def test_the_bound_would_see_more_copies():
    """A metric of rank 16 needs sixteen trees, and is over it."""

    def of_rank_16(position):
        return ex.LowRank(
            jax.tree.map(lambda x: jnp.stack([jnp.sin(k * x) for k in range(16)]), position), 1.0
        )

    compiled, _ = one_step("sgrld", of_rank_16)
    assert scratch(compiled) > MULTIPLE
