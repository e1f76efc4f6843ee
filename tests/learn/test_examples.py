"""Tables that need no file."""

import importlib.util

import numpy as np
import pytest

from ergodax.learn import examples


def test_digits():
    table = examples.digits(("3", "8"))
    assert table.features.shape == (357, 64)
    assert table.target.sum() == 174


def test_flights():
    table = examples.flights()
    assert table.features.shape == (325_724, 39) and table.classes == ("on time", "late")
    assert np.isclose(table.target.mean(), 0.237, atol=5e-4)
    held = dict(zip(table.names, table.features.T, strict=True))
    several = {"departure": 5, "month": 11, "airline": 15, "airport": 2}
    for what, count in several.items():
        indicators = [column for name, column in held.items() if name.startswith(f"{what}: ")]
        assert len(indicators) == count
        assert set(np.unique(np.sum(indicators, axis=0))) == {0.0, 1.0}, "the first has none"
    assert list(held)[11:13] == ["month: Feb", "month: Mar"]
    assert 0.7 < held["temperature, 10 F"].min() and held["distance, 1,000 mi"].max() < 5.0
    evening = held["departure: 17 to 20"] > 0
    assert table.target[evening].mean() > 0.3 > table.target[~evening].mean()


def test_without_the_package_they_say_which(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'ergodax\[app\]'"):
        examples.flights()
