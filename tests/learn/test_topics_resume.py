"""A run that is killed goes on to the same result; memory does not grow with the stream."""

import json
import random
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from benchmarks.kills.recorder import Content, Entry, Recorder, Synced
from ergodax.errors import CheckpointError
from ergodax.learn.topics.corpus import Document
from ergodax.learn.topics.runs import Part, Run, Store
from ergodax.learn.topics.train import Settings, batches, first_state, train

pytestmark = pytest.mark.slow

SETTINGS = Settings(
    "sgrhmc", num_topics=3, beta=0.5, gibbs_sweeps=4, batch_size=5, snapshot_every=20, block=3
)
SIZES: dict[str, Any] = {"num_documents": 60, "vocabulary_size": 12}


def documents(number=60):
    generator = np.random.default_rng(0)
    for _ in range(number):
        words = generator.choice(12, 4, replace=False).astype(np.int32)
        yield Document(words, generator.integers(1, 5, 4))


def snapshots(settings, key, start=None, skip=0):
    rest = batches(list(documents())[skip:], settings.batch_size)
    return list(train(settings, rest, **SIZES, key=key, start=start))


@pytest.mark.parametrize("sampler", ["sgrld", "sgrhmc", "sgld", "sghmc"])
def test_training_goes_on_from_a_snapshot_bit_for_bit(sampler, key):
    settings = SETTINGS if sampler == "sgrhmc" else Settings(
        **{**vars(SETTINGS), "sampler": sampler, "step_size": 1e-3}
    )  # fmt: skip
    whole = snapshots(settings, key)
    rest = snapshots(settings, key, whole[0].state, whole[0].documents)
    assert [one.documents for one in rest] == [one.documents for one in whole[1:]] == [40, 60]
    for one, other in zip(rest, whole[1:], strict=True):
        np.testing.assert_array_equal(one.phi, other.phi)
        jax.tree.map(np.testing.assert_array_equal, one.state, other.state)
    # A stream that begins again, or the state of another snapshot, is another run.
    assert not np.array_equal(snapshots(settings, key, whole[0].state)[-1].phi, whole[-1].phi)


def parts(folder, facts=("same",), resume=True):
    return Store(folder, {"corpus": list(facts)}, resume)


def test_the_store_keeps_parts_until_the_run_has_ended(tmp_path, key):
    state = first_state(SETTINGS, 60, 12, key)
    kept = [np.arange(4, dtype=np.float32), np.ones(4, np.float32)]
    store = parts(tmp_path)
    assert store.load_part("run", SETTINGS, state) is None
    for rows in ([{"documents": 20}], [{"documents": 40}]):
        store.save_part("run", SETTINGS, Part(rows, kept, state))
    found = store.load_part("run", SETTINGS, state)
    assert found is not None and found.rows == [{"documents": 40}]
    np.testing.assert_array_equal(found.kept, kept)
    jax.tree.map(np.testing.assert_array_equal, found.state, state)
    assert parts(tmp_path, ["other"]).load_part("run", SETTINGS, state) is None
    assert parts(tmp_path, resume=False).load_part("run", SETTINGS, state) is None
    # Killed between the two renamings, there is only the file before.
    (tmp_path / "runs" / "run.part").unlink()
    previous = store.load_part("run", SETTINGS, state)
    assert previous is not None and previous.rows == [{"documents": 20}]
    store.save("run", SETTINGS, Run([{"documents": 60}], np.ones((3, 12))))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["run.npz"]
    assert parts(tmp_path, resume=False).load("run", SETTINGS) is None


def test_a_damaged_file_of_a_finished_run_is_named(tmp_path):
    store, place = parts(tmp_path), tmp_path / "runs" / "run.npz"
    store.save("run", SETTINGS, Run([{"documents": 60}], np.ones((3, 12))))
    content = place.read_bytes()
    flipped = bytearray(content)
    flipped[content.index("documents".encode("utf-32-le"))] ^= 1
    for damaged in (content[:100], bytes(flipped), b""):
        place.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="runs/run.npz"):
            store.load("run", SETTINGS)


