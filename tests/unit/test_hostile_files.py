"""Loading a file that is damaged, foreign or made to harm ends in a ValueError and no more."""

import io
import json
import pickle
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.persist.npz import FORMAT


class Bomb:
    """Unpickling this would be seen."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def written(path, tree, form=FORMAT, **arrays):
    text = tree if isinstance(tree, str) else json.dumps({"format": form, "tree": tree})
    np.savez(path, structure=np.array(text), **arrays)


def node(value) -> dict:
    """A whole content with this as its position."""
    return {"dict": [["position", value], ["info", {"dict": []}], ["final_state", {"dict": []}]]}


def module(name: str, **fields) -> dict:
    return node({"module": name, "fields": [[k, {"value": v}] for k, v in fields.items()]})


def array_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


def with_a_raw_member(path) -> None:
    """As where the directory of the archive says that an array has no bytes."""
    written(path, node({"array": 0}))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("array_0.npy", b"")


DEEP = "[" * 100_000
FILES = {
    "text": lambda p: p.write_text("hello"),
    "empty": lambda p: p.write_bytes(b""),
    "pickle": lambda p: p.write_bytes(pickle.dumps(Bomb())),
    "array": lambda p: p.write_bytes(array_file()),
    "archive of something else": lambda p: np.savez(p, x=np.ones(3)),
    "objects in an array": lambda p: written(
        p, node({"array": 0}), array_0=np.array([Bomb()], dtype=object)
    ),
    "an array without bytes": with_a_raw_member,
    "another format": lambda p: written(p, node({"value": 1}), form="ergodax-samples-9"),
    "no structure": lambda p: written(p, "not json"),
    "a list": lambda p: written(p, "[1, 2]"),
    "deep": lambda p: written(p, DEEP),
    "unknown node": lambda p: written(p, node({"exec": "print()"})),
    "missing array": lambda p: written(p, node({"array": 3})),
    "a dict that is a number": lambda p: written(p, node({"dict": 5})),
    "a key that is a list": lambda p: written(p, node({"dict": [[["a"], {"value": 1}]]})),
    "a random key of nonsense": lambda p: written(
        p, node({"key": {"array": 0}}), array_0=np.ones(3)
    ),
    "a class of the system": lambda p: written(p, module("os:_Environ", data=1)),
    "a class outside": lambda p: written(p, module("numpy:ndarray")),
    "a name that begins alike": lambda p: written(p, module("ergodax_evil.thing:State")),
    "a module that is not there": lambda p: written(p, module("ergodax.nowhere:State")),
    "a class that is not there": lambda p: written(p, module("ergodax.kernel:Nothing")),
    "a function": lambda p: written(p, module("ergodax.persist.npz:load")),
    "a program": lambda p: written(p, module("ergodax.__main__:State")),
    "an attribute that is no field": lambda p: written(
        p, module("ergodax.kernel:State", __class__=1)
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_refused(kind, tmp_path):
    path = tmp_path / "file.npz"
    FILES[kind](path)
    with pytest.raises(ValueError, match="file.npz is not a file written by Samples.save"):
        ex.Samples.load(path)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_truncated(kept, tmp_path):
    path = ex.Samples(np.ones((2, 50, 3)), {}, {}).save(tmp_path / "run.npz")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match="not a file written by"):
        ex.Samples.load(path)


def test_a_flipped_byte_in_the_numbers_is_seen(tmp_path):
    path = ex.Samples(np.ones((2, 50, 3)), {}, {}).save(tmp_path / "run.npz")
    content = bytearray(path.read_bytes())
    place = content.find(np.ones(4).tobytes())
    content[place + 9] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="not a file written by"):
        ex.Samples.load(path)


def test_no_file():
    with pytest.raises(FileNotFoundError):
        ex.Samples.load("/nowhere/at/all.npz")


def test_the_builders_here_can_also_write_a_good_file(tmp_path):
    written(tmp_path / "good.npz", node({"array": 0}), array_0=np.ones((1, 5)))
    assert jnp.all(ex.Samples.load(tmp_path / "good.npz").position == 1.0)
