"""Large networks: the law that trajectories in place keep, and the memory that they take."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from benchmarks.local import formulas
from ergodax.local import chains, coefficient, in_place
from ergodax.local.law import LocalLaw, local_law
from ergodax.stats.estimators import standard_error
from ergodax.target.mode import TOLERANCE, enough, find_mode
from ergodax.tune.budget import Deadline

SIGMAS = 5.0  # a false alarm of 6e-7
CURVATURES = jnp.array([4.0, 1.0, 0.3])


def quadratic(w, row):
    """Of curvatures far apart, with rows that pull to and fro and cancel."""
    return 0.5 * jnp.sum(CURVATURES * w["a"] ** 2) + row * w["b"][0] ** 2


ROWS = jnp.array([0.4, 0.6, 0.5, 0.5, 0.2, 0.8, 0.7, 0.3, 0.5, 0.5])
START = {"a": jnp.zeros(3), "b": jnp.zeros(1)}


@pytest.fixture
def large(monkeypatch):
    """Every network counts as large."""
    monkeypatch.setattr(chains, "LARGE", 1)
    monkeypatch.setattr(coefficient, "LARGE", 1)


class Energy(eqx.Module):
    """t (L - L*) of a position."""

    law: LocalLaw

    def __call__(self, position):
        return self.law.potential(position) - 0.5 * self.law.localization * sum(
            jnp.sum(x**2) for x in jax.tree.leaves(position)
        )


def energies(law, step, draws=2_000):
    leaps = in_place.Leaps(jnp.float32(step), jnp.int32(5))
    start = jax.tree.map(jnp.copy, law.centre)
    _, seen = in_place.run(
        law, jax.random.key(3), start, leaps, draws, Energy(law), Deadline.never()
    )
    return seen


def off(seen):
    """How many standard errors the mean of t (L - L*) is from the exact one."""
    curvatures, t = np.array([4.0, 1.0, 0.3, 1.0]), 20.0
    exact = formulas.regular(curvatures, t, 2.0)
    x = np.asarray(seen.collected, np.float64)[None]
    return abs(x.mean() - exact) / float(standard_error(x))


def test_trajectories_in_place_keep_the_law():
    """At a step that is refused now and then."""
    seen = energies(local_law(quadratic, START, ROWS, 0.5, 2.0, chunk=4), 0.28)
    assert 0.3 < seen.acceptance.mean() < 0.95
    assert off(seen) < SIGMAS


def test_without_the_metropolis_test_it_is_another_law(monkeypatch):
    """The control: the same trajectories, all of them accepted."""
    always = jax.random.uniform

    def uniform(key, *args, **settings):
        return 0.0 * always(key, *args, **settings)

    monkeypatch.setattr(in_place.jax.random, "uniform", uniform)
    again = eqx.filter_jit(in_place._trajectory.__wrapped__)  # traced anew
    monkeypatch.setattr(in_place, "_trajectory", again)
    assert off(energies(local_law(quadratic, START, ROWS, 0.5, 2.0, chunk=4), 0.28)) > 2.0 * SIGMAS


def test_memory_of_a_trajectory():
    """Beside w* and the position: where it stands, the momentum, a gradient, and little else."""
    width, rows = 512, 16
    loss = lambda w, row: jnp.sum(jnp.tanh(jnp.tanh(row @ w[0]) @ w[1]) ** 2)  # noqa: E731
    weights = [jnp.zeros((width, width)), jnp.zeros((width, width))]
    law = local_law(loss, weights, jnp.ones((rows, width)), 1.0, 1.0, chunk=8)
    leaps = in_place.Leaps(jnp.float32(1e-3), jnp.int32(4))
    what = law, jax.random.key(0), leaps, chains.Watch(law.centre)
    place = jax.tree.map(jnp.copy, law.centre)
    compiled = in_place._trajectory.lower(what, place).compile().compiled
    found = compiled.memory_analysis()
    assert found.alias_size_in_bytes >= 8 * width**2  # the position is given up
    assert found.temp_size_in_bytes <= 3.5 * 8 * width**2


def test_descent_finds_the_minimum_that_a_search_finds():
    row = jnp.linspace(0.0, 1.0, 50)
    loss = lambda w, x: jnp.sum((w - x * jnp.array([1.0, 3.0])) ** 2 * jnp.array([0.5, 8.0]))  # noqa: E731
    law = local_law(loss, jnp.array([0.9, 0.9]), row, 2.0, 1.0, chunk=16)
    small = enough(TOLERANCE, law.centre)
    fallen, found = in_place.fall_of_loss(law, small, 200, Deadline.never())
    mode = find_mode(law, law.centre)
    distance = float(jnp.sum((mode.position - law.centre) ** 2))
    assert found and mode.converged
    np.testing.assert_allclose(fallen, 0.5 * distance - float(mode.potential), rtol=1e-3)


def test_coefficient_of_a_large_network(large):
    found = ex.local.learning_coefficient(
        quadratic,
        START,
        ROWS,
        key=jax.random.key(0),
        temperature=0.5,
        num_chains=1,
        accuracy=0.2,
    )
    exact = formulas.regular(np.array([4.0, 1.0, 0.3, 1.0]), 20.0, 1.0)
    assert found.ok, str(found)
    assert abs(found.estimate - exact) < 1.5 * found.error


def test_time_that_is_up_of_a_large_network(large):
    found = ex.local.learning_coefficient(
        quadratic, START, ROWS, key=jax.random.key(0), max_seconds=1e-6, num_chains=1
    )
    assert found.verdict == "NOT CONVERGED"
    assert "time was up" in found.remedy


def test_influence_of_a_large_network(large):
    """Var of the loss of a query, to which only its own curvature matters, by the exact law."""
    loss = lambda w, y: 0.5 * (w - y) ** 2  # noqa: E731
    y = jnp.array([-1.0, 0.0, 1.0, 2.0])
    found = ex.local.influence(
        loss, jnp.array(0.5), y, y[:2], key=jax.random.key(0), temperature=1.0, num_chains=1,
        num_draws=400, accuracy=0.5,
    )  # fmt: skip
    variance = 1.0 / (4.0 + 1.0)
    first, second = np.array(0.5 - y)[:, None], np.array(0.5 - y[:2])[None]
    exact = -(0.5 * variance**2 + first * second * variance)
    assert np.abs((found.values - exact) / found.mc_error).max() < 5.0