def test_a_finished_run_is_on_the_disk_before_its_parts_are_removed(tmp_path, key):
    store, state = parts(tmp_path), first_state(SETTINGS, 60, 12, key)
    store.save_part("run", SETTINGS, Part([{"documents": 40}], [], state))
    with Recorder(tmp_path) as recorder:
        store.save("run", SETTINGS, Run([{"documents": 60}], np.ones((3, 12))))
    assert not recorder.unflushed
    kinds = [each.kind if isinstance(each, Entry) else type(each) for each in recorder.operations]
    recorded = kinds[recorder.first :]
    assert recorded.index(Content) < recorded.index("rename") < recorded.index(Synced)
    assert recorded.index(Synced) < recorded.index("remove")


def call(corpus, out):
    return [
        sys.executable, "-m", "ergodax", "topics", str(corpus), "--topics", "3", "--sampler",
        "sgrhmc", "--documents", "4000", "--beta", "0.1", "--max-share", "1",
        "--test", "30", "--batch-size", "20", "--gibbs-sweeps", "6", "--snapshot-every", "100",
        "--json", "--out", str(out),
    ]  # fmt: skip


def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    generator = np.random.default_rng(0)
    names = np.array([f"word{letter}" for letter in "abcdefghijkl"])
    corpus = tmp_path / "corpus.txt"
    lines = (" ".join(generator.choice(names, generator.integers(5, 40))) for _ in range(150))
    corpus.write_text("\n".join(lines) + "\n")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(call(corpus, whole), check=True, capture_output=True)
    delay = random.uniform(0, 0.3)
    running = subprocess.Popen(
        call(corpus, cut), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    part = cut / "runs" / "sgrhmc-1.part"
    while not part.exists() and running.poll() is None:
        time.sleep(0.005)
    time.sleep(delay)
    running.kill()
    running.wait()
    assert not (cut / "runs" / "sgrhmc-1.npz").exists(), "killed too late to show anything"
    resumed = subprocess.run(call(corpus, cut), check=True, capture_output=True, text=True)
    assert "goes on after" in resumed.stderr, f"killed {delay} s after the first snapshot"
    tables = [pd.read_csv(folder / "perplexity.csv") for folder in (whole, cut)]
    assert len(tables[0]) == 40
    for column in ("documents", "perplexity", "alone"):
        np.testing.assert_array_equal(tables[0][column], tables[1][column])
    assert (whole / "topics.json").read_bytes() == (cut / "topics.json").read_bytes()


MEMORY = """
import json
from pathlib import Path
import jax, numpy as np
from ergodax.learn.topics.train import batches, shuffled
from ergodax.learn.topics.corpus import Document
from ergodax.learn.topics.train import Settings, train

def stream(number):
    generator = np.random.default_rng(0)
    for _ in range(number):
        yield Document(generator.permutation(2_000)[:500], np.ones(500, int))

def peak(documents):
    mixed = shuffled(documents, 100, np.random.default_rng(1))
    settings = Settings("sgrld", num_topics=2, beta=0.5, gibbs_sweeps=2, batch_size=50,
                        snapshot_every=500)
    most = 0
    for _ in train(settings, batches(mixed, 50), num_documents=1_000, vocabulary_size=2_000,
                   key=jax.random.key(0)):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        most = max(most, pages * 4096 / 1e6)
    return most

D = 1_000
print(json.dumps([peak(stream(D)), peak(stream(10 * D)), peak(list(stream(10 * D)))]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_memory_does_not_grow_with_the_stream():
    """Ten thousand documents of 500 words take 80 MB or more if they are held."""
    out = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True)
    short, long, held = json.loads(out.stdout)
    assert long - short < 20, (short, long)
    assert held - long > 40, "the measure does not see documents that are held"
