"""Samples go to a folder and come back the same, without pickle."""

import os
import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import ergodax as ex
from ergodax.persist import checkpoint


class Pair(NamedTuple):
    zeta: object
    alpha: object


class Model(eqx.Module):
    """Fields out of alphabetical order, one that is no array, and a module inside."""

    weight: object
    bias: object
    inner: object
    activation: object = jnp.tanh
    width: int = eqx.field(static=True, default=3)


def leaf(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 5, *shape))


MODEL = Model(jnp.ones(3), jnp.ones(3), Model(jnp.ones(2), jnp.ones(2), None))
DRAWN = Model(leaf(1, 3), leaf(2, 3), Model(leaf(3, 2), leaf(4, 2), None))
TREES = {
    "array": leaf(0, 3),
    "dict": {"b": leaf(1), "a": leaf(2, 2, 2)},
    "nested": ({"x": [leaf(1), (leaf(2, 1),)]}, None),
    "empty containers": {"x": leaf(1), "none": None, "list": [], "tuple": ()},
    "a leaf without numbers": {"x": leaf(1), "y": np.zeros((2, 5, 0), "float32")},
    "zeros": {"x": np.zeros((2, 5, 3))},
    "integers and flags": {"n": np.arange(10).reshape(2, 5), "on": np.ones((2, 5), bool)},
    "single precision": leaf(1, 3).astype("float32"),
}


def same(ours, theirs) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        if eqx.is_array(b):
            np.testing.assert_array_equal(a, b)
            assert np.asarray(a).dtype == np.asarray(b).dtype
        else:
            assert a is b


@pytest.mark.parametrize("kind", TREES)
def test_round_trip(kind, tmp_path):
    samples = ex.Samples(TREES[kind], {"step_size": leaf(9)}, {"position": leaf(8)})
    path = samples.save(tmp_path / "draws")
    assert path == tmp_path / "draws.zarr"
    same(ex.Samples.load(path), samples)


@pytest.mark.slow
def test_a_real_run_comes_back_whole(key, tmp_path):
    """State and Info of the library are restored as what they are, keys included."""
    posterior = ex.Posterior(lambda w: -jnp.sum(w**2), lambda w, x: w @ x, np.ones((6, 2)))
    gradient = ex.Minibatch(posterior, 2, batching=ex.data.ShuffledEpochs())
    samples = ex.sample(ex.sgnht(gradient, 0.01), jnp.ones(2), 5, key=key)
    loaded = ex.Samples.load(samples.save(tmp_path / "folder" / "run.zarr"))
    assert isinstance(loaded.info, ex.Info) and isinstance(loaded.final_state, ex.State)
    same(loaded, samples)
    keyed = ex.Samples(leaf(1), {}, {"key": jax.random.key(3)})
    again = ex.Samples.load(keyed.save(tmp_path / "keyed.zarr"))
    assert jax.random.key_data(again.final_state["key"]).tolist() == [0, 3]


CLASSES = {"module": (DRAWN, MODEL), "named tuple": (Pair(leaf(1), leaf(2)), Pair(0.0, 0.0))}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_class_of_yours_comes_back_with_like(kind, tmp_path):
    """Its arrays are found by name, so the order of its fields doesn't matter."""
    drawn, like = CLASSES[kind]
    path = ex.Samples(drawn, {}, {}).save(tmp_path / "run.zarr")
    same(ex.Samples.load(path, like=like).position, drawn)
    bare = ex.Samples.load(path).position
    assert isinstance(bare, dict) and set(bare) >= set(drawn.__annotations__) - {"activation"}


def test_a_like_of_another_structure_is_refused(tmp_path):
    path = ex.Samples(DRAWN, {}, {}).save(tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="like has 'scale', but the file's position has.*weight"):
        ex.Samples.load(path, like={"scale": jnp.ones(3)})


def test_a_registered_class_keeps_its_arrays(tmp_path):
    """JAX knows the class; the file knows its paths."""

    @jax.tree_util.register_pytree_with_keys_class
    class Box:
        def __init__(self, content):
            self.content = content

        def tree_flatten_with_keys(self):
            return [(jax.tree_util.GetAttrKey("content"), self.content)], None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    box = Box({"a": leaf(1)})
    path = ex.Samples(box, {}, {}).save(tmp_path / "box.zarr")
    np.testing.assert_array_equal(ex.Samples.load(path).position["content.a"], leaf(1))
    back = ex.Samples.load(path, like=Box({"a": jnp.ones(())})).position
    np.testing.assert_array_equal(back.content["a"], leaf(1))


