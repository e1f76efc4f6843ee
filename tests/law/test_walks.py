"""Walks by coins: exact laws from the probabilities that the kernels' own steps ask for.

The coin of a step is `tree.signs`; a test that stands in its place reads the probability off. In
one dimension a walk with steps of one length is a birth-death chain, and one with normal lengths
has a transition density. Nothing is sampled.
"""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree

from .problems import line

pytestmark = pytest.mark.usefixtures("x64")

NOISE = np.linspace(-9.0, 9.0, 2001)  # of a gradient; the sum over it is exact to 1e-7 or better
SHARES = np.exp(-0.5 * NOISE**2) / np.exp(-0.5 * NOISE**2).sum()


def gradient(target, variance):
    return ex.NoisyGradient(target, variance) if variance else ex.FullGradient(target)


def up(kernel, x, lengths, noise):
    """The probabilities of going up, and where that leads: at each x, length and noise."""
    start = kernel.init(jax.random.key(0), jnp.zeros(1))
    noisy = isinstance(kernel.gradient, ex.NoisyGradient)

    def one(x, length, noise):
        drawn = ([noise[None]] if noisy else []) + ([] if length is None else [length[None]])
        state, asked = ex.State(x[None], {}, start.gradient, None, start.step), []

        def always(key, p):
            asked.append(p[0])
            return jnp.ones_like(p)

        with mock.patch.object(tree, "signs", always), tree.given_normals(drawn):
            moved = kernel.step(jax.random.key(1), state)[0].position - state.position
        return asked[0], moved[0]

    every = jax.vmap(jax.vmap(one, (None, None, 0)), (0, None, None))
    if lengths is None:
        return jax.jit(lambda x: every(x, None, noise))(x)
    return jax.jit(lambda x: jax.vmap(every, (None, 0, None), 1)(x, lengths, noise))(x)


def walk(kernel, h, *, t=1.0, half=False, noise=None, lengths=None, width=8.0):
    """Places of the lattice and their stationary probabilities: p_i / p_(i+1) by balance."""
    s = np.sqrt(2.0 * h * t)
    x = s * (np.arange(-np.ceil(width / s), np.ceil(width / s) + 1) + (0.5 if half else 0.0))
    nodes, shares = (np.zeros(1), np.ones(1)) if noise is None else (NOISE, SHARES)
    p, moved = up(kernel, jnp.asarray(x), lengths, jnp.asarray(nodes))
    np.testing.assert_allclose(moved, s, rtol=1e-12)
    p = np.clip(np.asarray(p).reshape(len(x), len(nodes)) @ shares, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        steps = np.log(p[:-1]) - np.log1p(-p[1:])
    middle = len(x) // 2
    log = np.concatenate([-np.cumsum(steps[:middle][::-1])[::-1], [0.0], np.cumsum(steps[middle:])])
    weights = np.exp(np.nan_to_num(log, nan=-np.inf, posinf=-np.inf))
    return x, weights / weights.sum()


def moment(law, power=2):
    x, weights = law
    return float(weights @ x**power)


def two_point(h, v, compensate=False, t=1.0, k=1.0):
    kernel = ex.barker(
        gradient(line(1.0 / k), v), h, spread=0, compensate=compensate, temperature=t
    )
    return walk(kernel, h, t=t, noise=v or None, lengths=jnp.zeros(1))


@pytest.mark.parametrize(
    "v, compensate, expected",
    [(0.0, False, 1.05), (4.0, False, 1.217714162640), (4.0, True, 1.026657628160)],
)
def test_barker_on_a_gaussian(v, compensate, expected):
    assert moment(two_point(0.1, v, compensate)) == pytest.approx(expected, abs=1e-8)


def test_barker_at_another_temperature_and_curvature():
    """The law of U / T with step h T: (1 + h k / 2) T / k."""
    found = moment(two_point(0.1, 0.0, t=2.0, k=1.5))
    assert found == pytest.approx(2.0 / 1.5 * (1.0 + 0.1 * 1.5 / 2.0), abs=1e-6)


def test_barker_on_the_double_well_is_first_order():
    well = ex.FullGradient(ex.Target(lambda x: jnp.sum(0.25 * x**4 - 0.5 * x**2)))
    laws = [
        walk(ex.barker(well, h, spread=0), h, lengths=jnp.zeros(1), width=3.5) for h in (0.01, 0.02)
    ]
    fine, coarse = (moment(law) - 1.0417972965 for law in laws)
    assert fine == pytest.approx(1.0491917104 - 1.0417972965, abs=1e-9)
    assert np.log2(coarse / fine) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("v, expected", [(0.0, 1.13280629806), (4.0, 1.45343357909)])
def test_barker_with_normal_lengths(v, expected):
    """The density of x + d from x is 2 phi(d) E p(x, d), with phi that of N(0, 2 h)."""
    h, x = 0.1, np.linspace(-7.5, 7.5, 121)
    s, width = np.sqrt(2.0 * h), x[1] - x[0]
    d = (np.arange(-120, 121) * width) / s
    nodes, shares = np.polynomial.hermite_e.hermegauss(40) if v else (np.zeros(1), np.ones(1))
    kernel = ex.barker(gradient(line(), v), h, spread=1)
    near = np.abs(d) < 8.0
    p, moved = up(kernel, jnp.asarray(x), jnp.asarray(d[near]), jnp.asarray(nodes))
    np.testing.assert_allclose(moved[60, :, 0], s * d[near], atol=1e-12)
    p = np.asarray(p) @ (shares / shares.sum())
    matrix = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        for j, step in enumerate(np.flatnonzero(near)):
            if 0 <= i + step - 120 < len(x):
                density = np.exp(-0.5 * d[step] ** 2) / np.sqrt(2.0 * np.pi) / s
                matrix[i, i + step - 120] = 2.0 * density * p[i, j] * width
    np.testing.assert_allclose(matrix[40:80].sum(axis=1), 1.0, atol=1e-9)
    values, vectors = np.linalg.eig(matrix.T)
    weights = np.real(vectors[:, np.argmax(values.real)])
    assert weights @ x**2 / weights.sum() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    "v, expected, sgld",
    [(1.0, 1.001339237817, 1.105263157895), (16.0, 1.395654385790, 1.894736842105)],
)
def test_noise_heats_a_lattice_walk_through_its_clipping_alone(v, expected, sgld):
    kernel = ex.lattice_random_walk(gradient(line(), v), 0.1)
    found = moment(walk(kernel, 0.1, noise=v))
    assert found == pytest.approx(expected, abs=2e-6) and sgld - found > 0.1


