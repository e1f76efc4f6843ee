"""`ex.infer` on a column that is other than 0 in thirty of many rows."""

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.persist import checkpoint

SIZE, SELDOM = 200_000, 30


def rare():
    """A posterior of two coefficients, and its data."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZE, 2)).astype(np.float32)
    x[:, 1] = 0.0
    x[:SELDOM, 1] = 1.0
    y = (rng.random(SIZE) < 1.0 / (1.0 + np.exp(-x @ [0.5, -1.5]))).astype(np.float32)

    def log_likelihood(w, row):
        line = row[0] @ w
        return row[1] * line - jax.nn.softplus(line)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y)), x, y


def test_a_rare_column_is_inferred_by_batches():
    posterior, x, y = rare()
    result = ex.infer(posterior, jnp.zeros(2), key=jax.random.key(0), progress=False)
    assert result.converged, result
    decided = [decision.what for decision in result.account.decisions]
    assert "influential rows" in decided and "estimator" in decided, "batches serve"
    mean, sd = by_quadrature(x, y)
    error = result.table["error"].to_numpy()
    # Each error is one standard error; five of them fail once in a million for each of the two.
    assert (np.abs(result.table["mean"] - mean) < 5.0 * error * sd).all()
    np.testing.assert_allclose(result.table["sd"], sd, rtol=5.0 * error.max())


def test_it_is_kept_without_the_data_and_goes_on(tmp_path):
    """Of an inference with rows set apart, the file has a flag for each row and not the rows."""
    posterior, x, _ = rare()
    options = {"key": jax.random.key(2), "progress": False}
    first = ex.infer(posterior, jnp.zeros(2), checkpoint=ex.Checkpoint(tmp_path), **options)
    assert "influential rows" in [decision.what for decision in first.account.decisions]
    arrays = checkpoint.read(tmp_path / "decisions")[1].values()
    assert not any(array.shape == x.shape for array in arrays)
    resumed = ex.Checkpoint(tmp_path, resume=True)
    again = ex.infer(rare()[0], jnp.zeros(2), checkpoint=resumed, **options)
    np.testing.assert_array_equal(again.samples.position, first.samples.position)
    assert again.verdict() == first.verdict()


def by_quadrature(x, y):
    """Means and sds, on a grid: the two coefficients meet in the thirty rows alone."""
    first = np.linspace(0.4, 0.6, 201)
    second = np.linspace(-5.0, 3.0, 241)
    rest = x[SELDOM:, 0].astype(float)
    total = float(y[SELDOM:] @ rest)
    log = np.array([a * total - np.logaddexp(0.0, a * rest).sum() for a in first])[:, None]
    line = first[:, None, None] * x[:SELDOM, 0] + second[None, :, None]
    log = log + (y[:SELDOM] * line - np.logaddexp(0.0, line)).sum(axis=-1)
    log = log - 0.5 * first[:, None] ** 2 - 0.5 * second**2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    found = []
    for values, axis in ((first, 1), (second, 0)):
        marginal = weight.sum(axis=axis)
        mean = marginal @ values
        found.append((mean, np.sqrt(marginal @ (values - mean) ** 2)))
    return np.array(found).T
