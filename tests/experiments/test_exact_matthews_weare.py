"""Laws on a grid, their orders, and autocorrelation: what is known exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import ergodax as ex
from experiments.matthews_weare_2018 import autocorrelation, mixture, phase_grid
from experiments.matthews_weare_2018 import noise_orders as orders
from experiments.matthews_weare_2018.noise_problem import (
    CASES,
    DOUBLE_WELL,
    GAUSSIAN,
    SAMPLERS,
    Step,
    gradient_noise,
)
from experiments.matthews_weare_2018.phase_grid import Drift, Kick, PhaseGrid
from law import normals


def gaussian_guess(grid):
    return np.exp(-0.5 * grid.x[:, None] ** 2 - 0.5 * grid.r[None] ** 2)


@pytest.mark.parametrize("h, cooling", [(0.3, 1.0), (0.3, 0.5)])
def test_the_grid_finds_the_law_of_a_linear_step(h, cooling):
    """Of kick and drift with friction 1 and noise 2 h T: the discrete Lyapunov equation."""
    from scipy.linalg import solve_discrete_lyapunov

    grid = PhaseGrid(8.0, num_x=97, num_r=81)
    parts = [Kick(1 - h, -h * grid.x, np.full(grid.num_x, 2 * h * cooling)), Drift(h)]
    law = phase_grid.stationary(grid, parts, gaussian_guess(grid))
    a = np.array([[1 - h**2, h * (1 - h)], [-h, 1 - h]])
    b = np.sqrt(2 * h * cooling) * np.array([h, 1.0])
    exact = solve_discrete_lyapunov(a, np.outer(b, b))
    assert law.mean(np.square) == pytest.approx(exact[0, 0], abs=1e-9)
    assert law.kinetic == pytest.approx(exact[1, 1], abs=1e-9)


def test_a_kick_without_noise_shifts():
    grid = PhaseGrid(8.0)
    r = grid.r
    before = np.exp(-0.5 * r**2)
    after = before @ grid.transition(Kick(0.9, 0.3, 0.0))[0]
    np.testing.assert_allclose(after, np.exp(-0.5 * ((r - 0.3) / 0.9) ** 2) / 0.9, atol=1e-12)


def test_a_grid_that_is_too_small_is_refused():
    grid = PhaseGrid(2.0)
    parts = SAMPLERS["SGHMC"].parts
    assert parts is not None
    step = Step(0.2, -0.2 * grid.x, np.zeros(grid.num_x))
    with pytest.raises(ValueError, match="grid loses .* larger one"):
        phase_grid.stationary(grid, parts(step), gaussian_guess(grid))


KNOWN = [  # E x^2 and E x^4 on the double well, computed on other grids by other code
    ("NOGIN", 0.25, 1.02412633, 1.97354237),
    ("NOGIN", 0.125, 1.037576914, 2.025262933),
    ("SGHMC, compensated", 0.25, 1.0407028, 2.0832355),
    ("SGHMC", 0.25, 1.09211, 2.32562),
    ("SGLD", 0.1**0.5, 1.040569098, 2.142616264),
    ("mSGLD", 0.1**0.5, 1.030220718, 2.093373036),
]


@pytest.mark.parametrize("name, h, second, fourth", KNOWN)
def test_known_numbers(name, h, second, fourth):
    law = orders.stationary(DOUBLE_WELL, SAMPLERS[name], h)
    assert law is not None
    assert law.mean(np.square) == pytest.approx(second, abs=2e-5)
    assert law.mean(lambda x: x**4) == pytest.approx(fourth, abs=3e-5)


def mean_and_covariance(parts, x, r):
    """Of (x, r) after the parts of a step, which are given for the place of the kick."""
    mean, covariance = np.array([x, r]), np.zeros((2, 2))
    for part in parts:
        if isinstance(part, Drift):
            move = np.array([[1.0, part.time], [0.0, 1.0]])
            mean, covariance = move @ mean, move @ covariance @ move.T
        else:
            slope, shift, variance = (float(np.squeeze(v)) for v in part)
            mean = np.array([mean[0], slope * mean[1] + shift])
            shrink = np.diag([1.0, slope])
            covariance = shrink @ covariance @ shrink + np.diag([0.0, variance])
    return mean, covariance


def kernel_moments(kernel, place, r, zeta):
    """The same of the sampler's own step, whose normal numbers enter linearly."""
    state = normals.start(kernel, jnp.array([place]))
    state = eqx.tree_at(lambda s: s.auxiliary["momentum"], state, jnp.array([r]))
    if "thermostat" in state.auxiliary:
        like = state.auxiliary["thermostat"]
        held = jnp.full(like.shape, zeta, like.dtype)
        state = eqx.tree_at(lambda s: s.auxiliary["thermostat"], state, held)

    def end(numbers):
        with normals.dealt(numbers):
            new, _ = kernel.step(normals.key(), state)
        return jnp.concatenate([new.position, new.auxiliary["momentum"]])

    zeros = jnp.zeros(normals.count(kernel, state))
    root = np.asarray(jax.jacfwd(end)(zeros))
    return np.asarray(end(zeros)), root @ root.T


