"""NumPyro models as posteriors: beside NumPyro's own potential, by enumeration, by sampling."""

# pyright: reportMissingImports=false
import functools
import importlib.util
import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import bridge, tree

numpyro = pytest.importorskip("numpyro", reason="NumPyro is in the extra `numpyro`")
from numpyro import distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.infer.util import initialize_model, potential_energy  # noqa: E402

RNG = np.random.default_rng(0)
N = 12
X = RNG.normal(size=(N, 3))
LABELS = (RNG.uniform(size=N) < 0.5).astype(np.int32)
GROUPS = RNG.integers(0, 4, N)
COUNTS = RNG.poisson(3.0, N)
TABLE = RNG.normal(size=(N, 2))
TIMES = RNG.exponential(size=N)


def logistic(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([3]).to_event(1))
    numpyro.deterministic("odds", jnp.exp(w))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def hierarchical(x, group, y):
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("groups", 4):
        effect = numpyro.sample("effect", dist.Normal(0, spread))
    numpyro.sample("anchor", dist.Normal(slope, 1.0), obs=0.3)  # outside the plate: prior
    with numpyro.plate("data", N):  # a size that does not follow the arguments
        numpyro.sample("y", dist.Bernoulli(logits=slope * x[:, 0] + effect[group]), obs=y)


def simplex(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.Poisson(rate * (1.0 + jnp.dot(p, jnp.arange(3.0)))), obs=y)


def dynamic(y):
    top = numpyro.sample("top", dist.LogNormal(0.0, 1.0))
    low = numpyro.sample("low", dist.Uniform(-top, top))  # a support that depends on a site
    cholesky = numpyro.sample("cholesky", dist.LKJCholesky(2, 1.5))
    with numpyro.plate("data", N), handlers.scale(scale=0.5):
        numpyro.sample("y", dist.MultivariateNormal(low * jnp.ones(2), scale_tril=cholesky), obs=y)


def nested(y, times):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("columns", 2), numpyro.plate("rows", N):
        with handlers.mask(mask=y > -1.0):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    with numpyro.plate("rows", N, dim=-1):
        numpyro.sample("t", dist.Exponential(jnp.exp(mean)), obs=times)


def no_plate(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mean, 1.0).expand([N]).to_event(1), obs=y)


MODELS = {
    "logistic": (logistic, (X,), {"y": LABELS}, {}),
    "hierarchical": (hierarchical, (X, GROUPS, LABELS), {}, {}),
    "simplex": (simplex, (COUNTS,), {}, {}),
    "dynamic": (dynamic, (TABLE,), {}, {}),
    "nested": (nested, (TABLE, TIMES), {}, {"plate": "rows"}),
}


@functools.cache
def made_once(name, _) -> Any:
    model, args, kwargs, options = MODELS[name]
    return bridge.numpyro(model, *args, **kwargs, **options)


def made(name) -> Any:
    return made_once(name, jax.config.read("jax_enable_x64"))


def theirs(name, held):
    """NumPyro's potential of the unconstrained numbers that a position is held as."""
    model, args, kwargs, _ = MODELS[name]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return potential_energy(model, args, kwargs, tree.bare(held))


def start(posterior, key):
    """A position as the samplers hold it."""
    return posterior.freeze(posterior.start(key))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
def test_the_potential_is_numpyros(name, key):
    posterior = made(name)
    assert isinstance(posterior, bridge.ModelPosterior) and posterior.num_data == N
    ours = jax.jit(lambda u: posterior.value_and_gradient(u))
    reference = jax.jit(jax.value_and_grad(lambda u: theirs(name, u)))
    for k in jax.random.split(key, 3):
        position = start(posterior, k)
        expected, slope = reference(position)
        value, gradient = ours(position)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), gradient, slope)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["hierarchical", "dynamic", "nested"])
