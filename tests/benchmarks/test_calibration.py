"""Calibration by simulation: its references, and figures that tell right from wrong errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.calibration import command, measure
from benchmarks.calibration.families import FAMILIES
from benchmarks.calibration.reference import importance


@pytest.mark.parametrize("name", ["normal", "groups"])
def test_quadrature_and_importance_sampling_agree(name):
    """Of the draws only the moments are used: here those of a normal law with the curvature."""
    family = FAMILIES[name]
    _, posterior = family.simulate(np.random.default_rng(1), 24)
    rng, d = np.random.default_rng(2), family.scale.size
    exact = family.answer(posterior, np.zeros((0, d)))
    curvature = np.asarray(jax.hessian(posterior.potential)(jnp.asarray(exact.mean)), float)
    draws = rng.multivariate_normal(exact.mean, np.linalg.inv(curvature), 4_000)
    found = importance(posterior, draws)
    assert (np.abs(found.mean - exact.mean) <= 5.0 * found.error_mean * exact.sd).all()
    assert (np.abs(found.sd - exact.sd) <= 5.0 * found.error_sd * exact.sd).all()
    assert found.error_mean.max() < 0.03


def of_errors(spread, shift, count=300):
    """Records of a parameter whose errors are `spread` times the reported ones."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        z = spread * rng.standard_normal(2)
        rank = np.clip(measure.DRAWS * rng.random() + shift * measure.DRAWS, 0, measure.DRAWS)
        inside = [[bool(abs(each) < measure.MANY)] for each in z]
        record = {"number": number, "rank": [int(rank)], "converged": True, "seconds": 1.0}
        record |= {"z_mean": [z[0]], "z_sd": [z[1]]}
        found.append(record | {"inside_mean": inside[0], "inside_sd": inside[1]})
    return measure.figures(found)


def test_right_errors_pass_and_wrong_ones_do_not():
    """The spread of 300 z-scores is known to 4 %."""
    right, small, shifted = of_errors(1.0, 0.0), of_errors(1.5, 0.0), of_errors(1.0, 0.1)
    low, high = command.SPREAD
    assert low < right["sd_mean"] < high and low < right["sd_sd"] < high
    assert right["p"] > 1e-4 and right["coverage"] > 0.92
    assert small["sd_mean"] > high and small["coverage"] < 0.85
    assert shifted["p"] < 1e-6


@pytest.mark.slow
def test_a_run_goes_on_where_it_was(tmp_path, capsys):
    path = tmp_path / "found.jsonl"
    common = ["growth", "--rows", "12", "--json", str(path), "--max-seconds", "20"]
    command.main([*common, "--datasets", "1"])
    command.main([*common, "--datasets", "2", "--resume"])
    said = capsys.readouterr().out
    assert said.count("growth 0:") == 1 and said.count("growth 1:") == 1
    assert len(path.read_text().splitlines()) == 2 and "chi2 of ranks" in said
