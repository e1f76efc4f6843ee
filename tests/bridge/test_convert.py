"""Converted numbers make the foreign update, step for step, from the same noise.

Ours runs and its normal numbers are recorded; the foreign update, written out here or BlackJAX's
own, is then given these numbers.
"""

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import convert, tree

N, T, STEPS = 50.0, 0.7, 4
PRECISION = np.array([[2.0, 0.3], [0.3, 1.0]])
START = np.array([0.4, -1.1])
TARGET: dict[str, Any] = dict(mean=np.zeros(2), covariance=np.linalg.inv(PRECISION))
MASS = 2.3

pytestmark = pytest.mark.usefixtures("x64")


def slope(x):
    """The gradient of U."""
    return PRECISION @ x


def ours(make, options, key):
    """The positions of our chain, its first momentum, and the normal numbers of each step."""
    kernel = make(ex.FullGradient(ex.targets.gaussian(**TARGET)), **options)
    state = kernel.init(key, jnp.asarray(START))
    positions, noise = [], []
    momentum = state.auxiliary.get("momentum")
    for step in range(STEPS):
        with tree.recorded_normals() as drawn:
            state, _ = kernel.step(jax.random.fold_in(key, step), state)
        positions.append(state.position)
        noise.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(drawn[-1])]))
    start = None if momentum is None else np.asarray(momentum)
    return np.array(positions), start, noise


def agree(mine, theirs):
    np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "options, update",
    [
        (
            convert.from_welling_teh(0.06),
            lambda x, xi: x - 0.03 * slope(x) + np.sqrt(0.06) * xi,
        ),
        (
            convert.from_tfp_sgld(0.06),  # of a mean loss, whose gradient is multiplied by N
            lambda x, xi: x - 0.06 * (0.5 * N * (slope(x) / N) - xi / np.sqrt(0.06)),
        ),
        (
            convert.from_posteriors_sgld(0.5, T / N, num_data=N),
            lambda x, xi: x - 0.5 * slope(x) / N + np.sqrt(0.5 * 2 * T / N) * xi,
        ),
        (
            convert.from_blackjax_sgld(0.02, T),
            lambda x, xi: x - 0.02 * slope(x) + np.sqrt(2 * T * 0.02) * xi,
        ),
    ],
    ids=["welling_teh", "tfp", "posteriors", "blackjax"],
)
def test_overdamped(options, update, key):
    mine, _, noise = ours(ex.sgld, options, key)
    x, theirs = START, []
    for xi in noise:
        theirs.append(x := update(x, xi))
    agree(mine, theirs)


def test_chen(key):
    eta, alpha = 0.004, 0.1
    mine, r, noise = ours(ex.sghmc, convert.from_chen(eta, alpha, mass=MASS), key)
    h = convert.from_chen(eta, alpha, mass=MASS)["step_size"]
    x, v, theirs = START, h * r / MASS, []
    for xi in noise:
        v = v - eta * slope(x) - alpha * v + np.sqrt(2 * alpha * eta) * xi
        theirs.append(x := x + v)
    agree(mine, theirs)


def test_wenzel(key):
    lr, beta = 0.2, 0.9
    options = convert.from_wenzel(lr, beta, T, num_data=N, mass=MASS)
    mine, r, noise = ours(ex.sghmc, options, key)
    h, gamma = np.sqrt(lr / N), (1 - beta) * np.sqrt(N / lr)
    x, m, theirs = START, r / np.sqrt(MASS), []
    for xi in noise:
        m = (1 - h * gamma) * m - h * N * (slope(x) / N) + np.sqrt(2 * gamma * h * T) * xi
        theirs.append(x := x + h * m)
    agree(mine, theirs)


def test_torch_sgd_with_momentum_is_temperature_zero(key):
    lr, momentum = 0.2, 0.9
    options = convert.from_torch_sgd(lr, momentum, num_data=N, mass=MASS)
    mine, r, _ = ours(ex.sghmc, {**options, "temperature": 0.0}, key)
    assert not np.any(r)
    x, buffer, theirs = START, np.zeros(2), []
    for _ in range(STEPS):
        buffer = momentum * buffer + slope(x) / N
        theirs.append(x := x - lr * buffer)
    agree(mine, theirs)


def test_posteriors_sghmc(key):
    lr, alpha = 0.3, 0.4
    options = convert.from_posteriors_sghmc(lr, alpha, T / N, num_data=N, mass=MASS)
    mine, r, noise = ours(ex.sghmc, options, key)
    x, m, theirs = START, r / np.sqrt(N * MASS), []
    for xi in noise:
        spread = np.sqrt(T / N * lr * 2 * alpha)
        x, m = x + lr * m, m - lr * slope(x) / N - lr * alpha * m + spread * xi
        theirs.append(x)
    agree(mine, theirs)


