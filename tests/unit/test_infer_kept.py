"""An inference that was killed goes on without tuning again, to the same bits; or it is refused."""

import dataclasses
import importlib
import json
from typing import Any, NamedTuple
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.persist import checkpoint, fingerprint
from ergodax.target.base import AbstractTarget
from ergodax.tune.decisions import DecisionLog, Tuned
from ergodax.tune.kept import FILE, Kept, Places
from ergodax.tune.nuts_kernel import Nuts
from ergodax.tune.whitening import Coordinates, LowRank, in_coordinates

inference: Any = importlib.import_module("ergodax.tune.infer")
KEY = jax.random.key(3)
ROWS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)


class Pair(NamedTuple):
    """A position of the user's own class."""

    a: Any
    b: Any


def posterior(rows=ROWS, scale=1.0):
    return ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2) / scale, lambda w, x: -0.5 * jnp.sum((x - w) ** 2), rows
    )


def of_pairs():
    """Functions, rows and positions of classes that are not this library's."""
    return ex.Posterior(
        lambda p: -0.5 * (p.a**2 + p.b**2), lambda p, row: -0.5 * (row.a - p.a) ** 2 - p.b**2,
        Pair(ROWS[:, 0], ROWS[:, 1]),
    )  # fmt: skip


class Bowl(AbstractTarget):
    """A target of the user's own class."""

    weight: Any

    def potential(self, position):
        return 0.5 * self.weight * jnp.sum(jax.vmap(position)(jnp.eye(2, dtype=jnp.float32)) ** 2)


def linear():
    return eqx.nn.Linear(2, 1, key=jax.random.key(0))


def network():
    module = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    return ex.network.posterior(module, (ROWS, ROWS[:, 0]), ex.network.likelihoods.Gaussian(0.5))


TARGETS: dict[str, Any] = {
    "rows": (posterior, lambda: jnp.zeros(2, jnp.float32)),
    "pairs": (of_pairs, lambda: Pair(jnp.float32(0.0), jnp.float32(0.0))),
    "a function": (
        lambda: ex.Target(lambda x: 0.5 * jnp.sum(x["w"] ** 2)), lambda: {"w": jnp.zeros(3)}
    ),
    "analytic": (
        lambda: ex.targets.gaussian(jnp.zeros(2), jnp.eye(2)), lambda: jnp.zeros(2)
    ),
    "a module": (lambda: Bowl(jnp.float32(2.0)), linear),
    "a network": (network, lambda: network().start),
}  # fmt: skip


def tuned(target, init, sampler="NUTS") -> Tuned:
    """As tuning would have it, without its work."""
    dtype = jnp.result_type(jax.tree.leaves(init)[0])
    d = sum(np.size(x) for x in jax.tree.leaves(init))
    basis = 1.0 + jnp.arange(d, dtype=dtype) / d
    thin = (jnp.zeros((d, 1), dtype),) * 3
    centre = ex.tree.thaw(ex.tree.freeze(init))  # on the device
    coordinates = Coordinates(centre, basis, LowRank(*thin))
    inner = in_coordinates(target, coordinates)
    if sampler == "NUTS":
        kernel = Nuts(inner, jnp.asarray(0.3, dtype))
    elif sampler == "too long":
        kernel = ex.langevin(ex.FullGradient(inner), 100.0)
    else:
        kernel = ex.hmc(inner, 0.07, num_leapfrog_steps=3)  # of the 50 rows
    starts = 0.1 * jax.random.normal(jax.random.key(1), (3, d), dtype)
    return Tuned(kernel, coordinates, starts, None, 2, 4)


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_decided_is_the_same_in_another_process(name):
    """There the user's functions and data are other objects, which stand in the same places."""
    make, start = TARGETS[name]
    target, init = make(), start()
    before, arrays = tuned(target, init), []
    text = json.dumps(Places(target, init).encoded(before, arrays))
    after = Places(make(), start()).decoded(json.loads(text), arrays)
    assert jax.tree.structure(after.coordinates.centre) == jax.tree.structure(init)
    digests(before)  # of functions that JAX has traced before, the text is shorter
    assert digests(after) == digests(before)
    assert all(array.size < ROWS.size for array in arrays), "data are not copied"


def digests(of: Tuned):
    """Of the program of a step and of the map to positions, and of all arrays in them."""

    def step(kernel, coordinates, u):
        state, _ = kernel.step(KEY, kernel.init(KEY, u))
        return jax.tree.leaves(coordinates.position(state.position))

    parts = of.kernel, of.coordinates, of.starts
    program = fingerprint.program("step", step, of.kernel, of.coordinates, of.starts[0])
    return program | fingerprint.digests(parts, "")


def test_what_is_the_users_and_nowhere_to_be_found_is_refused():
    target, init = posterior(), jnp.zeros(2, jnp.float32)
    other = tuned(posterior(), init)
    with pytest.raises(TypeError, match="can't be kept in a checkpoint"):
        Places(target, init).encoded(other, [])


