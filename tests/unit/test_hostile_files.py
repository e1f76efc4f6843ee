"""Loading draws that are foreign or made to harm ends in a CheckpointError and no more."""

import json
import pickle

import numpy as np
import pytest

import ergodax as ex
from ergodax.persist import checkpoint, saved, zarr_files


class Bomb:
    """Unpickling this would be seen."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def written(path, **changes):
    """A good folder, whose zarr.json says something else, with the right checksum."""
    ex.Samples(np.ones((2, 50, 3)), {}, {}).save(path)
    file = path / zarr_files.DESCRIPTION
    description = json.loads(file.read_bytes())
    description["attributes"] |= changes
    file.write_bytes(zarr_files.rendered(description, ""))


def structured(path, tree):
    written(path, structure=tree if isinstance(tree, str) else json.dumps(tree))


def final(path, **facts):
    ex.Samples(np.ones((2, 50, 3)), {}, {}).save(path)
    checkpoint.save(path / saved.FINAL, [], facts)


def node(value) -> dict:
    """A whole content with this as its position."""
    return {"dict": [["position", value], ["info", {"dict": []}]]}


def module(name: str, **fields) -> dict:
    return node({"module": name, "fields": [[k, {"value": v}] for k, v in fields.items()]})


def archive(path):
    np.savez(path.with_suffix(".npz"), x=np.ones(3))
    path.with_suffix(".npz").rename(path)


DEEP = "[" * 100_000
FILES = {
    "text": lambda p: p.write_text("hello"),
    "a pickle": lambda p: p.write_bytes(pickle.dumps(Bomb())),
    "an archive": archive,
    "an empty folder": lambda p: p.mkdir(),
    "another format": lambda p: written(p, format="ergodax-draws-9"),
    "no names": lambda p: written(p, names=None),
    "names of other folders": lambda p: written(p, names=["../../etc"]),
    "names that are numbers": lambda p: written(p, names=[3]),
    "no such type": lambda p: written(p, dtypes=["object"]),
    "a count that is a text": lambda p: written(p, commit="x"),
    "no structure": lambda p: structured(p, "not json"),
    "a list": lambda p: structured(p, "[1, 2]"),
    "deep": lambda p: structured(p, DEEP),
    "unknown node": lambda p: structured(p, node({"exec": "print()"})),
    "missing array": lambda p: structured(p, node({"array": 3})),
    "an array by name": lambda p: structured(p, node({"array": "__class__"})),
    "no position": lambda p: structured(p, {"dict": []}),
    "a dict that is a number": lambda p: structured(p, node({"dict": 5})),
    "a key that is a list": lambda p: structured(p, node({"dict": [[["a"], {"value": 1}]]})),
    "a random key of nonsense": lambda p: structured(
        p, node({"key": {"array": 0}, "implementation": "none"})
    ),
    "a class of the system": lambda p: structured(p, module("os:_Environ", data=1)),
    "a class outside": lambda p: structured(p, module("numpy:ndarray")),
    "a name that begins alike": lambda p: structured(p, module("ergodax_evil.thing:State")),
    "a module that is not there": lambda p: structured(p, module("ergodax.nowhere:State")),
    "a class that is not there": lambda p: structured(p, module("ergodax.kernel:Nothing")),
    "a function": lambda p: structured(p, module("ergodax.persist.structure:encode")),
    "a program": lambda p: structured(p, module("ergodax.__main__:State")),
    "an attribute that is no field": lambda p: structured(
        p, module("ergodax.kernel:State", __class__=1)
    ),
    "a final state without structure": lambda p: final(p),
    "a final state that is a program": lambda p: final(
        p, structure=json.dumps(module("ergodax.__main__:State"))
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_refused(kind, tmp_path):
    path = tmp_path / "run.zarr"
    FILES[kind](path)
    with pytest.raises(ex.CheckpointError, match="run.zarr"):
        ex.Samples.load(path)


def test_no_file():
    with pytest.raises(FileNotFoundError):
        ex.Samples.load("/nowhere/at/all.zarr")


def test_the_builders_here_can_also_write_good_draws(tmp_path):
    structured(tmp_path / "good.zarr", node({"array": 0}))
    assert (ex.Samples.load(tmp_path / "good.zarr").position == 1.0).all()
