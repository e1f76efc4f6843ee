"""A condensed posterior: the sum of its parts, the rows that it keeps, and the digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import ergodax as ex
from ergodax.exact.condensed import FEWEST
from ergodax.gradient.expansion import expand
from ergodax.tune.surrogate import sharpest_curvatures

RNG = np.random.default_rng(11)
N = 2_000
X = 0.3 * RNG.normal(size=(N, 3))
STEEP = np.sort(RNG.choice(N, 20, replace=False))
X[STEEP] *= 300.0
Y = (RNG.uniform(size=N) < 0.4).astype(float)
COUNTS = RNG.poisson(1.5, size=N).astype(float)
CENTRE = np.array([0.1, -0.2, 0.05])
DRAWS = CENTRE + 0.3 * RNG.normal(size=(24, 3))
POINTS = CENTRE + 0.5 * RNG.normal(size=(7, 3))


def whole(tree):
    """The three numbers of a position, whatever its tree."""
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])


def log_prior(w):
    return -0.5 * jnp.sum(whole(w) ** 2)


def logistic(w, row):
    x, y = row[0].astype(whole(w).dtype), row[1].astype(whole(w).dtype)
    return jax.nn.log_sigmoid((2.0 * y - 1.0) * (x @ whole(w)))


def poisson(w, row):
    x, _, count = row
    rate = jnp.tanh(x) @ whole(w)
    return count * rate - jnp.exp(rate)


def saturating(w, row):
    """Regression on a (1 - exp(-e^b x)) + c."""
    x, _, y = row
    a, b, c = whole(w)
    return -0.5 * (y - a * (1.0 - jnp.exp(-jnp.exp(b) * jnp.abs(x[0]))) - c) ** 2


LIKELIHOODS = {"logistic": logistic, "poisson": poisson, "saturating": saturating}
TREES = {
    "vector": lambda w: w,
    "dictionary": lambda w: {"a": w[..., :2], "b": w[..., 2]},
}


def posterior(likelihood=logistic, *, batched=False, dtype="f8"):
    data = tuple(z.astype(dtype) for z in (X, Y, COUNTS))
    if batched:
        return ex.Posterior(log_prior, jax.vmap(likelihood, (None, 0)), data, batched=True)
    return ex.Posterior(log_prior, likelihood, data)


def condensed(of=None, kind="vector", **options):
    place = lambda w: TREES[kind](jnp.asarray(w))  # noqa: E731
    return ex.exact.condense(of or posterior(), place(CENTRE), place(DRAWS), **options)


def remainders():
    """Of each row of the logistic model at each draw, by its formula."""
    sign = 2.0 * Y - 1.0
    z0, z = sign * (X @ CENTRE), sign[:, None] * (X @ DRAWS.T)
    p, log_sigmoid = special.expit(-z0), lambda z: -np.logaddexp(0.0, -z)
    step = z - z0[:, None]
    linear = log_sigmoid(z0)[:, None] + p[:, None] * step
    return log_sigmoid(z) - linear + 0.5 * (p * (1.0 - p))[:, None] * step**2


@pytest.mark.slow
@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_with_the_correction_it_is_the_posterior(name, batched, kind, x64):
    """Up to a constant, and to rounding."""
    model = posterior(LIKELIHOODS[name], batched=batched)
    short = condensed(model, kind)
    assert short.evaluations == short.kept.evaluations <= N // 8

    @jax.jit
    @jax.vmap
    def potentials(w):
        return model.potential(w), short.potential(w), short.correction(w)

    exact, surrogate, correction = potentials(TREES[kind](jnp.asarray(POINTS)))
    constant = exact - surrogate - correction
    np.testing.assert_allclose(constant, constant[0], rtol=1e-12)
    assert np.ptp(correction) > 1e-4, "the surrogate is not the posterior"


@pytest.mark.slow
def test_at_the_centre_only_the_prior_is_left(x64):
    short, centre = condensed(), jnp.asarray(CENTRE)
    np.testing.assert_allclose(short.potential(centre), -log_prior(centre), rtol=1e-14)
    assert short.correction(centre) == short.kept.potential(centre) == 0.0
    slope = jax.grad(posterior().potential)(centre)
    np.testing.assert_allclose(jax.grad(short.potential)(centre), slope, rtol=1e-9)


def test_the_rows_that_bend_most_are_kept(x64):
    np.testing.assert_array_equal(condensed(most=20).rows, STEEP)
    sizes = remainders().std(axis=1)
    np.testing.assert_array_equal(condensed(most=250).rows, np.sort(np.argsort(-sizes)[:250]))


def test_the_size_of_what_a_polynomial_would_leave_of_each_row_is_kept(x64):
    left = condensed(most=250)
    expected = remainders().std(axis=1)[np.asarray(left.rows)]
    np.testing.assert_allclose(left.remainders, expected, rtol=1e-7, atol=1e-12)
    slow, _ = left.split(np.arange(40, 250))
    np.testing.assert_array_equal(slow.remainders, left.remainders[:40])


def test_rows_are_kept_that_are_known(x64):
    """Also where they are more than would be kept without them, but not beyond `most`."""
    flat = np.argsort(remainders().std(axis=1))
    kept = condensed(most=250, keep=flat[:9])
    assert np.isin(flat[:9], kept.rows).all() and np.isin(STEEP, kept.rows).all()
    many = condensed(most=N, spread=1e6, keep=flat[:300])
    assert np.isin(flat[:300], many.rows).all() and many.evaluations == 512
    assert condensed(most=250, keep=flat[:300]).evaluations == 250


def test_the_spread_is_that_of_the_correction_over_the_draws(x64):
    left = condensed(most=30)
    correction = jax.jit(jax.vmap(left.correction))(jnp.asarray(DRAWS))
    np.testing.assert_allclose(left.spread, np.std(correction), rtol=1e-9)
    others = np.setdiff1d(np.arange(N), left.rows)
    np.testing.assert_allclose(left.spread, remainders()[others].sum(axis=0).std(), rtol=1e-9)


def test_the_number_is_doubled_until_the_spread_is_reached(x64):
    each = remainders()
    order = np.argsort(-each.std(axis=1), kind="stable")
    left = {n: each[order[n:]].sum(axis=0).std() for n in (256, 512, 1024, N)}
    assert left[256] > left[512] > left[1024] > left[N] == 0.0
    for count, before in ((512, 256), (1024, 512), (N, 1024)):
        wanted = np.sqrt(left[before] * max(left[count], 1e-3 * left[before]))
        found = condensed(spread=wanted, most=N)
        assert found.evaluations == count and found.spread <= wanted
    assert condensed(spread=1e6, most=N).evaluations == FEWEST
    assert condensed(spread=1e-9).evaluations == N // 8, "most rows by default"


@pytest.mark.slow
def test_rows_that_are_not_finite_are_kept(x64):
    """An infinite or undefined log-likelihood away from the centre: no polynomial has it."""

    def walled(bad):
        def likelihood(w, row):
            return jnp.where((row[0][0] > 0.9) & (w[0] > 0.3), bad, logistic(w, row))

        return likelihood

    beyond = np.flatnonzero(X[:, 0] > 0.9)
    assert 3 < len(beyond) < 20
    for bad in (-jnp.inf, jnp.nan, -1e200):
        found = condensed(posterior(walled(bad)), most=200)
        assert np.isin(beyond, found.rows).all() and np.isfinite(found.spread)
    assert condensed(posterior(walled(-jnp.inf)), most=2).spread == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("steep", [[], [3], [5, 0, 249], range(250)])
def test_the_parts_of_a_split_sum_to_the_whole(steep, x64):
    left = condensed(most=250)
    slow, fast = left.split(np.array(steep, int))
    assert slow.evaluations + fast.evaluations == 250 and fast.evaluations == len(steep)
    np.testing.assert_array_equal(slow.rows, np.delete(left.rows, np.array(steep, int)))

    @jax.jit
    @jax.vmap
    def potentials(w):
        return left.potential(w), slow.potential(w) + fast.potential(w)

    np.testing.assert_allclose(*potentials(jnp.asarray(POINTS)), rtol=1e-12)


@pytest.mark.slow
def test_a_single_precision_position_stays_one(x64):
    """Where double precision is on: nothing that is kept may promote it."""
    centre, draws = (jnp.asarray(x, jnp.float32) for x in (CENTRE, DRAWS))
    model = posterior(dtype="f4")
    single = ex.exact.condense(model, centre, DRAWS, most=30)
    slow, fast = single.split(np.arange(3))
    inner = ex.split_hmc(slow, fast, 0.1, num_leapfrog_steps=2, num_inner_steps=2)
    kernel = ex.exact.delayed_acceptance(model, single, inner)
    run = ex.sample(kernel, centre, 3, key=jax.random.key(0), progress=False)
    kinds = run.position, run.info.potential, single.correction(draws[0]), single.spread
    assert {x.dtype.name for x in kinds} == {"float32"}


@pytest.mark.slow
def test_the_correction_keeps_its_digits_in_single_precision():
    """The potential is about 80,000, where floats are 1/128 apart: no digit of differences."""
    n = 200_000
    x = RNG.normal(size=(n, 3)).astype("f4")
    y = (RNG.uniform(size=n) < special.expit(x @ CENTRE - 1.5)).astype("f4")
    wide = (x.astype(float), y.astype(float))

    def likelihood(w, row):
        x, y = row
        return jax.nn.log_sigmoid((2.0 * y - 1.0) * (x @ w - 1.5))

    def corrections(data, dtype):
        draws = jnp.asarray(CENTRE + 0.005 * np.random.default_rng(1).normal(size=(16, 3)), dtype)
        model = ex.Posterior(log_prior, likelihood, data)
        short = ex.exact.condense(model, jnp.asarray(CENTRE, dtype), draws, most=1_000)
        found = jax.jit(jax.vmap(short.correction))(draws)
        values = jax.jit(jax.vmap(lambda w: model.potential(w) - short.potential(w)))(draws)
        return (np.asarray(z, float) for z in (found, values - jnp.mean(values)))

    ours, naive = corrections((x, y), "float32")
    with jax.enable_x64(True):
        exact, other = corrections(wide, "float64")
    np.testing.assert_allclose(other, exact - exact.mean(), atol=1e-9)
    print("errors", np.abs(ours - exact).max(), np.abs(naive - other).max())
    assert np.abs(ours - exact).max() < 1e-3
    assert np.abs(naive - other).max() > 5e-3


@pytest.mark.slow
def test_a_weighted_expansion_is_a_weighted_sum(x64):
    weights = RNG.uniform(size=N)
    model, centre = posterior(poisson), jnp.asarray(CENTRE)

    def direct(w):
        return jnp.sum(weights * model.log_likelihoods(w, model.data))

    found = expand(model, centre, 300, order=2, weights=jnp.asarray(weights))
    np.testing.assert_allclose(found.value, direct(centre), rtol=1e-12)
    np.testing.assert_allclose(found.score, jax.grad(direct)(centre), rtol=1e-11)
    assert found.hessian is not None
    np.testing.assert_allclose(found.hessian.matrix, jax.hessian(direct)(centre), rtol=1e-11)
    linear = expand(model, centre, 300, weights=jnp.asarray(weights))
    assert linear.hessian is None
    np.testing.assert_allclose(linear.score, found.score, rtol=1e-12)


def test_sharpest_curvature_is_the_one_along_the_score(x64):
    """p (1 - p) |x|^2 for a row of logistic regression; 0 where its score is 0 to rounding."""
    rows = condensed(most=40).kept
    x = np.asarray(rows.rows[0])
    p = special.expit(x @ DRAWS.T)
    expected = (p * (1.0 - p)).max(axis=1) * (x**2).sum(axis=1)
    np.testing.assert_allclose(sharpest_curvatures(rows, jnp.asarray(DRAWS)), expected, rtol=1e-9)
    far = sharpest_curvatures(rows, 1e6 * jnp.ones((1, 3)))
    assert np.isfinite(far).all() and (np.asarray(far) < 1e-9).all()
