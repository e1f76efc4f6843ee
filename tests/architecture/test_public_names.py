"""What stands beside the package uses it as a user does: by its public names."""

import ast
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ergodax as ex

ROOT = Path(__file__).parents[2]
FOLDERS = ("experiments", "gallery", "examples", "benchmarks")
# These replace a part of the library to watch it: how long a chunk is, how much memory there is,
# what a checksum costs; or time a trajectory by itself.
EXCEPTIONS = {
    "benchmarks/local/large.py": ("ergodax.local.in_place", "ergodax.local.law"),
    "benchmarks/hosts.py": ("ergodax.driver.progress",),
    "benchmarks/streams.py": ("ergodax.data.files",),
    "benchmarks/store.py": (
        "ergodax.persist.checkpoint",
        "ergodax.persist.disk",
        "ergodax.persist.draws",
        "ergodax.persist.log",
        "ergodax.persist.zarr_files",
    ),
}


def public_names(module: ModuleType) -> list[str]:
    """Those of `__all__`; of a module without one, all without an underscore."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in vars(module) if not name.startswith("_")]
    return [*names, "learn"] if module is ex else names


def member(module: ModuleType, name: str) -> Any:
    """A public name of a module, imported if it is a module that nobody has imported yet."""
    if not hasattr(module, name):
        importlib.import_module(f"{module.__name__}.{name}")
    return getattr(module, name)


def resolve(dotted: str) -> Any:
    """What a dotted name stands for, by public names alone; None where it is not public."""
    found: Any = ex
    for part in dotted.split(".")[1:]:
        if not isinstance(found, ModuleType):
            return found  # an attribute of an object is the object's own affair
        if part not in public_names(found):
            return None
        found = member(found, part)
    return found


def violations(text: str) -> set[str]:
    """The names that a program takes from ergodax and that are not public.

    Args:
        text: of the program.
    """
    tree, found, aliases = ast.parse(text), set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "ergodax":
                    aliases[name.asname or "ergodax"] = name.name if name.asname else "ergodax"
                    if not isinstance(resolve(name.name), ModuleType):
                        found.add(name.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ergodax":
            within = isinstance(resolve(node.module or ""), ModuleType)
            for name in node.names:
                dotted = f"{node.module}.{name.name}"
                aliases[name.asname or name.name] = dotted
                if not within or resolve(dotted) is None:
                    found.add(dotted)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            head, dot, rest = whole.partition(".")
            chain = whole.replace(".", "").isidentifier()  # no call or index within
            if not (chain and head in aliases) or aliases[head] in found:
                continue
            if resolve(aliases[head] + dot + rest) is None:
                found.add(whole)
    return found


FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_public_names_are_used(folder):
    for path in FILES:
        name = path.relative_to(ROOT)
        if name.parts[0] == folder:
            found = violations(path.read_text(encoding="utf-8"))
            allowed = EXCEPTIONS.get(str(name), ())
            found = {each for each in found if not each.startswith(allowed)}
            assert not found, f"{name}: {sorted(found)}"


def test_there_are_files():
    assert sum(path.is_relative_to(ROOT / "experiments") for path in FILES) > 20


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("from ergodax.driver.loop import Loop", "ergodax.driver.loop.Loop"),
        ("import ergodax.driver.checkpoint", "ergodax.driver.checkpoint"),
        ("from ergodax.driver import sample", "ergodax.driver.sample"),
        ("from ergodax import driver", "ergodax.driver"),
        ("from ergodax.learn.topics.train import train", "ergodax.learn.topics.train.train"),
        ("from ergodax.network import _anything", "ergodax.network._anything"),
        ("import ergodax as ex\nex.driver.sample", "ex.driver"),
        ("import ergodax as ex\nf = ex.verify.table", "ex.verify.table"),
    ],
)
def test_a_planted_violation_is_found(planted, name):
    assert name in violations(planted)


@pytest.mark.parametrize(
    "text",
    [
        "import ergodax as ex\nex.sgld(ex.Minibatch(p, 3), 0.1)\nex.network.priors.Normal(1.0)",
        "from ergodax.learn import topics\ntopics.lay_out",
        "from ergodax.learn.topics import Document\nimport jax\njax.numpy.zeros(3)",
    ],
)
def test_public_names_are_not_violations(text):
    assert violations(text) == set()