class Killed(BaseException):
    """In place of SIGKILL."""


@pytest.fixture
def infer(monkeypatch, tmp_path):
    """`infer` on a folder with a given tuning, which it may ask for `tunings` times."""

    def run(*, tunings=1, writes=None, every=60.0, samplers=("HMC",), **changed):
        target = changed.pop("target", None) or posterior()
        init = changed.pop("init", jnp.zeros(2, jnp.float32))
        left = [None] * tunings

        def engines(self, noisy):
            assert left and not noisy, "it is tuned again"
            left.pop()
            self.log.decide("sampler", "HMC", "a test")
            return [lambda s=s: tuned(self.target, self.init, s) for s in samplers]

        begin = changed.pop("begin", lambda self: None)
        monkeypatch.setattr(inference._Inferring, "begin", begin)
        monkeypatch.setattr(inference._Inferring, "modes", [], raising=False)
        monkeypatch.setattr(inference._Inferring, "rounded", "")
        monkeypatch.setattr(inference._Inferring, "_engines", engines)
        if writes is not None:
            die_after(monkeypatch, writes)
        options = {"key": KEY, "accuracy": 0.03, "num_chains": 3, "progress": False}
        folder = tmp_path / "run"
        options["checkpoint"] = ex.Checkpoint(folder, every=every, resume=True)
        try:
            return ex.infer(target, init, **(options | changed))
        finally:
            monkeypatch.undo()

    return run


def die_after(monkeypatch, writes):
    """Die in place of the checkpoint of a round that follows so many others."""
    left, write = [None] * writes, checkpoint.Checkpointer.write

    def dying(self, *args):
        if not left:
            raise Killed
        left.pop()
        write(self, *args)

    monkeypatch.setattr(checkpoint.Checkpointer, "write", dying)


def same(one, other):
    both = [(r.samples.position, r.samples.info, r.samples.final_state) for r in (one, other)]
    for x, y in zip(*map(jax.tree.leaves, both), strict=True):
        assert x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes()
    assert one.table.equals(other.table) and one.verdict() == other.verdict()
    assert one.account.decisions == other.account.decisions


@pytest.mark.slow
def test_killed_in_sampling_it_goes_on_to_the_same_bits(infer):
    whole = infer(checkpoint=None)
    assert "rounds" in str(whole.account) and "1 rounds" not in str(whole.account)
    kills, tunings = 0, 1
    for writes in [0, 1, 3, 5, 8]:  # in the first round and in later ones
        try:
            infer(tunings=tunings, writes=writes, every=0.02)
        except Killed:
            kills += 1
        tunings = 0
    assert kills >= 3
    resumed = infer(tunings=0)
    same(resumed, whole)
    assert resumed.account.seconds.keys() == whole.account.seconds.keys()
    again = infer(tunings=0)  # of what has come to its end
    same(again, whole)


@pytest.mark.slow
def test_a_sampler_that_does_not_serve_is_given_up_again(infer):
    """Killed in the sampling with the first, it begins again; with the second, it goes on."""
    both = {"samplers": ("too long", "HMC")}
    whole = infer(checkpoint=None, **both)
    assert "given up" in str(whole.account) and whole.converged
    with pytest.raises(Killed):
        infer(writes=0, **both)
    with pytest.raises(Killed):
        infer(writes=2, **both)
    resumed = infer(tunings=0, **both)
    same(resumed, whole)


@pytest.mark.slow
def test_a_second_attempt_goes_on(infer, monkeypatch):
    """Of the first, which was too coarse, nothing is left."""
    begin = inference._Inferring.begin

    def coarse(self):
        self.log.coarse = not self.careful

    options = {"begin": coarse, "target": ex.Target(lambda w: 25.0 * jnp.sum(w**2))}
    whole = infer(checkpoint=None, **options)
    assert "in double precision" in str(whole.account)
    assert whole.samples.position.dtype == np.float64
    with pytest.raises(Killed):
        infer(writes=1, **options)
    same(infer(tunings=0, **options), whole)
    assert inference._Inferring.begin is begin


@pytest.mark.slow
def test_a_second_attempt_in_single_precision_goes_on(infer, tmp_path):
    """Of a model that can't be computed in double."""
    rounds = inference.sample_rounds

    def coarse(target, tuned, key, log, **settings):
        result = rounds(target, tuned, key, log, **settings)
        log.coarse = True
        return result

    single = ex.Target(lambda w: 25.0 * jnp.sum(w**2) if w.dtype == jnp.float32 else [][0])
    with mock.patch.object(inference, "sample_rounds", coarse):
        whole = infer(checkpoint=None, tunings=2, target=single)
        assert "with shorter steps" in str(whole.account)
        anew = False
        while not anew:  # killed in the second attempt
            with pytest.raises(Killed):
                infer(writes=2, tunings=2, target=single)
            anew = checkpoint.read(tmp_path / "run" / FILE)[0]["anew"]
        same(infer(tunings=0, target=single), whole)


