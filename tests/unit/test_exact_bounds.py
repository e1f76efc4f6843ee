"""The inequalities, ranges and lower bounds of `exact`: known numbers, and that they hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.exact.confidence import INEQUALITIES, Drawn, serfling
from ergodax.exact.logistic import tangent_parabola
from ergodax.exact.sequential import Seen, TaylorProxy, look_times

RNG = np.random.default_rng(3)
X = RNG.normal(size=(30, 3))
Y = (RNG.uniform(size=30) < 0.6).astype(float)
CENTRE = np.array([0.4, -1.0, 0.2])
DRAWN = Drawn(100.0, 1000.0, 0.5, 2.0)
KNOWN = {
    "empirical bernstein": 0.388740,
    "bernstein-serfling": 0.554324,
    "hoeffding-serfling": 0.257825,
}


def log_likelihood(w, example):
    x, y = example
    return jax.nn.log_sigmoid((2.0 * y - 1.0) * (x @ w))


def posterior():
    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (X, Y))


def moves(count=200, spread=2.0):
    """Pairs of positions, near and far."""
    scales = spread * RNG.uniform(0.01, 1.0, size=(count, 1))
    return jnp.asarray(CENTRE + scales * RNG.normal(size=(2, count, 3)))


@pytest.mark.parametrize("name", KNOWN)
def test_known_numbers(name, x64):
    value = INEQUALITIES[name](DRAWN, jnp.asarray(0.05))
    np.testing.assert_allclose(value, KNOWN[name], atol=5e-7)


def test_the_lesser_of_two_costs_half_of_delta_each(x64):
    value = serfling(DRAWN, jnp.asarray(0.1))
    np.testing.assert_allclose(value, KNOWN["hoeffding-serfling"], atol=5e-7)


@pytest.mark.parametrize("name", ["bernstein-serfling", "hoeffding-serfling", "serfling"])
def test_little_is_left_to_learn_when_nearly_all_rows_are_seen(name, x64):
    """Where half the rows are seen the two forms of the unseen share meet."""
    bound = INEQUALITIES[name]
    for spread in (0.0, 0.5):
        at = [
            bound(Drawn(t, 1000.0, spread, 2.0), jnp.asarray(0.05))
            for t in (100.0, 500.0, 502.0, 1000.0)
        ]
        assert at[0] > at[1] > at[2] > at[3] >= 0.0
        np.testing.assert_allclose(at[1], at[2], rtol=1e-2)


def test_parabola_of_the_tangent():
    a, c = tangent_parabola(np.array([1.5, 0.0, 1e-5, 30.0]))
    np.testing.assert_allclose(a[:2], [-0.105858158731, -0.125], rtol=1e-11)
    np.testing.assert_allclose(c[:2], [-0.713232420838, -np.log(2.0)], rtol=1e-11)
    np.testing.assert_allclose(a[2], -0.125, rtol=1e-11)
    s = 3.0
    bright = -np.expm1(a[0] * s**2 + s / 2 + c[0] + np.logaddexp(0.0, -s))
    np.testing.assert_allclose(bright, 0.1107425567, rtol=1e-9)


@pytest.mark.parametrize("options", [{"centre": CENTRE}, {"tangent": 1.5}, {"tangent": 0.0}])
def test_the_lower_bound_is_one_everywhere_and_touches(options, x64):
    bound, rows = ex.exact.LogisticBound(X, Y, **options), jnp.arange(30, dtype=jnp.int32)
    model = posterior()
    gaps = jax.vmap(lambda w: model.log_likelihoods(w, model.data) - bound.log_bounds(w, rows))
    assert (gaps(moves()[0]) >= -1e-13).all()
    at = model.log_likelihoods(jnp.asarray(CENTRE), model.data)
    if "centre" in options:
        np.testing.assert_allclose(bound.log_bounds(jnp.asarray(CENTRE), rows), at, atol=1e-13)


@pytest.mark.parametrize("labels", [Y, 2.0 * Y - 1.0, Y.astype(bool), Y.astype(int)])
def test_the_sum_of_the_lower_bounds_in_closed_form(labels, x64):
    bound, rows = ex.exact.LogisticBound(X, labels, centre=CENTRE), jnp.arange(30)
    start = jnp.sum(bound.log_bounds(jnp.asarray(CENTRE), rows))
    for w in moves(5)[0]:
        change = jnp.sum(bound.log_bounds(w, rows)) - start
        np.testing.assert_allclose(bound.log_bound_sum(w), change, rtol=1e-11)


def changes_from(centre):
    """What the confidence sampler averages, for all rows, as a function of the move."""
    model = posterior()
    proxy = None if centre is None else TaylorProxy(model, centre)

    def changes(w, v):
        old, new = (model.log_likelihoods(x, model.data) for x in (w, v))
        return new - old - (0.0 if proxy is None else proxy.rows(w, v, model.data))

    return changes


@pytest.mark.parametrize("centre", [None, CENTRE])
def test_the_range_is_never_exceeded(centre, x64):
    span, about = ex.exact.LogisticRange(X), () if centre is None else (jnp.asarray(centre),)
    w, v = moves()
    terms = jax.vmap(changes_from(centre))(w, v)
    limit = jax.vmap(lambda w, v: span(w, v, *about))(w, v)
    assert (jnp.max(jnp.abs(terms), axis=1) <= 0.5 * limit + 1e-14).all()
    used = (jnp.max(terms, axis=1) - jnp.min(terms, axis=1)) / limit
    assert jnp.max(used) > 0.1, "a bound that is never approached would not show a wrong constant"


def test_a_range_without_proxies_does_not_bound_the_smaller_moves_of_proxies(x64):
    """Far from the centre the polynomial is worse than nothing, and its range says so."""
    w, v = jnp.asarray(CENTRE + 8.0), jnp.asarray(CENTRE + 8.1)
    span = ex.exact.LogisticRange(X)
    terms = changes_from(CENTRE)(w, v)
    assert jnp.max(terms) - jnp.min(terms) > span(w, v)


def test_proxies_are_the_polynomials_of_second_order(x64):
    """Exact for a quadratic log-likelihood, and their sum costs no pass over the data."""
    quadratic = ex.Posterior(
        lambda w: -jnp.sum(w**2), lambda w, e: -((e[1] - e[0] @ w) ** 2), (X, Y)
    )
    proxy = TaylorProxy(quadratic, ex.find_mode(quadratic, jnp.zeros(3)))
    model = TaylorProxy(posterior(), CENTRE)
    for w, v in zip(*moves(5), strict=True):
        old, new = (quadratic.log_likelihoods(x, quadratic.data) for x in (w, v))
        np.testing.assert_allclose(proxy.rows(w, v, quadratic.data), new - old, atol=1e-11)
        np.testing.assert_allclose(proxy.total(w, v), jnp.sum(new - old), rtol=1e-11)
        total = jnp.sum(model.rows(w, v, posterior().data))
        np.testing.assert_allclose(model.total(w, v), total, rtol=1e-11)


def test_when_to_look():
    assert look_times(1000, 100, 2).tolist() == [100, 200, 400, 800, 1000]
    assert look_times(1000, 100, 1.5).tolist() == [100, 200, 300, 500, 800, 1000]
    assert look_times(250, 100, 1.0).tolist() == [100, 200, 250]
    assert look_times(7, 7, 3.0).tolist() == [7]
    growing = look_times(10**6, 100, 1.5)
    assert (growing[1:] / growing[:-1] >= 1.5)[:-1].all() and growing[-1] == 10**6


def seen(count, squares):
    """So many rows of the 30, whose terms have the mean 0 and this sum of squares."""
    zero = jnp.zeros(())
    return Seen(jnp.asarray(count), zero, jnp.asarray(squares), zero, zero, jnp.zeros(2), zero)


# By hand, of Hoeffding and Serfling's 2 sqrt(rho log(2 / d) / (2 t)): (t, look, rho, d, value).
LOOKS = [(10, 1, 0.7, 0.1 / 8, 0.8429264), (20, 0, 0.35, 0.1 / 2, 0.3593199)]


@pytest.mark.parametrize(("count", "look", "share", "delta", "value"), LOOKS)
def test_the_distance_of_a_look_has_its_share_of_delta(count, look, share, delta, value, x64):
    model, range_of_two = posterior(), lambda w, v: jnp.asarray(2.0)
    kernel = ex.exact.confidence(
        model, 0.1, range_of_two, delta=0.1, batch_size=10, inequality="hoeffding-serfling"
    )
    found = kernel.rule.distance(seen(count, 3.0), jnp.int32(look), jnp.asarray(2.0))
    by_hand = 2.0 * np.sqrt(share * np.log(2.0 / delta) / (2.0 * count))
    np.testing.assert_allclose([found, by_hand], value, rtol=1e-6)


def test_the_distance_of_a_t_test(x64):
    """10 of 30 rows, s^2 = 2: Student's upper 1 % of 9 degrees is 2.821438, the rest 20 / 29."""
    kernel = ex.exact.austerity(posterior(), 0.1, epsilon=0.01, batch_size=10)
    found = kernel.rule.distance(seen(10, 18.0), jnp.int32(0), None)
    np.testing.assert_allclose(found, 2.821438 * np.sqrt(2.0 / 10 * 20 / 29), rtol=1e-6)