KERNELS = {  # one kick to a step, and a thermostat too heavy to move
    "NOGIN": lambda g, h: ex.nogin(g, h),
    "SGHMC": lambda g, h: ex.sghmc(g, h),
    "SGHMC, compensated": lambda g, h: ex.sghmc(g, h, compensate=True),
    "BAOAB": lambda g, h: ex.langevin(g, h, scheme="BAOA"),
    "SGNHT": lambda g, h: ex.sgnht(g, h, thermal_mass=1e300, scheme="BADODA"),
    "CC-ADL": lambda g, h: ex.ccadl(g, h, thermal_mass=1e300),
}


def compare(name, kernel, h=0.25, zeta=1.3):
    """The parts of a step against the sampler's own step at places and momenta."""
    make = SAMPLERS[name].parts
    assert make is not None
    momentum_first = isinstance(make(Step(h, np.zeros(1), np.zeros(1)))[0], Kick)
    for place, r in ((0.7, -0.4), (-1.1, 1.5)):
        kicked = place if momentum_first else place + r * (h if name == "CC-ADL" else 0.5 * h)
        force = -h * DOUBLE_WELL.slope(np.full(1, kicked))
        noise = h**2 * np.asarray(gradient_noise(jnp.full(1, kicked)))
        ours = mean_and_covariance(make(Step(h, force, noise, zeta)), place, r)
        theirs = kernel_moments(kernel, place, r, zeta)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_the_parts_are_those_of_the_sampler(name, x64):
    compare(name, KERNELS[name](DOUBLE_WELL.noisy, 0.25))


@pytest.mark.parametrize("name", ["NOGIN", "SGHMC, compensated"])
def test_the_parts_of_another_noise_are_not(name, x64):
    louder = ex.NoisyGradient(DOUBLE_WELL.target, lambda x: 1.1 * gradient_noise(x))
    if name == "SGHMC, compensated":
        louder = ex.KnownCovariance(louder, 0.5)
    with pytest.raises(AssertionError):
        compare(name, KERNELS[name](louder, 0.25))


@pytest.fixture(scope="module")
def slopes():
    rows = [
        {"target": case.name, "sampler": name, "step_size": h}
        | orders.errors(orders.stationary(case, SAMPLERS[name], h), case)
        for case in CASES
        for name in ("NOGIN", "SGHMC", "mSGLD")
        for h in (0.2, 0.14, 0.1)
    ]
    return orders.fit(pd.DataFrame(rows)).set_index(["target", "sampler"])


def test_nogin_is_exact_on_the_gaussian_and_others_are_not(slopes):
    assert slopes.loc[(GAUSSIAN.name, "NOGIN"), "largest"] < orders.ROUNDING
    assert slopes.loc[(GAUSSIAN.name, "SGHMC"), "largest"] > 0.1


@pytest.mark.parametrize("name, order", [("NOGIN", 2), ("SGHMC", 1), ("mSGLD", 2)])
def test_orders_on_the_double_well(slopes, name, order):
    for error in orders.ERRORS:
        assert slopes.loc[(DOUBLE_WELL.name, name), error] == pytest.approx(order, abs=0.15)


def test_verdicts_tell_exact_from_order(slopes):
    found = orders.verdicts(slopes.reset_index())
    assert found[0].startswith("NOGIN on N(0, 1) is exact")
    assert "by order 2.0" in found[3] and "own step" not in found[3]
    assert "of order 1.0" in found[5] and "own step h²/2" in found[5]


