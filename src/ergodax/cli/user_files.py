"""Objects of a user's file, and errors that name its line."""

import contextlib
import functools
import importlib.util
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any


def is_file(text: str) -> bool:
    """Whether a text is FILE.py:NAME rather than a plain name."""
    return ".py" in text or ":" in text


def load(text: str) -> Any:
    """The object that FILE.py:NAME says; the file is run once.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no name, no such name, or the file ends in an exception.
    """
    path, name = _parts(text)
    if not path.is_file():
        raise FileNotFoundError(
            f"no such file: {path}, in {text!r}. The path is taken from {Path.cwd()}."
        )
    if path.suffix != ".py":
        raise ValueError(f"{path} must be a Python file, whose name ends in .py.")
    _TYPED[str(path.resolve())] = path
    with blaming():
        module = _run(path.resolve(), path.stat().st_mtime_ns)
    names = [
        known
        for known, value in vars(module).items()
        if not (known.startswith("_") or isinstance(value, ModuleType))
    ]
    if not name:
        raise ValueError(f"{text!r} says no name. Try {path}:NAME, with one of {_listed(names)}.")
    if not hasattr(module, name):
        raise ValueError(f"{path} has no name {name!r}; it has {_listed(names)}.")
    return getattr(module, name)


@contextlib.contextmanager
def blaming() -> Generator[None]:
    """While active, an exception that passed through a user's file says through which line.

    Raises:
        ValueError: in place of the exception.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        line = _line(error)
        if line is None:
            raise
        text = str(error).strip() or "no message"
        raise ValueError(f"{line}\n  {type(error).__name__}: {text.splitlines()[0]}") from error


_TYPED: dict[str, Path] = {}  # what the user calls a file, by the name that a traceback has


@functools.cache
def _run(path: Path, modified: int) -> ModuleType:
    """The module of a file as it stands."""
    name = f"ergodax_verified_{len(_TYPED)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Equinox look there
    sys.path.insert(0, str(path.parent))  # its neighbours can be imported, as by `python FILE.py`
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _parts(text: str) -> tuple[Path, str]:
    path, colon, name = text.rpartition(":")
    return (Path(path), name) if colon else (Path(text), "")


def _line(error: BaseException) -> str | None:
    """The last line of a user's file that an exception passed through, as a traceback has it."""
    if isinstance(error, SyntaxError) and error.filename in _TYPED:
        source = (error.text or "").strip()
        return f"{_TYPED[error.filename]}, line {error.lineno}: {source}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in _TYPED]
    if not frames:
        return None
    last = frames[-1]
    inside = "" if last.name == "<module>" else f", in {last.name}"
    return f"{_TYPED[last.filename]}, line {last.lineno}{inside}: {last.line}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "no names"
