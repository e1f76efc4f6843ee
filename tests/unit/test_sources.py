"""Sources: which rows a block has, every format's numbers, and every fault of a file."""

import itertools
import json
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.data.paged import Pages, equal_pages

ORDER = np.array([3, 141592653], np.uint32)


def rows_of(pages: Pages, number: int, order=ORDER) -> np.ndarray:
    return np.concatenate([np.arange(*pair) for pair in pages.ranges(order, number)])


def saved(folder, n=103, **arrays):
    """Files with X (float32, 3 columns; X[i, 0] = i) and y (uint8), and their paths."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype("f4")
    x[:, 0] = np.arange(n)
    arrays = {"X": x, "y": (np.arange(n) % 2).astype("u1"), **arrays}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [folder / f"{name}.npy" for name in arrays]


# Which rows a block has


@pytest.mark.parametrize(
    ("lengths", "block"),
    [
        (equal_pages(60, 5), 20),  # whole pages
        (equal_pages(103, 5), 20),  # a short page, and rows left out
        (equal_pages(103, 1), 103),  # all rows
        (equal_pages(7, 7), 3),  # pages larger than a block
        (np.array([3, 1, 9, 2]), 4),  # pages of any length
    ],
)
def test_an_epoch_has_every_row_once_but_for_the_remainder(lengths, block):
    pages, n = Pages(lengths, block), int(lengths.sum())
    each = n // block
    epochs = []
    for epoch in range(30):
        blocks = [rows_of(pages, epoch * each + k) for k in range(each)]
        assert all(len(b) == block and (np.diff(b) > 0).all() for b in blocks)
        used = np.concatenate(blocks)
        assert len(set(used)) == each * block and used.min() >= 0 and used.max() < n
        epochs.append(tuple(used))
    assert len(set(epochs)) > 20 or len(lengths) == 1 or block == n


def test_each_row_is_left_out_equally_often():
    """5 of 17 rows an epoch, pages of 4: chi-square over 3,400 chains at p = 1e-6.

    Rows left out together are neighbours, which makes the counts more alike or less; whole circles
    are cut at a uniform place, so five times the bound of independent rows is generous.
    """
    pages, count = Pages(equal_pages(17, 4), 12), np.zeros(17)
    for chain in range(3400):
        out = set(range(17)) - set(rows_of(pages, 0, np.array([chain, 7], np.uint32)))
        count[list(out)] += 1
    expected = 3400 * 5 / 17
    assert ((count - expected) ** 2 / expected).sum() < 5 * stats.chi2.isf(1e-6, 16)


def test_every_order_of_pages_is_equally_likely():
    """The first block of 2 pages of 4: 6 pairs, chi-square at p = 1e-6."""
    pages = Pages(equal_pages(8, 2), 4)
    pairs = [tuple(rows_of(pages, 0, np.array([k, 0], np.uint32))[::2] // 2) for k in range(3000)]
    counts = [pairs.count(pair) for pair in itertools.combinations(range(4), 2)]
    assert sum(counts) == 3000
    assert sum((c - 500) ** 2 / 500 for c in counts) < stats.chi2.isf(1e-6, 5)


def test_chains_and_epochs_have_orders_of_their_own():
    pages = Pages(equal_pages(1000, 10), 100)
    other = np.array([4, 141592653], np.uint32)
    same, next_chain, next_epoch = (rows_of(pages, 0), rows_of(pages, 0, other), rows_of(pages, 10))
    np.testing.assert_array_equal(same, rows_of(Pages(equal_pages(1000, 10), 100), 0))
    assert set(same) != set(next_chain) and set(same) != set(next_epoch)


def test_neighbouring_pages_are_read_as_one():
    assert len(Pages(equal_pages(100, 5), 100).ranges(ORDER, 3)) == 1


# .npy


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "u1", "i1", "?", "i4", ">f4", "i8"])
@pytest.mark.parametrize("x64", [False, True])
def test_npy_keeps_the_numbers(dtype, x64, tmp_path):
    values = np.random.default_rng(0).integers(0, 2, (103, 2, 3)).astype(dtype)
    path = tmp_path / "x.npy"
    np.save(path, values)
    with jax.enable_x64(x64):
        source = ex.data.npy(path, block_rows=20, page_rows=7)
        block = source.read(ORDER, 3)
        assert (
            block.dtype == jnp.asarray(values[:1].astype(values.dtype.newbyteorder("="))).dtype
            and block.dtype.isnative
        )
        assert jax.tree.map(lambda x: (x.shape, x.dtype), source.block) == (
            block.shape,
            block.dtype,
        )
    rows = rows_of(source.pages, 3)
    np.testing.assert_array_equal(block, values[rows])


def test_arrays_are_read_together(tmp_path):
    source = ex.data.npy(*saved(tmp_path), block_rows=20, page_rows=5)
    x, y = source.read(ORDER, 2)
    np.testing.assert_array_equal(x[:, 0] % 2, y)
    assert source.num_rows == 103 and source.nbytes == 20 * 13
    assert y.dtype == np.uint8 and source.page_rows == 5


def test_trees_keep_their_structure(tmp_path):
    x, y = saved(tmp_path)
    source = ex.data.npy({"features": str(x), "labels": [y]}, block_rows=10)
    block = source.read(ORDER, 0)
    assert block["features"].shape == (10, 3) and block["labels"][0].shape == (10,)


def test_shards_are_one_array(tmp_path):
    whole = np.arange(60.0, dtype="f4").reshape(30, 2)
    for k, (begin, end) in enumerate([(0, 7), (7, 7), (7, 30)]):
        (tmp_path / "X").mkdir(exist_ok=True)
        np.save(tmp_path / "X" / f"{k}.npy", whole[begin:end])
    np.save(tmp_path / "y.npy", np.arange(30, dtype="i4"))
    source = ex.data.npy(tmp_path / "X", tmp_path / "y.npy", block_rows=13, page_rows=4)
    for number in range(6):
        x, y = source.read(ORDER, number)
        np.testing.assert_array_equal(x, whole[y])


def test_defaults(tmp_path):
    """A small file is one block; pages of 128 KiB, never more rows than there are."""
    source = ex.data.npy(*saved(tmp_path))
    assert (source.block_rows, source.page_rows, source.passes) == (103, 103, 1)
    np.save(tmp_path / "wide.npy", np.zeros((5000, 4096), "f2"))
    wide = ex.data.npy(tmp_path / "wide.npy")
    assert (wide.block_rows, wide.page_rows) == (2**25 // 8192, 16)


def test_a_batch_is_cast_on_the_device(tmp_path):
    paths = saved(tmp_path)
    source = ex.data.npy(*paths, dtype=(None, "float32"))
    assert source.row[1].dtype == np.uint8 and source.example[1].dtype == np.float32
    assert source.as_seen(source.read(ORDER, 0))[1].dtype == np.float32
    assert ex.data.npy(*paths, dtype="float16").example[0].dtype == np.float16


def test_sources_of_the_same_files_are_equal(tmp_path):
    paths = saved(tmp_path)
    one, same = ex.data.npy(*paths), ex.data.npy(*paths)
    assert one == same and hash(one) == hash(same) and not jax.tree.leaves(one)
    others = [ex.data.npy(*paths, passes=2), ex.data.npy(*paths, block_rows=9), paths]
    assert all(one != other for other in others)
    saved(tmp_path, n=104)
    assert one != ex.data.npy(*paths)


def test_facts_are_json_and_see_a_change(tmp_path):
    paths = saved(tmp_path)
    facts = ex.data.npy(*paths).facts()
    assert json.loads(json.dumps(facts)) == facts
    x = np.load(paths[0])
    x[5, 1] += 1.0
    np.save(paths[0], x)
    assert ex.data.npy(*paths).facts() != facts


def test_a_subset_is_distinct_rows_in_memory(tmp_path):
    source = ex.data.npy(*saved(tmp_path), block_rows=10, dtype=(None, "float32"))
    x, y = source.subset(25)
    assert len(set(x[:, 0])) == 25 and (np.diff(x[:, 0]) > 0).all() and y.dtype == np.float32
    np.testing.assert_array_equal(x[:, 0] % 2, y)
    assert set(source.subset(25, seed=1)[0][:, 0]) != set(x[:, 0])
    np.testing.assert_array_equal(source.subset(103)[0][:, 0], np.arange(103))
    for rows in (0, 104):
        with pytest.raises(ValueError, match="rows must lie in"):
            source.subset(rows)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_named(value, tmp_path):
    paths = saved(tmp_path)
    x = np.load(paths[0])
    x[57, 1] = value
    np.save(paths[0], x)
    source = ex.data.npy(*paths, block_rows=103, page_rows=5)
    with pytest.raises(ValueError, match=r"X\.npy has a value that is NaN or infinite.*row 57\."):
        source.read(ORDER, 0)


def test_large_but_finite_numbers_are_no_fault(tmp_path):
    np.save(tmp_path / "x.npy", np.full((100, 2), 3e38, "f4"))
    ex.data.npy(tmp_path / "x.npy").read(ORDER, 0)
    np.save(tmp_path / "x.npy", np.full((100, 2), 1e300))
    with pytest.raises(ValueError, match="too large for float32"):
        ex.data.npy(tmp_path / "x.npy").read(ORDER, 0)
    np.save(tmp_path / "x.npy", np.array([1, 2**40]))
    with pytest.raises(ValueError, match="integers too large for int32"):
        ex.data.npy(tmp_path / "x.npy").read(ORDER, 0)


@pytest.mark.parametrize(
    ("stored", "dtype", "value"),
    [
        ("i4", "uint8", 260),
        ("i4", "uint32", -1),
        ("i4", "int8", 128),
        ("i4", "bool", 2),
        ("i4", "float16", 70_000),
        ("f4", "int32", 0.5),
        ("f4", "int32", 2.0**31),
        ("f4", "float16", 1e6),
    ],
)
def test_a_value_that_a_dtype_cannot_hold_is_named(stored, dtype, value, tmp_path):
    x = np.arange(80).reshape(40, 2).astype(stored)
    if dtype == "bool":
        x = x % 2
    np.save(tmp_path / "x.npy", x)
    source = ex.data.npy(tmp_path / "x.npy", block_rows=40, dtype=dtype)
    np.testing.assert_array_equal(source.as_seen(source.read(ORDER, 0)), x.astype(dtype))
    x[17, 1] = value
    np.save(tmp_path / "x.npy", x)
    source = ex.data.npy(tmp_path / "x.npy", block_rows=40, page_rows=5, dtype=dtype)
    said = rf"x\.npy has the value .*{re.escape(str(x[17, 1]))} in row 17, place \[1\],.*'{dtype}'"
    for read in (lambda: source.read(ORDER, 0), lambda: source.subset(40)):
        with pytest.raises(ValueError, match=said):
            read()
    np.testing.assert_array_equal(ex.data.npy(tmp_path / "x.npy").subset(40), x)


def test_what_only_loses_digits_fits(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3, np.complex64))
    with pytest.raises(TypeError, match="dtype='float32' has no imaginary part"):
        ex.data.npy(tmp_path / "x.npy", dtype="float32")
    np.save(tmp_path / "x.npy", np.array([2**24 + 1, -(2**31), 2**31 - 1], "i4"))
    ex.data.npy(tmp_path / "x.npy", dtype="float32").read(ORDER, 0)
    np.save(tmp_path / "x.npy", np.array([0.1, 65_504.0, -1e-9], "f4"))
    ex.data.npy(tmp_path / "x.npy", dtype="float16").read(ORDER, 0)


def write(folder, what):
    path = folder / "bad.npy"
    if isinstance(what, bytes):
        path.write_bytes(what)
    else:
        np.save(path, what, allow_pickle=True)
    return path


GOOD = np.lib.format.magic(1, 0) + (118).to_bytes(2, "little")
BAD_FILES = {
    "pickled": (np.array([{}, {}], object), TypeError, "pickled"),
    "text": (np.array(["a", "b"]), TypeError, "must be numbers"),
    "long double": (np.zeros(3, np.longdouble), TypeError, "which no device has. Save it anew"),
    "structured": (np.zeros(3, [("a", "f4"), ("b", "i4")]), TypeError, "structured"),
    "fortran": (np.asfortranarray(np.ones((4, 3))), ValueError, "Fortran's order"),
    "number": (np.float32(3.0), ValueError, "single number"),
    "empty": (np.zeros((0, 3)), ValueError, "it has 0 rows"),
    "no header": (b"abc", ValueError, "not a .npy file"),
    "nothing": (b"", ValueError, "not a .npy file"),
    "cut header": (GOOD + b"{'descr': '<f4'", ValueError, "not a .npy file"),
    "version": (np.lib.format.magic(9, 9) + b"xx", ValueError, "not a .npy file"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused(name, tmp_path):
    what, error, message = BAD_FILES[name]
    with pytest.raises(error, match=message):
        ex.data.npy(write(tmp_path, what))


def test_a_truncated_file_is_refused(tmp_path):
    path = saved(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="truncated"):
        ex.data.npy(path)


def test_a_file_cut_while_it_is_read_is_an_error(tmp_path):
    path = saved(tmp_path)[0]
    source = ex.data.npy(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="cut since it was opened"):
        source.read(ORDER, 0)


def test_a_file_that_is_written_anew_is_an_error(tmp_path):
    """The old header would make other rows of it."""
    path = saved(tmp_path)[0]
    source, x = ex.data.npy(path), np.load(path)
    for anew in (np.column_stack([x, x]), x.astype("f8"), x[::-1]):
        np.save(path, anew)
        os.utime(path, ns=(1, 1))  # as if after a while
        with pytest.raises(ValueError, match=r"X\.npy has been written anew"):
            source.read(ORDER, 0)
    posterior = ex.Posterior(lambda w: -(w @ w), lambda w, x: -w @ x, source)
    with pytest.raises(ValueError, match=r"^\S*X\.npy has been written anew"):
        ex.sample(ex.sgld(ex.Minibatch(posterior, 5), 1e-3), np.zeros(3), 9, key=jax.random.key(0))


def test_files_that_differ_in_rows_are_named(tmp_path):
    paths = saved(tmp_path, z=np.zeros(99, "f4"))
    with pytest.raises(ValueError, match=r"X.npy has 103, .*z.npy has 99 rows"):
        ex.data.npy(*paths)


def test_shards_that_differ_are_named(tmp_path):
    np.save(tmp_path / "0.npy", np.zeros((3, 2)))
    np.save(tmp_path / "1.npy", np.zeros((3, 2), "f4"))
    with pytest.raises(ValueError, match="shards of an array must agree"):
        ex.data.npy(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"no \.npy files"):
        ex.data.npy(tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"block_rows": 104}, ValueError, "block_rows must be below 104, not 104"),
        ({"block_rows": 2.5}, TypeError, "block_rows must be an integer"),
        ({"page_rows": 0}, ValueError, "page_rows must be at least 1, not 0"),
        ({"passes": 0}, ValueError, "passes must be at least 1, not 0"),
        ({"passes": True}, TypeError, "passes must be an integer"),
        ({"dtype": "flaot32"}, TypeError, "dtype must be a dtype"),
        ({"dtype": object}, TypeError, "dtype must be a dtype"),
        ({"dtype": ("f4", "f4", "f4")}, ValueError, "a tree like the data"),
    ],
)
def test_bad_options_are_named(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        ex.data.npy(*saved(tmp_path), **options)


def test_bad_paths_are_named(tmp_path):
    with pytest.raises(ValueError, match="paths is empty"):
        ex.data.npy()
    with pytest.raises(TypeError, match="paths must be names of files"):
        ex.data.npy(np.zeros(3))
    with pytest.raises(FileNotFoundError):
        ex.data.npy(tmp_path / "absent.npy")
