"""The bank of strangers: each case can be evaluated, has its gradient and its reference."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from benchmarks.strangers import bank, make
from benchmarks.strangers.hierarchies import of_many_groups
from benchmarks.strangers.reference import nuts

CASES = bank.cases()
ONE_OF_EACH = {case.family: name for name, case in CASES.items()}.values()  # family


@pytest.fixture
def as_strangers():
    """With JAX's own rules of promotion, which strangers' densities need, in double precision."""
    with (
        jax.enable_x64(True), jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):  # fmt: skip
        yield


def made(name):
    try:
        return CASES[name].make()
    except bank.Absent as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_density_and_gradient_at_the_start(name, as_strangers):
    problem = made(name)
    problem.target.check(problem.start)
    flat, unravel = ravel_pytree(problem.start)
    energy = jax.jit(lambda u: problem.target.potential(unravel(u)))
    slope = jax.jit(jax.grad(lambda u: problem.target.potential(unravel(u))))(flat)
    assert np.isfinite(energy(flat)) and np.isfinite(slope).all()
    # Off a kink at the start itself; the step is small, since some columns have values of 1e5.
    at = flat + 0.003 * np.random.default_rng(1).standard_normal(flat.size)
    way = np.random.default_rng(0).standard_normal(flat.size)
    way *= 1e-7 / np.linalg.norm(way)
    gradient = jax.jit(jax.grad(lambda u: problem.target.potential(unravel(u))))(at)
    measured = float(energy(at + way) - energy(at - way)) / 2.0
    rounding = 1e-14 + 1e-13 * abs(float(energy(at)))
    assert measured == pytest.approx(float(gradient @ way), rel=1e-3, abs=rounding)


@pytest.mark.parametrize("name", CASES)
def test_reference_fits_the_case(name, as_strangers):
    case, problem = CASES[name], made(name)
    if not case.proper:
        assert problem.exact is None and problem.compute is None
        return
    reference = make.reference(case)
    assert reference is not None
    size = ravel_pytree(problem.start)[0].size
    assert reference.mean.shape == reference.sd.shape == (size,)
    assert np.isfinite(reference.mean).all() and (reference.sd > 0).all()
    assert reference.error_mean < 0.06 and reference.error_sd < 0.06


@pytest.mark.parametrize("name", ["changepoint", "groups-100", "schools"])
def test_quadrature_and_nuts_agree(name, as_strangers):
    """Two ways to the same law; the second has Monte Carlo errors, of which five are allowed."""
    problem, known = made(name), make.reference(CASES[name])
    assert known is not None and "quadrature" in known.how
    sampled = nuts(
        problem.target.potential, problem.start, draws=3_000, acceptance=0.95,
        dense=name != "groups-100",
    )  # fmt: skip
    assert np.abs((sampled.mean - known.mean) / known.sd).max() < 5 * sampled.error_mean
    assert np.abs(sampled.sd / known.sd - 1.0).max() < 5 * sampled.error_sd


def test_stored_quadrature_is_posteriordbs(as_strangers):
    """Eight schools is in both; our quadrature against their Stan."""
    made("posteriordb-schools")  # skipped where its data are not here
    ours, theirs = (make.reference(CASES[n]) for n in ("schools", "posteriordb-schools"))
    assert ours is not None and theirs is not None
    assert np.abs((ours.mean - theirs.mean) / ours.sd).max() < 5 * theirs.error_mean
    assert np.abs(theirs.sd / ours.sd - 1.0).max() < 5 * theirs.error_sd


@pytest.mark.parametrize("name", ["wall", "linear-flat", "dirichlet", "sum-prior", "logarithms"])
def test_closed_forms_are_those_of_quadrature_or_sampling(name, as_strangers):
    """What was derived by hand, against NUTS on the case's own density."""
    problem = made(name)
    truth = problem.exact
    assert truth is not None
    sampled = nuts(problem.target.potential, problem.start, draws=4_000, acceptance=0.95)
    assert np.abs((sampled.mean - truth.mean) / truth.sd).max() < 5 * sampled.error_mean
    assert np.abs(sampled.sd / truth.sd - 1.0).max() < 5 * sampled.error_sd


def test_many_groups_are_those_of_quadrature(as_strangers):
    """The closed form for a thousand groups, on ten, where the general way is quick."""
    data = made("groups-10-centred").target.data[0]
    box = {"log_sigma": (-0.1, 0.1), "log_tau": (-3.5, 2.5)}
    found = of_many_groups(np.asarray(data, np.float64).reshape(10, 500), box, (41, 81))
    known = make.reference(CASES["groups-10-centred"])
    assert known is not None
    np.testing.assert_allclose(found.mean, known.mean, atol=1e-4 * known.sd.min())
    np.testing.assert_allclose(found.sd, known.sd, rtol=1e-4)


def test_two_ridges_are_those_of_a_plain_grid(as_strangers):
    """Given a, b is normal: so the quadrature says. A grid of both knows nothing of that."""
    x, y = (np.asarray(part) for part in made("sign-free").target.data)
    line = np.linspace(-11.0, 11.0, 2_001)
    a, b = np.meshgrid(line, line, indexing="ij")
    log = -0.5 * (a * b) ** 2 * (x @ x) + a * b * (x @ y) - (a**2 + b**2) / 8.0
    mass = np.exp(log - log.max())
    known = make.reference(CASES["sign-free"])
    assert known is not None
    sds = [np.sqrt((mass * values**2).sum() / mass.sum()) for values in (a, b)]
    np.testing.assert_allclose(known.sd, sds, rtol=1e-5)
    np.testing.assert_allclose(known.mean, 0.0, atol=1e-6)
