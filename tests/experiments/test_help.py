"""Every experiment's command: its line in the list, its help, its example."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import __main__ as main

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^ *Example: python -m experiments (.+)$", re.MULTILINE)


def walk(app, path=()):
    """The path of every command and group below an app, with its own app."""
    for name in app:
        if not name.startswith("-"):
            yield (*path, name), app[name]
            yield from walk(app[name], (*path, name))


COMMANDS = {" ".join(path): found for path, found in walk(main.app)}
LEAVES = [name for name, found in COMMANDS.items() if found.default_command is not None]


def parse(tokens):
    """The command and its arguments; nothing is run."""
    command, bound, _ = main.app.parse_args(tokens, exit_on_error=False, print_error=False)
    return command, bound.arguments


def ran(monkeypatch, capsys, *arguments):
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["experiments", *arguments])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr()
    return stop.value.code or 0, out.out, " ".join(out.err.split())


def test_the_experiments_are_those_of_the_documentation():
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    for name in LEAVES:
        assert f"`{name}`" in page, name


def test_alone_it_lists_them(monkeypatch, capsys):
    code, out, _ = ran(monkeypatch, capsys)
    assert code == 0
    for name in COMMANDS:
        if " " not in name:
            assert re.search(rf"^│ {name} +[A-Z]", out, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(monkeypatch, capsys, name):
    code, out, _ = ran(monkeypatch, capsys, *name.split(), "--help")
    assert code == 0 and f"Example: python -m experiments {name.split()[0]}" in " ".join(
        out.split()
    )


@pytest.mark.parametrize("name", LEAVES)
def test_examples_are_of_the_command_itself_and_options_are_common(name):
    (tokens, *_) = [text.split() for text in EXAMPLE.findall(COMMANDS[name].help)]
    command, plain = parse(tokens)
    assert command is COMMANDS[name].default_command
    if name != "data":  # which gets files and finds nothing out
        assert plain != parse([*tokens, "--json"])[1]
    long, short = (parse([*tokens, option, "there"])[1] for option in ("--output", "--out"))
    assert long == short != plain and "PosixPath('there')" in str(long)


@pytest.mark.parametrize("name", ["figure9", "funnel --no-such-option"])
def test_what_does_not_parse_is_wrong_use(monkeypatch, capsys, name):
    code, out, err = ran(monkeypatch, capsys, *name.split())
    assert code == 2 and out == "" and name.split()[-1] in err


def test_a_file_that_is_not_there_is_named_with_what_to_pass(monkeypatch, capsys):
    code, out, err = ran(monkeypatch, capsys, "mnist", "--data", "none.npz")
    assert code == 2 and out == ""
    assert "no such file: none.npz" in err and "Pass --data FILE: an .npz file of x_train" in err


@pytest.mark.slow
def test_the_module_runs_from_the_root():
    command = [sys.executable, "-m", "experiments", "bias", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "Stationary bias" in done.stdout
