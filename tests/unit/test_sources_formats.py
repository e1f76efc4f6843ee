"""Sources of other formats: Zarr, Parquet, iterators; and a shuffled copy."""

import json
import os
import sys

import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.data.paged import Paged
from unit.test_sources import ORDER, rows_of, saved

# Zarr


@pytest.fixture
def group(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    x = np.random.default_rng(0).normal(size=(103, 3)).astype("f4")
    for name, values in (("X", x), ("y", np.arange(103, dtype="i4"))):
        array = group.create_array(name, shape=values.shape, chunks=(10, *values.shape[1:]),
                                   dtype=values.dtype)  # fmt: skip
        array[:] = values
    return tmp_path / "data.zarr", x


def test_zarr(group):
    path, x = group
    source = ex.data.zarr(path, ("X", "y"), block_rows=25)
    assert source.page_rows == 103 and source.num_rows == 103
    source = ex.data.zarr(path, ("X", "y"), block_rows=25, page_rows=10)
    for number in range(5):
        block, y = source.read(ORDER, number)
        np.testing.assert_array_equal(block, x[y])
    np.testing.assert_array_equal(ex.data.zarr(path / "X").subset(103), x)
    assert set(ex.data.zarr(path).row) == {"X", "y"}
    facts = source.facts()
    assert json.loads(json.dumps(facts)) == facts


def test_zarr_opened_again_is_the_same(group):
    zarr = pytest.importorskip("zarr")
    path, x = group
    one, same = (ex.data.zarr(path, ("X", "y"), block_rows=25) for _ in range(2))
    assert one == same and hash(one) == hash(same)
    assert one != ex.data.zarr(path, ("X", "y"), block_rows=20)
    assert one.reader.identity() != ex.data.zarr(path, ("y", "X")).reader.identity()
    array = zarr.open_group(path, mode="a").create_array("X", data=x + 1, overwrite=True)
    assert one != ex.data.zarr(path, ("X", "y"), block_rows=25)
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, data=array[:])
    assert ex.data.zarr(store) != ex.data.zarr(store), "in memory: itself alone"


@pytest.mark.parametrize("options", [{}, {"shards": (20, 6)}, {"zarr_format": 2}], ids=str)
@pytest.mark.parametrize("where", ["folder", "memory"])
def test_a_chunk_without_a_file_is_refused(options, where, tmp_path):
    zarr = pytest.importorskip("zarr")
    store = tmp_path / "x.zarr" if where == "folder" else zarr.storage.MemoryStore()
    x = np.ones((103, 6), "f4")
    x[40:60] = 0.0

    def make(empty):
        config = {"write_empty_chunks": empty}
        zarr.create_array(store, data=x, chunks=(10, 3), overwrite=True, config=config, **options)

    make(True)
    np.testing.assert_array_equal(ex.data.zarr(store).subset(103), x)
    make(False)
    named = r"chunk (c/4/0|c/2/0|4\.0) is" if where == "folder" else "of .* chunks are"
    with pytest.raises(ValueError, match=rf"not complete: .*{named}.*allow_missing_chunks=True"):
        ex.data.zarr(store)
    source = ex.data.zarr(store, allow_missing_chunks=True)
    np.testing.assert_array_equal(source.subset(103), x)


def test_a_chunk_that_changes_is_an_error(group):
    zarr = pytest.importorskip("zarr")
    path, x = group
    source, y = ex.data.zarr(path, "X", block_rows=103), zarr.open_group(path)["X"]
    same = ex.data.zarr(path, "X", block_rows=103)
    y[:10] = x[:10] + 1.0
    os.utime(path / "X" / "c" / "0" / "0", ns=(1, 1))
    with pytest.raises(ValueError, match="X has changed since it was opened, in its chunk c/0/0"):
        source.read(ORDER, 0)
    new = ex.data.zarr(path, "X", block_rows=103)
    assert new != source and source == same
    np.testing.assert_array_equal(new.subset(103)[:10], x[:10] + 1.0)
    y.resize((50, 3))
    with pytest.raises(ValueError, match="the file of the chunk c/5/0 is missing"):
        new.read(ORDER, 0)


def test_bad_zarr_is_refused(group, tmp_path):
    path, _ = group
    with pytest.raises(ValueError, match="has no array 'z', only"):
        ex.data.zarr(path, ("X", "z"))
    with pytest.raises(ValueError, match="single array"):
        ex.data.zarr(path / "X", "X")
    with pytest.raises(FileNotFoundError, match="no Zarr array"):
        ex.data.zarr(tmp_path / "absent.zarr")
    (tmp_path / "folder").mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match="folder"):
        ex.data.zarr(tmp_path / "folder")


