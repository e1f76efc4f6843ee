"""Workers of a shared folder: what is counted, what is refused, what kills and full disks leave."""

import errno
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.replicas import places, records, worker

KEY = jax.random.key(0)


def normal(key):
    """A replica whose mean is 1, and whose cost varies."""
    return ex.replicas.Outcome({"x": 1.0 + jax.random.normal(key, (2,))}, 1, 3.0)


def make(folder, function=normal, *, key=KEY, num=5, **more):
    return ex.replicas.work(folder, function, key=key, num=num, **more)


def log_of(folder):
    (path,) = folder.glob("*.log")
    return path


def died(folder, num, kept, name="one"):
    """A worker that was killed after so many bytes."""
    make(folder, num=num, worker=name)
    path = folder / f"{name}.log"
    os.truncate(path, path.stat().st_size - kept)
    return path


def record_of(folder, name="two"):
    """How many bytes a record has."""
    make(folder, num=1, worker=name)
    return ((folder / f"{name}.log").stat().st_size - 51) // 2


def test_the_report_is_that_of_the_values(tmp_path):
    for _ in range(3):
        assert make(tmp_path, num=40) == 40
    report = ex.replicas.read(tmp_path)
    values = report.values["x"]
    assert report.num == 120 and values.shape == (120, 2) and values.dtype == np.float32
    np.testing.assert_allclose(report.estimate["x"], values.mean(axis=0, dtype=float), rtol=1e-6)
    error = values.std(axis=0, ddof=1, dtype=float) / np.sqrt(120)
    np.testing.assert_allclose(report.error["x"], error, rtol=1e-6)
    assert len(np.unique(values[:, 0])) == 120  # no key twice
    assert np.all(np.abs(report.estimate["x"] - 1.0) < 5 * report.error["x"])
    assert {w.state for w in report.workers} == {"ended"} and not report.ignored
    assert [w.evaluations for w in report.workers] == [120.0] * 3
    assert "120 replicas of 3 workers; bias: not known" in str(report)


def test_a_named_worker_goes_on_where_it_was(tmp_path):
    assert [make(tmp_path, num=k, worker="a") for k in (3, 7, 7)] == [3, 4, 0]
    once = ex.replicas.read(tmp_path).values["x"]
    make(tmp_path / "at once", num=7, worker="a")
    np.testing.assert_array_equal(once, ex.replicas.read(tmp_path / "at once").values["x"])


def test_a_worker_goes_on_with_the_replicas_of_a_dead_one(tmp_path):
    """Also with the first, though it has left no result; a record cut short is made anew."""
    size = record_of(tmp_path / "size")
    for lost in (size + 20, 5 * size):
        folder = tmp_path / str(lost)
        died(folder, 4, lost)
        before = ex.replicas.read(folder)
        assert before.num < 4 and before.workers[0].state == "stopped"
        assert lost % size == 0 or "a half-written record" in before.ignored[0]
        make(folder, num=4)
        report = ex.replicas.read(folder)
        assert report.num == 4 and [w.name for w in report.workers] == ["one"]
        assert not report.ignored


def test_what_was_in_the_making_is_finished_after_the_deadline(tmp_path):
    died(tmp_path, 4, record_of(tmp_path / "size"))  # its last word, that it has ended
    assert ex.replicas.work(tmp_path, normal, key=KEY, seconds=1e-9) == 1
    assert ex.replicas.work(tmp_path, normal, key=KEY, seconds=1e-9) == 0
    assert ex.replicas.read(tmp_path).num == 5
    assert len(list(tmp_path.glob("*.log"))) == 1  # one that came too late leaves none


def test_nothing_counts_twice(tmp_path):
    make(tmp_path, num=4, worker="a")
    path = log_of(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content + content[51:])
    assert ex.replicas.read(tmp_path).num == 4


def test_a_damaged_record_is_named_and_made_again(tmp_path):
    make(tmp_path, num=4, worker="a")
    path = log_of(tmp_path)
    values = ex.replicas.read(tmp_path).values["x"]
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)
    report = ex.replicas.read(tmp_path)
    assert report.num == 3 and report.ignored == ["worker a: 1 damaged records"]
    assert make(tmp_path, num=4, worker="a") == 1
    np.testing.assert_array_equal(ex.replicas.read(tmp_path).values["x"], values)


