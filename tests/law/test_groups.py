"""Models with groups: marginals, joint densities and draws of latents against exact laws.

Numbers with ten digits are by quadrature on fine grids. Means of draws of a latent and of its
square lie within five standard errors, a false alarm of 6e-7 each; those of the normal law at the
mode do not.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import multivariate_normal, norm

import ergodax as ex
from ergodax.groups.layout import Layout
from ergodax.groups.quadrature import mean_and_entropy, normal_laws, rule

pytestmark = pytest.mark.usefixtures("x64")


def one_group(kind):
    """Rows with one latent, N(0, tau^2); shared, log Z, its gradient, and Laplace's log Z."""
    if kind == "logistic":
        y, shared = np.repeat([1.0, 0.0], [8, 2]), {"log_tau": np.log(2.0), "eta": -0.5}
        numbers = -6.4254972475, {"log_tau": -0.0916836424, "eta": 0.4397368256}, -6.4504380767

        def likelihood(s, b, y):
            return y * (s["eta"] + b) - jax.nn.softplus(s["eta"] + b)
    else:
        y, shared = np.array([0.0, 2.0, 1.0, 0.0]), {"log_tau": 0.0, "eta": 0.3}
        numbers = -5.4275244169, {"log_tau": -0.4790522203, "eta": -0.5348011458}, -5.4334941530

        def likelihood(s, b, y):
            score = s["eta"] + b
            return y * score - jnp.exp(score) - jax.scipy.special.gammaln(y + 1.0)

    posterior = ex.groups.GroupedPosterior(
        lambda s: 0.0,
        lambda b, s: norm.logpdf(b, 0.0, jnp.exp(s["log_tau"])),
        likelihood,
        y,
        np.zeros(len(y), int),
    )
    return posterior, shared, *numbers


def value_and_gradient(marginal, shared):
    value, slope = of_the_first(marginal, marginal.freeze(shared))
    return float(value), {name: float(x) for name, x in slope.items()}


@eqx.filter_jit
def of_the_first(marginal, frozen):
    first = lambda x: marginal.log_likelihoods(x, marginal.data)[0]  # noqa: E731
    return jax.value_and_grad(first)(frozen)


@eqx.filter_jit
def potential(target, position):
    return target.potential(position)


@pytest.mark.parametrize(
    ("kind", "nodes", "error"),
    [
        ("logistic", 5, -1.067e-3),
        ("logistic", 9, -2.577e-5),
        ("logistic", 15, -3.327e-7),
        ("poisson", 5, -5.3e-4),
        ("poisson", 9, -7.3e-6),
        ("poisson", 15, 7.7e-8),
    ],
)
def test_quadrature_has_the_error_of_its_rule(kind, nodes, error):
    posterior, shared, exact, _, _ = one_group(kind)
    value, _ = value_and_gradient(posterior.marginal(shared, nodes=nodes), shared)
    np.testing.assert_allclose(value - exact, error, rtol=0.02, atol=2e-10)


def at_one_node(marginal, dimension):
    likelihood = dataclasses.replace(marginal.log_likelihood, rule=rule(dimension, 1))
    return dataclasses.replace(marginal, log_likelihood=likelihood)


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_derivatives_are_those_of_the_integral(kind):
    posterior, shared, exact, slope, laplace = one_group(kind)
    fine = posterior.marginal(shared, nodes=41)
    value, found = value_and_gradient(fine, shared)
    np.testing.assert_allclose(value, exact, atol=2e-10)
    for name in slope:
        np.testing.assert_allclose(found[name], slope[name], atol=2e-10)
    # One node, which a user can't ask for here, has Laplace's value, and the gradient at the mode.
    with pytest.raises(ValueError, match="not quadratic"):
        posterior.marginal(shared, nodes=1)
    value, found = value_and_gradient(at_one_node(fine, 1), shared)
    np.testing.assert_allclose(value, laplace, atol=1e-4)
    assert max(abs(found[name] - slope[name]) for name in slope) > 0.01
    if kind == "logistic":
        np.testing.assert_allclose(found["log_tau"], -0.3223922124, atol=1e-3)


