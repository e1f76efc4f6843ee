"""Advice: the decision tree, its programs, and what nobody has looked for."""

import numpy as np
import pytest

from ergodax.tune.advise import advise

CASES = {
    "large": ({"num_data": 1e6, "dimension": 50}, "ex.infer: NOGIN"),
    "small": ({"num_data": 500, "dimension": 5}, "ex.infer: NUTS"),
    "no data": ({"num_data": 0, "dimension": 5}, "ex.infer: NUTS"),
    "cheap": ({"num_data": 5e3, "dimension": 5, "gradient_seconds": 1e-5}, "ex.hmc"),
    "exact": ({"num_data": 1e6, "dimension": 5, "exact": True}, "Firefly"),
    "wide": ({"num_data": 1e6, "dimension": 1e5}, "SGHMC on SVRG"),
    "wide and ill": (
        {"num_data": 1e6, "dimension": 1e5, "condition_number": 1e5},
        "pSGLD",
    ),
    "modes": ({"num_data": 1e6, "dimension": 5, "modes": 3}, "Replica exchange"),
    "modes, no data": ({"num_data": 0, "dimension": 5, "modes": 2}, "Replica exchange"),
    "network": ({"num_data": 1e5, "dimension": 1e6, "network": True}, "Cyclical SGHMC"),
}
CODES = {advise(**case).code: name for name, (case, _) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_tree(name):
    case, begins = CASES[name]
    advice = advise(**case)
    assert advice.recommendation.startswith(begins)
    assert advice.reasons and all(reason.endswith(".") for reason in advice.reasons)
    assert str(advice).endswith(advice.code)


@pytest.mark.slow
@pytest.mark.parametrize("name", CODES.values())
def test_the_program_runs_as_it_stands(name):
    scope = {}
    exec(advise(**CASES[name][0]).code, scope)  # noqa: S102
    if "samples" in scope:
        assert np.isfinite(np.concatenate(list(scope["samples"].named().values()), None)).all()
    else:
        assert scope["result"].converged


def test_a_single_mode_is_promised_to_nobody_who_has_not_looked():
    looked, not_looked = advise(1e6, 5, modes=1), advise(1e6, 5)
    assert any("ex.infer looks" in reason for reason in not_looked.reasons)
    assert not any("ex.infer looks" in reason for reason in looked.reasons)


def test_the_condition_number_is_answered():
    reasons = advise(1e6, 5, condition_number=1e4, modes=1).reasons
    assert reasons[-1].startswith("Condition number 1e+04")
    assert advise(1e6, 5, condition_number=10, modes=1).reasons == reasons[:-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_data": -1, "dimension": 5}, "num_data must be at least 0"),
        ({"num_data": 10, "dimension": 0}, "dimension must be at least 1"),
        ({"num_data": float("nan"), "dimension": 1}, "num_data must be"),
        ({"num_data": 10, "dimension": 1, "modes": 0}, "modes must be at least 1"),
        ({"num_data": 10, "dimension": 1, "condition_number": 0.5}, "condition_number must"),
        ({"num_data": 10, "dimension": 1, "gradient_seconds": -1.0}, "gradient_seconds must"),
    ],
)
def test_numbers_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        advise(**arguments)
