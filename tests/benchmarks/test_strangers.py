"""`python -m benchmarks strangers`: its references against closed forms, its judgements."""

import dataclasses
import json
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import ergodax as ex
from benchmarks.__main__ import main
from benchmarks.strangers import bank, command, judge, peers, table
from benchmarks.strangers.judge import Judged
from benchmarks.strangers.reference import FOLDER, Reference, exact, importance, quadrature

CASE = bank.Case("easy", "shapes", "a normal", lambda: pytest.fail("not made"))
HARD = dataclasses.replace(CASE, causes=r"two modes|replica")
NONE = dataclasses.replace(CASE, proper=False, causes="improper")
TRUTH = Reference(np.zeros(2), np.ones(2), 0.01, 0.01, "made up")


def found(*, converged=True, mean=0.0, sd=1.0, error=0.04, verdict="converged", infer=10.0):
    return {
        "converged": converged, "verdict": verdict, "mean": [0.0, mean], "sd": [1.0, sd],
        "error": [0.01, error], "infer": infer, "total": infer + 1.0, "account": "",
    }  # fmt: skip


def judged(case=CASE, reference: Reference | None = TRUTH, **what):
    run = Judged(case.name, case.family, "float32", 0, 60.0, judge.OVER, "")
    return judge.judge(case, reference, found(**what), run)


# Verdicts.


def test_an_honest_answer_is_right():
    run = judged(mean=0.1, sd=1.05)  # two and a half of the standard errors that it reported
    assert run.outcome == judge.RIGHT and not run.late
    assert run.error_mean == pytest.approx(0.1) and run.error_sd == pytest.approx(0.05)
    assert run.reported == 0.04 and run.seconds == 11.0


@pytest.mark.parametrize("wrong", [{"mean": 0.3}, {"mean": -0.3}, {"sd": 1.3}, {"sd": 0.7}])
def test_converged_and_wrong_is_silent(wrong):
    assert judged(**wrong).outcome == judge.SILENT
    # The same error is honest if it was reported.
    assert judged(**wrong, error=0.1).outcome == judge.RIGHT


@pytest.mark.parametrize("wrong", [{"mean": np.nan}, {"sd": np.nan}, {"sd": np.inf}])
def test_converged_without_numbers_is_silent(wrong):
    assert judged(**wrong).outcome == judge.SILENT


def test_where_there_is_no_answer_none_is_right():
    assert judged(NONE, None).outcome == judge.SILENT
    said = judged(NONE, None, converged=False, verdict="NOT converged: the posterior is improper")
    assert said.outcome == judge.RIGHT
    said = judged(NONE, None, converged=False, verdict="NOT converged: an error of 0.475")
    assert said.outcome == judge.LOUD and said.cause_named is False


@pytest.mark.parametrize(
    ("case", "verdict", "infer", "named"),
    [
        (HARD, "NOT converged: two modes; use ex.replica_exchange", 10.0, True),
        (HARD, "NOT converged: w[3] has an error of 0.475", 10.0, False),
        (CASE, "NOT converged: the time was too short", 59.0, True),
        (CASE, "NOT converged: the time was too short", 10.0, False),  # it was not
        (CASE, "NOT converged: two modes", 59.0, False),  # there is one
    ],
)
def test_a_loud_verdict_names_the_true_cause_or_not(case, verdict, infer, named):
    run = judged(case, converged=False, verdict=verdict, infer=infer)
    assert run.outcome == judge.LOUD and run.cause_named is named


def test_time_is_kept_to_a_tenth_and_five_seconds():
    assert not judged(infer=70.9).late
    assert judged(infer=71.1).late


# What a process leaves behind.


def settled(found, code=0, said=""):
    run = Judged("easy", "shapes", "float32", 0, 60.0, judge.OVER, "")
    return command.settle(CASE, run, found, code, said)


def test_a_process_that_dies_is_a_traceback():
    run = settled(None, -signal.SIGKILL)
    assert run.outcome == judge.TRACEBACK and "out of memory" in run.verdict
    run = settled(None, 1, "one\nlast line")
    assert run.outcome == judge.TRACEBACK and "last line" in run.account


def test_an_exception_of_infer_is_a_traceback():
    run = settled({"raised": "DivergenceError: step 3", "account": "where", "infer": 80.0})
    assert run.outcome == judge.TRACEBACK and run.verdict == "DivergenceError: step 3" and run.late


def test_what_can_not_be_made_here_is_skipped():
    run = settled({"skipped": "no package"})
    assert run.outcome == judge.SKIPPED
    assert "0 runs" in table.totals([run])[0] and "1 skipped" in table.totals([run])[0]


def test_totals_count_each_outcome():
    rows = [judged(), judged(mean=0.5), judged(converged=False), judged(infer=90.0)]
    told = table.totals(rows)[0]
    expected = ("2 right (50%)", "1 loud (0 of", "1 silent wrong", "0 tracebacks", "1 over time")
    assert all(part in told for part in expected)
    page = table.markdown(rows)
    assert page.startswith("# ") and "SILENT WRONG" in page and "right, late" in page


# Peers.


def test_a_peers_reading_is_that_of_its_draws():
    """Independent draws of known law: errors of 1 / sqrt(n) and 1 / sqrt(2 n); chains apart."""
    draws = np.random.default_rng(0).normal([3.0, -1.0], [2.0, 0.5], (4, 1_000, 2))
    told = peers.reading(draws)
    assert told["mean"] == pytest.approx([3.0, -1.0], abs=0.16)
    assert told["sd"] == pytest.approx([2.0, 0.5], rel=0.06)
    assert told["error"] == pytest.approx(np.full(2, 4_000**-0.5), rel=0.2)
    assert told["r_hat"] < 1.01 and 3_000 < told["ess"] < 6_000
    apart = peers.reading(draws + np.arange(4)[:, None, None])
    assert apart["r_hat"] > 1.05 and apart["ess"] < 400
    stuck = peers.reading(np.zeros((4, 1_000, 2)))
    assert stuck["r_hat"] == np.inf and stuck["ess"] == 0.0


