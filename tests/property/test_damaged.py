"""A damaged file loads what was written, or is refused by its name: nothing comes from inside."""

import numpy as np
import pytest

from property import damage

QUICK, MANY = 20, 500


@pytest.mark.parametrize("name", damage.FORMATS)
@pytest.mark.parametrize("count", [QUICK, pytest.param(MANY, marks=pytest.mark.slow)])
def test_damaged_files(name, count, tmp_path):
    counts, faults = damage.faults(name, tmp_path, count)
    assert not faults, "\n".join(faults[:10])
    assert counts["refused"] > count / 2, "most damage is seen"


def test_a_fault_would_be_seen(tmp_path, monkeypatch):
    """Numbers that differ, and an error of another library's, fail the test above."""
    form = damage.FORMATS["table.npz"]
    reads = {
        "other numbers": lambda path: np.frombuffer(path.read_bytes(), np.uint8),
        "inside": lambda path: {}["x"],
    }
    for what, read in reads.items():
        monkeypatch.setitem(damage.FORMATS, "table.npz", form._replace(read=read))
        _, faults = damage.faults("table.npz", tmp_path, 20)
        assert len(faults) > 10 and what in faults[0]
