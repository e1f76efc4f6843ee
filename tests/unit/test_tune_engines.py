"""In which order `infer` tries its samplers, by what NUTS would take."""

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ergodax.tune import Inference, Tuned
from ergodax.tune.budget import Deadline
from ergodax.tune.start import FEW_ROWS

MODULE = importlib.import_module("ergodax.tune.infer")  # the function has the module's name


@pytest.fixture
def tried(monkeypatch):
    """The engines in their order, and the seconds that the second best may take."""

    def order(
        seconds: float,
        virial: float = 0.0,
        modes: tuple = (),
        place: str = "the mode",
        *,
        noisy: bool = False,
    ) -> tuple[list, list]:
        monkeypatch.setattr(MODULE, "warm_up_seconds", lambda *given: seconds)
        start = {"typical": True, "smooth": True, "virial": virial}
        start |= {"place": place, "mode": "the mode"}
        names, limits = [], []

        def tries(name: str) -> Any:
            return lambda *limit: (names.append(name), limits.extend(limit))

        inference: Any = SimpleNamespace(
            posterior="of many rows",
            target="of many rows",
            start=SimpleNamespace(coordinates=SimpleNamespace(dimension=3), **start),
            modes=modes,
            log=SimpleNamespace(faults=[]),
            settings=SimpleNamespace(num_chains=4),
            deadline=Deadline.after(100.0),
            _nuts=tries("NUTS"),
            _surrogate=tries("surrogate"),
            _batches=tries("batches"),
        )
        for engine in MODULE._Inferring._engines(inference, noisy):
            engine()
        return names, limits

    return order


@pytest.mark.parametrize(
    ("seconds", "engines", "limit"),
    [
        (1.0, ["batches", "NUTS"], 2.0),  # which a compilation of the surrogate would outlast
        (20.0, ["batches", "surrogate", "NUTS"], 40.0),
        (1e9, ["batches", "surrogate", "NUTS"], 50.0),
    ],
)
def test_the_surrogate_is_tried_where_nuts_is_slow(seconds, engines, limit, tried):
    names, limits = tried(seconds)
    assert names == engines
    assert limits == pytest.approx([limit] * (len(engines) - 1), abs=1.0)


def test_few_rows_decide_first_and_modes_leave_nuts(tried):
    names, limits = tried(1.0, virial=2.0 * FEW_ROWS)
    assert names == ["surrogate", "batches", "NUTS"]
    assert limits == pytest.approx([50.0, 2.0], abs=1.0), "NUTS's time is no guide where few decide"
    assert tried(20.0, modes=("one", "other"))[0] == ["NUTS"]


def test_where_the_mode_has_no_mass_nuts_meets_the_scales_that_follow_others(tried):
    """50 groups that do not differ, centred: draws of a surrogate never came into the neck."""
    assert tried(20.0, 2.0 * FEW_ROWS, place="the middle of the mass")[0] == ["NUTS"]
    late = tried(1e9, 2.0 * FEW_ROWS, place="the middle of the mass")[0]
    assert late == ["surrogate", "batches", "NUTS"]


def test_where_rounding_spoils_tests_only_batches_are_left(tried):
    assert tried(20.0, noisy=True)[0] == ["batches"]
    assert tried(20.0, modes=("one", "other"), noisy=True)[0] == []


@pytest.mark.parametrize(
    ("r_hat", "left", "kernel", "given_up"),
    [
        (1.48, 100.0, "surrogate", True),
        (1.01, 100.0, "surrogate", False),
        (1.48, 30.0, "surrogate", False),  # less than NUTS takes
        (float("nan"), 100.0, "surrogate", False),  # too few draws to tell
        (1.48, 100.0, "NUTS", False),
    ],
)
def test_a_surrogate_whose_chains_stay_apart_gives_way_to_nuts(
    r_hat, left, kernel, given_up, monkeypatch
):
    monkeypatch.setattr(MODULE, "warm_up_seconds", lambda *given: 20.0)
    nuts = object.__new__(MODULE.Nuts)
    inference: Any = SimpleNamespace(
        posterior="of many rows",
        target="of many rows",
        settings=SimpleNamespace(num_chains=4),
        deadline=Deadline.after(left),
    )
    tuned, result = object.__new__(Tuned), object.__new__(Inference)
    held = {"kernel": nuts if kernel == "NUTS" else "surrogate", "bias": None, "coordinates": None}
    for name, value in held.items():
        object.__setattr__(tuned, name, value)
    table = pd.DataFrame({"r_hat": [r_hat if np.isnan(r_hat) else 1.0, r_hat]})
    object.__setattr__(result, "table", table)
    doubt = MODULE._Inferring._doubt(inference, tuned, result)
    assert bool(doubt) == given_up
    assert not given_up or "R-hat of 1.48" in doubt
