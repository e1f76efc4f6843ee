"""What a user's .npz file may be like: refused with its name, what is wrong and what to try."""

import sys

import numpy as np
import pytest

from ergodax.cli import main
from ergodax.learn import tables

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


HALVES = {"x_train": X, "y_train": LABELS == 0}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"x_test": X[:, :2], "y_test": LABELS == 0}, "not (30, 3) ['x_train[0]'.*(30, 2)"),
        ({"x_test": X, "y_test": LABELS + 5}, "y_test must have two classes"),
    ],
)
def test_rows_held_out_that_do_not_fit(monkeypatch, capsys, tmp_path, rows, message):
    written(tmp_path / "t.npz", HALVES | rows)
    status, told = ended(monkeypatch, capsys, "infer", "--data", tmp_path / "t.npz")
    assert status == 2
    for part in message.split(".*"):
        assert part in told


def test_rows_held_out_may_be_of_one_class(tmp_path):
    written(tmp_path / "t.npz", HALVES)
    arrays = tmp_path / "t.npz", "x_train", "y_train"
    written(tmp_path / "one.npz", {"x": X[LABELS == 0], "y": LABELS[LABELS == 0] == 0})
    classes = tables.read_npz(*arrays).classes
    table = tables.read_npz(tmp_path / "one.npz", "x", "y", classes, test=True)
    assert table.classes == ("False", "True") and table.target.tolist() == [1.0] * 10
