"""What happens to files of a store of draws: each fault is named, or the draws are right."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.persist import zarr_files

ROWS = 3  # draws of a chunk
KERNEL = ex.langevin(ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x["w"] ** 2))), 0.5, 1.0)
START = {"w": jnp.zeros(2, jnp.float32), "v": jnp.zeros((), jnp.float32)}


def sample(steps: int, folder: Path, **more: Any) -> ex.Samples:
    return ex.sample(
        KERNEL, START, steps, num_chains=2, key=jax.random.key(0), progress=False,
        checkpoint=ex.Checkpoint(folder, **more),
    )  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The folder of a run, as it was after 4 and after 8 draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zarr_files, "MOST_DRAWS", ROWS)
        folder = tmp_path_factory.mktemp("stores")
        sample(4, folder / "run")
        shutil.copytree(folder / "run", folder / "older")
        sample(8, folder / "run", resume=True)
        yield folder / "run", folder / "older"


def files(run: Path, ending: str = "") -> list[Path]:
    """Those of the draws, in the folder of the run."""
    found = (path.relative_to(run) for path in sorted((run / "draws.zarr").rglob("*")))
    return [path for path in found if (run / path).is_file() and str(path).endswith(ending)]


def chunks(run: Path) -> list[Path]:
    return [path for path in files(run) if "c" in path.parts]


def delete(file: Path, _older: Path) -> None:
    file.unlink()


def truncate(file: Path, _older: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path, _older: Path) -> None:
    file.write_bytes(b"")


def lengthen(file: Path, _older: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def flip(file: Path, _older: Path, place: int = 7) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(bytes(content))


def older(file: Path, older: Path) -> None:
    shutil.copy(older, file)


HARMLESS = [(older, Path("zarr.json")), (lengthen, Path("log"))]
FAULTS = [delete, truncate, empty, lengthen, flip, older]


def faulty(stores, copy: Path, file: Path, fault) -> Path | None:
    """A copy of the run with one fault; None where the file is the same in the older run."""
    run, before = stores
    if fault is older:
        known = before / file
        if not known.exists() or known.read_bytes() == (run / file).read_bytes():
            return None
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    fault(copy / file, before / file)
    return copy


def assert_refused(copy: Path, *named: Path) -> None:
    """Both to load and to go on, with the name of one of the files."""
    for look in (
        lambda: ex.Samples.load(copy / "draws.zarr"),
        lambda: sample(9, copy, resume=True),
    ):
        with pytest.raises(ex.CheckpointError) as caught:
            look()
        assert any(str(copy / file) in str(caught.value) for file in named), caught.value
        advice = "Restore", "Choose another folder", "not a store of draws"
        assert any(text in str(caught.value) for text in advice)


def assert_right(copy: Path, run: Path) -> None:
    found, whole = (ex.Samples.load(folder / "draws.zarr") for folder in (copy, run))
    jax.tree.map(np.testing.assert_array_equal, found.position, whole.position)
    jax.tree.map(np.testing.assert_array_equal, found.info, whole.info)


def check(stores, copy: Path, file: Path, fault) -> None:
    if faulty(stores, copy, file, fault) is None:
        return
    # A kill can leave these so: the file that is written last, and half a commit in the log.
    if (fault, file.relative_to("draws.zarr")) in HARMLESS:
        assert_right(copy, stores[0])
    else:
        assert_refused(copy, file)


# A chunk that is whole, one that is not full, one of another array, and the descriptions.
SOME = "posterior/w/c/0/0/0", "posterior/w/c/0/2/0", "sample_stats/finite/c/0/1", "log", "zarr.json"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SOME)
def test_a_fault_is_named(stores, tmp_path, name, fault):
    check(stores, tmp_path / "copy", Path("draws.zarr") / name, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_any_file_is_named(stores, tmp_path, fault):
    for file in files(stores[0]):
        check(stores, tmp_path / "copy", file, fault)


@pytest.mark.slow
def test_a_flip_of_any_byte_is_named(stores, tmp_path):
    """Of the log every byte; of the others some, the checksum of a chunk among them."""
    run, _ = stores
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for file in files(run):
        content = (run / file).read_bytes()
        step = {"log": 1, "zarr.json": 7}.get(file.name, 5)
        for place in range(0, len(content), step):
            flip(copy / file, run, place)
            with pytest.raises(ex.CheckpointError) as caught:
                ex.Samples.load(copy / "draws.zarr")
            assert str(copy / file) in str(caught.value)
            (copy / file).write_bytes(content)


@pytest.mark.slow
def test_a_log_cut_anywhere_is_named(stores, tmp_path):
    run, copy, log = stores[0], tmp_path / "copy", Path("draws.zarr/log")
    shutil.copytree(run, copy)
    content = (run / log).read_bytes()
    for place in range(len(content)):
        (copy / log).write_bytes(content[:place])
        with pytest.raises(ex.CheckpointError, match="draws.zarr/log"):
            ex.Samples.load(copy / "draws.zarr")


def swap(copy: Path, one: Path, other: Path) -> None:
    (copy / one).rename(copy / "aside")
    (copy / other).rename(copy / one)
    (copy / "aside").rename(copy / other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("posterior/w/c/0/0/0", "posterior/w/c/0/1/0"),
        ("posterior/v/c/0/1", "sample_stats/potential/c/0/1"),
        ("posterior/zarr.json", "sample_stats/zarr.json"),
        ("sample_stats/potential/zarr.json", "sample_stats/gradient_norm/zarr.json"),
    ],
)
def test_two_files_swapped_are_named(stores, tmp_path, one, other):
    shutil.copytree(stores[0], tmp_path / "copy")
    pair = [Path("draws.zarr") / name for name in (one, other)]
    swap(tmp_path / "copy", *pair)
    assert_refused(tmp_path / "copy", *pair)


@pytest.mark.slow
def test_any_two_files_swapped_are_named(stores, tmp_path):
    run, copy = stores[0], tmp_path / "copy"
    shutil.copytree(run, copy)
    for one, other in itertools.combinations(files(run), 2):
        if (run / one).read_bytes() == (run / other).read_bytes():
            continue
        swap(copy, one, other)
        with pytest.raises(ex.CheckpointError) as caught:
            ex.Samples.load(copy / "draws.zarr")
        assert any(str(copy / file) in str(caught.value) for file in (one, other))
        swap(copy, one, other)
    assert_right(copy, run)


def test_the_draws_of_another_run_are_named(stores, tmp_path):
    """Even where they are as many, and of the same shapes."""
    shutil.copytree(stores[0], tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "draws.zarr")
    sample(8, tmp_path / "other")
    (tmp_path / "other" / "draws.zarr").rename(tmp_path / "copy" / "draws.zarr")
    with pytest.raises(ex.CheckpointError, match="draws.zarr has the draws of another run"):
        sample(9, tmp_path / "copy", resume=True)


def test_an_array_shortened_by_zarr_is_named(stores, tmp_path):
    import zarr

    shutil.copytree(stores[0], tmp_path / "copy")
    array: Any = zarr.open_array(tmp_path / "copy" / "draws.zarr" / "posterior" / "w", mode="r+")
    array.resize((2, 5, 2))
    assert_refused(tmp_path / "copy", Path("draws.zarr/posterior/w/zarr.json"))


def test_zarr_and_xarray_see_what_is_counted(stores):
    import xarray

    folder = stores[0] / "draws.zarr"
    found, opened = ex.Samples.load(folder), xarray.open_datatree(folder, engine="zarr")
    for name, array in found.named().items():
        np.testing.assert_array_equal(opened["posterior"][name], array)
    np.testing.assert_array_equal(opened["sample_stats"]["potential"], found.info.potential)
    attributes = json.loads((folder / "zarr.json").read_text())["attributes"]
    assert attributes["draws"] == found.num_draws == 8