# Parquet


@pytest.fixture
def table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"a": np.arange(103.0), "b": np.arange(103, dtype="i2"), "y": np.arange(103) % 2}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=10)
    return tmp_path / "t.parquet"


def test_parquet(table):
    source = ex.data.parquet(table, target="y", block_rows=25)
    assert len(source.pages.lengths) == 11 and source.page_rows == 10
    for number in range(6):
        x, y = source.read(ORDER, number)
        assert x.dtype == np.float32 and y.dtype == np.int32
        np.testing.assert_array_equal(x[:, 0], x[:, 1])
        np.testing.assert_array_equal(x[:, 0] % 2, y)
        np.testing.assert_array_equal(x[:, 0], rows_of(source.pages, number))
    assert ex.data.parquet(table, ["b"]).row.shape == (1,)
    assert ex.data.parquet(table.parent, target="y") == ex.data.parquet(table.parent, target="y")


def test_parquet_that_is_written_anew_is_an_error(table):
    import pyarrow
    from pyarrow import parquet

    source, before = ex.data.parquet(table, target="y", block_rows=25), parquet.read_table(table)
    columns = {name: before[name] for name in before.column_names}
    others = [{"q" if k == "a" else k: v for k, v in columns.items()}]
    others += [columns, {k: v[::-1] for k, v in columns.items()}]
    for rows, new in zip((10, 7, 10), others, strict=True):
        parquet.write_table(pyarrow.table(new), table, row_group_size=rows)
        os.utime(table, ns=(1, 1))
        with pytest.raises(ValueError, match=r"t\.parquet has been written anew"):
            source.read(ORDER, 0)


def test_bad_parquet_is_refused(table, tmp_path):
    import pyarrow
    from pyarrow import parquet

    with pytest.raises(ValueError, match="no column 'z'"):
        ex.data.parquet(table, ["a", "z"])
    with pytest.raises(ValueError, match="page_rows"):
        Paged(ex.data.parquet(table).reader, page_rows=3)
    with pytest.raises(FileNotFoundError):
        ex.data.parquet(tmp_path / "absent.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match="not a Parquet file"):
        ex.data.parquet(tmp_path / "bad.parquet")
    text = pyarrow.table({"a": ["x", "y"], "b": pyarrow.array([1.0, None])})
    parquet.write_table(text, tmp_path / "text.parquet")
    with pytest.raises(TypeError, match="column 'a' has type string"):
        ex.data.parquet(tmp_path / "text.parquet")
    with pytest.raises(ValueError, match="column 'b' has 1 missing"):
        ex.data.parquet(tmp_path / "text.parquet", ["b"]).read(ORDER, 0)


# Iterators


def batches(n=103, size=7):
    x = np.arange(n, dtype="f4")
    return lambda: ((x[i : i + size, None], x[i : i + size]) for i in range(0, n, size))


def test_stream_goes_on_pass_after_pass():
    source = ex.data.stream(batches(), num_rows=103, block_rows=20)
    for number in [0, 0, 1, 4, 5, 6, 2, 3, 14, 9]:
        x, y = source.read(ORDER, number)
        np.testing.assert_array_equal(x[:, 0], y)
        np.testing.assert_array_equal(y, 20 * (number % 5) + np.arange(20))
    assert [len(y) for _, y in source.scan(50)] == [50, 50, 3]


def test_stream_does_not_begin_anew_while_chains_keep_together():
    started = []
    inner = batches()

    def factory():
        started.append(1)
        return inner()

    source = ex.data.stream(factory, num_rows=103, block_rows=20)
    for number in range(15):
        for chain in range(3):
            source.read(np.array([chain, 0], np.uint32), number)
    assert len(started) == 1 + 3


@pytest.mark.parametrize(("said", "word"), [(102, "more than 102"), (104, "only 103")])
def test_stream_counts_the_rows(said, word):
    source = ex.data.stream(batches(), num_rows=said, block_rows=50)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"{word} rows"):
            for number in range(3):
                source.read(ORDER, number)


