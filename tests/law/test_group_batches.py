"""Batches of groups by Fisher's identity: the exact law of SGLD on a normal hierarchy.

Four groups of three rows; the variances of mu are those of an exact recursion over batches, to ten
digits. Wrong estimators have others.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy.stats import norm

import ergodax as ex
from ergodax.data.batching import Batching
from ergodax.groups.estimator import GroupMinibatchState

pytestmark = pytest.mark.usefixtures("x64")

S2, TAU2, S0 = 1.5, 0.8, 10.0
MEANS = np.array([-0.7, 0.4, 1.1, 2.0])
BEST = S2 / (S2 + 3 * TAU2)  # the w at which the latents' noise cancels


class Only(Batching):
    """The same groups at every step."""

    groups: jax.Array
    distinct: ClassVar[bool] = True

    def init(self, key, num_rows):
        return None

    def draw(self, key, state, num_rows, batch_size):
        return self.groups, state


def model(w, *, second_term=True):
    """Latents u = mu + b - w mu: w = 0 is centred, w = 1 is not."""
    rows = (MEANS[:, None] + np.sqrt(S2) * np.array([-1.0, 0.0, 1.0])).ravel()

    def log_likelihood(mu, u, y):
        return norm.logpdf(y, u + w * (mu if second_term else lax.stop_gradient(mu)), np.sqrt(S2))

    return ex.groups.GroupedPosterior(
        lambda mu: norm.logpdf(mu, 0.0, np.sqrt(S0)),
        lambda u, mu: norm.logpdf(u, (1.0 - w) * mu, np.sqrt(TAU2)),
        log_likelihood,
        rows,
        np.repeat(np.arange(4), 3),
    )


def law(posterior, step_size, size, share=1.0, **options):
    """Mean and variance of mu under SGLD with batches of one group, or of all.

    A step is mu+ = A mu + a + B z + sqrt(2 h) xi for each batch, as read off the estimator; `share`
    is what its likelihood counts.
    """
    batches = np.arange(4)[:, None] if size == 1 else np.arange(4)[None]
    scheme = Only(jnp.asarray(batches[0]))
    whole = ex.groups.GroupMinibatch(posterior, size, 0.5, batching=scheme, **options)
    key, zero = jax.random.key(0), jnp.zeros(())

    @jax.jit
    @jax.vmap
    def read(groups):
        gradient = eqx.tree_at(lambda g: g.batching.groups, whole, groups)

        def slope(mu, z):
            state = GroupMinibatchState(None, jnp.zeros((4, 1)))
            with ex.tree.given_normals([z]):
                prior = -whole.outer.prior_gradient(mu)
                return prior + share * (gradient.estimate(key, state, mu)[0].gradient - prior)

        # Differences, since wrong models are made by stopping derivatives.
        z = jnp.zeros((size, 1))
        at_zero = slope(zero, z)
        by_latents = jax.vmap(lambda e: slope(zero, e[:, None]) - at_zero)(jnp.eye(size))
        return at_zero, slope(zero + 1.0, z) - at_zero, by_latents

    at_zero, bend, by_latents = read(jnp.asarray(batches))
    matrix, shift = 1.0 - step_size * bend, -step_size * at_zero
    noise = 2.0 * step_size + step_size**2 * jnp.mean(jnp.sum(by_latents**2, axis=1))
    mean = shift.mean() / (1.0 - matrix.mean())
    moved = (matrix - 1.0) * mean + shift
    return mean, (jnp.mean(moved**2) + noise) / (1.0 - jnp.mean(matrix**2))


EXACT = 0.6779661017
TABLE = [
    (0.0, 1, 0.4865882224),
    (0.0, 4, 0.3583656503),
    (BEST, 1, 0.4208330572),
    (BEST, 4, 0.3419268590),
    (1.0, 1, 0.5891662801),
    (1.0, 4, 0.3840101647),
]


@pytest.mark.parametrize(("w", "size", "variance"), TABLE)
def test_the_law_of_sgld_in_each_form_of_the_model(w, size, variance):
    mean, found = law(model(w), 0.05, size, reparametrise=False)
    np.testing.assert_allclose([mean, found], [EXACT, variance], rtol=2e-10)


@pytest.mark.parametrize("w", [0.0, 1.0])
@pytest.mark.parametrize("size", [1, 4])
def test_the_map_takes_the_latents_noise_away_in_any_form(w, size):
    best = next(variance for form, m, variance in TABLE if form == BEST and m == size)
    mean, found = law(model(w), 0.05, size)
    np.testing.assert_allclose([mean, found], [EXACT, best], rtol=2e-10)


def test_without_the_second_term_it_is_another_law():
    wrong = law(model(0.5, second_term=False), 1e-6, 4, reparametrise=False)
    np.testing.assert_allclose(wrong, [0.6572769953, 0.6103286385], rtol=1e-5)
    right = law(model(0.5), 1e-6, 4, reparametrise=False)
    np.testing.assert_allclose(right, [EXACT, 0.3147699758], rtol=1e-5)


def test_a_batch_that_does_not_stand_for_all_is_another_law():
    forget = law(model(0.0), 1e-6, 1, share=0.25, reparametrise=False)
    np.testing.assert_allclose(forget[1], 1.1504424779, rtol=1e-5)


def binomial():
    """Three groups with a logit each, and the score of log tau and of the mean by quadrature."""
    y = np.repeat([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [8, 2, 3, 5, 0, 4])
    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["mu"], 0.0, 5.0) + norm.logpdf(s["log_tau"]),
        lambda b, s: norm.logpdf(b, s["mu"], jnp.exp(s["log_tau"])),
        lambda s, b, y: y * b - jax.nn.softplus(b),
        y,
        np.repeat([0, 1, 2], [10, 8, 4]),
    )
    shared = {"mu": 0.3, "log_tau": 0.4}
    marginal = posterior.marginal(shared, nodes=41)
    return posterior, shared, marginal.gradient(marginal.freeze(shared))


@pytest.mark.parametrize("reparametrise", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_gradient_is_unbiased_where_latents_walk(reparametrise, key):
    """Means of 400 chains of 25 estimates within five standard errors; the plug-in's are not."""
    posterior, shared, exact = binomial()
    gradient = ex.groups.GroupMinibatch(posterior, 2, shared, reparametrise=reparametrise)
    assert not gradient.quadratic
    frozen = gradient.target.freeze(shared)

    @jax.jit
    @jax.vmap
    def chain(key):
        key_start, *keys = jax.random.split(key, 26)

        def step(state, key):
            estimate, state = gradient.estimate(key, state, frozen)
            return state, estimate.gradient

        return jax.tree.map(
            lambda x: x.mean(axis=0),
            lax.scan(step, gradient.init(key_start, frozen), jnp.stack(keys))[1],
        )

    found = chain(jax.random.split(key, 400))
    block = posterior.layout.block(jnp.arange(3, dtype=jnp.int32))
    values = jax.tree.map(jnp.asarray, shared)

    def plugged_in(s):
        density = posterior.density
        modes = block.over(lambda r, m: density.mode(values, r, m, jnp.zeros(1)).mean)
        each = block.over(lambda r, m, b: density(s, b, r, m), modes)
        return -jnp.sum(each) - posterior.log_prior(s)

    wrong = jax.grad(plugged_in)(values)
    errors = {name: float(x.std() / np.sqrt(400)) for name, x in found.items()}
    for name, error in errors.items():
        assert abs(float(found[name].mean() - exact[name])) < 5.0 * error
    assert abs(float(wrong["log_tau"] - exact["log_tau"])) > 10.0 * errors["log_tau"]


@pytest.mark.slow
def test_a_map_that_moves_makes_less_noise(key):
    posterior, shared, _ = binomial()
    spread = []
    for reparametrise in (False, True):
        gradient = ex.groups.GroupMinibatch(posterior, 3, shared, reparametrise=reparametrise)
        frozen = gradient.target.freeze(shared)
        state = gradient.init(key, frozen)
        each = jax.jit(
            jax.vmap(lambda k, g=gradient, s=state, x=frozen: g.estimate(k, s, x)[0].gradient)
        )
        spread.append(np.std(each(jax.random.split(key, 2_000))["mu"]))
    assert spread[1] < 0.5 * spread[0]
