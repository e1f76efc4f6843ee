"""Runs whose draws or keys are of unusual kinds are resumed to the same bits."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.persist import checkpoint

KEY = jax.random.key(5)
X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
POSTERIOR = ex.Posterior(
    lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((x - w) ** 2), X
)
GRADIENT = ex.Minibatch(POSTERIOR, 5)
MLP = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
NETWORK = ex.network.posterior(MLP, (X, X), ex.network.likelihoods.Gaussian())
SUM_OF_SQUARES = ex.FullGradient(ex.Target(lambda p: 0.5 * jnp.sum(p["a"] ** 2)))
START = jnp.zeros(2, jnp.float32)


class KeepsItsKey(ex.Kernel):
    """A random walk whose state has the last key."""

    def init(self, key, position):
        return ex.State(position, {"key": key}, None, None, jnp.int32(0))

    def step(self, key, state):
        position = state.position + jax.random.normal(state.auxiliary["key"], (2,))
        return ex.State(position, {"key": key}, None, None, state.step + 1), {}


RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cyclical": (ex.cyclical(ex.sgld, GRADIENT, 1e-4, period=4000), {}),
    "replica exchange": (ex.replica_exchange(ex.sgld, GRADIENT, 1e-4, swap_every=12), {"thin": 5}),
    "an event that does not happen": (
        ex.sgld(GRADIENT, 1e-4), {"collect": lambda w: {"rare": jnp.any(w > 10)}}
    ),
    "nothing": (ex.sgld(GRADIENT, 1e-4), {"collect": lambda w: {"w": w, "none": w[:0]}}),
    "a leaf of size zero": (
        ex.sgld(SUM_OF_SQUARES, 1e-2),
        {"position": {"a": START, "b": jnp.zeros((0, 3), jnp.float32)}},
    ),
    "half precision": (
        ex.sgld(GRADIENT, 1e-4), {"collect": lambda w: {"w": w.astype(jnp.bfloat16)}}
    ),
    "a network": (ex.sghmc(ex.Minibatch(NETWORK, 5), 1e-4), {"position": NETWORK.start}),
    "keys of another kind": (ex.sgld(GRADIENT, 1e-4), {"key": jax.random.key(0, impl="rbg")}),
    "a key in the state": (KeepsItsKey(), {"key": jax.random.key(0, impl="rbg")}),
}  # fmt: skip


def sample(kernel, steps, **more):
    options: dict[str, Any] = dict(position=START, key=KEY, num_chains=2, progress=False) | more
    return ex.sample(kernel, num_steps=steps, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_it_is_resumed_to_the_same_bits(name, tmp_path):
    kernel, options = RUNS[name]
    whole = sample(kernel, 55, **options)
    sample(kernel, 30, checkpoint=ex.Checkpoint(tmp_path / "run"), **options)
    again = ex.Checkpoint(tmp_path / "run", resume=True)
    resumed = sample(kernel, 55, checkpoint=again, **options)
    stored = ex.Samples.load(tmp_path / "run" / "draws.zarr")
    saved = ex.Samples.load(resumed.save(tmp_path / "saved"))
    for found in (resumed, saved):
        same(vars(found), vars(whole))
    same((stored.position, stored.info), (whole.position, whole.info))


def arrays(found):
    """By their names: the parts of a network come back as dicts, and without its functions."""
    leaves = jax.tree_util.tree_leaves_with_path(found)
    return {ex.tree.path_name(path): leaf for path, leaf in leaves if hasattr(leaf, "dtype")}


def same(found, whole):
    found, whole = arrays(found), arrays(whole)
    assert found.keys() == whole.keys() and found
    for x, y in ((found[name], whole[name]) for name in found):
        assert x.dtype == y.dtype and x.shape == y.shape
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_a_key_of_another_implementation_is_refused(tmp_path):
    """Where its data are of the same shape."""
    path = checkpoint.save(tmp_path / "c", {"key": jax.random.key(0, impl="rbg")}, {})
    like = {"key": jax.random.key(0, impl="unsafe_rbg")}
    with pytest.raises(ex.CheckpointError, match="a key of rbg, but this run needs one of unsafe"):
        checkpoint.load(path, like)


KERNEL = ex.sgld(GRADIENT, 1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"done": 40}, {"done": -1000}, {"made": 3}, {"made": 1000}, {"made": -5}, {"done": 2**40},
        {"done": "70"}, {"done": None}, {"done": True}, {"made": 10.0}, {"fingerprint": 3},
        {"fingerprint": {}}, {"store": "another"}, {"store": None}, {"done": 75, "made": 15},
    ],
    ids=str,
)  # fmt: skip
def test_counts_that_contradict_each_other_are_refused(tmp_path, change):
    options = dict(thin=5, burn_in=20)
    sample(KERNEL, 50, checkpoint=ex.Checkpoint(tmp_path / "run"), **options)
    rewritten(tmp_path / "run" / "checkpoint", change)
    again = ex.Checkpoint(tmp_path / "run", resume=True)
    with pytest.raises(ex.CheckpointError):
        sample(KERNEL, 100, checkpoint=again, **options)


def rewritten(path, change):
    """The same checkpoint, with other facts and the right checksum."""
    body = path.read_bytes()[len(checkpoint.MAGIC) + checkpoint.DIGEST :]
    length = int.from_bytes(body[:8], "big")
    header = json.loads(body[8 : 8 + length])
    header["facts"] |= change
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "big") + text + body[8 + length :]
    digest = checkpoint.hashlib.sha256(body).hexdigest().encode()
    path.write_bytes(checkpoint.MAGIC + digest + body)
