"""The fault suite on a few runs: nothing is lost or changed, and it would be seen if it were."""

import hashlib
import shutil
import sys
import time

import numpy as np
import pytest

import ergodax as ex
from benchmarks.kills import command, damage
from benchmarks.kills.kill_and_resume import Drill
from benchmarks.kills.kinds import KINDS
from benchmarks.kills.outcomes import (
    Outcome,
    Row,
    begun_rightly,
    ended_rightly,
    judged,
    table,
)
from benchmarks.kills.runs import RUN
from benchmarks.kills.worker import Worker
from ergodax.persist import checkpoint

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork and /proc")


def test_the_quick_suite_finds_nothing(tmp_path, capsys):
    runs = ["--runs", "saga", "stream"]
    faults = ["--only", "kills", "writers", "power"]
    command.main([*faults, *runs, "--quick", "--markdown", str(tmp_path / "table.md")])
    text = (tmp_path / "table.md").read_text()
    assert "8 kills, " in text and text in capsys.readouterr().out + text
    assert text.count("| SIGKILL: ") == 2 and text.count("| power cut: ") == 3


def altered(folder) -> None:
    """One bit of the position in the checkpoint is another one, under the right checksum."""
    path = folder / RUN / "checkpoint"
    start = len(checkpoint.MAGIC) + checkpoint.DIGEST
    body = bytearray(path.read_bytes()[start:])
    body[8 + int.from_bytes(body[:8], "big")] ^= 1
    digest = hashlib.sha256(body).hexdigest().encode()
    path.write_bytes(checkpoint.MAGIC + digest + bytes(body))


def test_a_state_that_was_altered_is_seen(tmp_path):
    """The negative control: what the suite would say if a kill changed a bit."""
    data, folder = tmp_path / "data", tmp_path / "killed"
    with Worker("saga", data, folder) as worker:
        drill = Drill("saga", worker, data, folder)
        copy = worker.begin()
        while not KINDS["saga"].counted(folder):
            time.sleep(0.01)
        drill.over(worker.kill(copy), "in the middle")
        assert drill.pending == [(Outcome.RIGHT, "in the middle: ")]
        altered(folder)
        drill.finish()
    assert drill.row.counts == {Outcome.DIFFERENT: 1} and not drill.row.ok
    assert "in the middle" in drill.row.first


def test_a_store_that_is_gone_or_wrong_is_seen(tmp_path):
    """Other draws with the right checksums, none, and fewer than are counted."""
    subject = damage.Subject("a run", tmp_path, finished=False)
    assert subject.trial(lambda copy: None)[0] is Outcome.RIGHT
    gone = subject.trial(lambda copy: shutil.rmtree(copy / RUN / "draws.zarr"))[0]
    assert gone is Outcome.LOST
    assert subject.trial(altered)[0] is Outcome.DIFFERENT
    subject.saved[0] = subject.saved[0] + 1
    assert subject.trial(lambda copy: None)[0] is Outcome.WRONG


def test_outcomes(tmp_path):
    whole = [np.arange(6.0), np.arange(12.0).reshape(6, 2)]
    first = [array[:4] for array in whole]
    assert begun_rightly(first, whole, 4) is Outcome.RIGHT
    assert begun_rightly(first, whole, 5) is Outcome.LOST
    assert begun_rightly([], whole, 0) is Outcome.RIGHT
    assert begun_rightly([], whole, 1) is Outcome.LOST
    assert begun_rightly([first[0], -first[1]], whole, 4) is Outcome.WRONG
    assert ended_rightly(whole, whole) is Outcome.RIGHT
    assert ended_rightly([whole[0], -whole[1]], whole) is Outcome.DIFFERENT
    assert ended_rightly(first, whole) is Outcome.DIFFERENT

    def fails(error: Exception) -> Outcome:
        return judged(tmp_path, 60.0, lambda: (_ for _ in ()).throw(error))[0]

    assert fails(ex.CheckpointError(f"{tmp_path}/log is damaged")) is Outcome.REFUSED
    assert fails(ex.CheckpointError("something is damaged")) is Outcome.UNNAMED
    assert fails(KeyError(str(tmp_path))) is Outcome.UNNAMED

    def hangs() -> Outcome:
        while True:
            time.sleep(0.01)

    assert judged(tmp_path, 0.05, hangs)[0] is Outcome.HANG


def test_a_row_that_is_not_right_ends_the_command_in_1(monkeypatch, capsys):
    bad, good = Row("bad"), Row("good")
    good.add(Outcome.RIGHT)
    bad.add(Outcome.RIGHT)
    bad.add(Outcome.WRONG, "the second trial")
    monkeypatch.setitem(command.FAULTS, "writers", lambda *_: iter([good, bad]))
    with pytest.raises(SystemExit, match="1"):
        command.main(["--only", "writers"])
    said = capsys.readouterr().out
    assert "bad: wrong: the second trial" in said and table([good, bad]) in said
