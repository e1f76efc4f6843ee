"""Models with groups: what is refused by name, and what `infer` decides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex

Y = np.array([0.1, 0.4, 1.2, 1.0, -0.3], np.float32)
GROUPS = np.array([0, 0, 1, 1, 2])


def posterior(groups=GROUPS, **changes):
    parts = {
        "log_prior": lambda s: norm.logpdf(s["mu"], 0.0, 5.0) - s["tau"],
        "log_latent": lambda b, s: norm.logpdf(b, s["mu"], s["tau"]),
        "log_likelihood": lambda s, b, y: norm.logpdf(y, b, 0.5),
        "data": Y,
        "constraints": {"tau": ex.transform.positive},
    }
    return ex.groups.GroupedPosterior(**(parts | changes), groups=groups)


START = {"mu": 0.0, "tau": 1.0}


@jax.custom_vjp
def simulated(x):
    return x


simulated.defvjp(lambda x: (x, None), lambda _, g: (g,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": [0, 0, 1, 1, -2]}, r"groups\[4\] is -2"),
        ({"groups": [0, 0, 1, 1]}, r"shape \(5,\), not shape \(4,\)"),
        ({"groups": [0, 0, 1, 1, 3]}, r"groups \[2\] have no row"),
        ({"groups": [0, 0, 1, 1, 2], "num_groups": 2}, r"groups\[4\] is 2, out of range"),
        ({"num_groups": 5}, r"groups \[3, 4\] have no row"),
        ({"groups": [0, 0, 1, 1, 10**9]}, "can't fill"),
        ({"latent": np.zeros((2, 2))}, "a number or a vector"),
        ({"data": np.zeros(0)}, "data"),
    ],
)
def test_refused_by_value(changes, message):
    with pytest.raises(ValueError, match=message):
        posterior(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": [0.0, 0, 1, 1, 2]}, "groups must be integers"),
        ({"groups": list("aabbc")}, "groups must be integers"),
        ({"log_latent": 3}, "log_latent"),
        ({"latent": "b"}, "latent"),
        ({"constraints": {"tau": 1.0}}, "constraints"),
    ],
)
def test_refused_by_type(changes, message):
    with pytest.raises(TypeError, match=message):
        posterior(**changes)


@pytest.mark.parametrize(
    ("changes", "start", "error", "message"),
    [
        ({"log_latent": lambda b, s: b * jnp.ones(3)}, START, TypeError, "log_latent.*scalar"),
        (
            {"log_likelihood": lambda s, b, y: jnp.ones(2)},
            START,
            TypeError,
            "log_likelihood.*scalar",
        ),
        ({"log_likelihood": lambda s, b, y: b @ y}, START, ValueError, "can't be evaluated"),
        (
            {"log_likelihood": lambda s, b, y: -((y - simulated(s["mu"]) - b) ** 2)},
            START,
            TypeError,
            "custom_vjp.*no forward mode",
        ),
        ({}, {"mu": 0.0, "tau": -1.0}, ValueError, "tau.*positive"),
        ({}, {"mu": 0.0}, ValueError, "tau"),
        ({}, {"mu": 0, "tau": True}, TypeError, "floating point"),
    ],
)
@pytest.mark.parametrize("use", ["marginal", "joint"])
def test_refused_before_anything_compiles(changes, start, error, message, use):
    model = posterior(**changes)
    with pytest.raises(error, match=message):
        getattr(model, use)(start)


def test_what_no_rule_integrates_is_refused_with_the_way_out():
    model = posterior(
        latent=jnp.zeros(5),
        log_latent=lambda b, s: norm.logpdf(b, s["mu"], s["tau"]).sum(),
        log_likelihood=lambda s, b, y: y * b.sum() - jnp.exp(b.sum()),
    )
    with pytest.raises(ValueError, match="latents of 5 numbers are too many for quadrature"):
        model.marginal(START)


@pytest.mark.slow
def test_the_marginal_is_a_posterior_for_every_estimator(key):
    marginal = posterior().marginal(START)
    frozen = marginal.freeze(START)
    whole = marginal.gradient(frozen)
    for estimator in (ex.Minibatch(marginal, 3), ex.ControlVariate(marginal, 3, START)):
        estimate, _ = estimator.estimate(key, estimator.init(key, frozen), frozen)
        for a, b in zip(*(jax.tree.leaves(x) for x in (estimate.gradient, whole)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    samples = ex.sample(
        ex.sgld(ex.Minibatch(marginal, 2), 1e-3), START, 20, key=key, progress=False
    )
    assert samples.position["tau"].min() > 0.0


def test_latents_need_axes_of_chains_and_draws(key):
    with pytest.raises(ValueError, match="chains, draws"):
        posterior().latents({"mu": np.zeros(3), "tau": np.ones(3)}, key=key)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"accuracy": -1.0}, ValueError, "accuracy"),
        ({"max_seconds": "a"}, TypeError, "max_seconds"),
        ({"num_chains": 1}, ValueError, "num_chains"),
        ({"checkpoint": "folder"}, TypeError, "checkpoint"),
        ({"init": {"mu": 0.0, "tau": -1.0}}, ValueError, "tau"),
    ],
)
def test_infer_of_groups_refuses_by_name(changes, error, message, key):
    with pytest.raises(error, match=message):
        ex.infer(posterior(), **({"init": START, "key": key, "progress": False} | changes))


def test_latents_of_wrong_shape_are_refused(key):
    draws = {"mu": np.zeros((2, 3)), "tau": np.ones((2, 3))}
    with pytest.raises(ValueError, match=r"latents must have shape \(2, 3, 3\)"):
        posterior().log_likelihoods(draws, np.zeros((2, 3, 4)))
    with pytest.raises(TypeError, match="search"):
        posterior().marginal(START, search=1)  # pyright: ignore[reportArgumentType]


def test_directions_of_which_groups_say_nothing_do_not_ask_for_nodes():
    """The mean and the level of crossed effects: their scores sum to the same but for rounding."""
    rng = np.random.default_rng(0)
    plane, carrier = rng.integers(40, size=400), rng.integers(4, size=400).astype("int32")
    y = (rng.random(400) < 0.3).astype("float32")

    def log_likelihood(s, b, row):
        y, carrier = row
        score = s["mean"] + b + s["sd"] * s["carrier"][carrier]
        return y * score - jax.nn.softplus(score)

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["mean"]) + norm.logpdf(s["carrier"]).sum() - s["sd"],
        lambda b, s: norm.logpdf(b),
        log_likelihood,
        (y, carrier),
        plane,
    )
    start = {"mean": 0.0, "carrier": np.zeros(4, np.float32), "sd": 1.0}
    account = posterior.marginal(start).log_likelihood.account
    assert account.order < 20 and account.bias < 0.01


def test_latents_that_were_sampled_with_the_rest_are_those_that_are_returned(tmp_path):
    model = posterior()
    target, rng = model.joint(START), np.random.default_rng(0)
    numbers = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=(2, 5, *np.shape(x))), jnp.float32), target.start
    )
    drawn = jax.tree.map(np.asarray, jax.vmap(jax.vmap(target.constrain))(numbers))
    samples = ex.Samples(drawn, None, None)
    file = tmp_path / "latents.npy"
    for path in (None, file):
        latents = model.latents(samples, key=jax.random.key(0), path=path)
        np.testing.assert_array_equal(latents, drawn["latent"])
    np.testing.assert_array_equal(np.load(file), drawn["latent"])
    found = model.log_likelihoods(samples, latents)
    np.testing.assert_array_equal(found, model.log_likelihoods(drawn["shared"], latents))
    told = model.to_arviz(samples, latents)
    assert set(told["posterior"].data_vars) == {"mu", "tau", "latent"}


KINKED = {
    "log_latent": lambda b, s: -jnp.abs(b - s["mu"]) / s["tau"] - jnp.log(2.0 * s["tau"]),
    "log_likelihood": lambda s, b, y: -jnp.abs(y - b),
}
STEP = {"log_likelihood": lambda s, b, y: norm.logpdf(y, b, 0.5) + jnp.where(b > 0.6, 0.5, 0.0)}


@pytest.mark.parametrize("changes", [*({k: v} for k, v in KINKED.items()), KINKED, STEP])
def test_kinks_and_steps_have_no_curvature_but_are_no_parabola(changes):
    assert not posterior(**changes).is_quadratic(START)


@pytest.mark.parametrize("level", [0.0, 3.0, 1e3])
def test_a_normal_law_is_a_parabola_wherever_it_is(level):
    rows = np.random.default_rng(0).normal(level, size=20_000).astype(np.float32)
    model = posterior(np.arange(20_000) % 4, data=rows)
    assert model.is_quadratic({"mu": level, "tau": 1.0})