def test_a_slope_is_that_of_a_power_and_none_where_the_sign_changes():
    h = np.array([0.4, 0.2, 0.1])
    table = pd.DataFrame({"target": "t", "sampler": "NOGIN", "step_size": h, "variance": -(h**2)})
    table = table.assign(fourth=h - 0.15, distance=h**1.5)
    (row,) = orders.fit(table).to_dict("records")
    assert row["variance"] == pytest.approx(2.0) and row["variance_error"] < 1e-12
    assert row["distance"] == pytest.approx(1.5) and np.isnan(row["fourth"])


def test_a_thermostat_without_rest_has_no_law():
    assert orders.stationary(GAUSSIAN, SAMPLERS["CC-ADL"], 0.4) is None
    assert all(np.isnan(v) for v in orders.errors(None, GAUSSIAN).values())


def test_root_mean_squares_of_running_means():
    errors = np.ones((3, 40)) * np.array([[1.0], [-1.0], [2.0]])
    rows = orders.progress_of(errors)
    assert [row["gradients"] for row in rows] == [16, 32]
    assert rows[1]["error"] == pytest.approx(2**0.5)


@pytest.mark.parametrize("h, c, known", [(0.5, 6, 35.5783958), (0.25, 20, 399.842438)])
def test_the_slow_mode(h, c, known):
    row = autocorrelation.exact(h, float(c))
    assert row["slow_mode"] == pytest.approx(known, rel=1e-8)
    assert row["closed_form"] == pytest.approx(known, rel=1e-8)
    assert row["as_printed"] != pytest.approx(known, rel=1e-3)
    assert row["printed_limit"] != pytest.approx(known, rel=1e-1)
    assert row["time"] == pytest.approx(c**2, rel=1e-10)


def test_no_slow_mode_where_the_chain_oscillates():
    row = autocorrelation.exact(0.25, 2.0)
    assert np.isnan(row["slow_mode"]) and np.isnan(row["closed_form"])
    assert row["time"] == pytest.approx(4.0, rel=1e-10)


def test_friction_shortens_no_time_that_noise_makes():
    """tau = C^2 + 4 tanh(gamma h / 2) / h^2, so that the matrix is seen to be the sampler's own."""
    gradient = ex.NoisyGradient(GAUSSIAN.target, 9.0)
    a = autocorrelation.step_matrix(ex.nogin(gradient, 0.5, 2.0))
    time = ((np.eye(2) + a) @ np.linalg.inv(np.eye(2) - a))[0, 0]
    assert time == pytest.approx(9.0 + 16.0 * np.tanh(0.5), rel=1e-5)  # the noise is float32


def test_relative_errors():
    rng = np.random.default_rng(0)
    truth = mixture.Moments(np.array([1.0, -1.0]), np.array([[2.0, 0.5], [0.5, 1.0]]))
    root = np.linalg.cholesky(truth.covariance)
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    exact = truth.mean + signs @ root.T
    hot = truth.mean + np.sqrt(1.5) * signs @ root.T
    found = mixture.relative_errors(np.stack([exact, hot]), truth)
    np.testing.assert_allclose(found, [0.0, 0.5], atol=1e-12)
    many = truth.mean + rng.normal(size=(200, 1000, 2)) @ root.T
    assert np.sqrt(np.mean(mixture.relative_errors(many, truth) ** 2)) == pytest.approx(
        np.sqrt(3 / 1000), rel=0.3
    )


def test_verdicts_of_the_mixture_order_the_samplers():
    rows = [
        {"sampler": name, "batch_size": n, "passes": 8, "error": e, "error_error": 0.01}
        for n in (16, 1024)
        for name, e in (("BAOAB", 3.0), ("NOGIN, exact covariance", 0.1))
    ]
    first, _, full = mixture.verdicts(pd.DataFrame(rows))
    assert first.index("NOGIN") < first.index("BAOAB")
    assert "leaves 3.0" in full


def test_tables_are_texts():
    row = {"target": "t", "sampler": "SGLD", "largest": 0.1}
    row |= {f"{error}{end}": 2.0 for error in orders.ERRORS for end in ("", "_error")}
    row |= {"fourth": float("nan")}
    result = orders.Result(pd.DataFrame(), pd.DataFrame([row]), pd.DataFrame(), [], {})
    table = orders.slopes_table(result)
    assert table.iloc[0]["distance, own step"] == "1.0 ± 1.0"
    assert table.iloc[0]["fourth"] == "changes sign"
