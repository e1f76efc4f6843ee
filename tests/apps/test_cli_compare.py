"""`ergodax compare`: its reference against quadrature, its verdicts, its files."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from ergodax.apps import compare, compare_pages, compare_peers, compare_problem
from ergodax.apps.compare_measure import Limits, Measured, least_ess, until_goal
from ergodax.cli import main


def ergodax(monkeypatch, capsys, *arguments):
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["ergodax", *arguments])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr()
    return stop.value.code or 0, out.out, " ".join(out.err.split())


def by_quadrature(x, y):
    """Mean and sd of two coefficients on a grid."""
    line = np.linspace(-4.0, 6.0, 241)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    scores = grid @ x.T
    log = scores @ y - np.logaddexp(0.0, scores).sum(axis=1) - 0.5 * (grid**2).sum(axis=1) / 100.0
    weights = np.exp(log - log.max())
    mean = weights @ grid / weights.sum()
    return mean, np.sqrt(weights @ (grid - mean) ** 2 / weights.sum())


def test_the_reference_is_that_of_quadrature():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    y = (rng.random(60) < 1.0 / (1.0 + np.exp(-x @ [1.0, 0.3]))).astype(float)
    mean, sd = by_quadrature(x, y)
    found = compare_problem.reference(x, y, np.random.default_rng(1))
    # `error` is one standard error, the largest of four: six of them are 1e-8.
    assert 0 < found.error < 0.03
    assert np.abs((found.mean - mean) / sd).max() < 6 * found.error
    assert np.abs(found.sd / sd - 1).max() < 6 * found.error
    # The Gaussian at the mode, which the weights correct, is another law.
    assert np.abs((found.mode - mean) / sd).max() > 6 * found.error


def test_errors_are_in_posterior_sds():
    reference = compare_problem.Reference(
        np.zeros(2), np.eye(2), np.array([1.0, 2.0]), np.array([0.5, 2.0]), 0.0
    )
    pair = np.array([-1.0, 1.0])
    draws = np.stack([1.1 + 0.5 * pair, 2.0 + 2.2 * pair], axis=-1)[None]
    assert reference.errors(draws) == pytest.approx((0.2, 0.1))


def row(sampler, num_data, rate, set_up, **more):
    values = {
        "setup_seconds": set_up, "ess": rate, "seconds": 1.0, "steps": 10_000, "error_mean": 0.01,
        "error_sd": 0.01, "to_goal": set_up + 1e4 / rate, "extrapolated": False,
    }  # fmt: skip
    return Measured(sampler, num_data, **values | more)


ROWS = [
    row(compare.OURS, 50_000, 60_000.0, 5.0, note="batches of 8"),
    row("BlackJAX NUTS", 50_000, 500.0, 10.0),
    row("NumPyro NUTS", 50_000, 600.0, 20.0),
    row(compare.OURS, 500_000, 50_000.0, 5.0, note="batches of 8", error_mean=0.2),
    row("BlackJAX NUTS", 500_000, 200.0, 10.0, extrapolated=True),
]


def facts():
    return {"dimension": 10, "chains": 4, "cores": 4, "load_before": 1.0, "load_after": 1.0}


def test_verdicts_say_which_goals_are_met():
    found = compare.Result(ROWS, [], facts(), Limits()).verdicts
    sampling, all_in, errors = found[:3]
    assert "100 times" in sampling and sampling.endswith("at least 50: met")
    # 26.7 s of NUTS, 30 s with set-up, against 5.17 s.
    assert "5.81 times" in all_in and all_in.endswith("at least 5: met")
    assert errors.endswith(": met")
    assert found[3].endswith("at least 400: NOT MET") and "250 times" in found[3]
    assert found[4].endswith("NOT MET") and found[5].endswith("NOT MET")
    assert "1.00 times as long" in found[6] and found[6].endswith(": met")
    slower = [*ROWS[:3], dataclasses.replace(ROWS[3], seconds=2.0)]
    assert compare.Result(slower, [], facts(), Limits()).verdicts[-1].endswith("NOT MET")


def test_the_files(tmp_path):
    result = compare.Result(ROWS, ["nutpie is skipped: pymc not installed"], facts(), Limits())
    paths = compare_pages.write(result, tmp_path)
    assert all(path.exists() for path in paths.values())
    text = paths["markdown"].read_text()
    assert "| 500,000 | BlackJAX NUTS | 200 | 167* |" in text
    assert "nutpie is skipped" in text and "NOT MET" in text
    assert "data:image/png" in paths["report"].read_text()


def test_until_goal_stops_at_the_goal_and_at_the_time():
    rng = np.random.default_rng(0)
    fresh = lambda number: rng.standard_normal((4, 500, 2))  # noqa: E731
    draws, _ = until_goal(fresh, Limits(goal=5_000.0, least=0.0, most=60.0))
    assert 5_000 <= least_ess(draws) <= 20_000
    draws, seconds = until_goal(fresh, Limits(goal=1e9, least=0.0, most=0.0))
    assert draws.shape == (4, 500, 2) and seconds > 0


def test_a_small_race(monkeypatch, capsys, tmp_path):
    code, out, error = ergodax(
        monkeypatch, capsys, "compare", "--quick", "--sizes", "200", "--dimension", "2",
        "--peers", "blackjax", "--json", "--out", str(tmp_path),
    )  # fmt: skip
    assert code == 0, error
    found = json.loads(out)
    samplers = [line["sampler"] for line in found["rows"]]
    assert samplers == [compare.OURS, "BlackJAX NUTS"]
    for line in found["rows"]:
        assert line["ess"] >= 1_900 and not line["extrapolated"]
        # 2,000 effective draws: an error of 0.15 sd is six standard errors and more.
        assert line["error_mean"] < 0.15 and line["error_sd"] < 0.3
    assert (tmp_path / "compare.md").exists()


def test_what_is_not_installed_is_skipped_in_words(monkeypatch):
    monkeypatch.setitem(compare_peers.NEEDED, "nutpie", ("a_package_that_is_not_there",))
    monkeypatch.setattr(compare_peers, "run_ours", lambda *_: ROWS[0])
    said = []
    options = compare.Options(sizes=(200,), dimension=2, peers=("nutpie",))
    result = compare.run(options, said.append)
    assert "nutpie is skipped: a_package_that_is_not_there not installed" in said
    assert len(result.rows) == 1 and result.skipped == said[:1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "stan"], "peers has 'stan'"),
        (["--sizes", "20"], "sizes must be at least"),
        (["--dimension", "0"], "dimension must be at least 1"),
    ],
)
def test_errors_of_use(monkeypatch, capsys, arguments, message):
    code, _, error = ergodax(monkeypatch, capsys, "compare", *arguments)
    assert code == 2 and message in error


def test_help_shows_an_example(monkeypatch, capsys):
    code, out, _ = ergodax(monkeypatch, capsys, "compare", "--help")
    assert code == 0 and "Example: ergodax compare" in out