@pytest.mark.slow
def test_killed_in_tuning_it_begins_again(infer, tmp_path):
    with pytest.raises(AssertionError, match="tuned again"):
        infer(tunings=0)
    assert not (tmp_path / "run" / FILE).exists()
    assert infer().samples.num_draws > 0


@pytest.mark.slow
def test_what_ended_for_want_of_time_goes_on_with_more(infer):
    options = {"accuracy": 0.01}
    short = infer(max_seconds=0.0, **options)
    assert not short.converged
    same(infer(tunings=0, max_seconds=0.0, **options), short)
    longer = infer(tunings=0, max_seconds=100.0, **options)
    assert longer.samples.num_draws > short.samples.num_draws
    same(infer(tunings=0, max_seconds=50.0, **options), longer)


CHANGES = {
    r"target\.data": lambda: {"target": posterior(ROWS + (np.arange(50) == 30)[:, None])},
    "program of the potential": lambda: {"target": posterior(scale=2.0)},
    "key": lambda: {"key": jax.random.key(4)},
    "init": lambda: {"init": jnp.ones(2, jnp.float32)},
    r"accuracy \(0.03 then, 0.02 now\)": lambda: {"accuracy": 0.02},
    r"num_chains \(3 then, 4 now\)": lambda: {"num_chains": 4},
}


def test_another_inference_is_refused_by_name(infer):
    with pytest.raises(Killed):
        infer(writes=1)
    for said, changed in CHANGES.items():
        with pytest.raises(ex.CheckpointError, match=f"since these have changed: .*{said}"):
            infer(tunings=0, **changed())
    assert infer(tunings=0).samples.num_draws > 0


def test_a_folder_in_use_is_refused(infer, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match="without store="):
        infer(checkpoint=ex.Checkpoint(folder, store=tmp_path / "draws"))
    with pytest.raises(Killed):
        infer(writes=1)
    with pytest.raises(ex.CheckpointError, match="is there already; pass resume=True"):
        infer(tunings=0, checkpoint=ex.Checkpoint(folder))
    target, init = posterior(), jnp.zeros(2, jnp.float32)
    arguments = {"accuracy": 0.03, "num_chains": 3}
    one = Kept(ex.Checkpoint(folder, resume=True), target, init, KEY, 600.0, **arguments)
    with pytest.raises(ex.CheckpointError, match="is in use: process"):
        infer(tunings=0)
    one.close()
    kernel = ex.hmc(target, 0.1)
    other = ex.Checkpoint(tmp_path / "sampled", resume=True)
    ex.sample(kernel, init, 10, key=KEY, progress=False, checkpoint=other)
    with pytest.raises(ex.CheckpointError, match="is of a run of ex.sample"):
        infer(tunings=0, checkpoint=other)


def test_damaged_decisions_are_refused(infer, tmp_path):
    with pytest.raises(Killed):
        infer(writes=1)
    path = tmp_path / "run" / FILE
    content = path.read_bytes()
    for name in (FILE, FILE + checkpoint.PREVIOUS):
        path.with_name(name).write_bytes(content[:-5])
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(ex.CheckpointError):
        infer(tunings=0)
    path.with_name(FILE + checkpoint.PREVIOUS).unlink()
    path.write_bytes(content)
    facts, arrays = checkpoint.read(path)
    hostile = {"module": "os:system", "fields": [["command", {"value": "true"}]]}
    for change in ({"tuned": json.dumps(hostile)}, {"tuned": "x"}, {"counts": 3}, {"log": {}}):
        checkpoint.save(path, [arrays[f"[{k}]"] for k in range(len(arrays))], facts | change)
        path.with_name(FILE + checkpoint.PREVIOUS).unlink(missing_ok=True)
        with pytest.raises(ex.CheckpointError, match="not written by ex.infer"):
            infer(tunings=0)


def test_the_bias_that_was_measured_is_kept(tmp_path):
    """Its table follows from its draws."""
    target, init = posterior(), jnp.zeros(2, jnp.float32)
    gradient = ex.FullGradient(target)
    report = ex.diagnostics.bias(
        lambda h: ex.sgld(gradient, h), init, 0.01, 40, key=KEY, order=2, progress=False
    )
    full = dataclasses.replace(tuned(target, init), bias=report)
    for given in (None, ex.Checkpoint(tmp_path / "run")):
        kept = Kept(given, target, init, KEY, 600.0)
        found = kept.keep(full, [], DecisionLog()).bias
        kept.close()
        assert found is not None and found.table.equals(report.table)
        assert str(found) == str(report)