def test_the_batch_is_unbiased_by_enumeration(name, key):
    posterior = made(name)
    position = start(posterior, key)
    pairs = jnp.asarray(list(itertools.combinations(range(N), 2)))
    batches = jax.tree.map(lambda x: x[pairs], posterior.data)
    values = jax.jit(jax.vmap(lambda b: posterior.potential_on(position, b)))(batches)
    whole = posterior.potential(position)
    np.testing.assert_allclose(jnp.mean(values), whole, rtol=1e-11)
    assert np.std(values) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["hierarchical", "nested"])
def test_the_scores_of_single_rows_add_up(name, key):
    posterior = made(name)
    position = start(posterior, key)

    @jax.jit
    def both(u):
        scores = posterior.per_example_gradients(u, posterior.data)
        added = jax.tree.map(
            lambda p, s: -p - jnp.sum(s, axis=0), posterior.prior_gradient(u), scores
        )
        return added, posterior.gradient(u)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), *both(position))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_without_the_jacobian_it_would_be_another_potential(key):
    """The negative control of the comparison."""
    posterior = made("simplex")
    a, b = (start(posterior, k) for k in jax.random.split(key))
    without = [
        posterior.potential(u) + posterior.program.run(tree.bare(u), posterior.data)[1]
        for u in (a, b)
    ]
    gap = float(theirs("simplex", a) - theirs("simplex", b))
    assert abs(float(without[0] - without[1]) - gap) > 0.1


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(name, key):
    posterior = made(name)
    values = posterior.start(key)
    held = posterior.freeze(values)
    again = tree.thaw(held)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), again, values)
    assert posterior.freeze(held) is held
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (2, 3, *x.shape)), values)
    batched = tree.thaw(posterior.freeze(many))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1, 2], b, atol=1e-9), batched, values)


@pytest.mark.slow
def test_draws_are_of_the_sites_and_the_others_follow(key):
    posterior = made("simplex")
    kernel = ex.sgld(ex.Minibatch(posterior, 4), 1e-2)
    samples = ex.sample(kernel, posterior.start(key), 6, key=key, num_chains=2, progress=False)
    assert set(samples.position) == {"p", "rate"}
    np.testing.assert_allclose(samples.position["p"].sum(axis=-1), 1.0, rtol=1e-5)
    assert samples.position["p"].shape == (2, 6, 3) and (samples.position["rate"] > 0).all()
    posterior = made("logistic")
    w = np.arange(36.0).reshape(2, 6, 3) / 30
    np.testing.assert_allclose(posterior.deterministic({"w": w})["odds"], np.exp(w), rtol=1e-6)


def test_programs_may_be_traced_in_several_threads(key):
    """NumPyro's handlers stand on one stack: models run at once would see each other's sites."""

    def slow(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        time.sleep(0.02)
        with numpyro.plate("data", N):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    posterior: Any = bridge.numpyro(slow, TIMES)
    position = start(posterior, key)
    with ThreadPoolExecutor(4) as pool:
        traced = pool.map(lambda _: jax.eval_shape(posterior.potential, position).shape, range(8))
        assert list(traced) == [()] * 8


@pytest.mark.slow
def test_a_model_without_a_plate_is_a_target(key):
    target = bridge.numpyro(no_plate, TABLE[:, 0])
    assert isinstance(target, bridge.ModelTarget) and target.reason == "no plate has observed sites"
    u = target.start(key)
    expected = 0.5 * (u["mean"] ** 2 + np.sum((TABLE[:, 0] - float(u["mean"])) ** 2))
    other = jax.tree.map(lambda x: x + 1.0, u)
    gap = 0.5 * (other["mean"] ** 2 + np.sum((TABLE[:, 0] - float(other["mean"])) ** 2)) - expected
    ours = [target.potential(target.freeze(x)) for x in (other, u)]
    np.testing.assert_allclose(ours[0] - ours[1], gap, rtol=1e-4)
    whole = bridge.numpyro(logistic, X, LABELS, plate=None)
    assert not isinstance(whole, ex.Posterior)
    values = [t.potential(t.freeze({"w": jnp.ones(3)})) for t in (whole, made("logistic"))]
    np.testing.assert_allclose(*values, rtol=1e-5)


@pytest.mark.slow
def test_sampling_a_conjugate_model(key):
    """Normal mean and known variance, and the law of HMC's draws by 64 chains."""
    y = RNG.normal(size=30) + 1.0

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(mean, 1.5), obs=y)

    posterior: Any = bridge.numpyro(model, y)
    precision = 1 / 4 + 30 / 2.25
    mean = np.sum(y) / 2.25 / precision
    kernel = ex.hmc(ex.FullGradient(posterior), 0.2, num_leapfrog_steps=5)
    samples = ex.sample(
        kernel, posterior.start(key), 300, key=key, num_chains=64, burn_in=50, progress=False
    )
    draws = np.asarray(samples.position["mean"], np.float64)
    for values, expected in ((draws, mean), ((draws - mean) ** 2, 1 / precision)):
        means = values.mean(axis=1)
        error = means.std(ddof=1) / 8
        assert abs(means.mean() - expected) < 6 * error
        assert error < 0.05 * np.sqrt(1 / precision)


