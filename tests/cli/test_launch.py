"""`ergodax launch` as a user meets it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ergodax.cli import launch, main


def test_launch_tells_how_the_processes_ended(monkeypatch, capfd):
    command = 'echo noise; test "$ERGODAX_PROCESS_ID" = 1 && kill -9 $$; exec sleep 60'
    options = ["--restarts", "1", "--json", "--", "sh", "-c", command]
    monkeypatch.setattr(sys, "argv", ["ergodax", "launch", *options])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out, err = capfd.readouterr()
    assert stop.value.code == 128 + 9 and "noise" in err
    failure = {"process": 1, "status": 137}
    told = {"status": 137, "processes": 2, "starts": 2, "failures": [failure, failure]}
    assert json.loads(out) == told


@pytest.mark.parametrize("dies", ["at once", "later"])
def test_a_killed_guard_is_named_or_no_loss(dies, monkeypatch, capfd, tmp_path):
    """Before the processes are known to it; and while they run, where nothing else is lost."""
    begin, guards = subprocess.Popen, []

    class Begun(begin):
        def __init__(self, command, **options):
            super().__init__(command, **options)
            if command[0] == sys.executable:
                guards.append(self.pid)
                (tmp_path / "guard").write_text(str(self.pid))
                if dies == "at once":
                    self.kill()
                    self.wait()

    watch = launch._watch

    def told_of_all(*given):
        (tmp_path / "told").touch()
        return watch(*given)

    monkeypatch.setattr(subprocess, "Popen", Begun)
    monkeypatch.setattr(launch, "_watch", told_of_all)
    wait = f"until [ -e {tmp_path}/told ]; do sleep 0.01; done"
    kill = f"{wait}; kill -9 $(cat {tmp_path}/guard); exit 0"
    monkeypatch.setattr(sys, "argv", ["ergodax", "launch", "--", "sh", "-c", kill])
    with pytest.raises(SystemExit) as stop:
        main.main()
    told = capfd.readouterr().err
    if dies == "later":
        assert stop.value.code in (0, None) and "error" not in told
    else:
        assert stop.value.code == 1 and f"error: process {guards[0]}, which would end" in told


def alive(pid: int) -> bool:
    """Whether a process runs, and is not merely one that nobody has asked for its status."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_launch_that_is_killed_leaves_no_process(tmp_path):
    # Each process starts another one in its turn, as a script around a program does.
    work = f"sleep 600 & echo $! > {tmp_path}/$ERGODAX_PROCESS_ID; sleep 600"
    call = f"from ergodax.cli.launch import launch; launch('sh', '-c', {work!r})"
    with subprocess.Popen([sys.executable, "-c", call]) as launcher:
        files = [tmp_path / "0", tmp_path / "1"]
        until = time.monotonic() + 60
        while not all(file.exists() and file.read_text() for file in files):
            assert time.monotonic() < until and launcher.poll() is None
            time.sleep(0.01)
        inner = [int(file.read_text()) for file in files]
        assert all(map(alive, inner))
        launcher.kill()
    while any(map(alive, inner)):
        assert time.monotonic() < until, "a process has outlived the one that started it"
        time.sleep(0.01)
