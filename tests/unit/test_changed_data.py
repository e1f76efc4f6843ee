"""A run is not resumed with data that have changed anywhere, in whatever form they come."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data import digests

ROWS = np.random.default_rng(0).normal(size=(60_000, 3)).astype(np.float32)
CHANGED = ROWS.copy()
CHANGED[30_000] += 3.0  # one row, in the middle: names, sizes and both ends stay


def npy(folder, rows):
    np.save(folder / "rows.npy", rows)
    return ex.data.npy(folder / "rows.npy", block_rows=20_000)


def parquet(folder, rows):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pa.table({f"x{k}": rows[:, k] for k in range(3)})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", compression="none")
    return ex.data.parquet(folder / "rows.parquet", block_rows=20_000)


def zarr(folder, rows):
    zarr = pytest.importorskip("zarr")
    options = {"overwrite": True, "chunks": (10_000, 3), "compressors": None}
    zarr.create_array(folder / "rows.zarr", data=rows, **options)
    return ex.data.zarr(folder / "rows.zarr", block_rows=20_000)


def stream(folder, rows):
    return ex.data.stream(
        lambda: iter([rows]), num_rows=len(rows), block_rows=20_000, identity=str(rows[30_000])
    )


def in_memory(folder, rows):
    return rows


FORMS = (npy, parquet, zarr, stream, in_memory)


def sample(data, folder, steps, **more):
    posterior = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((x - w) ** 2), data
    )
    return ex.sample(
        ex.sgld(ex.Minibatch(posterior, 10), 1e-5), jnp.zeros(3), steps, key=jax.random.key(0),
        checkpoint=ex.Checkpoint(folder / "run", **more),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ERGODAX_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_row_in_the_middle_that_has_changed_is_seen(form, tmp_path):
    sample(form(tmp_path, ROWS), tmp_path, 20)
    with pytest.raises(ex.CheckpointError, match="can't be resumed by this one.*data"):
        sample(form(tmp_path, CHANGED), tmp_path, 30, resume=True)
    same = sample(form(tmp_path, ROWS), tmp_path, 30, resume=True)  # written anew, the same rows
    assert same.num_draws == 30


def test_a_stream_without_a_name_is_not_kept(tmp_path):
    data = ex.data.stream(lambda: iter([ROWS]), num_rows=len(ROWS))
    with pytest.raises(ValueError, match="Pass identity= to ex.data.stream"):
        sample(data, tmp_path, 20)


def test_a_file_is_read_once_until_it_changes(tmp_path, monkeypatch):
    path, read = tmp_path / "rows.npy", []
    monkeypatch.setattr(digests, "SETTLED", -60.0)  # as if after a while
    digest = digests._of_file
    monkeypatch.setattr(digests, "_of_file", lambda *a: read.append(a) or digest(*a))
    np.save(path, ROWS)
    first = digests.of_files([path])
    assert digests.of_files([path]) == first and len(read) == 1
    os.utime(path, ns=(1, 1))  # as if it had been written anew
    assert digests.of_files([path]) == first and len(read) == 2
    (tmp_path / "cache" / "digests.json").write_text("damaged")
    assert digests.of_files([path]) == first and len(read) == 3
    np.save(path, CHANGED)
    assert digests.of_files([path]) != first


def test_a_change_that_keeps_the_time_is_seen(tmp_path, monkeypatch):
    """As by rsync in place; or within the grain of the file system's time; or by a memory map."""
    path = tmp_path / "rows.npy"
    np.save(path, ROWS)
    os.utime(path, ns=(1, 1))
    first = digests.of_files([path])  # not remembered: it has just been written

    def write(rows):
        map = np.lib.format.open_memmap(path, mode="r+")
        map[:] = rows
        os.utime(path, ns=(1, 1))

    write(CHANGED)
    assert digests.of_files([path]) != first
    assert not (tmp_path / "cache" / "digests.json").exists()
    monkeypatch.setattr(digests, "SETTLED", -60.0)
    changed = digests.of_files([path])
    write(ROWS)
    assert digests.of_files([path]) == first != changed


def test_what_is_written_to_a_map_that_stays_open_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED", -60.0)
    map = np.lib.format.open_memmap(tmp_path / "x", "w+", ROWS.dtype, ROWS.shape)
    map[:] = ROWS
    first = digests.of_files([tmp_path / "x"])
    time.sleep(0.02)  # the grain of the system's time
    map[:] = CHANGED
    assert digests.of_files([tmp_path / "x"]) != first


def test_without_a_place_for_them_digests_are_made_each_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ERGODAX_CACHE", str(tmp_path / "file"))
    assert digests.of_files([tmp_path / "file"]) == digests.of_files([tmp_path / "file"])


def test_a_digest_does_not_depend_on_how_rows_are_cut():
    rows = {"x": ROWS, "y": ROWS[:, 0]}
    whole = digests.of_rows(iter([rows]))
    cut = ({k: v[a : a + 7_000] for k, v in rows.items()} for a in range(0, len(ROWS), 7_000))
    assert digests.of_rows(cut) == whole
    assert digests.of_rows(iter([{"x": CHANGED, "y": ROWS[:, 0]}])) != whole
