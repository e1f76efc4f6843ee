"""`python -m experiments data` against a server of the test's own; nothing leaves the machine."""

import http.server
import os
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments import fetch
from experiments.data import find

SHARED = Path(os.environ.get("ERGODAX_SHARED_DATA", Path(__file__).parents[3] / "shared/data"))


@pytest.fixture
def home(tmp_path):
    """A folder, and the address that it is served at."""
    folder = tmp_path / "home"
    folder.mkdir()
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    mask = np.zeros((3, 10), bool)
    mask[np.arange(3), [1, 5, 8]] = True
    return {"x": rng.normal(size=(10, 2)), "y": rng.normal(size=10), "test_mask": mask}


def lay_out(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """The files of a UCI table as its home has them: the target in the first column."""
    d = arrays["x"].shape[1]
    rows = np.column_stack([arrays["y"], arrays["x"]])
    text = "\n".join(" ".join(repr(float(v)) for v in row) for row in rows)
    (folder / "data.txt").write_text(text)
    np.savetxt(folder / "index_features.txt", np.arange(1, d + 1))
    np.savetxt(folder / "index_target.txt", [0])
    for k, mask in enumerate(arrays["test_mask"]):
        np.savetxt(folder / f"index_test_{k}.txt", np.flatnonzero(mask))


@pytest.fixture
def small(home, monkeypatch):
    """A table of ten rows at the local home, known by its digest."""
    folder, address = home
    lay_out(folder, table())
    known = replace(
        fetch.SETS["boston"],
        home=address,
        read=partial(fetch.regression, splits=3),
        digest=fetch.digest(table()),
    )
    monkeypatch.setitem(fetch.SETS, "boston", known)
    return folder


def test_a_table_comes_whole_and_once(small, tmp_path, capsys, monkeypatch):
    out = tmp_path / "data"
    fetch.fetch("boston", output=out)
    with np.load(out / "boston.npz") as found:
        assert all((found[name] == array).all() for name, array in table().items())
    monkeypatch.setattr("experiments.data.FOLDER", out)
    assert find(Path("boston.npz"), "regression") == out / "boston.npz"
    (small / "data.txt").unlink()  # so a second download would fail
    fetch.fetch("boston", output=out)
    assert "there already" in capsys.readouterr().out


def change(path: Path) -> None:
    path.write_text(path.read_text().replace("0", "1", 1))


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:-30])


@pytest.mark.parametrize("damage", [change, cut, lambda path: path.write_text("<html>")])
def test_what_is_not_as_expected_is_refused_and_not_written(small, tmp_path, damage):
    damage(small / "data.txt")
    with pytest.raises(ValueError, match="checksum of its arrays differs. Nothing was written"):
        fetch.fetch("boston", output=tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_missing_file_and_a_missing_home_are_named(small, tmp_path, monkeypatch):
    (small / "index_test_2.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"index_test_2\.txt.*404"):
        fetch.fetch("boston", output=tmp_path)
    nowhere = replace(fetch.SETS["boston"], home="http://127.0.0.1:9/")
    monkeypatch.setitem(fetch.SETS, "boston", nowhere)
    with pytest.raises(FileNotFoundError, match=r"could not get http://127\.0\.0\.1:9/data\.txt"):
        fetch.fetch("boston", output=tmp_path)


def test_a_damaged_copy_is_fetched_anew(small, tmp_path):
    (tmp_path / "boston.npz").write_bytes(b"PK half a file")
    fetch.fetch("boston", output=tmp_path)
    assert fetch.holds(tmp_path / "boston.npz", fetch.digest(table()))


def test_names_are_listed_and_a_wrong_one_is_refused(tmp_path, capsys):
    fetch.fetch(output=tmp_path)
    listed = capsys.readouterr().out
    assert all(name in listed for name in fetch.SETS)
    with pytest.raises(ValueError, match="no data set is called bostn. There are: mnist, boston"):
        fetch.fetch("bostn", output=tmp_path)


def test_words_are_read_from_blei_s_format(home):
    folder, address = home
    (folder / "reuters.ldac").write_text("2 0:3 2:1\n1 1:5\n")
    (folder / "reuters.tokens").write_text("church\npope\nyears\n")
    arrays = fetch.words(lambda name: fetch.download(address + name))
    assert arrays["indptr"].tolist() == [0, 2, 3]
    assert arrays["indices"].tolist() == [0, 2, 1]
    assert arrays["counts"].tolist() == [3, 1, 5]
    assert arrays["vocab"].tolist() == ["church", "pope", "years"]


@pytest.mark.parametrize("name", fetch.SETS)
def test_the_digests_are_those_of_the_real_sets(name, home):
    data, (folder, address) = fetch.SETS[name], home
    shared = SHARED / ("reuters395_bow.npz" if name == "reuters" else data.file)
    shared = shared if shared.exists() else SHARED / "uci_regression" / data.file
    if not shared.exists():
        pytest.skip(f"{data.file} is not among the shared data here")
    with np.load(shared) as file:
        arrays = dict(file)
    if name == "mnist":
        (folder / "mnist.npz").write_bytes(shared.read_bytes())
    elif name == "reuters":
        rows = [slice(*ends) for ends in zip(arrays["indptr"], arrays["indptr"][1:], strict=False)]
        pairs = [zip(arrays["indices"][r], arrays["counts"][r], strict=True) for r in rows]
        lines = [" ".join(["0", *(f"{word}:{count}" for word, count in row)]) for row in pairs]
        (folder / "reuters.ldac").write_text("\n".join(lines))
        (folder / "reuters.tokens").write_text("\n".join(arrays["vocab"]))
    else:
        lay_out(folder, arrays)
    assert fetch.digest(fetch.arrays_of(replace(data, home=address))) == data.digest
