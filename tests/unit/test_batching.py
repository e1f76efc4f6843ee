"""How rows are drawn: which, how often, and at what cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ergodax.data import Neighbours, ShuffledEpochs, WithoutReplacement, WithReplacement
from ergodax.data.arrays import as_data, num_rows, take

SCHEMES = [
    WithReplacement(), WithoutReplacement(), ShuffledEpochs(), ShuffledEpochs(symmetric=True),
    Neighbours(),
]  # fmt: skip


def batches(scheme, rows: int, size: int, count: int, key) -> np.ndarray:
    key_init, key_run = jax.random.split(key)

    def one(state, key):
        drawn, state = scheme.draw(key, state, rows, size)
        return state, drawn

    keys = jax.random.split(key_run, count)
    return np.asarray(jax.lax.scan(one, scheme.init(key_init, rows), keys)[1])


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rows", [10, 1009])
def test_rows_are_in_range_and_change(scheme, rows, key):
    drawn = batches(scheme, rows, 3, 50, key)
    assert drawn.shape == (50, 3) and drawn.dtype == np.int32
    assert drawn.min() >= 0 and drawn.max() < rows
    assert len(np.unique(drawn)) > 0.9 * min(rows, 100)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES[1:])
@pytest.mark.parametrize(("rows", "size"), [(10, 3), (10, 10), (1009, 50), (1009, 400), (1, 1)])
def test_the_rows_of_a_batch_are_distinct(scheme, rows, size, key):
    for batch in batches(scheme, rows, size, 20, key):
        assert len(set(batch)) == size


def test_neighbours_are_every_run_of_rows_equally_often(key):
    """All 7 batches of 3 successive rows of 7, the first after the last; chi-square at p = 1e-6."""
    drawn = batches(Neighbours(), 7, 3, 7000, key)
    np.testing.assert_array_equal((drawn[:, 1:] - drawn[:, :-1]) % 7, 1)
    counts = np.bincount(drawn[:, 0], minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < stats.chi2.isf(1e-6, 6)


def test_with_replacement_repeats(key):
    """Five rows of five without a repeat: probability 0.04 each, 200 times in a row: no."""
    drawn = batches(WithReplacement(), 5, 5, 200, key)
    assert any(len(set(batch)) < 5 for batch in drawn)


@pytest.mark.parametrize(("rows", "size"), [(12, 3), (13, 3), (5, 5), (1009, 100)])
def test_an_epoch_visits_rows_once(rows, size, key):
    """All of them where n divides N, else all but N mod n, which change."""
    each = rows // size
    epochs = batches(ShuffledEpochs(), rows, size, 6 * each, key).reshape(6, each * size)
    for epoch in epochs:
        assert len(set(epoch)) == each * size
    assert len({tuple(epoch) for epoch in epochs}) == 6, "each pass has an order of its own"
    left_out = [set(range(rows)) - set(epoch) for epoch in epochs]
    assert all(len(out) == rows % size for out in left_out)
    assert rows % size == 0 or len(set.union(*left_out)) > rows % size


@pytest.mark.parametrize(("rows", "size"), [(12, 3), (13, 3), (5, 5), (1009, 100)])
def test_a_symmetric_order_is_gone_through_forward_and_backward(rows, size, key):
    """The batch at the turn is used twice running, and each order is a new one."""
    each = rows // size
    drawn = batches(ShuffledEpochs(symmetric=True), rows, size, 8 * each, key)
    orders = drawn.reshape(4, 2 * each, size)
    np.testing.assert_array_equal(orders, orders[:, ::-1])
    assert all(len(set(order.ravel())) == each * size for order in orders)
    assert len({tuple(order.ravel()) for order in orders}) == 4


def largest_array(jaxpr) -> int:
    """The most numbers in any one array of a program, its inner programs included."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [v.aval.size for v in equation.outvars if hasattr(v.aval, "size")]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            program = getattr(value, "jaxpr", value)
            if hasattr(program, "eqns"):
                sizes.append(largest_array(program))
    return max(sizes)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_cost_of_a_batch_does_not_grow_with_the_data(scheme, key):
    """No array of the program is longer than a few batches, whatever N."""

    def draw(key, state, rows):
        return scheme.draw(key, state, rows, 10)

    for rows in (10_007, 2**31 - 1):
        state = scheme.init(key, rows)
        program = jax.make_jaxpr(lambda k, s, rows=rows: draw(k, s, rows))(key, state)
        assert largest_array(program.jaxpr) <= 40


def test_the_search_for_large_arrays_finds_one(key):
    program = jax.make_jaxpr(lambda k: jax.random.choice(k, 10_007, (10,), replace=False))(key)
    assert largest_array(program.jaxpr) >= 10_007


def test_data_are_copied_and_keep_their_structure():
    x, y = np.ones((4, 2), "f4"), np.arange(4)
    data = as_data({"x": x, "y": [y]})
    x[:], y[:] = 7.0, 9
    np.testing.assert_array_equal(data["x"], np.ones((4, 2)))
    np.testing.assert_array_equal(data["y"][0], np.arange(4))
    assert num_rows(data) == 4 and data["y"][0].dtype == jnp.int32
    batch = take(data, jnp.array([3, 0]))
    np.testing.assert_array_equal(batch["y"][0], [3, 0])
    assert batch["x"].shape == (2, 2)
