"""The command line in this process, without the seconds that a new interpreter takes."""

import sys

import pytest

from ergodax.cli import main


@pytest.fixture
def ergodax(monkeypatch, capsys):
    """A function of the arguments: exit status, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ergodax", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main.main()
        out = capsys.readouterr()
        return stop.value.code or 0, out.out, out.err

    return run
