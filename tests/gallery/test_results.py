"""Results that the visitors of the gallery share."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gallery import results


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(results, "_kept", type(results._kept)())
    monkeypatch.setattr(results, "_begun", set())


def test_who_asks_while_a_result_is_computed_waits_for_it():
    computed, began, go_on = [], threading.Event(), threading.Event()

    def compute(x):
        computed.append(x)
        began.set()
        assert go_on.wait(10)
        return [x]

    with ThreadPoolExecutor(2) as visitors:
        first = visitors.submit(results.once, compute, 1)
        assert began.wait(10)
        second = visitors.submit(results.once, compute, 1)
        go_on.set()
        assert first.result() is second.result()
    assert results.once(compute, 1) is first.result()
    results.once(compute, 2)
    assert computed == [1, 2]


def test_a_failure_is_told_and_tried_again():
    outcomes = iter([ValueError("once"), "fine"])

    def compute():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(ValueError, match="once"):
        results.once(compute)
    assert results.once(compute) == "fine"


def test_the_oldest_results_are_dropped(monkeypatch):
    monkeypatch.setattr(results, "MOST", 2)
    computed = []

    def compute(x):
        computed.append(x)
        return x

    for x in (1, 2, 1, 3, 1, 2):
        results.once(compute, x)
    assert computed == [1, 2, 3, 2]


def test_a_page_is_begun_once(monkeypatch):
    ran, done = [], threading.Event()
    monkeypatch.setattr(results, "run", lambda slug: (ran.append(slug), done.set()))
    for _ in range(2):
        results.begin("brownian")
    assert done.wait(10) and ran == ["brownian"]