def test_second_derivatives_are_those_of_the_integral():
    posterior, shared, *_ = one_group("logistic")
    marginal = posterior.marginal(shared, nodes=25)

    def log_z(log_tau):
        return marginal.log_likelihoods(
            {"log_tau": log_tau, "eta": jnp.float64(-0.5)}, jnp.arange(1)
        )[0]

    at, step = jnp.log(2.0), 1e-4
    bend = jax.grad(jax.grad(log_z))(at)
    slopes = [jax.grad(log_z)(at + sign * step) for sign in (1.0, -1.0)]
    np.testing.assert_allclose(bend, (slopes[0] - slopes[1]) / (2.0 * step), rtol=1e-5)


def test_nodes_are_as_many_as_accuracy_needs():
    posterior, shared, *_ = one_group("logistic")
    by = lambda a: posterior.marginal(shared, accuracy=a).log_likelihood.account  # noqa: E731
    rough, fine = by(0.1), by(1e-4)
    assert 1 < rough.order < fine.order
    assert rough.bias < 0.1 and fine.bias < 1e-4
    slopes = {
        n: value_and_gradient(posterior.marginal(shared, nodes=n), shared)[1] for n in (3, 41)
    }
    wrong = max(abs(1.0 - slopes[3][k] / slopes[41][k]) for k in slopes[3])
    assert wrong > fine.bias  # three nodes are not enough for that


COUNTS = np.array([1, 2, 40, 3, 1, 2, 11, 9, 1, 3])
GROUPS = np.random.default_rng(3).permutation(np.repeat(np.arange(10), COUNTS))


def hierarchy(vector, seed=0):
    """Rows y = (mu + b_g) . x + e in groups of unequal sizes, in random order; the data."""
    rng = np.random.default_rng(seed)
    groups = GROUPS
    x = np.column_stack([np.ones(groups.size), rng.normal(size=groups.size)])
    y = rng.normal(size=groups.size) + 0.5 * groups
    spread = (
        (lambda b, s: multivariate_normal.logpdf(b, jnp.zeros(2), covariance(s)))
        if vector
        else (lambda b, s: norm.logpdf(b, 0.0, s["sd"][0]))
    )

    def likelihood(s, b, row):
        x, y = row
        return norm.logpdf(y, (x @ (s["mu"] + b)) if vector else x @ s["mu"] + b, s["noise"])

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["mu"], 0.0, 3.0).sum() - s["sd"].sum() - s["noise"],
        spread,
        likelihood,
        (x, y),
        groups,
        jnp.zeros(2) if vector else 0.0,
        constraints={"sd": ex.transform.positive, "noise": ex.transform.positive},
    )
    several = Layout((jnp.asarray(x), jnp.asarray(y)), groups, saved=1)  # blocks of few rows
    posterior = eqx.tree_at(lambda p: p.layout, posterior, several)
    shared = {"mu": np.array([0.5, -0.2]), "sd": np.array([0.8, 0.6]), "noise": 1.3}
    return posterior, shared, (x, y, groups)


log_likelihoods = eqx.filter_jit(lambda marginal, s, groups: marginal.log_likelihoods(s, groups))
gradients = eqx.filter_jit(lambda marginal, s, groups: marginal.per_example_gradients(s, groups))


def covariance(s):
    corner = 0.3 * s["sd"][0] * s["sd"][1]
    off = corner * jnp.array([[0.0, 1.0], [1.0, 0.0]])
    return jnp.diag(s["sd"] ** 2) + off


@functools.partial(jax.jit, static_argnums=0)
def exact_log_marginals(vector, s, data):
    """The normal densities of each group's rows, filled up with standard normals to one size."""
    x, y, _ = data
    spread = covariance(s) if vector else s["sd"][0] ** 2 * jnp.eye(1)
    sizes = np.bincount(GROUPS)
    which = np.stack([np.argsort(GROUPS != g, kind="stable")[: sizes.max()] for g in range(10)])

    @jax.vmap
    def of_one(which, real):
        z = x[which] if vector else jnp.ones((len(real), 1))
        law = jnp.where(jnp.outer(real, real), z @ spread @ z.T, 0.0)
        law += jnp.diag(jnp.where(real, s["noise"] ** 2, 1.0))
        off = jnp.where(real, y[which] - x[which] @ s["mu"], 0.0)
        added = jnp.sum(jnp.where(real, 0.0, norm.logpdf(0.0)))
        return multivariate_normal.logpdf(off, jnp.zeros(len(real)), law) - added

    return of_one(which, np.arange(sizes.max()) < sizes[:, None])


