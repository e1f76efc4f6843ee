"""How rows come from files into a run: past the cache, into memory used again, when due."""

import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data import files, prefetch
from ergodax.data.paged import Paged
from ergodax.data.source import ALIGNMENT, room
from unit.test_sources import ORDER, rows_of, saved

KEY = jax.random.key(5)
BYTES = np.random.default_rng(0).integers(0, 256, 70_001, np.uint8)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file, of which little is read at a time; on a file system that can go past the cache."""
    monkeypatch.setattr(files, "REQUEST", 2 * files.ALIGNMENT)
    monkeypatch.setattr(files, "SHARE", 10_000)
    (tmp_path / "bytes").write_bytes(BYTES.tobytes())
    monkeypatch.setattr(files, "memory", lambda: 1000)
    if isinstance(files.way_to_read([tmp_path / "bytes"]), files.Cached):
        pytest.skip("no reading past the cache here")
    return tmp_path / "bytes"


PLACES = {
    "all": [[0, 70_001]],
    "the end": [[69_999, 70_001]],
    "pages": [[0, 4096], [8192, 12_288]],
    "anywhere": [[1, 2], [4095, 4097], [5000, 30_001], [40_000, 40_016], [65_536, 70_001]],
    "many": [[k, k + 13] for k in range(0, 70_001 - 13, 97)],
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("way", [files.Cached, files.PastTheCache])
def test_the_bytes_are_those_of_the_file(way, name, file):
    places = np.array(PLACES[name], np.int64)
    expected = np.concatenate([BYTES[begin:end] for begin, end in places])
    out, reader = np.zeros(len(expected), np.uint8), way()
    for _ in range(2):
        reader.read(file, places, out)
        np.testing.assert_array_equal(out, expected)
        reader.process = -1  # as in a fork, which has no threads


@pytest.mark.parametrize("way", [files.Cached, files.PastTheCache])
def test_a_file_that_was_cut_is_an_error(way, file):
    reader, places = way(), np.array([[5, 70], [60_000, 70_002]])
    with pytest.raises(ValueError, match="ends at byte 70001: cut since"):
        reader.read(file, places, np.zeros(10_067, np.uint8))
    out = np.zeros(65, np.uint8)
    reader.read(file, places[:1], out)
    np.testing.assert_array_equal(out, BYTES[5:70])


def test_large_files_are_read_past_the_cache(file, monkeypatch):
    for size, way in ((140_001, files.PastTheCache), (140_002, files.Cached)):
        monkeypatch.setattr(files, "memory", lambda size=size: size)
        assert type(files.way_to_read([file])) is way
    assert type(files.way_to_read([file, file])) is files.PastTheCache


def test_memory_is_no_more_than_the_group_may_have(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(files, "GROUP_LIMIT", limit)
    physical = files.memory()
    assert physical == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text, bytes_ in (("max\n", physical), ("12345\n", 12345)):
        limit.write_text(text)
        assert files.memory() == bytes_


@pytest.mark.parametrize("dtype", ["f4", "u1", ">f4", "f8"])
def test_blocks_are_the_same_past_the_cache(dtype, file, tmp_path):
    x = np.random.default_rng(0).integers(0, 100, (1003, 3)).astype(dtype)
    for k, rows in enumerate(np.split(x, [300])):
        (tmp_path / "X").mkdir(exist_ok=True)
        np.save(tmp_path / "X" / f"{k}.npy", rows)
    source = ex.data.npy(tmp_path / "X", block_rows=200, page_rows=7)
    assert isinstance(source.reader.ways[0], files.PastTheCache)  # pyright: ignore
    for number in range(6):
        np.testing.assert_array_equal(source.read(ORDER, number), x[rows_of(source.pages, number)])
    np.testing.assert_array_equal(np.concatenate(list(source.scan(400))), x)


def test_a_cpu_computes_with_the_rows_where_they_are():
    arrays = room((jax.ShapeDtypeStruct((3, 5), "f4"), jax.ShapeDtypeStruct((7,), "u1")))
    for array in jax.tree.leaves(arrays):
        array[:] = 1
        assert array.ctypes.data % ALIGNMENT == 0
        if jax.default_backend() == "cpu":
            assert jax.device_put(array).unsafe_buffer_pointer() == array.ctypes.data


# In a run


def log_prior(w):
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w, example):
    x, y = example
    return -0.5 * (y.astype(w.dtype) - x @ w) ** 2


def posterior_of(folder: Path, n: int = 607, **options: Any) -> ex.Posterior:
    x = np.random.default_rng(1).normal(size=(n, 3)).astype("f4")
    return ex.Posterior(log_prior, log_likelihood, ex.data.npy(*saved(folder, n, X=x), **options))


def sample(posterior, steps=60, **options):
    kernel = ex.sghmc(ex.Minibatch(posterior, 50), 1e-2, 5.0)
    options = {"key": KEY, "num_chains": 2, "progress": False} | options
    return ex.sample(kernel, jnp.zeros(3), steps, **options)


class AtOnce:
    """Readers that have done everything before they return."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future

    def close(self):
        pass


