"""The flights' two models are one posterior, and the comparison tells what is apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

from benchmarks.groups.command import main
from benchmarks.groups.models import KINDS, Flights, crossed, effects
from benchmarks.groups.peer import Answer, arguments, compared, ours, standardised

RNG = np.random.default_rng(0)
INDEX = {kind: np.arange(40) % count for kind, count in zip(KINDS, (7, 5, 3), strict=True)}
FLIGHTS = Flights(INDEX, RNG.normal(size=(40, 2)), RNG.random(40) < 0.3)


def densities(seed):
    """Of our joint density of standardised effects, and of NumPyro's, at the same place."""
    rng = np.random.default_rng(seed)
    z = {kind: rng.normal(size=FLIGHTS.size(kind)) for kind in KINDS}
    sd = {kind: float(np.exp(0.5 * rng.normal())) for kind in KINDS}
    mean, slope = rng.normal(), rng.normal(size=2)
    places = {"mean": mean, "slope": slope} | {f"z_{kind}": z[kind] for kind in KINDS}
    places |= {f"sd_{kind}": sd[kind] for kind in KINDS}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs, _ = log_density(standardised(FLIGHTS), arguments(FLIGHTS), {}, places)
    shared, jacobian = {"mean": mean, "slope": slope, "sd": sd}, np.log(sd["plane"]) * 7
    for kind in KINDS[1:]:
        c = np.sqrt(1.0 + sd[kind] ** 2 * FLIGHTS.told(kind))
        shared[kind], jacobian = c * z[kind], jacobian + np.log(c).sum()
        np.testing.assert_allclose(
            effects(shared[kind], sd[kind], FLIGHTS.told(kind)), sd[kind] * z[kind], rtol=1e-12
        )
    posterior, latent = crossed(FLIGHTS).posterior, sd["plane"] * z["plane"]
    shared, rows = jax.tree.map(jnp.asarray, (shared, posterior.layout.rows))
    total = posterior.log_prior(shared) + jacobian
    total += sum(posterior.density.prior(shared, jnp.asarray([b])) for b in latent)
    of_rows = jax.vmap(lambda b, row: posterior.density.log_likelihood(shared, b, row))
    return float(total + of_rows(latent[posterior.layout.group_of_row], rows).sum()), float(theirs)


def test_both_models_are_one_posterior():
    """Up to a constant: half-normal sds have twice the density of normal ones."""
    with jax.enable_x64(True):
        gaps = [np.subtract(*densities(seed)) for seed in range(4)]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-9)
    np.testing.assert_allclose(gaps[0], -3 * np.log(2.0), atol=1e-9)


def answer(move=0.0, wide=1.0, seconds=1.0):
    draws = RNG.normal(size=(2, 2_000, 3))
    return Answer({"carrier": wide * draws + move, "mean": draws[..., 0]}, seconds, 1e3)


def test_the_comparison():
    table = compared(answer(0.5, 1.3, seconds=2.0), answer(seconds=8.0))
    carrier, mean = table.rows
    assert float(carrier[2]) == pytest.approx(0.5, abs=0.15) and float(mean[2]) < 0.15
    assert float(carrier[3]) == pytest.approx(30.0, abs=8.0) and float(mean[3]) < 8.0
    assert float(table.notes[1].split()[-1]) == pytest.approx(4.0, rel=0.2)


def test_the_draws_of_infer_by_numpyros_names():
    draws = {"mean": np.zeros((2, 5)), "slope": np.zeros((2, 5, 2))}
    draws |= {f"sd.{kind}": np.full((2, 5), 0.5) for kind in KINDS}
    draws |= {kind: np.ones((2, 5, FLIGHTS.size(kind))) for kind in KINDS[1:]}
    result = type("Result", (), {"samples": type("S", (), {"named": lambda self: draws})()})
    found = ours(FLIGHTS, result, 1.0).draws
    expected = 0.5 / np.sqrt(1.0 + 0.25 * FLIGHTS.told("carrier"))
    np.testing.assert_allclose(found["carrier"][1, 3], expected, rtol=1e-6)


def test_nuts_is_refused_where_it_has_no_model(capsys):
    with pytest.raises(SystemExit):
        main(["schools", "--nuts", "10"])
    assert "flights-january" in capsys.readouterr().err
