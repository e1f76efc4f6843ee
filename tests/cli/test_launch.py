"""`ergodax launch` as a user meets it."""

import json
import sys

import pytest

from ergodax.cli import main


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
