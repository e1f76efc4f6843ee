"""What the kernels of `exact` count, refuse and report."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.exact.tuna import AliasTable
from unit.test_exact_bounds import CENTRE, X, Y, log_likelihood

pytestmark = pytest.mark.slow

BIG = np.tile(X, (100, 1)).astype("f4"), np.tile(Y, 100).astype("f4")  # 3,000 rows
START = CENTRE.astype("f4")


def posterior(data=BIG, log_likelihood=log_likelihood):
    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, data)


def infos(kernel, steps=20, start=START):
    return ex.sample(kernel, start, steps, key=jax.random.key(5), progress=False).info


def too_steep(w, example):
    return 2.0 * log_likelihood(w, example)


def one_row_steep(w, example):
    x, y = example
    return log_likelihood(w, example) * jnp.where(jnp.abs(x[0] - X[7, 0]) < 1e-5, 30.0, 1.0)


@pytest.mark.slow
def test_confidence_counts_every_likelihood():
    span = ex.exact.LogisticRange(BIG[0])
    plain = infos(ex.exact.confidence(posterior(), 0.05, span)).evaluations
    rows = plain // 2
    assert (plain == 2 * rows).all() and set(rows.ravel()) <= {100, 200, 400, 800, 1600, 3000}
    mode = ex.find_mode(posterior(), START)
    kernel = ex.exact.confidence(posterior(), 0.05, span, centre=mode)
    proxies = infos(kernel, start=mode.position).evaluations
    assert (proxies % 300 == 0).all(), "three for each row"
    assert proxies.mean() < 0.6 * plain.mean()


def test_proxies_do_not_change_a_decision_on_all_the_data():
    """With delta next to nothing both see every row, so they decide alike."""
    span = ex.exact.LogisticRange(X)
    small = posterior((X.astype("f4"), Y.astype("f4")))
    one, two = (
        ex.sample(
            ex.exact.confidence(small, 0.5, span, delta=1e-30, batch_size=10, centre=centre),
            START,
            50,
            key=jax.random.key(2),
        ).position
        for centre in (None, START)
    )
    np.testing.assert_array_equal(one, two)


def test_the_potential_is_that_of_the_rows_seen():
    """On all the data it is U itself, at the position that was accepted or kept."""
    small = posterior((X.astype("f4"), Y.astype("f4")))
    kernel = ex.exact.confidence(small, 0.5, ex.exact.LogisticRange(X), delta=1e-30, batch_size=7)
    draws = ex.sample(kernel, START, 20, key=jax.random.key(2))
    assert 0 < draws.info.accepted.sum() < 20
    exact = jax.vmap(small.potential)(jnp.asarray(draws.position[0]))
    np.testing.assert_allclose(draws.info.potential[0], exact, rtol=1e-5)


@pytest.mark.slow
def test_firefly_counts_bright_rows_and_candidates():
    """One for each bright row to go dark, two for the energies, one for each candidate."""
    mode, n = ex.find_mode(posterior(), START), 3000
    bound = ex.exact.LogisticBound(*BIG, centre=mode)
    kernel = ex.exact.firefly(posterior(), 0.05, bound, candidates=10)
    first = kernel.init(jax.random.key(0), mode.position)
    state, info = kernel.step(jax.random.key(1), first)
    before, after = (int(jnp.sum(s.gradient < n)) for s in (first, state))
    candidates = int(info.evaluations) - before - 2 * after
    assert 0 <= candidates <= 30
    mean = infos(kernel, 500, mode.position).evaluations.mean()
    assert 8.0 < mean < 20.0


def test_bright_rows_are_sorted_and_distinct():
    bound = ex.exact.LogisticBound(*BIG)
    kernel = ex.exact.firefly(posterior(), 0.05, bound, candidates=300, capacity=600)
    rows = ex.sample(kernel, START, 50, key=jax.random.key(0)).final_state.gradient[0]
    real = rows[rows < 3000]
    assert real.size > 10 and (np.diff(real) > 0).all() and (rows[real.size :] == 3000).all()


@pytest.mark.slow
@pytest.mark.parametrize("candidates, capacity", [(300, 40), (3000, 40), (1.0, 10)])
def test_more_bright_rows_than_places_stop_the_run(candidates, capacity):
    bound = ex.exact.LogisticBound(*BIG, tangent=5.0)
    kernel = ex.exact.firefly(posterior(), 0.05, bound, candidates=candidates, capacity=capacity)
    with pytest.raises(ex.DivergenceError):
        infos(kernel, 50)


INFEASIBLE = {
    "firefly": lambda likelihood: ex.exact.firefly(
        posterior(log_likelihood=likelihood),
        0.05,
        ex.exact.LogisticBound(*BIG, centre=START),
        capacity=3000,
    ),
    "tuna": lambda likelihood: ex.exact.tuna(
        posterior(log_likelihood=likelihood), 0.05, np.linalg.norm(BIG[0], axis=1), chi=1e-3
    ),
    "confidence": lambda likelihood: ex.exact.confidence(
        posterior(log_likelihood=likelihood), 0.05, ex.exact.LogisticRange(BIG[0])
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INFEASIBLE)
def test_a_bound_that_does_not_hold_stops_the_run(name):
    assert infos(INFEASIBLE[name](log_likelihood)).feasible.all()
    with pytest.raises(ex.DivergenceError):
        infos(INFEASIBLE[name](too_steep if name == "firefly" else one_row_steep), 200)


def test_tuna_counts_a_poisson_number_of_rows(x64):
    """Its mean is that of lambda + C M over the proposals."""
    model = posterior(tuple(z.astype(float) for z in BIG))
    kernel = ex.exact.tuna(model, 0.02, np.linalg.norm(BIG[0], axis=1), chi=0.01)
    info = infos(kernel, 2000, START.astype(float))
    moves = 0.02 * np.random.default_rng(0).normal(size=(10**6, 3))
    most = np.linalg.norm(BIG[0], axis=1).sum() * np.linalg.norm(moves, axis=1)
    expected = 2.0 * (most + 0.01 * most**2)
    error = np.sqrt((expected.var() + 2.0 * expected.mean()) / 2000)
    assert abs(info.evaluations.mean() - expected.mean()) < 5.0 * error


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0], [0.0, 3.0, 1.0, 0.0, 10.0], range(100)])
def test_an_alias_table_has_the_weights(weights, x64):
    table = AliasTable(np.asarray(weights, float))
    n = len(weights)
    keep, alias = np.asarray(table.keep), np.asarray(table.alias)
    shares = (keep + np.bincount(alias, 1.0 - keep, n)) / n
    np.testing.assert_allclose(shares, np.divide(weights, np.sum(weights)), atol=1e-15)


def test_rows_without_weight_are_never_drawn(key):
    rows = AliasTable(np.array([0.0, 1.0, 0.0, 2.0])).draw(key, 5000)
    counts = np.bincount(np.asarray(rows), minlength=4)
    assert counts[0] == counts[2] == 0
    assert abs(counts[3] / 5000 - 2 / 3) < 5.0 * np.sqrt(2 / 9 / 5000)
