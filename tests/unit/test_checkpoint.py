"""The checkpoint file: whole or not there, and nothing but its own arrays."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.persist import checkpoint


def content():
    return {
        "key": jax.random.split(jax.random.key(3), 2),
        "x": jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3),
        "empty": jnp.zeros((2, 0), jnp.float32),
        "count": jnp.int32(-4),
        "flag": jnp.array([True, False]),
    }


def same(a, b):
    data = lambda x: jax.random.key_data(x) if x.dtype == jax.random.key(0).dtype else x  # noqa: E731
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        assert np.asarray(data(x)).tobytes() == np.asarray(data(y)).tobytes()


def test_round_trip(tmp_path):
    path = checkpoint.save(tmp_path / "c", content(), {"done": 7})
    like = jax.eval_shape(content)
    found, facts = checkpoint.load(path, like)
    same(found, content())
    assert facts == {"done": 7}
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def truncate(path, place):
    path.write_bytes(path.read_bytes()[:place])


@pytest.mark.parametrize("place", [0, 3, 30, 90, 200, -1])
@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_file_is_refused_and_the_one_before_it_serves(tmp_path, damage, place):
    path = checkpoint.save(tmp_path / "c", content(), {"done": 1})
    damage(path, place)
    with pytest.raises(ex.CheckpointError, match="damaged|not a checkpoint"):
        checkpoint.load(path, content())
    path = checkpoint.save(tmp_path / "d", content(), {"done": 1})
    checkpoint.save(path, content(), {"done": 2})
    damage(path, place)
    with pytest.warns(UserWarning, match="Going on from the one before it"):
        found, facts = checkpoint.load(path, content())
    same(found, content())
    assert facts == {"done": 1}


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path):
    (tmp_path / "c").mkdir()
    with pytest.raises(ex.CheckpointError, match="c is a folder, but a checkpoint is a file"):
        checkpoint.load(tmp_path / "c", content())


def test_a_kill_between_the_two_renames_leaves_the_previous_file(tmp_path):
    path = checkpoint.save(tmp_path / "c", content(), {"done": 1})
    path.rename(tmp_path / "c.previous")
    assert checkpoint.load(path, content())[1] == {"done": 1}


@pytest.mark.parametrize(
    "other",
    [
        lambda t: t | {"more": jnp.ones(2)},
        lambda t: {k: v for k, v in t.items() if k != "flag"},
        lambda t: t | {"x": t["x"].astype(jnp.float32)},
        lambda t: t | {"x": t["x"][:, :2]},
    ],
)
def test_another_structure_is_refused(tmp_path, other):
    path = checkpoint.save(tmp_path / "c", content(), {})
    with pytest.raises(ex.CheckpointError, match="another"):
        checkpoint.load(path, other(content()))


def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = checkpoint.save(tmp_path / "c", content(), {"done": 1})

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(path, content(), {"done": 2})
    assert checkpoint.load(path, content())[1] == {"done": 1}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "header",
    [
        {"facts": {}, "leaves": [["['a']", "float32", [1 << 40]]]},
        {"facts": {}, "leaves": [["['a']", "object", [1]]]},
        {"facts": {}, "leaves": [["['a']", "float32", [-1]]]},
        {"facts": {}, "leaves": "x"},
        {"facts": {}},
        [],
        "not a header",
    ],
)
def test_a_hostile_header_is_refused(tmp_path, header):
    """With a right checksum, which anybody can compute."""
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "big") + text + b"1234"
    digest = checkpoint.hashlib.sha256(body).hexdigest().encode()
    path = tmp_path / "c"
    path.write_bytes(checkpoint.MAGIC + digest + body)
    with pytest.raises(ex.CheckpointError):
        checkpoint.load(path, {"a": jnp.zeros(1, jnp.float32)})
