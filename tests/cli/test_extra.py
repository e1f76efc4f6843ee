"""Without its extra the installed command says which one to install."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ergodax.__main__ import EXTRA, main

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))[
    "project"
]
IMPORTED = {"scikit-learn": "sklearn"}  # where it is not the name of the package


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["cyclopts", "jinja2"])
def test_a_missing_library_is_one_line_and_status_1(missing, tmp_path):
    module, _, name = PROJECT["scripts"]["ergodax"].partition(":")
    program = f"import sys; sys.modules[{missing!r}] = None; from {module} import {name}; {name}()"
    arguments = ["verify", "recipe", "sghmc", "--output", tmp_path]
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    told = f"error: {missing} is not installed. Try: pip install 'ergodax[app]'\n"
    assert done.stderr == told


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_what_writes_the_report_is_looked_for_before_the_work(missing, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr("ergodax.verify.recipe", lambda *_, **__: pytest.fail("it is computed"))
    command = ["ergodax", "verify", "recipe", "sghmc", "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match=f"error: {missing} is not installed"):
        main()
    assert not (tmp_path / "out").exists()


def test_another_missing_module_is_no_matter_of_the_extra(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ergodax", "--version"])
    monkeypatch.setattr("ergodax.cli.main.app", lambda arguments: __import__("nowhere"))
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        main()


def test_the_names_are_those_of_the_extra():
    wanted = [text.partition(">=")[0] for text in PROJECT["optional-dependencies"]["app"]]
    assert {IMPORTED.get(name, name) for name in wanted} == set(EXTRA)