@pytest.mark.parametrize("vector", [False, True])
def test_a_normal_hierarchy_is_integrated_out_in_closed_form(vector):
    posterior, shared, data = hierarchy(vector)
    marginal = posterior.marginal(shared)
    assert marginal.log_likelihood.account.order == 1
    assert len(posterior.layout.blocks) > 1
    every = marginal.data
    few = jnp.array([7, 2, 2], jnp.int32)  # a batch in its own order, with one group twice
    exact_at = jax.jit(lambda s: exact_log_marginals(vector, s, data))
    for factor in (1.0, 1.7):  # at the place where centres were computed, and elsewhere
        there = jax.tree.map(lambda x, f=factor: f * jnp.asarray(x), shared)
        frozen = marginal.freeze(there)
        exact = exact_at(there)
        np.testing.assert_allclose(log_likelihoods(marginal, frozen, every), exact, rtol=1e-10)
        np.testing.assert_allclose(log_likelihoods(marginal, frozen, few), exact[few], rtol=1e-10)
    scores = jax.jit(jax.jacobian(exact_at))(there)
    found = gradients(marginal, frozen, every)
    np.testing.assert_allclose(found["mu"], scores["mu"], atol=1e-9)
    np.testing.assert_allclose(found["noise"].value, scores["noise"] * there["noise"], atol=1e-9)
    # Hessians too, of variances as well: there the law at whose nodes f is taken moves.
    free, back = ravel_pytree(there)
    block, density = posterior.layout.blocks[0], posterior.density
    laws = normal_laws(there, density, block, jnp.zeros((len(block.groups), density.dimension)))
    ours, right, still = (
        jax.jit(jax.hessian(lambda x, of=of: jnp.sum(of(back(x)))))(free)
        for of in (
            lambda s: marginal.log_likelihood(s, block.groups),
            lambda s: exact_log_marginals(vector, s, data)[block.groups],
            lambda s: mean_and_entropy(s, density, block, laws),
        )
    )
    np.testing.assert_allclose(ours, right, rtol=1e-9, atol=1e-9)
    assert np.abs(still - right).max() > 0.1
    wrong = gradients(at_one_node(marginal, 2 if vector else 1), frozen, every)
    assert np.abs(wrong["noise"].value - scores["noise"] * there["noise"]).max() > 0.1


def test_the_score_of_a_log_sd():
    """tau = .9, three rows of variance 1.5 whose mean is 1.3 off: by hand."""
    y = 1.3 + np.sqrt(1.5) * np.array([-1.0, 0.0, 1.0])
    posterior = ex.groups.GroupedPosterior(
        lambda s: 0.0,
        lambda b, s: norm.logpdf(b, 0.0, jnp.exp(s["log_tau"])),
        lambda s, b, y: norm.logpdf(y, b, jnp.sqrt(1.5)),
        y,
        np.zeros(3, int),
    )
    shared = {"log_tau": np.log(0.9)}
    _, slope = value_and_gradient(posterior.marginal(shared), shared)
    np.testing.assert_allclose(slope["log_tau"], 0.1793601771, atol=1e-9)
    mode = 0.81 * 1.3 / (0.81 + 0.5)
    np.testing.assert_allclose(mode**2 / 0.81 - 1.0, -0.2023192167, atol=1e-9)  # the plug-in's