@pytest.mark.parametrize("kind", TREES)
def test_xarray_opens_it(kind, tmp_path):
    """By its own means, and without a warning; so ArviZ has it."""
    samples = ex.Samples(TREES[kind], {"step_size": leaf(9)}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = xarray.open_datatree(samples.save(tmp_path / "draws"), engine="zarr")
    for name, array in samples.named().items():
        np.testing.assert_array_equal(opened["posterior"][name], array)
    np.testing.assert_array_equal(opened["sample_stats"]["step_size"], leaf(9))
    assert opened["posterior"].sizes["chain"] == 2 and opened["posterior"].sizes["draw"] == 5


NUMBERS = np.arange(-7, 8).reshape(1, 5, 3)


@pytest.mark.parametrize(
    "dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.int4, jnp.int8, bool, "complex64"]
)
def test_every_type_comes_back(dtype, tmp_path):
    drawn = {"x": NUMBERS.astype(dtype), "none": np.zeros((1, 5, 0), dtype)}
    path = ex.Samples(drawn, {}, {}).save(tmp_path / "draws")
    same(ex.Samples.load(path).position, drawn)
    np.testing.assert_array_equal(
        xarray.open_zarr(path, group="posterior")["x"], NUMBERS.astype(dtype).astype("complex64")
    )


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_come_back_with_their_implementation(implementation, tmp_path):
    key = jax.random.key(3, impl=implementation)
    path = ex.Samples(leaf(1), {}, {"key": key}).save(tmp_path / "draws")
    assert (ex.Samples.load(path).final_state["key"] == key).all()


def test_saving_again_replaces_all_or_nothing(tmp_path, monkeypatch):
    first, second = (ex.Samples(leaf(seed), {}, {}) for seed in (1, 2))
    path, real = first.save(tmp_path / "draws"), os.replace
    kept = ex.Samples.load(path).position
    for at in range(100):
        left = [at]

        def replace(*where, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            real(*where)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                second.save(path)
                break
            except KeyboardInterrupt:
                np.testing.assert_array_equal(ex.Samples.load(path).position, kept)
    assert at > 5
    np.testing.assert_array_equal(ex.Samples.load(path).position, leaf(2))
    assert os.listdir(tmp_path) == ["draws.zarr"]


def test_what_can_not_be_saved_says_why(tmp_path):
    with pytest.raises(ValueError, match="Try .zarr"):
        ex.Samples(leaf(1), {}, {}).save(tmp_path / "draws.npz")
    with pytest.raises(ValueError, match=r"has the shape \(2, 6\)"):
        ex.Samples({"x": leaf(1), "y": np.ones((2, 6))}, {}, {}).save(tmp_path / "draws")
    (tmp_path / "mine.zarr").mkdir()
    with pytest.raises(FileExistsError, match="has no draws"):
        ex.Samples(leaf(1), {}, {}).save(tmp_path / "mine.zarr")
    assert os.listdir(tmp_path) == ["mine.zarr"]


def saved(path, start: int) -> ex.Samples:
    """Draws whose last states are theirs alone, saved."""
    drawn = ex.Samples(leaf(0, 3), {"u": leaf(1)}, {"w": np.full(3, start, np.float32)})
    drawn.save(path)
    return drawn


def test_last_states_that_are_missing_are_named(tmp_path):
    saved(tmp_path / "draws.zarr", 1)
    (tmp_path / "draws.zarr" / "final_state").unlink()
    with pytest.raises(ex.CheckpointError, match="final_state is missing"):
        ex.Samples.load(tmp_path / "draws.zarr")


def test_the_folder_of_a_run_says_where_its_draws_are(tmp_path):
    saved(tmp_path / "draws.zarr", 1)
    with pytest.raises(
        ex.CheckpointError, match="folder of a run, whose draws are in .*draws.zarr"
    ):
        ex.Samples.load(tmp_path)


def test_the_last_states_of_other_draws_are_named(tmp_path):
    for number in (1, 2):
        saved(tmp_path / f"{number}.zarr", number)
    os.replace(tmp_path / "2.zarr" / "final_state", tmp_path / "1.zarr" / "final_state")
    with pytest.raises(ex.CheckpointError, match="final_state has the last states of another run"):
        ex.Samples.load(tmp_path / "1.zarr")


def test_a_write_that_fails_says_of_which_file(tmp_path, monkeypatch):
    """Where the disk is full the system's own error names none."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    place = tmp_path / "run" / "checkpoint"
    place.parent.mkdir()
    with pytest.raises(OSError, match=f"No space left on device: '{place}'"):
        checkpoint.save(place, {"w": np.zeros(3)}, {})


def test_the_current_folder_may_be_what_is_read(tmp_path, monkeypatch):
    whole = saved(tmp_path / "draws.zarr", 1)
    monkeypatch.chdir(tmp_path / "draws.zarr")
    np.testing.assert_array_equal(ex.Samples.load(".").position, whole.position)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ex.CheckpointError, match="not a store of draws"):
        ex.Samples.load(".")