class TestRefused:
    def refuse(self, message, model: Any, *args, error: Any = ValueError, **kwargs):
        with pytest.raises(error, match=message):
            bridge.numpyro(model, *args, **kwargs)

    def test_not_a_model(self):
        self.refuse("model must be a function", 3, error=TypeError)

    def test_discrete_latents(self, monkeypatch):
        def model(y):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            m = numpyro.sample("m", dist.Normal(0.0, 1.0))
            with numpyro.plate("data", N):
                numpyro.sample("y", dist.Normal(m + z, 1.0), obs=y)

        def counts(y):
            z = numpyro.sample("z", dist.Poisson(numpyro.sample("m", dist.Gamma(2.0, 1.0))))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        self.refuse("discrete latent site 'z'.*pip install funsor", model, TIMES, error=ImportError)
        self.refuse("discrete latent site 'z'.*too many values", counts, TIMES)

    def test_local_latents(self):
        def model(y):
            with numpyro.plate("data", N):
                m = numpyro.sample("m", dist.Normal(0.0, 1.0))
                numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

        local = r"\['m'\] are local to the plate 'data'.*groups are to come"
        self.refuse(local + ".*plate=None", model, TIMES, plate="data")
        whole = bridge.numpyro(model, TIMES)
        assert isinstance(whole, bridge.ModelTarget) and re.match(".*" + local, whole.reason)
        assert whole.start(jax.random.key(0))["m"].shape == (N,)

    def test_subsampled_plates(self):
        def model(y):
            m = numpyro.sample("m", dist.Normal(0.0, 1.0))
            with numpyro.plate("data", N, subsample_size=3) as rows:
                numpyro.sample("y", dist.Normal(m, 1.0), obs=y[rows])

        self.refuse("subsampled by the model .3 of 12.*leave out subsample_size", model, TIMES)

    def test_data_in_a_closure(self):
        def model():
            m = numpyro.sample("m", dist.Normal(0.0, 1.0))
            with numpyro.plate("data", N):
                numpyro.sample("y", dist.Normal(m, 1.0), obs=TIMES)

        self.refuse("pass the data as arguments, not by a closure", model, plate="data")

    def test_several_plates(self):
        def model(y, t):
            m = numpyro.sample("m", dist.Normal(0.0, 1.0))
            with numpyro.plate("one", N):
                numpyro.sample("y", dist.Normal(m, 1.0), obs=y)
            with numpyro.plate("two", 5):
                numpyro.sample("t", dist.Normal(m, 1.0), obs=t)

        args = TIMES, TIMES[:5]
        self.refuse("plate='three' is not a plate", model, *args, plate="three")
        for plate, rows in (("auto", N), ("one", N), ("two", 5)):
            chosen = bridge.numpyro(model, *args, plate=plate)
            assert isinstance(chosen, ex.Posterior) and chosen.num_data == rows

    def test_rows_outside_the_plate(self):
        def model(y):
            m = numpyro.sample("m", dist.Normal(0.0, 1.0))
            numpyro.factor("f", -jnp.sum(y) * m)
            with numpyro.plate("data", N):
                numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

        self.refuse("not a prior and one term for each row", model, TIMES, plate="data")
        assert "not a prior and one term" in getattr(bridge.numpyro(model, TIMES), "reason", "")

    def test_a_constant_number_of_rows(self):
        def model(y):
            m = numpyro.sample("m", dist.Normal(jnp.zeros(N), 1.0).to_event(1))
            with numpyro.plate("data", N):
                numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

        self.refuse("can't be run on a batch of rows", model, TIMES, plate="data")

    def test_parameters(self):
        def model(y):
            m = numpyro.param("m", 0.0)
            with numpyro.plate("data", N):
                numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

        self.refuse("param site 'm'", model, TIMES)

    def test_nothing_to_sample(self):
        self.refuse(
            "no continuous latent site", lambda: numpyro.sample("y", dist.Normal(0, 1), obs=0.1)
        )

    def test_a_position_that_does_not_fit(self):
        posterior, good = made("simplex"), {"p": np.full(3, 1 / 3), "rate": 2.0}
        kernel = ex.sgld(ex.Minibatch(posterior, 4), 1e-2)
        wrong = {
            r"a value for each of the latent sites \['p', 'rate'\]": {"p": good["p"]},
            r"position\['p'\] must have the shape \(3,\)": good | {"p": np.ones(2)},
            r"position\['rate'\] must lie in its prior's support": good | {"rate": -1.0},
            r"position\['p'\] must lie in its prior's support": good | {"p": np.ones(3)},
        }
        for message, position in wrong.items():
            with pytest.raises(ValueError, match=message):
                ex.sample(kernel, position, 3, key=jax.random.key(0))
        with pytest.raises(TypeError, match="init must be a dict of the sites"):
            ex.infer(posterior, np.ones(3), key=jax.random.key(0))