def test_a_lattice_walk_is_exact_on_a_gaussian():
    """Scaled binomial, an urn of 20 balls; at temperature 2 with curvature 1.5 also."""
    law = walk(ex.lattice_random_walk(gradient(line(), 0.0), 0.1), 0.1)
    assert moment(law) == pytest.approx(1.0, abs=1e-12)
    assert moment(law, 4) == pytest.approx(3.0 - 0.1, abs=1e-12)
    hot = ex.lattice_random_walk(gradient(line(1.0 / 1.5), 0.0), 0.05, temperature=2.0)
    assert moment(walk(hot, 0.05, t=2.0)) == pytest.approx(2.0 / 1.5, abs=1e-2)
    shifted = walk(ex.lattice_random_walk(gradient(line(), 0.0), 0.1), 0.1, half=True)
    assert moment(shifted) == pytest.approx(1.000000254240, abs=1e-10)


def test_a_lattice_walk_on_the_double_well_is_first_order():
    well = ex.FullGradient(ex.Target(lambda x: jnp.sum(0.25 * x**4 - 0.5 * x**2)))
    law = walk(ex.lattice_random_walk(well, 0.01), 0.01, width=3.5)
    assert moment(law) == pytest.approx(1.0416257291, abs=1e-8)


def test_a_wrong_probability_is_seen():
    """The temperature forgotten in the coin."""
    right = ex.lattice_random_walk(gradient(line(), 0.0), 0.1, temperature=2.0)
    wrong = ex.lattice_random_walk(gradient(line(0.5), 0.0), 0.1, temperature=2.0)
    assert abs(moment(walk(right, 0.1, t=2.0)) - 2.0) < 1e-2
    assert abs(moment(walk(wrong, 0.1, t=2.0)) - 2.0) > 0.5


def test_signs_have_their_probabilities(key):
    """20,000 of each; five standard errors."""
    p = {"a": jnp.array([0.0, 0.1, 0.5]), "b": jnp.array([0.93, 1.0])}
    keys = jax.random.split(key, 20_000)
    found = jax.vmap(lambda k: tree.signs(k, p))(keys)
    for name, share in p.items():
        assert set(np.unique(found[name])) <= {-1.0, 1.0}
        gap = np.abs((1.0 + np.asarray(found[name]).mean(axis=0)) / 2.0 - share)
        assert (gap <= 5.0 * np.sqrt(share * (1.0 - share) / 20_000)).all()
    both = np.asarray(found["a"])[:, 2] * np.asarray(found["a"])[:, 1]
    assert abs(both.mean()) < 5.0 / np.sqrt(20_000), "the coins are independent"


def test_what_can_t_be_compensated_is_refused():
    dense = ex.barker(ex.NoisyGradient(line(), np.eye(1)), 0.1, compensate=True)
    with pytest.raises(ValueError, match=r"diagonal covariance, not Dense.*ScoreCovariance"):
        dense.step(jax.random.key(0), dense.init(jax.random.key(0), jnp.zeros(1)))
    with pytest.raises(ValueError, match="spread must be at most 1"):
        ex.barker(gradient(line(), 0.0), 0.1, spread=1.5)


def test_the_mean_square_of_a_length_is_two_h():
    """Length s (sqrt(1 - v^2) + v n): the squares at n = 1 and n = -1 have the mean s^2."""
    s, spread = np.sqrt(0.2), 0.6
    kernel = ex.barker(ex.FullGradient(line()), 0.1, spread=spread)
    _, moved = up(kernel, jnp.zeros(1), jnp.array([1.0, -1.0]), jnp.zeros(1))
    lengths = np.asarray(moved).ravel()
    np.testing.assert_allclose(lengths, s * (0.8 + np.array([0.6, -0.6])), rtol=1e-12)
    assert np.mean(lengths**2) == pytest.approx(s**2, rel=1e-12)