@pytest.mark.slow
def test_memory_is_used_again_when_it_is_free(tmp_path, monkeypatch):
    """A block is read, to the end, before the first step with the one before it."""
    monkeypatch.setattr(prefetch, "Readers", AtOnce)
    posterior, made = posterior_of(tmp_path, block_rows=100), []
    go_to, room_of = prefetch.Prefetch._go_to, prefetch.room
    monkeypatch.setattr(prefetch, "room", lambda shapes: made.append(1) or room_of(shapes))
    draws = sample(posterior).position
    assert len(made) == 2, "two blocks on the host"
    monkeypatch.setattr(prefetch.Prefetch, "_go_to", lambda *a: go_to(*a) and None)
    np.testing.assert_array_equal(sample(posterior).position, draws)
    assert len(made) > 20

    def fault(self, k, reading):
        go_to(self, k, reading)
        return self.here[k]  # memory that is in use

    monkeypatch.setattr(prefetch.Prefetch, "_go_to", fault)
    if jax.default_backend() == "cpu":
        assert (sample(posterior).position != draws).any()


@pytest.fixture
def read(monkeypatch):
    """The numbers of the blocks that are read, in order."""
    numbers = []
    inner = Paged.read_into

    def counted(self, order, number, out):
        numbers.append(number)
        inner(self, order, number, out)

    monkeypatch.setattr(Paged, "read_into", counted)
    return numbers


@pytest.mark.slow
def test_a_resumed_run_reads_where_it_is(tmp_path, read, monkeypatch):
    monkeypatch.setattr(prefetch, "Readers", AtOnce)
    posterior = posterior_of(tmp_path, block_rows=100)
    whole = sample(posterior, 12, num_chains=1)
    assert read == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    sample(posterior, 7, num_chains=1, checkpoint=ex.Checkpoint(tmp_path / "run"))
    read.clear()
    again = ex.Checkpoint(tmp_path / "run", resume=True)
    resumed = sample(posterior, 12, num_chains=1, checkpoint=again)
    assert read == [0, 3, 4, 5, 6, 7, 8], "block 0 by the start, then where it goes on"
    np.testing.assert_array_equal(resumed.position, whole.position)


@pytest.mark.slow
def test_a_block_of_all_rows_is_read_once(tmp_path, read):
    sample(posterior_of(tmp_path), num_chains=1)
    assert read == [0]


WAITS = """
import time, jax, jax.numpy as jnp, numpy as np, ergodax as ex
def batches():
    yield np.ones((20, 3), "f4")
    time.sleep(3_600)
data = ex.data.stream(batches, num_rows=40, block_rows=20)
posterior = ex.Posterior(lambda w: -(w @ w), lambda w, x: -(w @ x), data)
kernel = ex.sgld(ex.Minibatch(posterior, 5), 1e-3)
ex.sample(kernel, jnp.zeros(3), 2, key=jax.random.key(0), num_chains=2, progress=False)
"""


@pytest.mark.slow
def test_a_process_ends_while_an_iterator_waits():
    """The next block is being read when the last step has been taken."""
    subprocess.run([sys.executable, "-c", WAITS], check=True, timeout=120)  # it waits for longer


# What needs all rows


def test_tests_of_proposals_say_so(tmp_path):
    posterior = posterior_of(tmp_path)
    bound = ex.exact.LogisticBound(np.ones((607, 3)), np.arange(607) % 2, centre=np.zeros(3))
    for make in (
        lambda: ex.exact.austerity(posterior, 0.1, epsilon=0.05),
        lambda: ex.exact.confidence(posterior, 0.1, ex.exact.LogisticRange(np.ones((607, 3)))),
        lambda: ex.exact.tuna(posterior, 0.1, np.ones(607)),
        lambda: ex.exact.firefly(posterior, 0.1, bound),
        lambda: ex.infer(posterior, jnp.zeros(3), key=KEY, progress=False),
    ):
        with pytest.raises(TypeError, match="needs all data in memory, but .* Use ex"):
            make()