def normal(start=0.0):
    return bank.Problem(
        ex.Target(lambda x: 0.5 * jnp.sum(((x - 3.0) / 2.0) ** 2)), jnp.full(2, start)
    )


@pytest.mark.parametrize("name", ["numpyro", "blackjax"])
def test_nuts_of_a_peer_is_right_on_a_normal(name):
    with jax.numpy_dtype_promotion("standard"):  # which their code needs
        told = peers.answer(name, normal(), 0, 60.0, imported=1.0)
    assert told["converged"] and "R-hat" in told["verdict"] and name in told["account"]
    run = Judged("easy", "shapes", "float32", 0, 60.0, judge.OVER, "", by=name)
    reference = exact(np.full(2, 3.0), np.full(2, 2.0))
    assert judge.judge(CASE, reference, told, run).outcome == judge.RIGHT
    wrong = exact(np.full(2, 3.5), np.full(2, 2.0))
    assert judge.judge(CASE, wrong, told, run).outcome == judge.SILENT


def test_a_peer_without_a_start_raises_and_without_rows_is_absent():
    nowhere = bank.Problem(ex.Target(lambda x: jnp.sum(x) * jnp.nan), jnp.zeros(2))
    with pytest.raises(RuntimeError, match="no start"):
        peers.answer("blackjax", nowhere, 0, 60.0, imported=1.0)
    with pytest.raises(bank.Absent, match="rows"):
        peers.answer("posteriors", normal(), 0, 60.0, imported=1.0)


def test_the_leaderboard_counts_each_ones_outcomes():
    rows = [judged(), dataclasses.replace(judged(mean=0.5), by="numpyro")]
    made = table.leaderboard(rows)
    counts = {row[0]: row[1:] for row in made.rows}
    assert made.columns == ("posterior", "infer", "numpyro")
    assert counts["**right**"] == ["1 of 1", "0 of 1"]
    assert counts["**SILENT WRONG**"] == ["0 of 1", "1 of 1"]
    assert counts["easy"] == ["right, 11.0 s", "SILENT WRONG, 11.0 s"]


# The command.


def test_list_names_cases_and_families(capsys):
    main(["strangers", "--list"])
    everything = capsys.readouterr().out.splitlines()
    assert len(everything) >= 60
    main(["strangers", "--list", "edges", "sum-only"])
    some = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in some} == {"edges", "separation"}


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["strangers", "nobody"])
    assert stop.value.code == 2 and "--list" in capsys.readouterr().err


def test_rows_of_a_file_are_kept(tmp_path):
    path = tmp_path / "bank.json"
    path.write_text(json.dumps([vars(judged())]), encoding="utf-8")
    assert command._read(path)["infer", "easy", "float32", 0].outcome == judge.RIGHT
    assert command._read(tmp_path / "none.json") == {}


# References.


def test_every_stored_reference_has_its_case():
    names = {path.stem for path in FOLDER.glob("*.json")}
    assert names <= set(bank.cases())


def test_improper_posteriors_have_no_reference():
    improper = {name for name, case in bank.cases().items() if not case.proper}
    assert len(improper) >= 5 and not any((FOLDER / f"{name}.json").exists() for name in improper)


def test_a_reference_survives_its_file(tmp_path):
    there = Reference(np.array([0.1, 1e6 / 3]), np.array([1.0, 2e-7]), 0.01, 0.02, "how")
    there.save(tmp_path / "a.json")
    back = Reference.load(tmp_path / "a.json")
    np.testing.assert_allclose(back.mean, there.mean, rtol=1e-6)
    np.testing.assert_allclose(back.sd, there.sd, rtol=1e-6)
    assert (back.error_mean, back.error_sd, back.how) == (0.01, 0.02, "how")


def test_quadrature_is_exact_on_gaussians(x64):
    precision = jnp.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 3.0]])
    start = {"a": jnp.zeros(()), "b": jnp.zeros(2)}

    def potential(p):
        off = jnp.append(p["a"] - 1.0, p["b"])
        return 0.5 * off @ precision @ off

    made = quadrature(potential, start, {"a": (-7.0, 9.0)}, 41)  # b is given a in closed form
    np.testing.assert_allclose(made.mean, [1.0, 0.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(made.sd, np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-7)
    both = quadrature(potential, start, {1: (-7.0, 7.0), "a": (-7.0, 9.0)}, 41)
    np.testing.assert_allclose(both.sd, made.sd, rtol=1e-7)
    with pytest.raises(ValueError, match="border"):
        quadrature(potential, start, {"a": (-1.0, 2.0)}, 41)


def test_importance_sampling_is_that_of_the_closed_form(x64):
    shape = np.array([20.0, 50.0])  # logarithms of gammas, which are skewed
    made = importance(lambda x: jnp.sum(jnp.exp(x) - shape * x), jnp.zeros(2), draws=4_000)
    truth = exact(digamma(shape), np.sqrt(polygamma(1, shape)))
    assert 0 < made.error_mean < 0.03 and 0 < made.error_sd < 0.03
    assert np.abs((made.mean - truth.mean) / truth.sd).max() < 5 * made.error_mean
    assert np.abs(made.sd / truth.sd - 1.0).max() < 5 * made.error_sd
    # The mode is not the mean, and its curvature not the variance.
    assert np.abs((np.log(shape) - truth.mean) / truth.sd).max() > 5 * made.error_mean
