"""The decision log of an inference: decisions, times, errors, verdict."""

import dataclasses
import types

import numpy as np
import pandas as pd
import pytest

import ergodax as ex
from ergodax.tune.decisions import DecisionLog, Inference, error_table

CHAINS, DRAWS = 4, 2_000
_RNG = np.random.default_rng(11)


def samples(*, apart=0.0):
    """Independent draws: `w` of sds 1 and 10, and a scalar `b`; `apart` parts one chain."""
    w = _RNG.normal(size=(CHAINS, DRAWS, 2)) * np.array([1.0, 10.0]) + 3.0
    b = _RNG.normal(size=(CHAINS, DRAWS))
    b[0] += apart
    return ex.Samples({"b": b, "w": w}, None, None)


def bias_report(values: dict[str, tuple[float, float]], error: float = 0.0):
    """What `error_table` reads of a BiasReport: the biases of (mean, sd) of each component."""
    rows = {(name, kind): x for name, pair in values.items() for kind, x in zip(KINDS, pair)}  # noqa: B905
    table = pd.DataFrame({"bias_coarse": rows, "bias_error": dict.fromkeys(rows, error)})
    return types.SimpleNamespace(table=table, ratio=4.0)


KINDS = ("mean", "sd")


def inference(table, *, converged=False):
    log = DecisionLog()
    log.decide("sampler", "NUTS", "few examples")
    return Inference(samples(), table, 0.05, converged, log, None)


def test_errors_are_in_posterior_sds():
    table = error_table(samples())
    assert list(table.index) == ["b", "w[0]", "w[1]"]
    # Of n independent draws: 1 / sqrt(n), and for the sd 1 / sqrt(2 n).
    n = CHAINS * DRAWS
    np.testing.assert_allclose(table["mcse_mean"], 1 / np.sqrt(n), rtol=0.15)
    np.testing.assert_allclose(table["mcse_sd"], 1 / np.sqrt(2 * n), rtol=0.15)
    np.testing.assert_allclose(table["sd"], [1.0, 1.0, 10.0], rtol=0.06)
    np.testing.assert_allclose(table["error"], table[["mcse_mean", "mcse_sd"]].max(axis=1))
    assert (table["bias_mean"] == 0).all() and (table["r_hat"] < 1.01).all()


def test_the_bias_and_its_own_error_are_added():
    values = {"w[1]": (-0.5, 0.0), "b": (0.01, -0.04), "w[0]": (0.0, 0.0)}  # another order
    table = error_table(samples(), bias_report(values))
    sd = table["sd"]
    np.testing.assert_allclose(table["bias_mean"], [0.01 / sd["b"], 0.0, 0.5 / sd["w[1]"]])
    np.testing.assert_allclose(table["bias_sd"], [0.04 / sd["b"], 0.0, 0.0])
    expected = table["mcse_sd"]["b"] + 0.04 / sd["b"]
    np.testing.assert_allclose(table["error"]["b"], expected)
    unsure = error_table(samples(), bias_report(values, error=0.01))
    np.testing.assert_allclose(unsure["bias_mean"]["b"], 0.05 / unsure["sd"]["b"])


def test_a_component_whose_bias_was_not_measured_has_no_small_error():
    table = error_table(samples(), bias_report({"b": (0.0, 0.0)}))
    assert table["error"].isna().tolist() == [False, True, True]
    assert inference(table).worst == "w[0]"


def test_chains_that_disagree_are_seen():
    table = error_table(samples(apart=5.0))
    assert table["r_hat"]["b"] > 1.1 and table["r_hat"]["w[0]"] < 1.01
    assert "b has an error" in inference(table).verdict()


@pytest.mark.parametrize("converged", [True, False])
def test_the_verdict_comes_first(converged):
    text = str(inference(error_table(samples()), converged=converged))
    assert text.startswith("converged: " if converged else "NOT converged: ")
    for word in ("w[1]", "mcse", "NUTS", "few examples", "0.05"):
        assert word in text


def test_a_fault_is_the_verdict():
    result = inference(error_table(samples()))
    result.account.faults += ["float32 is too coarse", "2.0% of the trajectories diverged"]
    expected = "NOT converged: float32 is too coarse; 2.0% of the trajectories diverged"
    assert result.verdict() == expected


def test_a_constant_component_is_the_worst():
    draws = samples()
    draws.position["b"][:] = 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        assert inference(error_table(draws)).worst == "b"


def test_the_log_tells_decisions_in_order_and_adds_times():
    log = DecisionLog()
    log.decide("start", "the mode", "3 iterations")
    log.decide("sampler", "NUTS", "cheap")
    with pytest.raises(RuntimeError), log.timing("mode"):
        raise RuntimeError
    first = log.seconds["mode"]
    with log.timing("mode"):
        pass
    assert log.seconds["mode"] >= first >= 0.0
    lines = str(log).splitlines()
    assert lines[0] == "start    the mode (3 iterations)"
    assert lines[1] == "sampler  NUTS (cheap)"
    assert lines[2].startswith("mode ")
    assert str(DecisionLog()) == ""


def test_what_is_printed_fits_a_terminal_and_splits_no_number():
    """With names of 20 letters; the DataFrame keeps the columns that the print draws together."""
    draws = samples()
    table = error_table(draws).set_axis(["a_column_of_20_letter", "v", "w"], axis=0)
    log = DecisionLog()
    log.decide("estimator", "ControlVariate, order 2", "evaluations: " + "ControlVariate 384, " * 9)
    log.faults.append("the posterior is improper, " * 9)
    lines = str(dataclasses.replace(inference(table), account=log)).splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = (line.split() for line in lines if line.startswith("a_column"))
    assert len(row) == 8
    mcse = table[["mcse_mean", "mcse_sd"]].max(axis=1).iloc[0]
    assert float(row[3]) == pytest.approx(mcse, rel=0.05)


def test_a_leaf_without_components_stands_beside_others():
    """As the coefficients of a regression without columns."""
    drawn = samples()
    empty = np.zeros((CHAINS, DRAWS, 0))
    more = dataclasses.replace(drawn, position=drawn.position | {"coefficients": empty})
    assert error_table(more, None).equals(error_table(drawn, None))
