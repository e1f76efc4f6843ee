"""Docs coverage: what a user can reach is documented, argument by argument.

Read from the source, so that lazily imported rooms are covered as well.
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import ergodax as ex

SOURCE = Path(ex.__file__).parent


class Function(NamedTuple):
    """A public function or method."""

    where: str
    node: ast.FunctionDef
    owner: ast.ClassDef | None


def public(name: str) -> bool:
    return not name.startswith("_")


def bodies(path: Path) -> Iterator[tuple[ast.AST, ast.ClassDef | None]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        yield node, None
        if isinstance(node, ast.ClassDef) and public(node.name):
            for inner in node.body:
                yield inner, node


def overload(node: ast.FunctionDef) -> bool:
    """A signature of a function that is explained where its body is."""
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def functions() -> list[Function]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent.name == "cli":  # its docstrings are the text of --help
            continue
        for node, owner in bodies(path):
            if isinstance(node, ast.FunctionDef) and public(node.name) and not overload(node):
                parts = [*path.relative_to(SOURCE).with_suffix("").parts]
                parts += [owner.name] if owner else []
                found.append(Function(".".join([*parts, node.name]), node, owner))
    return found


def exported() -> set[str]:
    """The names in the `__all__` of any package."""
    names: set[str] = set()
    for path in SOURCE.rglob("__init__.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names.update(ast.literal_eval(node.value))
    return names


FUNCTIONS, EXPORTED = functions(), exported()


def parameters(node: ast.FunctionDef) -> list[str]:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [a.arg for a in every if a.arg not in ("self", "cls")]


def arguments_section(text: str) -> set[str]:
    """The names that a Google docstring explains under Args."""
    names, inside = set(), False
    for line in inspect.cleandoc(text).splitlines():
        if not line.startswith(" "):
            inside = line.strip() == "Args:"
        elif inside and line.startswith("    ") and not line.startswith("     "):
            head = line.strip().partition(":")[0]
            names.update(part.strip().lstrip("*") for part in head.split(","))
    return names


def raised(node: ast.FunctionDef) -> set[str]:
    """Classes raised in the body itself; the functions that it calls document their own."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call):
            if isinstance(inner.exc.func, ast.Name):
                names.add(inner.exc.func.id)
    return {name for name in names if public(name)}


def inherits_its_text(function: Function) -> bool:
    """Methods of a contract: the arguments stand where the contract is written."""
    return function.owner is not None and function.node.name in {
        "init", "step", "estimate", "potential", "sample", "draw", "mv", "transpose",
        "sqrt_mv", "solve", "scaled", "spectral", "factorise", "divergence",
    }  # fmt: skip


def test_every_public_name_has_a_docstring():
    for name in ex.__all__:
        text = inspect.getdoc(getattr(ex, name))
        assert text and not text.startswith(f"{name}("), name


def faults(function: Function) -> list[str]:
    """What is missing in the docstring of a function."""
    text = ast.get_docstring(function.node)
    if not text:
        return [f"{function.where}: no docstring"]
    found = []
    # One line says enough of an inner function such as tree.scale; what a package exports
    # explains every argument, and so does whoever begins to.
    exported = function.owner is None and function.node.name in EXPORTED
    if exported or "Args:" in text:
        missing = set(parameters(function.node)) - arguments_section(text)
        found += [f"{function.where}: Args does not explain {name}" for name in sorted(missing)]
    if not inherits_its_text(function):
        found += [
            f"{function.where}: Raises does not name {error}"
            for error in sorted(raised(function.node))
            if "Raises:" not in text or error not in text
        ]
    return found


def test_every_function_is_explained():
    assert len(FUNCTIONS) > 500
    assert [fault for function in FUNCTIONS for fault in faults(function)] == []


def test_what_is_not_explained_is_seen():
    text = (
        'def f(a):\n    """One line.\n\n    Args:\n        b: no.\n    """\n    raise KeyError(a)'
    )
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    expected = ["here.f: Args does not explain a", "here.f: Raises does not name KeyError"]
    assert faults(Function("here.f", node, None)) == expected


def test_public_classes_have_docstrings():
    for path in sorted(SOURCE.rglob("*.py")):
        for node, owner in bodies(path):
            if owner is None and isinstance(node, ast.ClassDef) and public(node.name):
                assert ast.get_docstring(node), f"{path}: {node.name}"


def test_constructors_are_explained_in_the_class():
    """Args and Raises of __init__ stand in the class docstring."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node, owner in bodies(path):
            if owner is None or not isinstance(node, ast.FunctionDef) or node.name != "__init__":
                continue
            text = ast.get_docstring(owner) or ""
            if not issubclass_of_exception(owner):
                missing = set(parameters(node)) - arguments_section(text)
                assert not missing, f"{path}: {owner.name} does not explain {sorted(missing)}"
            for error in raised(node):
                assert "Raises:" in text and error in text, f"{path}: {owner.name}: {error}"


def issubclass_of_exception(node: ast.ClassDef) -> bool:
    names = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return any(name.endswith(("Error", "KeyboardInterrupt")) for name in names)


def test_the_reader_of_docstrings_sees_a_missing_argument():
    text = (
        "One line.\n\nArgs:\n    x, y: two:\n        of a kind\n    z: one.\n\nRaises:\n    E: no."
    )
    assert arguments_section(text) == {"x", "y", "z"}
    node = ast.parse("def f(a, *, b):\n    raise ValueError('x')").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert parameters(node) == ["a", "b"] and raised(node) == {"ValueError"}
