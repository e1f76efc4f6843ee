"""What a user's .npz file may be like: refused with its name, what is wrong and what to try."""

import io
import sys
import zipfile

import numpy as np
import pytest

from ergodax.cli import main
from ergodax.data import archive

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
    for command in (["infer"], ["run", "logistic"]):
        status, told = ended(monkeypatch, capsys, *command, *arguments)
        assert status == 2 and f"error: {path}" in told and message in told


def test_a_damaged_corpus(monkeypatch, capsys, tmp_path):
    path = tmp_path / "bags.npz"
    path.write_bytes(written(path, NUMBERS)[:300])
    status, told = ended(monkeypatch, capsys, "topics", path)
    assert status == 2 and f"error: {path} is not an .npz file" in told


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_damage_gets_through_as_another_error(tmp_path, save):
    """Every byte in turn is changed: the arrays come out as they were, or a ValueError."""
    path = tmp_path / "table.npz"
    save(path, x=np.arange(6.0), y=np.arange(6))
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 3):
        for flip in (0x01, 0xFF):
            bent = bytearray(whole)
            bent[place] ^= flip
            path.write_bytes(bent)
            try:
                arrays = archive.read(path, ("x", "y"))
            except ValueError as error:
                assert str(error).startswith(str(path))  # noqa: PT017
                refused += 1
            else:
                np.testing.assert_array_equal(arrays["x"], np.arange(6.0))
                np.testing.assert_array_equal(arrays["y"], np.arange(6))
    assert refused > len(whole) / 3


def test_members_that_are_no_arrays(tmp_path):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("x", "text")
    (tmp_path / "book.npz").write_bytes(held.getvalue())
    with pytest.raises(ValueError, match="x is not an array"):
        archive.read(tmp_path / "book.npz", ("x",), ("y",))
