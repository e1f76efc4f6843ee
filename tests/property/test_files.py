"""Files that anything has happened to: bytes flipped, cut, doubled, replaced."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ergodax as ex
from ergodax.persist import checkpoint
from property.outcomes import few, many, outcome

KERNEL = ex.sgld(ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2))), 0.1)
TREE = {"x": jnp.arange(6, dtype=jnp.float32), "key": jax.random.key(1), "n": jnp.int32(3)}

harm = st.one_of(
    st.tuples(st.just("flip"), st.floats(0, 1), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(0)),
    st.tuples(st.just("double"), st.floats(0, 1), st.just(0)),
    st.tuples(st.just("zeros"), st.floats(0, 1), st.integers(1, 64)),
)


def harmed(data: bytes, what: tuple) -> bytes:
    kind, share, amount = what
    place = min(int(share * len(data)), len(data) - 1)
    if kind == "cut":
        return data[:place]
    if kind == "double":
        return data[:place] + data
    changed = bytearray(data)
    if kind == "flip":
        changed[place] ^= amount
    else:
        changed[place : place + amount] = bytes(len(changed[place : place + amount]))
    return bytes(changed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved Samples, a checkpoint and a store of draws."""
    path = tmp_path_factory.mktemp("files")
    samples = ex.sample(
        KERNEL, jnp.zeros(2, jnp.float32), 20, key=jax.random.key(0), progress=False,
        checkpoint=ex.Checkpoint(store=path / "draws"),
    )  # fmt: skip
    samples.save(path / "samples")
    checkpoint.save(path / "checkpoint", TREE, {"done": 3})
    np.save(path / "data.npy", np.arange(20, dtype=np.float32).reshape(10, 2))
    return path


@many
@given(harm)
def test_a_checkpoint(folder, what):
    """The checksum covers every byte: what is loaded is what was saved."""
    whole = (folder / "checkpoint").read_bytes()
    path = folder / "harmed"
    path.write_bytes(harmed(whole, what))
    result = outcome(lambda: checkpoint.load(path, TREE))
    if isinstance(result, tuple):
        assert path.read_bytes() == whole


@few
@given(harm, st.integers(0, 100), st.sampled_from(["draws", "samples.zarr"]))
def test_a_store_of_draws(folder, what, which, store):
    """Any of its files, the descriptions among them: right, or refused."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder / store, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    file = files[which % len(files)]
    file.write_bytes(harmed(file.read_bytes(), what))
    result = outcome(lambda: ex.Samples.load(copy))
    if isinstance(result, ex.Samples):
        assert file.read_bytes() == (folder / store / file.relative_to(copy)).read_bytes()


@many
@given(harm)
def test_rows_on_disk(folder, what):
    """A file of rows has no checksum: its shape is right, or it is refused."""
    path = folder / "harmed.npy"
    path.write_bytes(harmed((folder / "data.npy").read_bytes(), what))

    def look():
        source = ex.data.npy(path)
        rows = source.read(np.zeros(2, np.uint32), 0)
        assert jax.tree.map(np.shape, rows) == jax.tree.map(lambda x: x.shape, source.block)
        return rows

    outcome(look)
