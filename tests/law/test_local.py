"""Local learning coefficients, influence and susceptibilities against closed forms.

An estimate lies within five Monte Carlo errors of what is exact, a false alarm of 6e-7; each fault
that a tool could have lies outside of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from benchmarks.local import formulas
from ergodax.local.chains import Chains, Watch
from ergodax.local.law import local_law
from ergodax.local.rounds import slope
from ergodax.tune.budget import Deadline

SIGMAS = 5.0
ROWS, GAMMA = 400, 20.0
T = ROWS / np.log(ROWS)


@pytest.mark.parametrize(
    ("hidden", "inputs", "outputs", "rank", "known"),
    [
        (1, 1, 1, 0, (0.5, 2)),
        (1, 2, 3, 0, (1, 1)),
        (2, 2, 2, 0, (1.5, 1)),
        (2, 2, 3, 0, (2, 2)),
        (2, 2, 2, 1, (2, 2)),
        (3, 5, 5, 0, (6.5, 2)),
        (3, 5, 5, 2, (9.5, 2)),
        (5, 10, 10, 3, (32, 1)),
        (2, 2, 7, 1, (4.5, 1)),
        (2, 7, 2, 1, (4.5, 1)),
        (6, 3, 2, 1, (3, 1)),
        (4, 6, 6, 2, (13.5, 1)),
    ],
)
def test_reduced_rank(hidden, inputs, outputs, rank, known):
    assert formulas.reduced_rank(inputs, hidden, outputs, rank) == known
    assert formulas.deep_linear((inputs, hidden, outputs), rank)[0] == known[0]


@pytest.mark.parametrize(
    ("widths", "rank", "known"),
    [
        ((1, 1, 1, 1), 0, (0.5, 3)),
        ((2, 2, 2, 2), 0, (1.5, 3)),
        ((2, 2, 2, 2), 1, (2, 3)),
        ((3, 3, 3, 3), 0, (3, 1)),
        ((3, 2, 4, 3), 0, (2.5, 1)),
        ((3, 3, 3, 3, 3), 1, (4, 5)),
        ((5, 4, 6, 5), 2, (10.5, 1)),
    ],
)
def test_deep_linear(widths, rank, known):
    assert formulas.deep_linear(widths, rank) == known


@pytest.mark.parametrize(
    ("power", "n", "gamma", "known"),
    [
        (2, 1e3, 1.0, 0.3614032902),
        (2, 1e3, 100.0, 0.0130465055),
        (2, 1e4, 10.0, 0.2932649528),
        (2, 1e6, 1.0, 0.4252917420),
        (4, 1e3, 1.0, 0.2095293881),
        (4, 1e6, 10.0, 0.2021012312),
    ],
)
def test_crossings_by_quadrature(power, n, gamma, known):
    assert formulas.crossing(power, n / np.log(n), gamma) == pytest.approx(known, rel=1e-6)


def regression():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(ROWS, 4)) * [2.0, 1.0, 0.5, 0.1]).astype("float32")
    y = (x @ [1.0, -1.0, 0.5, 2.0] + 0.5 * rng.normal(size=ROWS)).astype("float32")
    w = {"slopes": jnp.asarray(np.linalg.lstsq(x, y)[0]), "name": "linear"}
    return (x, y), w, x.T @ x / ROWS


def squared(w, row):
    x, y = row
    return 0.5 * (y - x @ w["slopes"]) ** 2


@pytest.fixture(scope="module")
def found():
    data, w, _ = regression()
    return ex.local.learning_coefficient(
        squared, w, data, key=jax.random.key(0), localization=GAMMA, by_n=[50]
    )


def off(found, exact):
    return abs(found.estimate - exact) / found.mc_error


def test_a_regular_model(found):
    curvatures = np.linalg.eigvalsh(regression()[2])
    assert found.ok and found.error <= 0.05 * found.estimate
    assert off(found, formulas.regular(curvatures, T, GAMMA)) < SIGMAS
    assert off(found.by_n[50], formulas.regular(curvatures, 50 / np.log(50), GAMMA)) < SIGMAS
    x = T * curvatures / (T * curvatures + GAMMA)
    assert abs(found.slope - 0.5 * np.sum(x * (1.0 - x))) < SIGMAS * found.slope_error
    assert found.shortfall < 1e-3


def test_the_faults_of_a_regular_model_are_seen(found):
    """The batch size for n, and the localization left in the energy or out of the law."""
    curvatures = np.linalg.eigvalsh(regression()[2])
    t = T * curvatures
    assert off(found, formulas.regular(curvatures, 64 / np.log(64), GAMMA)) > SIGMAS
    assert off(found, 0.5 * len(t)) > SIGMAS
    assert off(found, 0.5 * np.sum(t / (t + GAMMA) + GAMMA / (t + GAMMA))) > SIGMAS


def test_burn_in_that_is_averaged_in_is_seen():
    data, w, second = regression()
    law = local_law(squared, w, data, np.log(ROWS), GAMMA)
    chains = Chains(law, jax.random.key(0), 32, Deadline.never(), 0.002, length=8)
    means = chains.run(60).energy.mean(axis=1)
    exact = formulas.regular(np.linalg.eigvalsh(second), T, GAMMA)
    assert abs(means.mean() - exact) > SIGMAS * means.std(ddof=1) / np.sqrt(len(means))


@pytest.mark.parametrize(("power", "n", "gamma"), [(2, 1e3, 1.0), (2, 1e6, 1.0), (4, 1e4, 10.0)])
def test_a_normal_crossing(power, n, gamma):
    """At n = 10^6 the arms are far stiffer than the middle; one step for all would miss them."""
    found = ex.local.learning_coefficient(
        lambda w, p: w["x"] ** 2 * jnp.abs(w["y"]) ** p,
        {"x": 0.0, "y": 0.0},
        jnp.asarray([float(power)]),
        key=jax.random.key(0),
        temperature=np.log(n) / n,
        localization=gamma,
        accuracy=0.1,
    )
    exact = formulas.crossing(power, n / np.log(n), gamma)
    assert found.ok and off(found, exact) < SIGMAS
    if n < 1e6:  # there lambda itself is not yet told apart
        assert off(found, 1.0 / max(2, power)) > SIGMAS


def test_the_part_that_moves():
    data, w, second = regression()
    kept = second[np.ix_([0, 2], [0, 2])]
    mask = {"slopes": np.array([True, False, True, False]), "name": False}
    found = ex.local.learning_coefficient(
        squared, w, data, key=jax.random.key(1), trainable=mask, accuracy=0.1
    )
    exact = formulas.regular(np.linalg.eigvalsh(kept), T, 1.0)
    assert found.num_parameters == 2 and off(found, exact) < SIGMAS
    assert off(found, formulas.regular(np.linalg.eigvalsh(second), T, 1.0)) > SIGMAS


def test_the_slope_of_a_gamma_law():
    """Energies of a regular model are Gamma(lambda): their mean is their variance."""
    energy = np.random.default_rng(0).gamma(3.0, size=(4, 20_000))
    value, error = slope(energy)
    assert abs(value) < SIGMAS * error
    assert slope(1.1 * energy)[0] < -SIGMAS * error


def exact_covariances(temperature, gamma):
    """Of the losses in linear regression: e_i e_j x_i' S x_j + (x_i' S x_j)^2 / 2."""
    (x, y), w, _ = regression()
    x, e = x.astype(float), y - x @ np.asarray(w["slopes"], float)
    spread = np.linalg.inv(x.T @ x / temperature + gamma * np.eye(x.shape[1]))
    inner = x @ spread @ x.T
    return np.outer(e, e) * inner + 0.5 * inner**2


def test_influence():
    data, w, _ = regression()
    queries = tuple(part[:5] for part in data)
    found = ex.local.influence(
        squared, w, data, queries, key=jax.random.key(0), temperature=2.0, num_draws=800
    )
    exact = -exact_covariances(2.0, 1.0)[:, :5] / 2.0
    z = (found.values - exact) / found.mc_error
    assert found.ok and np.sqrt(np.mean(z**2)) < 2.0
    wrong = (found.values + exact) / found.mc_error
    assert np.sqrt(np.mean(wrong**2)) > 4.0


def test_susceptibilities(tmp_path):
    data, w, _ = regression()
    found = ex.local.susceptibilities(
        squared, w, data, key=jax.random.key(0), num_draws=800, losses=tmp_path / "losses.npy"
    )
    of_mean = exact_covariances(np.log(ROWS), 1.0).mean(axis=0)
    exact = -T * (of_mean - of_mean.mean())
    z = (found.values - exact) / found.mc_error
    assert np.sqrt(np.mean(z**2)) < 2.0
    assert np.sqrt(np.mean(((found.values + exact) / found.mc_error) ** 2)) > 3.0
    assert np.load(tmp_path / "losses.npy").shape == (4, 200, ROWS)
    assert str(found).startswith("CONVERGED")


def test_chunks_do_not_change_the_law():
    data, w, _ = regression()
    whole, parts = (local_law(squared, w, data, 3.0, GAMMA, chunk=c) for c in (ROWS, 96))
    at = jax.tree.map(lambda x: x + 0.1, whole.centre)
    for one, other in zip(
        jax.tree.leaves(whole.value_and_gradient(at)),
        jax.tree.leaves(parts.value_and_gradient(at)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=2e-5)
    x, y = data
    away = np.full(4, 0.1)
    losses = [0.5 * np.mean((y - x @ (np.asarray(w["slopes"]) + d)) ** 2) for d in (away, 0.0)]
    exact = ROWS / 3.0 * (losses[0] - losses[1]) + 0.5 * GAMMA * 0.04
    assert float(whole.potential(at)) == pytest.approx(exact, rel=1e-4)
    assert float(Watch(whole.centre)(at)["distance"]) == pytest.approx(0.04, rel=1e-5)
