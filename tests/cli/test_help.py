"""Every command of the app: its help, its example, and the options that all have in common."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ergodax.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^ *Example: ergodax (.+)$", re.MULTILINE)
WITHOUT_FILES = {"advise", "launch"}


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


def examples(name):
    """The tokens of each example in a command's help."""
    return [text.split() for text in EXAMPLE.findall(COMMANDS[name].help)]


def with_option(tokens, *more):
    """The tokens with an option, before what belongs to another command."""
    place = tokens.index("--") if "--" in tokens else len(tokens)
    return [*tokens[:place], *more, *tokens[place:]]


def test_the_commands_are_those_of_the_documentation():
    groups = {"verify"}
    words = {"infer", "advise", "topics", "launch"}
    assert {name for name in COMMANDS if " " not in name} == groups | words
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    for name in LEAVES:
        assert f"`{name}`" in page, name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(ergodax, name):
    code, out, _ = ergodax(*name.split(), "--help")
    assert code == 0 and "Example: ergodax" in out and f"ergodax {name.split()[0]}" in out


@pytest.mark.parametrize("name", LEAVES)
def test_examples_are_of_the_command_itself(name):
    found = examples(name)
    assert found
    for tokens in found:
        assert parse(tokens)[0] is COMMANDS[name].default_command


@pytest.mark.parametrize("name", LEAVES)
def test_whatever_prints_a_result_prints_it_as_json(name):
    plain, asked = (parse(with_option(examples(name)[0], *o))[1] for o in ((), ("--json",)))
    assert plain != asked and "json" in str(asked)


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in WITHOUT_FILES])
def test_the_folder_has_one_name_and_an_alias(name):
    tokens = examples(name)[0]
    long, short = (parse(with_option(tokens, o, "there"))[1] for o in ("--output", "--out"))
    assert long == short != parse(tokens)[1] and "PosixPath('there')" in str(long)


@pytest.mark.parametrize("name", LEAVES)
def test_what_does_not_parse_is_wrong_use(ergodax, name):
    tokens = with_option(examples(name)[0], "--no-such-option")
    code, out, err = ergodax(*tokens)
    assert code == 2 and out == "" and "--no-such-option" in err


def test_an_unknown_command_is_wrong_use(ergodax):
    code, out, err = ergodax("sample")
    assert code == 2 and out == "" and "sample" in err


@pytest.mark.slow
def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "ergodax"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and re.match(r"\d+\.\d+\.\d+", done.stdout)


@pytest.mark.slow
def test_the_help_waits_for_nothing_heavy():
    """The commands of the package import what they need when they run."""
    modules = ", ".join(f"ergodax.cli.{name}" for name in ("advise", "infer", "launch", "verify"))
    heavy = "arviz_base", "arviz_stats", "jinja2", "matplotlib", "pandas", "sklearn"
    program = f"import sys, {modules}; print(*({set(heavy)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "", done.stdout + done.stderr