def test_blackjax_sghmc(key):
    diffusions = pytest.importorskip("blackjax.sgmcmc.diffusions")
    options = convert.from_blackjax_sghmc(0.05, STEPS, 0.8, mass=MASS)
    mine, _, noise = ours(ex.sghmc, options, key)
    momentum = jnp.asarray(mine[0] - START) / 0.05  # the one that our first step drew
    step = diffusions.sghmc(alpha=0.8)
    x, theirs = jnp.asarray(START), []
    for xi in noise:
        with mock.patch.object(diffusions, "generate_gaussian_noise", lambda *_, xi=xi: xi):
            x, momentum = step(key, x, momentum, -slope(x), 0.05)
        theirs.append(x)
    agree(mine, theirs)


def test_blackjax_sgld(key):
    diffusions = pytest.importorskip("blackjax.sgmcmc.diffusions")
    mine, _, noise = ours(ex.sgld, convert.from_blackjax_sgld(0.05, T), key)
    x, theirs = jnp.asarray(START), []
    for xi in noise:
        with mock.patch.object(diffusions, "generate_gaussian_noise", lambda *_, xi=xi: xi):
            x = diffusions.overdamped_langevin()(key, x, -slope(x), 0.05, T)
        theirs.append(x)
    agree(mine, theirs)


def test_the_comparison_sees_a_wrong_step(key):
    mine, _, noise = ours(ex.sgld, {"step_size": 0.06}, key)  # epsilon taken for h
    x, theirs = START, []
    for xi in noise:
        theirs.append(x := x - 0.03 * slope(x) + np.sqrt(0.06) * xi)
    with pytest.raises(AssertionError):
        agree(mine, theirs)


@pytest.mark.parametrize(
    "back, forth, numbers, more",
    [
        (convert.to_welling_teh, convert.from_welling_teh, dict(step_size=0.3), {}),
        (convert.to_tfp_sgld, convert.from_tfp_sgld, dict(step_size=0.3), {}),
        (
            convert.to_blackjax_sgld,
            convert.from_blackjax_sgld,
            dict(step_size=0.3, temperature=T),
            {},
        ),
        (
            convert.to_posteriors_sgld,
            convert.from_posteriors_sgld,
            dict(step_size=0.3, temperature=T),
            dict(num_data=N),
        ),
        (convert.to_chen, convert.from_chen, dict(step_size=0.3, friction=0.4), dict(mass=2.0)),
        (
            convert.to_wenzel,
            convert.from_wenzel,
            dict(step_size=0.03, friction=0.4, temperature=T),
            dict(num_data=N, mass=2.0),
        ),
        (
            convert.to_torch_sgd,
            convert.from_torch_sgd,
            dict(step_size=0.03, friction=0.4),
            dict(num_data=N, mass=2.0),
        ),
        (
            convert.to_blackjax_sghmc,
            convert.from_blackjax_sghmc,
            dict(step_size=0.3, friction=0.4, resample_every=5),
            dict(mass=2.0),
        ),
        (
            convert.to_posteriors_sghmc,
            convert.from_posteriors_sghmc,
            dict(step_size=0.3, friction=0.4, temperature=T),
            dict(num_data=N, mass=2.0),
        ),
        (convert.to_weight_decay, convert.from_weight_decay, dict(scale=0.3), dict(num_data=N)),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_there_and_back(back, forth, numbers, more):
    returned = forth(**back(**numbers, **more), **more)
    for name, value in numbers.items():
        assert returned[name] == pytest.approx(value, rel=1e-14), name
    arrays = {n: np.full(2, v) if isinstance(v, float) else v for n, v in numbers.items()}
    for name, value in forth(**back(**arrays, **more), **more).items():
        if name in numbers:
            np.testing.assert_allclose(value, numbers[name], rtol=1e-14)


def test_with_unit_mass_makes_the_same_positions(key):
    heavy = dict(step_size=0.1, friction=0.9, mass=2.3)
    a, _, _ = ours(ex.sghmc, heavy, key)
    b, _, _ = ours(ex.sghmc, convert.with_unit_mass(**heavy), key)
    agree(a, b)


def test_weight_decay_is_a_gaussian_prior():
    w, decay = np.array([0.3, -2.0]), 1e-2
    scale = convert.from_weight_decay(decay, num_data=N)["scale"]
    np.testing.assert_allclose(N * decay * w, w / scale**2)  # N times the mean loss's gradient


@pytest.mark.parametrize("to", [convert.to_blackjax_sghmc, convert.to_posteriors_sghmc])
def test_a_scheme_that_the_other_side_has_not(to):
    with pytest.raises(ValueError, match="scheme must be 'euler'"):
        to(0.1, 1.0, 5, scheme="semi-implicit")
