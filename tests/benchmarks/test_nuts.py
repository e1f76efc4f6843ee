"""`python -m benchmarks nuts`: its reference against quadrature, its verdicts, its files."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.nuts import command, contestants, long_run, problem, race
from benchmarks.nuts.contestants import OURS, Limits, Measured, least_ess, until_goal


def benchmarks(capsys, *arguments):
    """Exit status, standard output, standard error."""
    code = 0
    try:
        main(["nuts", *arguments])
    except SystemExit as stop:
        code = stop.code
    out = capsys.readouterr()
    return code, out.out, " ".join(out.err.split())


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
    found = problem.reference(x, y, np.random.default_rng(1))
    # `error` is one standard error, the largest of four: six of them are 1e-8.
    assert 0 < found.error < 0.03
    assert np.abs((found.mean - mean) / sd).max() < 6 * found.error
    assert np.abs(found.sd / sd - 1).max() < 6 * found.error
    # The Gaussian at the mode, which the weights correct, is another law.
    assert np.abs((found.mode - mean) / sd).max() > 6 * found.error


@pytest.mark.slow
def test_the_long_run_is_that_of_quadrature():
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (60, 2)).astype(float)
    y = (rng.random(60) < 1.0 / (1.0 + np.exp(-x @ [1.0, 0.3]))).astype(float)
    mean, sd = by_quadrature(x, y)
    rows = long_run.Rows.of(x, y)
    # 25 rows can differ: the others are counted, and the density is the same.
    assert len(rows.counts) <= 25 and rows.counts.sum() == 60
    assert rows.positives.sum() == y.sum()
    run = long_run.run(rows, 10.0, np.random.default_rng(1))
    # Four figures within six of their standard errors: 1e-8.
    mean_errors = (run.draws.mean(axis=(0, 1)) - mean) / (sd * run.mean_errors)
    sd_errors = (run.draws.std(axis=(0, 1)) / sd - 1) / run.sd_errors
    assert np.abs([mean_errors, sd_errors]).max() < 6
    assert run.mean_errors.max() < 0.02 and run.r_hat < 1.01
    # Rows that are counted once though they occur twice give another law.
    once = dataclasses.replace(rows, counts=np.minimum(rows.counts, rows.positives + 1.0))
    wrong = long_run.run(once, 10.0, np.random.default_rng(1))
    assert np.abs(wrong.draws.mean(axis=(0, 1)) - mean).max() > 6 * sd.max() * 0.02


def test_errors_are_in_posterior_sds():
    reference = problem.Reference(
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
    row(OURS, 50_000, 60_000.0, 5.0, note="batches of 8"),
    row("BlackJAX NUTS", 50_000, 500.0, 10.0),
    row("NumPyro NUTS", 50_000, 600.0, 20.0),
    row(OURS, 500_000, 50_000.0, 5.0, note="batches of 8", error_mean=0.2),
    row("BlackJAX NUTS", 500_000, 200.0, 10.0, extrapolated=True),
]


def facts():
    return {
        "title": "a race", "dimension": 10, "prior_scale": 10.0, "chains": 4, "cores": 4,
        "load_before": 1.0, "load_after": 1.0,
        "references": {"50000": {"error": 0.001, "told": "quadrature"}},
    }  # fmt: skip


def test_verdicts_say_which_goals_are_met():
    found = race.Result(ROWS, [], facts(), Limits()).verdicts
    sampling, end_to_end, errors = found[:3]
    assert "100 times" in sampling and sampling.endswith("at least 50: met")
    # 26.7 s of NUTS, 30 s with set-up, against 5.17 s.
    assert "5.81 times" in end_to_end and end_to_end.endswith("at least 8: NOT MET")
    quicker = [dataclasses.replace(ROWS[0], to_goal=3.0), *ROWS[1:]]
    assert race.Result(quicker, [], facts(), Limits()).verdicts[1].endswith("at least 8: met")
    assert errors.endswith(": met")
    assert found[3].endswith("at least 400: NOT MET") and "250 times" in found[3]
    assert found[4].endswith("NOT MET") and found[5].endswith("NOT MET")
    assert found[6].startswith("while sampling, infer is ahead from 50,000 rows; end to end, infer")
    assert "1.00 times as long" in found[7] and found[7].endswith(": met")
    slower = [*ROWS[:3], dataclasses.replace(ROWS[3], seconds=2.0)]
    assert race.Result(slower, [], facts(), Limits()).verdicts[-1].endswith("NOT MET")


def test_where_infer_overtakes():
    # On log scales a straight line from 1/4 at 1e2 to 4 at 1e4 is 1 at 1e3.
    assert race.overtaking({100: 0.25, 10_000: 4.0}) == pytest.approx(1_000)
    assert race.overtaking({100: 2.0, 10_000: 4.0}) is None
    assert race.overtaking({100: 2.0, 10_000: 0.5}) is None
    small = [row(OURS, 500, 900.0, 5.0), row("BlackJAX NUTS", 500, 1_000.0, 5.0)]
    result = race.Result([*small, *ROWS], [], facts(), Limits())
    assert result.overtakes is not None and 500 < result.overtakes < 50_000
    assert any("infer overtakes the best NUTS at about" in verdict for verdict in result.verdicts)
    assert len(command.show(result).axes) == 2


def test_gradients_to_an_effective_draw():
    mine = row(OURS, 500, 2_000.0, 5.0, gradients=3_000.0)
    assert mine.gradients_each == pytest.approx(4 * 3_000 / 2_000)
    assert ROWS[0].gradients_each is None


def test_the_files(tmp_path):
    result = race.Result(ROWS, ["nutpie is skipped: pymc not installed"], facts(), Limits())
    paths = command.write(result, tmp_path)
    assert all(path.exists() for path in paths.values())
    text = paths["markdown"].read_text()
    assert "| 500,000 | BlackJAX NUTS | 200 | 167* |" in text
    assert "nutpie is skipped" in text and "NOT MET" in text
    assert paths["picture"].read_bytes().startswith(b"\x89PNG")


def test_until_goal_stops_at_the_goal_and_at_the_time():
    rng = np.random.default_rng(0)
    fresh = lambda number: rng.standard_normal((4, 500, 2))  # noqa: E731
    draws, _ = until_goal(fresh, Limits(goal=5_000.0, least=0.0, most=60.0))
    assert 5_000 <= least_ess(draws) <= 20_000
    draws, seconds = until_goal(fresh, Limits(goal=1e9, least=0.0, most=0.0))
    assert draws.shape == (4, 500, 2) and seconds > 0


def test_what_is_not_installed_is_skipped_in_words(monkeypatch):
    monkeypatch.setitem(contestants.NEEDED, "nutpie", ("a_package_that_is_not_there",))
    monkeypatch.setattr(contestants, "run_ours", lambda *_: ROWS[0])
    said = []
    options = race.Options(sizes=(200,), dimension=2, peers=("nutpie",))
    result = race.run(options, said.append)
    assert "nutpie is skipped: a_package_that_is_not_there not installed" in said
    assert len(result.rows) == 1 and result.skipped == said[:1]


@pytest.mark.slow
def test_a_table_is_raced_on(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(2)
    x, codes = rng.standard_normal((300, 3)), rng.integers(0, 3, (300, 1))
    x[:, 2] = 4.0
    digits = np.where(rng.random(300) < 1 / (1 + np.exp(-x[:, 0] - codes[:, 0])), 9, 7)
    digits[:20] = 1
    np.savez(tmp_path / "d.npz", x_train=x, cat=codes, y_train=digits)
    seen = []

    def watch(given, seed, limits):
        seen.append(given)
        return row(OURS, given.num_data, 100.0, 1.0)

    monkeypatch.setattr(contestants, "run_ours", watch)
    monkeypatch.setitem(contestants.PEERS, "blackjax", watch)
    code, out, error = benchmarks(
        capsys, "--data", str(tmp_path / "d.npz"), "--classes", "7", "9",
        "--categorical", "cat", "--prior-scale", "3", "--peers", "blackjax", "--json", "--out",
        str(tmp_path),
    )  # fmt: skip
    assert code == 0, error
    found = json.loads(out)
    # Two columns that vary, an indicator for each of three codes, the intercept.
    assert seen[0].dimension == 6 and seen[0].num_data == 280
    assert found["prior_scale"] == 3.0 and "9 against 7" in found["title"]
    reference = found["references"]["280"]
    assert reference["told"].startswith("HMC in double precision") and reference["error"] < 0.1
    rows = long_run.Rows.of(*(np.asarray(a) for a in seen[0].posterior.data))
    mode, _ = long_run.newton(rows, 3.0)
    np.testing.assert_allclose(seen[0].reference.mode, mode, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "stan"], "peers has 'stan'"),
        (["--sizes", "20"], "sizes must be at least"),
        (["--dimension", "0"], "dimension must be at least 1"),
        (["--data", "none.npz"], "no such file"),
        (["--data", "none.npz", "--sizes", "500"], "are for made-up data"),
    ],
)
def test_errors_of_use(capsys, arguments, message):
    code, _, error = benchmarks(capsys, *arguments)
    assert code == 2 and message in error


def test_help_shows_an_example(capsys):
    code, out, _ = benchmarks(capsys, "--help")
    assert code == 0 and "examples:\n  python -m benchmarks nuts" in out