def scanned(y):
    """An autoregression whose states are sites of a loop."""
    slope = numpyro.sample("slope", dist.Uniform(-1.0, 1.0))

    def step(before, y):
        state = numpyro.sample("state", dist.Normal(slope * before, 1.0))
        numpyro.sample("y", dist.Normal(state, 0.5), obs=y)
        return state, None

    scan(step, 0.0, y)


def sized(count, groups, y):
    """A size from an integer argument, and one from the values of an array."""
    numpyro.sample("m", dist.Normal(jnp.zeros(count), 1.0).to_event(1))
    rate = numpyro.sample("rate", dist.Gamma(jnp.ones(int(np.max(groups)) + 1), 1.0).to_event(1))
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.Exponential(rate[groups]), obs=y)


def improper(y):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    scale = numpyro.sample("scale", dist.ImproperUniform(dist.constraints.positive, (), ()))
    with numpyro.plate("data", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def mixture(y):
    """A discrete site, which NumPyro sums out."""
    means = numpyro.sample("means", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    with numpyro.plate("data", y.shape[0]):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.3, 0.7])),
                           infer={"enumerate": "parallel"})  # fmt: skip
        numpyro.sample("y", dist.Normal(means[z], 1.0), obs=y)


WHOLE = {
    "scan": (scanned, (TIMES,), "no plate"),
    "sizes": (sized, (np.int64(2), GROUPS, TIMES), "int"),
    "improper": (improper, (TIMES,), None),
    "discrete": (mixture, (TIMES,), "discrete"),
}


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", WHOLE)
def test_what_nuts_can_run_builds_with_numpyros_potential(name, key):
    model, args, why = WHOLE[name]
    if name == "discrete":
        pytest.importorskip("funsor", reason="NumPyro sums discrete sites out by funsor")
    target = bridge.numpyro(model, *args)
    assert isinstance(target, ex.Posterior) == (why is None)
    position = start(target, key)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        info = initialize_model(key, model, model_args=args, validate_grad=False)
        expected = info.potential_fn(tree.bare(position))
    value, gradient = jax.jit(lambda u: target.value_and_gradient(u))(position)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    assert tree.known_finite(gradient)
