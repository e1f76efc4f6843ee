"""Arrays of .npz files that are damaged or no arrays are refused, whatever byte is wrong."""

import io
import zipfile

import numpy as np
import pytest

from ergodax.data import archive


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
