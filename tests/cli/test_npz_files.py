"""What a user's .npz file may be like: refused with its name, what is wrong and what to try."""

import sys

import numpy as np
import pytest

from ergodax.cli import main

RNG = np.random.default_rng(3)
X, Y, LABELS = RNG.normal(size=(30, 3)), RNG.normal(size=30), np.arange(30) % 3
NUMBERS = {"x": X, "y": Y}


def written(path, arrays):
    np.savez(path, **arrays)
    return path.read_bytes()


def ended(monkeypatch, capsys, *arguments):
    """The exit status of the command line, and its message."""
    monkeypatch.setattr(sys, "argv", ["ergodax", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main.main()
    return stop.value.code, " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X[:20], "y": Y}, "x and y must have as many rows, one at least; their shapes are x"),
        ({"x": 1.0, "y": 2.0}, "as many rows"),
        ({"x": X.astype(str), "y": LABELS % 2}, "x must be real numbers"),
        ({"x": X.astype(object), "y": Y}, "can't be read: Object arrays"),
        ({"x": X[:0], "y": Y[:0]}, "one at least"),
    ],
)
def test_other_commands_refuse_the_same(monkeypatch, capsys, tmp_path, arrays, message):
    path = tmp_path / "table.npz"
    written(path, arrays)
    arguments = ("--data", path, "--features", "x", "--target", "y")
    status, told = ended(monkeypatch, capsys, "infer", *arguments)
    assert status == 2 and f"error: {path}" in told and message in told


def test_a_damaged_corpus(monkeypatch, capsys, tmp_path):
    path = tmp_path / "bags.npz"
    path.write_bytes(written(path, NUMBERS)[:300])
    status, told = ended(monkeypatch, capsys, "topics", path)
    assert status == 2 and f"error: {path} is not an .npz file" in told