def test_bad_streams_are_refused():
    with pytest.raises(TypeError, match="factory must be a function"):
        ex.data.stream([np.zeros(3)], num_rows=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="without batches"):
        ex.data.stream(lambda: iter(()), num_rows=3)
    with pytest.raises(TypeError, match="must be numbers"):
        ex.data.stream(lambda: iter([np.array(["a"])]), num_rows=1)
    with pytest.raises(ValueError, match="leading axis in common"):
        ex.data.stream(lambda: iter([(np.zeros(3), np.zeros(4))]), num_rows=3)
    two = ex.data.stream(lambda: iter([np.zeros((2, 3)), np.zeros((2, 4))]), num_rows=4)
    with pytest.raises(ValueError, match="after 2 rows the iterator yields"):
        two.read(ORDER, 0)
    bad = ex.data.stream(lambda: iter([np.zeros(2), np.array([0.0, np.nan])]), num_rows=4)
    with pytest.raises(ValueError, match="row 3"):
        bad.read(ORDER, 0)


def test_a_stream_is_checked_in_the_dtype_of_its_blocks():
    x = np.ones((40, 3))
    x[25, 1] = 1e300
    source = ex.data.stream(lambda: iter(np.split(x, 4)), num_rows=40, block_rows=40)
    with pytest.raises(ValueError, match=r"number 2 .*\(or too large for float32\) in row 25\."):
        source.read(ORDER, 0)
    whole = ex.data.stream(
        lambda: iter(np.split(np.arange(260, 300), 4)), num_rows=40, dtype="uint8"
    )
    with pytest.raises(ValueError, match="number 0 .*value 260 in row 0 which dtype='uint8'"):
        whole.read(ORDER, 0)


def test_empty_batches_of_a_stream_are_passed_over():
    x = np.arange(12.0)
    parts = [x[:0], x[:5], x[5:5], x[5:], x[:0]]
    source = ex.data.stream(lambda: iter(parts), num_rows=12)
    np.testing.assert_array_equal(source.read(ORDER, 0), x)
    with pytest.raises(ValueError, match="without batches, or with empty ones"):
        ex.data.stream(lambda: iter([x[:0]] * 3), num_rows=12)


# A shuffled copy


@pytest.mark.parametrize("memory", [2**28, 13 * 1024])
def test_shuffle_is_a_permutation(memory, tmp_path):
    source = ex.data.npy(*saved(tmp_path, n=5003))
    copy = ex.data.shuffle(source, tmp_path / "copy", memory=memory, block_rows=50)
    assert copy.block_rows == 50
    x, y = copy.subset(5003)
    np.testing.assert_array_equal(np.sort(x[:, 0]), np.arange(5003))
    np.testing.assert_array_equal(x[:, 0] % 2, y)
    # Spearman's correlation with the old order is normal with variance 1 / (N - 1).
    assert abs(np.corrcoef(x[:, 0], np.arange(5003))[0, 1]) < stats.norm.isf(5e-7) / 5002**0.5
    assert sorted(p.name for p in (tmp_path / "copy").iterdir()) == ["0.npy", "1.npy"]


@pytest.mark.slow
def test_every_order_of_a_shuffle_is_equally_likely(tmp_path):
    """24 orders of 4 rows in piles of their own size, 480 seeds: chi-square at p = 1e-6."""
    module = sys.modules[ex.data.shuffle.__module__]
    np.save(tmp_path / "x.npy", np.arange(4, dtype="u1"))
    source, seen = ex.data.npy(tmp_path / "x.npy"), {}
    for seed in range(480):
        rng = np.random.default_rng(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        places = [folder / "a", folder / "b"]
        module._deal(source, places, rng, 3)
        module._collect(source, places, [folder / "x.npy"], rng)
        order = tuple(np.load(folder / "x.npy").tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert sum((c - 20) ** 2 / 20 for c in seen.values()) < stats.chi2.isf(1e-6, 23)


def test_a_shuffle_without_room_leaves_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    source, limits = (
        ex.data.npy(*saved(tmp_path, n=5003)),
        resource.getrlimit(resource.RLIMIT_FSIZE),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(
            OSError, match="can't be written to .*copy, and is removed: .* room for"
        ):
            ex.data.shuffle(source, tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ex.data.shuffle(source, tmp_path / "copy").num_rows == 5003
    with pytest.raises(FileExistsError, match="copy is there already. Choose another folder"):
        ex.data.shuffle(source, tmp_path / "copy")


def test_bad_shuffles_are_refused(tmp_path):
    source = ex.data.npy(*saved(tmp_path))
    with pytest.raises(TypeError, match="source must be a source"):
        ex.data.shuffle(np.zeros(3), tmp_path / "copy")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="memory=100 is too little"):
        ex.data.shuffle(source, tmp_path / "copy", memory=100)
    ex.data.shuffle(source, tmp_path / "copy")
    with pytest.raises(FileExistsError):
        ex.data.shuffle(source, tmp_path / "copy")
