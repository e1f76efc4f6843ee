"""What a Python function that a program calls by a callback does, as far as it can be seen.

The traced program has no more of it than its name. Its digest takes in the bytecode, and what that
refers to: constants, defaults, the values caught in a closure, the module's variables by the names
in use, and the functions among these in the same way. Functions of Python and of installed
libraries are told by name. Nothing counts that differs in every process (addresses), or that the
functions change themselves (counters, records).
"""

import dis
import functools
import hashlib
import sys
import sysconfig
import types
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr

from ergodax.graph import equations

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
DEEPEST = 40  # functions and containers inside each other
LIBRARIES = ("site-packages", "dist-packages", "<frozen", "<@", sysconfig.get_path("stdlib"))
STORES = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")
CHANGES = ("add", "append", "clear", "extend", "insert", "pop", "setdefault", "update")


def digests(jaxpr: Jaxpr) -> dict[str, str]:
    """Of the functions that a program calls by callbacks which its results may depend on.

    Args:
        jaxpr: the program.

    Returns:
        Texts by names that say which function it is.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> shape = jax.ShapeDtypeStruct((), jnp.float32)
        >>> def double(x):
        ...     return 2 * x
        >>> program = jax.make_jaxpr(lambda x: jax.pure_callback(double, shape, x))(1.0)
        >>> list(digests(program.jaxpr))
        ["the Python function 'double' behind pure_callback"]
    """
    parts: dict[str, str] = {}
    for equation in equations(jaxpr):
        primitive = equation.primitive.name
        if "callback" not in primitive or "debug" in primitive:  # which has no results
            continue
        function = equation.params.get("callback")
        inside = getattr(function, "callback_func", function)
        name = getattr(inside, "__name__", type(inside).__name__)
        label, found = (
            f"the Python function {name!r} behind {primitive}",
            _Digest().of(inside).hex(),
        )
        while parts.setdefault(label, found) != found:
            label += ", another one"
    return parts


class _Digest:
    """Digests of values; those that are being digested are not gone into again."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        # With each value, so that its id stays its own.
        self.known: dict[int, tuple[Any, bytes]] = {}

    def of(self, value: Any) -> bytes:
        """16 bytes."""
        if id(value) in self.known:
            return self.known[id(value)][1]
        if id(value) in self.inside or len(self.inside) >= DEEPEST:
            return _joined(["again", type(value).__name__])
        self.inside.append(id(value))
        try:
            found = _joined(self._pieces(value))
        except Exception:  # whatever a user's object does when it is looked at
            found = _joined([type(value).__name__])
        self.inside.pop()
        self.known[id(value)] = value, found
        return found

    def _pieces(self, value: Any) -> list[Any]:
        """What tells a value from others: texts, bytes and digests."""
        of, kind = self.of, type(value).__name__
        if type(value) in PLAIN:
            return [kind, repr(value)]
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            array = np.asarray(value)
            flat = np.ascontiguousarray(array).reshape(-1)
            content = of(array.tolist()) if array.dtype.hasobject else flat.view(np.uint8).data
            return [kind, str(array.dtype), str(array.shape), content]
        if isinstance(value, dict):
            return [kind, *(of(part) for pair in value.items() for part in pair)]
        if isinstance(value, set | frozenset):  # whose order differs between processes
            return [kind, *sorted(of(part) for part in value)]
        if isinstance(value, list | tuple):
            return [kind, *(of(part) for part in value)]
        if isinstance(value, functools.partial):
            return [kind, of(value.func), of(value.args), of(value.keywords)]
        if isinstance(value, types.CodeType):
            return [kind, value.co_code, *value.co_names, *(of(part) for part in value.co_consts)]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return [of(value.__func__), *self._instance(value.__self__, value.__func__)]
        if hasattr(value, "__wrapped__"):  # as by jax.jit
            return [_name(value), of(value.__wrapped__)]
        if isinstance(value, type):
            own = () if _of_library(value) else sorted(vars(value).items())
            return [_name(value), *(of(f) for _, f in own if isinstance(f, types.FunctionType))]
        return self._instance(value, getattr(type(value), "__call__", None))  # noqa: B004

    def _function(self, function: types.FunctionType) -> list[Any]:
        code, cells = function.__code__, function.__closure__ or ()
        pieces = [_name(function), self.of(function.__defaults__), self.of(function.__kwdefaults__)]
        found = {
            n: c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True) if _full(c)
        }
        if not _of_library(function):
            pieces.append(self.of(code))
            names, known = _names(code), function.__globals__
            found |= {name: known[name] for name in names if name in known}
            for module in [x for x in found.values() if isinstance(x, types.ModuleType)]:
                if not _of_library(module):
                    has = vars(module)
                    found |= {f"{module.__name__}.{n}": has[n] for n in names if n in has}
        else:
            pieces.append(self.of(getattr(function, "__wrapped__", None)))
        changed = _changed(code)
        return [*pieces, *self._named({n: x for n, x in found.items() if n not in changed})]

    def _instance(self, value: Any, method: Any) -> list[Any]:
        """An object with a method that is called: its class, and what the method finds in it."""
        if type(value).__module__.split(".")[0] in sys.stdlib_module_names:
            return [_name(value)]
        code = getattr(method, "__code__", None)
        changed = () if code is None else _changed(code)
        has = {n: x for n, x in vars(value).items() if n not in changed}
        return [self.of(type(value)), *self._named(has)]

    def _named(self, values: dict[str, Any]) -> list[Any]:
        return [part for name in sorted(values) for part in (name, self.of(values[name]))]


def _joined(pieces: list[Any]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        content = piece.encode() if isinstance(piece, str) else piece
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.digest()


def _name(value: Any) -> str:
    """Of a function, a class or a module; of another object that of its class."""
    if not isinstance(value, types.ModuleType | type) and not hasattr(value, "__name__"):
        value = type(value)
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"


def _full(cell: types.CellType) -> bool:
    """Whether a variable of a closure has a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _of_library(value: Any) -> bool:
    """Whether a function, a class or a module is not the user's own."""
    name = getattr(value, "__module__", None) or value.__name__
    module = value if isinstance(value, types.ModuleType) else sys.modules.get(name)
    code = getattr(value, "__code__", None)
    file = getattr(module, "__file__", None) if code is None else code.co_filename
    if file is None:  # built in, or typed in
        return name != "__main__"
    return name.split(".")[0] == "ergodax" or any(part in file for part in LIBRARIES)


def _names(code: types.CodeType) -> set[str]:
    """The names in use in a function and in those inside it."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*(_names(part) for part in inner))


def _changed(code: types.CodeType) -> set[str]:
    """The names of what a function changes itself: variables, attributes, containers."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    found, before = set().union(*(_changed(part) for part in inner)), [""] * 3
    for step in dis.get_instructions(code):
        if step.opname in STORES:
            found.add(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in CHANGES:
            found.add(before[-1])
        elif step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            found.update(before[-2:])
        before.append(step.argval)
    return found