@pytest.mark.parametrize("vector", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_joint_of_a_normal_hierarchy_is_the_marginal_and_standard_normals(vector):
    posterior, shared, _ = hierarchy(vector)
    joint, marginal = posterior.joint(shared), posterior.marginal(shared)
    rng = np.random.default_rng(1)
    for factor in (1.0, 0.6):  # the rows say the same of the latents, at other variances of these
        there = {**shared, "sd": factor * shared["sd"]}
        frozen = marginal.freeze(there)
        z = jnp.asarray(rng.normal(size=joint.start["z"].shape))
        found = potential(joint, {"shared": ex.tree.bare(frozen), "z": z})
        expected = potential(marginal, frozen) - norm.logpdf(z).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    frozen = marginal.freeze({**shared, "noise": 2.0})
    position = {"shared": ex.tree.bare(frozen), "z": z}
    off = potential(joint, position) - potential(marginal, frozen)
    assert abs(off + norm.logpdf(z).sum()) > 0.1  # where they say less it is another law


def test_the_joint_density_is_that_of_the_latents_and_the_map():
    posterior, shared, *_ = one_group("logistic")
    joint = posterior.joint({"log_tau": 0.0, "eta": 0.0})
    position = {"shared": jax.tree.map(jnp.asarray, shared), "z": jnp.array([[1.3]])}
    values = joint.constrain(position)
    back = joint.constrain.inverse(jax.tree.map(lambda x: x[None, None], values))
    np.testing.assert_allclose(back["z"][0, 0], position["z"], rtol=1e-9)
    b, s = values["latent"][0], position["shared"]
    log = norm.logpdf(b, 0.0, 2.0) + 8 * (b - 0.5) - 10 * jax.nn.softplus(b - 0.5)
    slope = jax.grad(lambda z: joint.constrain({"shared": s, "z": z[None, None]})["latent"][0])
    log += jnp.log(slope(jnp.float64(1.3)))
    np.testing.assert_allclose(joint.potential(position), -log, rtol=1e-9)


def test_latents_of_a_heavy_tailed_law_are_mapped_without_the_shared_parameters():
    y = np.array([0.3, 0.1, 4.0])
    posterior = ex.groups.GroupedPosterior(
        lambda s: 0.0,
        lambda b, s: jax.scipy.stats.t.logpdf(b, 3.0, 0.0, s["scale"]),
        lambda s, b, y: norm.logpdf(y, b, 1.0),
        y,
        np.arange(3),
    )
    joint = posterior.joint({"scale": 1.0})
    assert not joint.constrain.whitened.normal
    latents = [
        joint.constrain({"shared": {"scale": jnp.float64(s)}, "z": joint.start["z"]})["latent"]
        for s in (0.5, 2.0)
    ]
    np.testing.assert_array_equal(*latents)


def test_draws_of_latents_have_their_law(key):
    posterior, shared, *_ = one_group("logistic")
    count = 20_000
    draws = jax.tree.map(lambda x: np.full((2, count // 2), x), shared)
    found = posterior.latents(draws, key=key)
    assert found.shape == (2, count // 2, 1)
    grid = np.linspace(-15.0, 15.0, 20_001)
    log = 8 * (grid - 0.5) - 10 * np.logaddexp(0.0, grid - 0.5) - grid**2 / 8
    weights = np.exp(log - log.max())
    weights /= weights.sum()

    def worst(b):
        off = []
        for power in (1, 2):
            mean, square = (weights @ grid ** (k * power) for k in (1, 2))
            off.append(np.abs(np.mean(b**power) - mean) / np.sqrt((square - mean**2) / count))
        return max(off)

    assert worst(found) < 5.0
    rows = posterior.layout.blocks[0]
    law = posterior.density.mode(shared, rows.rows[:, 0], rows.mask[:, 0], jnp.zeros(1))
    assert worst(np.asarray(jax.vmap(law.at)(jax.random.normal(key, (count, 1))))) > 10.0


def test_latents_of_a_normal_hierarchy_and_on_disk(key, tmp_path):
    posterior, shared, (x, y, groups) = hierarchy(True)
    draws = jax.tree.map(lambda a: np.broadcast_to(a, (2, 5_000, *np.shape(a))), shared)
    found = posterior.latents(draws, key=key)
    assert found.shape == (2, 5_000, 10, 2)
    kept = posterior.latents(draws, key=key, path=tmp_path / "latents.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "latents.npy"), found)
    assert isinstance(kept, np.ndarray)
    flat = found.reshape(-1, 10, 2)
    for g in (2, 4):
        z, rest = x[groups == g], y[groups == g] - x[groups == g] @ shared["mu"]
        law = np.linalg.inv(np.linalg.inv(covariance(shared)) + z.T @ z / 1.3**2)
        mean = law @ z.T @ rest / 1.3**2
        errors = np.sqrt(np.diag(law) / len(flat))
        assert (np.abs(flat[:, g].mean(axis=0) - mean) < 5.0 * errors).all()
        spread = np.cov(flat[:, g], rowvar=False)
        np.testing.assert_allclose(spread, law, atol=5.0 * 2.0 * np.abs(law).max() / 100.0)
