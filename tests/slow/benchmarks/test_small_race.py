"""`python -m benchmarks nuts`, a small race that is really run."""

import json

import jax
import pytest

from benchmarks.__main__ import main
from benchmarks.nuts.contestants import OURS


@pytest.fixture
def quick_to_compile():
    """Most of a small race is compilation, and what it checks are not times."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.usefixtures("quick_to_compile")
def test_a_small_race(capsys, tmp_path):
    arguments = (
        "nuts", "--quick", "--sizes", "200", "--dimension", "2",
        "--peers", "blackjax", "--json", "--out", str(tmp_path),
    )  # fmt: skip
    main(arguments)
    found = json.loads(capsys.readouterr().out)
    samplers = [line["sampler"] for line in found["rows"]]
    assert samplers == [OURS, "BlackJAX NUTS"]
    for line in found["rows"]:
        assert line["ess"] >= 1_900 and not line["extrapolated"]
        # 2,000 effective draws: an error of 0.15 sd is six standard errors and more.
        assert line["error_mean"] < 0.15 and line["error_sd"] < 0.3
        assert 0.3 < line["gradients_per_effective_draw"] < 30
    assert (tmp_path / "nuts.md").exists()
