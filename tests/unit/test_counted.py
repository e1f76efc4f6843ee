"""Equal rows computed once: the same posterior, in fewer rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data.distinct import distinct_rows
from ergodax.target.counted import HEAVIEST, counted


def table(rows=6_000, levels=12):
    """A level, which is a number, and an outcome."""
    rng = np.random.default_rng(5)
    level = rng.integers(0, levels, rows).astype(np.int32)
    return level, (rng.random(rows) < 0.3).astype(np.float32)


def log_odds(w, example):
    level, outcome = example
    return outcome * w[level] - jax.nn.softplus(w[level])


def model(data, **options):
    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_odds, data, **options)


@pytest.mark.parametrize("batched", [False, True])
def test_the_potential_and_its_gradient_are_the_same(batched):
    posterior = model(table(), batched=batched)
    fewer = counted(posterior)
    assert fewer is not None
    assert fewer.num_data == 24
    assert float(fewer.data[1].sum()) == posterior.num_data
    w = jnp.linspace(-1.0, 1.0, 12)
    for one, other in zip(
        posterior.value_and_gradient(w), fewer.value_and_gradient(w), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=4e-3)  # sums of thousands
    without = ex.Posterior(posterior.log_prior, log_odds, (fewer.data[0][0], fewer.data[0][1]))
    assert abs(float(without.potential(w)) - float(posterior.potential(w))) > 100.0, "the control"


def test_constraints_are_kept():
    normal = lambda s, x: -jnp.log(s) - 0.5 * (x / s) ** 2  # noqa: E731
    data = np.round(np.random.default_rng(1).normal(size=4_000)).astype(np.float32)
    posterior = ex.Posterior(lambda s: -s, normal, data, constraints=ex.transform.positive)
    fewer = counted(posterior)
    assert fewer is not None and fewer.num_data < 30
    at = ex.find_mode(posterior, jnp.float32(0.5)).position
    assert float(at) > 0.0
    np.testing.assert_allclose(ex.find_mode(fewer, jnp.float32(0.5)).position, at, rtol=1e-3)


def test_a_row_that_is_most_of_the_table_stands_there_several_times():
    data = np.where(np.arange(9_000) < 8_000, 0.0, np.arange(9_000.0) % 50).astype(np.float32)
    fewer = counted(ex.Posterior(lambda m: 0.0, lambda m, x: -((x - m) ** 2), data))
    assert fewer is not None
    weights = np.asarray(fewer.data[1])
    assert weights.sum() == pytest.approx(9_000)
    assert weights.max() <= HEAVIEST * 9_000 / 50
    assert np.sum(np.asarray(fewer.data[0]) == 0.0) > 10


def test_rows_that_differ_are_left_alone():
    numbers = np.random.default_rng(2).normal(size=(5_000, 2)).astype(np.float32)
    posterior = ex.Posterior(lambda m: 0.0, lambda m, x: -jnp.sum((x - m) ** 2), numbers)
    assert counted(posterior) is None
    half = ex.Posterior(
        posterior.log_prior, posterior.log_likelihood, np.repeat(numbers, 2, axis=0)
    )
    assert counted(half) is None, "half of the rows are not few"


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, np.float16, np.uint8])
def test_numbers_of_every_width(dtype):
    data = np.array([1, 2, 1, 3, 2]).astype(dtype)
    if np.iscomplexobj(data):
        data += 1j * np.array([0, 0, 1, 0, 0])
        assert distinct_rows((data,))[1].tolist() == [0, 1, 2, 3, 1]
    else:
        assert distinct_rows((data,))[1].tolist() == [0, 1, 0, 2, 1]


def test_rows_that_are_zero_of_both_signs_and_types_of_all_kinds():
    data = (np.array([0.0, -0.0, 1.0]), np.array([True, True, False]), np.array([1, 1, 2], np.int8))
    first, which = distinct_rows(data)
    assert which.tolist() in ([0, 1, 2], [0, 0, 1])
    assert first[which].tolist() in ([0, 1, 2], [0, 0, 2])


@pytest.mark.slow
def test_infer_counts_and_says_so():
    data = table()
    posterior = model(data)
    result = ex.infer(posterior, jnp.zeros(12), key=jax.random.key(0), progress=False)
    assert result.converged, result.verdict()
    first = result.account.decisions[0]
    assert (first.what, first.chosen) == ("rows", "24")
    # One level: the mean of its log odds by quadrature.
    level, outcome = data
    w, events, rows = np.linspace(-6, 6, 2_001), outcome[level == 3].sum(), (level == 3).sum()
    log = events * w - rows * np.log1p(np.exp(w)) - 0.5 * w**2
    mass = np.exp(log - log.max())
    mean = np.sum(w * mass) / mass.sum()
    sd = np.sqrt(np.sum((w - mean) ** 2 * mass) / mass.sum())
    assert abs(result.table["mean"].iloc[3] - mean) < 4.5 * sd * result.table["mcse_mean"].iloc[3]
