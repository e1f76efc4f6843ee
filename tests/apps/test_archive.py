"""What a user's .npz file may be like: refused with its name, what is wrong and what to try."""

import sys
import zipfile

import numpy as np
import pytest

from ergodax.cli import main

RNG = np.random.default_rng(3)
X, Y, LABELS = RNG.normal(size=(30, 3)), RNG.normal(size=30), np.arange(30) % 3
NUMBERS = {"x": X, "y": Y}
CLASSES = {"x_train": X, "y_train": LABELS, "x_test": X, "y_test": LABELS}
HOLES = np.where(np.arange(30)[:, None] == 7, np.nan, X)


def written(path, arrays):
    np.savez(path, **arrays)
    return path.read_bytes()


def ended(monkeypatch, capsys, *arguments):
    """The exit status of the command line, and its message."""
    monkeypatch.setattr(sys, "argv", ["ergodax", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main.main()
    return stop.value.code, " ".join(capsys.readouterr().err.split())


BYTES = {
    "empty": (lambda whole: b"", "is not an .npz file, or it is damaged"),
    "text": (lambda whole: b"a,b\n1,2\n", "is not an .npz file, or it is damaged"),
    "truncated": (lambda whole: whole[: len(whole) // 2], "copy it again"),
    "bent": (lambda whole: whole.replace(b"\x3f", b"\x3e"), "can't be read: Bad CRC"),
}


@pytest.mark.parametrize("word", ["regress", "classify", "cold"])
@pytest.mark.parametrize("damage", BYTES)
def test_damaged_files(monkeypatch, capsys, tmp_path, word, damage):
    path = tmp_path / "table.npz"
    change, message = BYTES[damage]
    path.write_bytes(change(written(path, NUMBERS | CLASSES)))
    status, told = ended(monkeypatch, capsys, "network", word, path)
    assert status == 2
    assert f"error: {path}" in told and message in told


def test_a_member_that_is_no_array(monkeypatch, capsys, tmp_path):
    path = tmp_path / "table.npz"
    np.savez(path, x=X)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", b"1 2 3")
    status, told = ended(monkeypatch, capsys, "network", "regress", path)
    assert status == 2 and "y is not an array. Write it again with np.savez" in told


REGRESSIONS = [
    ({"x": X}, "no array 'y': it must have the arrays x and y, and has x"),
    ({"x": X[:20], "y": Y}, r"x must have shape (N, d) and y (N,), not (20, 3) and (30,)"),
    ({"x": X[:, :0], "y": Y}, "x must have shape (N, d)"),
    ({"x": X, "y": Y[:, None]}, "Try x.reshape(N, -1) and y.ravel()"),
    ({"x": X[:0], "y": Y[:0]}, "as many rows, one at least"),
    ({"x": X[:1], "y": Y[:1]}, "split 0 leaves no rows to learn from, or none to test on"),
    ({"x": HOLES, "y": Y}, "x is NaN or infinite in 1 of 30 rows, the first of them row 7. Drop"),
    ({"x": X, "y": np.where(Y > Y.mean(), np.inf, Y)}, "y is NaN or infinite in"),
    ({"x": X.astype(str), "y": Y}, "x must be real numbers, not <U"),
    ({"x": X, "y": Y + 1j}, "y must be real numbers, not complex128"),
    ({"x": X.astype(object), "y": Y}, "Write it again with np.savez, as arrays of numbers"),
    ({"x": X, "y": 0 * Y}, "y is constant"),
    (NUMBERS | {"test_mask": np.zeros((2, 30), bool)}, "split 0 leaves no rows to learn from"),
    (NUMBERS | {"test_mask": np.zeros(30, bool)}, "test_mask must have shape (splits, 30)"),
]
CLASSIFICATIONS = [
    ({"x_test": X[:, :2]}, "x_train and x_test must be of one shape and not empty, not of (3,)"),
    ({"x_train": X[:20]}, "x_train and y_train must have as many rows"),
    ({"x_test": np.float64(1)}, "x_test and y_test must have as many rows"),
    ({"x_test": X[:0], "y_test": LABELS[:0]}, "one at least"),
    ({"x_test": HOLES}, "x_test is NaN or infinite in 1 of 30 rows"),
    ({"y_train": HOLES[:, 0]}, "y_train is NaN or infinite in 1 of 30 rows"),
    ({"y_test": np.eye(3)[LABELS]}, "y_test must have shape (N,), a label for each row"),
    ({"y_train": LABELS % 2}, "training rows have the classes [0, 1] only, and the test rows [0,"),
]


@pytest.mark.parametrize(("arrays", "message"), REGRESSIONS)
def test_arrays_of_a_regression(monkeypatch, capsys, tmp_path, arrays, message):
    written(tmp_path / "table.npz", arrays)
    status, told = ended(monkeypatch, capsys, "network", "regress", tmp_path / "table.npz")
    assert status == 2
    assert f"error: {tmp_path / 'table.npz'}" in told and message in told


@pytest.mark.parametrize(("change", "message"), CLASSIFICATIONS)
def test_arrays_of_a_classification(monkeypatch, capsys, tmp_path, change, message):
    written(tmp_path / "table.npz", CLASSES | change)
    status, told = ended(monkeypatch, capsys, "network", "classify", tmp_path / "table.npz")
    assert status == 2
    assert f"error: {tmp_path / 'table.npz'}" in told and message in told


def test_numbers_of_rows_and_unseen_classes(monkeypatch, capsys, tmp_path):
    path = tmp_path / "table.npz"
    written(path, CLASSES | {"y_test": LABELS % 2})
    for option, message in {
        ("--rows", 0): "rows must be at least 1, not 0",
        ("--test-rows", -1): "test_rows must be at least 1, not -1",
        ("--unseen", 2): "the unseen class 2 is not among the labels [0, 1]",
    }.items():
        status, told = ended(monkeypatch, capsys, "network", "classify", path, *option)
        assert status == 2 and message in told


def test_no_such_file(monkeypatch, capsys, tmp_path):
    for path in (tmp_path / "none.npz", tmp_path):
        status, told = ended(monkeypatch, capsys, "network", "cold", path)
        assert status == 2 and f"no such file: {path}" in told


def test_a_damaged_corpus(monkeypatch, capsys, tmp_path):
    path = tmp_path / "bags.npz"
    path.write_bytes(written(path, NUMBERS)[:300])
    status, told = ended(monkeypatch, capsys, "lda", path)
    assert status == 2 and f"error: {path} is not an .npz file" in told
