"""What engines are asked for, deaths of workers, and the job that Kubernetes is given."""

import os
import signal
import sys
from pathlib import Path

import jax
import pytest

import ergodax as ex

KEY = jax.random.key(0)
CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"


def twice(key):
    return jax.random.normal(key)


@pytest.mark.parametrize("engine", [ex.replicas.processes, ex.replicas.ray])
@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({}, ValueError, "num or seconds must be given"),
        ({"seconds": 0.0}, ValueError, "seconds must be positive"),
        ({"num": 2, "worker": "a"}, TypeError, "worker can't be given to an engine"),
        ({"num": 2, "key": 0}, TypeError, "key must be one key"),
    ],
)
def test_wrong_arguments(tmp_path, monkeypatch, engine, wrong, error, text):
    monkeypatch.setitem(sys.modules, "ray", sys)  # there, and asked for nothing
    with pytest.raises(error, match=text):
        engine(tmp_path, twice, 2, **{"key": KEY} | wrong)


def test_a_missing_engine_is_named(tmp_path, monkeypatch):
    for name in ("ray", "distributed", "cloudpickle"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install ergodax\[ray\]"):
        ex.replicas.ray(tmp_path, twice, 2, key=KEY, num=1)
    with pytest.raises(ImportError, match=r"pip install ergodax\[dask\]"):
        ex.replicas.dask(tmp_path, twice, 2, key=KEY, num=1, client=None)
    with pytest.raises(ImportError, match="processes need cloudpickle"):
        ex.replicas.processes(tmp_path, twice, 2, key=KEY, num=1)


@pytest.mark.parametrize("how", [lambda: os._exit(9), lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_a_worker_that_dies_is_started_again_and_else_named(tmp_path, how):
    """Without the second part there would be too few replicas, and no word of it."""
    once = tmp_path / "once"

    def dies_once(key):
        if not once.exists():
            once.touch()
            how()
        return float(jax.random.normal(key))

    options = {"key": KEY, "num": 2, "identity": "a", "bias": ""}
    with pytest.raises(RuntimeError, match=r"a worker ended with an error.*died, with status -?9"):
        ex.replicas.processes(tmp_path / "none", dies_once, 1, **options)
    once.unlink()
    report = ex.replicas.processes(tmp_path / "again", dies_once, 1, restarts=1, **options)
    assert report.num == 2


def test_the_job_of_kubernetes():
    """Its fields, and the rules of an indexed job that the API would refuse it by."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing")
    job = yaml.safe_load((CLUSTER / "kubernetes_job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert set(spec) <= {
        "completionMode", "completions", "parallelism", "backoffLimitPerIndex", "maxFailedIndexes",
        "podReplacementPolicy", "template",
    }  # fmt: skip
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] <= spec["completions"]
    assert spec["maxFailedIndexes"] <= spec["completions"] <= 100_000
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # what backoffLimitPerIndex asks for
    (container,) = pod["containers"]
    assert container["command"][1] == "worker.py" and (CLUSTER / "worker.py").exists()
    assert all(isinstance(part, str) for part in container["command"])
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    assert container["command"][2].startswith(mounted["shared"])
    assert all(isinstance(variable["value"], str) for variable in container["env"])