def test_a_log_of_another_folder_is_named_and_left_out(tmp_path):
    make(tmp_path / "a", worker="a")
    make(tmp_path / "b", key=jax.random.key(1), worker="b")
    os.link(tmp_path / "a" / "a.log", tmp_path / "b" / "a.log")
    report = ex.replicas.read(tmp_path / "b")
    assert report.num == 5 and "worker a: a log of another model" in report.ignored[0]
    with pytest.raises(ex.CheckpointError, match="worker a of .* has a log of another model"):
        make(tmp_path / "b", key=jax.random.key(1), worker="a")


def test_folders_of_one_manifest_may_be_put_together(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b")
    os.link(log_of(tmp_path / "a"), tmp_path / "b" / log_of(tmp_path / "a").name)
    assert ex.replicas.read(tmp_path / "b").num == 10


def data_mean(rows):
    posterior = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, y: -0.5 * jnp.sum((y - w) ** 2), rows
    )
    kernel = ex.sgld(ex.Minibatch(posterior, 2), 0.01)
    return ex.replicas.chain(kernel, jnp.zeros(1), 5, burn_in=2)


def test_an_object_store(monkeypatch):
    """Objects of one worker are joined; what stands in two of them counts once."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    url = "memory://replicas"
    for every in (0.0, 5.0):  # an object for each record, or one for all
        monkeypatch.setattr(worker, "EVERY", every)
        make(url, num=3, worker="a")
        make(url, num=6, worker="a")
    make(url)
    report = ex.replicas.read(url)
    assert report.num == 11 and {w.num for w in report.workers} == {5, 6}
    assert {w.state for w in report.workers} == {"ended"} and not report.ignored
    with pytest.raises(ex.CheckpointError, match="these have changed: key"):
        make(url, key=jax.random.key(1))
    fsspec.filesystem("memory").rm("/replicas", recursive=True)
    with pytest.raises(FileNotFoundError, match="has no replicas"):
        ex.replicas.read(url)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"key": jax.random.key(1)}, "key"),
        (
            {"function": data_mean(jnp.zeros((4, 1)))},
            "gradient.target.data",
        ),
        ({"function": lambda key: {"mean": jax.random.normal(key, (2,))}}, "the program"),
    ],
)
def test_another_run_is_refused_by_name(tmp_path, other, named):
    run = {"function": data_mean(jnp.ones((4, 1))), "key": KEY, "num": 2}
    ex.replicas.work(tmp_path, **run)
    with pytest.raises(ex.CheckpointError, match=f"these have changed.*{named}"):
        ex.replicas.work(tmp_path, **run | other)
    assert ex.replicas.work(tmp_path, **run) == 2  # the right one is not disturbed


def test_another_version_is_refused_by_name(tmp_path, monkeypatch):
    make(tmp_path)
    monkeypatch.setattr(ex, "__version__", "9.9")
    with pytest.raises(ex.CheckpointError, match=r"the version of ergodax \(.* then, 9.9 now\)"):
        make(tmp_path)


def test_a_manifest_that_is_none_is_refused(tmp_path):
    (tmp_path / "replicas.json").write_text("{}")
    with pytest.raises(ex.CheckpointError, match="is not the manifest of a folder of replicas"):
        make(tmp_path)
    with pytest.raises(FileNotFoundError, match="has no replicas. Start a worker"):
        ex.replicas.read(tmp_path / "nothing")


def test_a_running_worker_is_not_joined_by_another_of_its_name(tmp_path):
    make(tmp_path, worker="a")
    lock = places.Folder(tmp_path).log("a", 1.0)
    try:
        with pytest.raises(ex.CheckpointError, match="is in use: process"):
            make(tmp_path, worker="a")
        os.truncate(lock.path, 60)  # unfinished, but alive: others leave it alone
        assert ex.replicas.read(tmp_path).workers[0].state == "running"
        assert make(tmp_path) == 5
    finally:
        lock.close()


def test_a_full_disk_is_named_and_nothing_finished_is_lost(tmp_path, monkeypatch):
    write, calls = os.write, []

    def full(file, content):
        calls.append(file)
        if len(calls) == 5:
            write(file, content[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content)

    monkeypatch.setattr(places.os, "write", full)
    with pytest.raises(ex.StorageError, match="worker a can't write.*No space.*The 3 results"):
        make(tmp_path, num=9, worker="a")
    report = ex.replicas.read(tmp_path)
    assert report.num == 3 and not report.ignored
    assert make(tmp_path, num=9, worker="a") == 6


def test_a_replica_that_is_not_finite_ends_the_worker(tmp_path):
    with pytest.raises(ValueError, match="replica 0 of worker a is not finite. Try a smaller step"):
        make(tmp_path, lambda key: jnp.log(-1.0 - jax.random.uniform(key)), worker="a")
    assert ex.replicas.read(tmp_path).num == 0


def test_functions_of_python_need_an_identity(tmp_path):
    def host(key):
        draws = ex.sample(
            ex.sgld(ex.FullGradient(ex.targets.gaussian(jnp.zeros(1), jnp.ones(1))), 0.1),
            jnp.zeros(1), 5, key=key, progress=False,
        )  # fmt: skip
        return {"mean": float(np.mean(draws.position)), "draws": len(draws.position)}

    with pytest.raises(TypeError, match="must be one that JAX can trace.*pass identity="):
        make(tmp_path, host)
    with pytest.raises(TypeError, match="identity must be a text"):
        make(tmp_path, host, identity="")
    make(tmp_path, host, num=2, identity="a model", bias="that of h = 0.1")
    make(tmp_path, host, num=2, identity="a model")
    report = ex.replicas.read(tmp_path)
    assert report.num == 4 and report.bias == "that of h = 0.1"
    with pytest.raises(ex.CheckpointError, match=r"identity \(a model then, another now\)"):
        make(tmp_path, host, identity="another")


def test_values_must_be_alike(tmp_path):
    counts = iter(range(9))
    with pytest.raises(ValueError, match="all results must be alike"):
        make(tmp_path, lambda key: np.zeros(1 + next(counts)), identity="grows")
    with pytest.raises(TypeError, match="must return a tree of arrays"):
        make(tmp_path / "b", lambda key: "text", identity="text")


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"num": None}, ValueError, "num or seconds must be given"),
        ({"num": 0}, ValueError, "num must be at least 1"),
        ({"seconds": -1.0}, ValueError, "seconds must be positive"),
        ({"key": 0}, TypeError, "key must be one key"),
        ({"worker": "a/b"}, ValueError, "worker must be a name of letters"),
    ],
)
def test_wrong_arguments(tmp_path, wrong, error, text):
    with pytest.raises(error, match=text):
        make(tmp_path, **wrong)
    with pytest.raises(TypeError, match="folder must be the path"):
        make(3)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"step_size": 0.0}, ValueError, "step_size must be positive"),
        ({"friction": -1.0}, ValueError, "friction must be positive"),
        ({"burn_in": -1}, ValueError, "burn_in must be at least 0"),
        ({"num_draws": 0}, ValueError, "num_draws must be at least 1"),
        ({"decay": 4.0}, ValueError, "decay must be above 1 and below 4.*Try 2.5"),
        ({"rate": 1.5}, ValueError, "rate must be positive|rate must be above 0"),
        ({"num_levels": 21}, ValueError, "num_levels must be below 21"),
        ({"position": jnp.arange(2)}, TypeError, "position has dtype int32"),
    ],
)
def test_wrong_arguments_of_unbiased(wrong, error, text):
    target = ex.targets.gaussian(jnp.zeros(2), jnp.ones(2))
    right = {"gradient": ex.FullGradient(target), "position": jnp.zeros(2), "step_size": 0.5}
    with pytest.raises(error, match=text):
        ex.replicas.unbiased(**right | {"burn_in": 1, "num_draws": 1} | wrong)


def test_noise_that_does_not_fall_with_the_step_is_refused():
    noisy = ex.NoisyGradient(ex.targets.gaussian(jnp.zeros(2), jnp.ones(2)), 1.0)
    with pytest.raises(
        TypeError, match="gradient must be an ex.FullGradient or ex.SVRG, not Noisy"
    ):
        ex.replicas.unbiased(noisy, jnp.zeros(2), 0.5, burn_in=1, num_draws=1)
    cut = ex.replicas.unbiased(noisy, jnp.zeros(2), 0.5, burn_in=1, num_draws=1, num_levels=2)
    assert cut.bias == "that of the step size h_0 / 2^2 and of its burn-in"


def test_ten_thousand_results_are_read_at_once(tmp_path):
    make(tmp_path, lambda key: np.arange(10.0), worker="a", identity="counts")
    manifest = records.Manifest.parse(places.Folder(tmp_path).manifest() or b"", "")
    for name in "abcd":
        rows = [manifest.write(k, np.arange(10.0), time=time.time()) for k in range(2_500)]
        (tmp_path / f"{name}.log").write_bytes(manifest.first + b"".join(rows))
    begun = time.process_time()
    assert ex.replicas.read(tmp_path).num == 10_000
    assert time.process_time() - begun < 2.0


def test_the_keys_of_workers_differ():
    keys = [worker.key_of(KEY, name) for name in ("a", "b", "ab")]
    assert len({tuple(np.asarray(jax.random.key_data(key))) for key in keys}) == 3
