"""The structure of a tree of arrays as JSON values, without pickle.

It holds dicts, lists, tuples, None, plain values, and modules of this library by name; arrays stand
in it by their number. Decoding imports nothing but those modules. Classes of other libraries are
dicts of their fields.

What else a tree has, such as a user's functions, is up to `special`: a function of a node that
gives its encoded or decoded form, or None for the nodes that it leaves to this module.
"""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ergodax import tree

Special = Callable[[Any], Any]


def encode(node: Any, arrays: list[np.ndarray], special: Special | None = None) -> Any:
    """The structure of a tree as JSON values; its arrays are appended to `arrays`."""
    if special is not None and (found := special(node)) is not None:
        return found
    if tree.is_key(node):
        data = encode(jax.random.key_data(node), arrays, special)
        return {"key": data, "implementation": str(jax.random.key_impl(node))}
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        arrays.append(np.asarray(node))
        return {"array": len(arrays) - 1}
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    if type(node) is dict:
        return {"dict": [[key, encode(value, arrays, special)] for key, value in node.items()]}
    if type(node) in (list, tuple):
        return {type(node).__name__: [encode(value, arrays, special) for value in node]}
    cls = type(node)
    if dataclasses.is_dataclass(node):
        names = [field.name for field in dataclasses.fields(node) if hasattr(node, field.name)]
        parts = [(name, getattr(node, name)) for name in names]
    else:
        # Some other class that JAX knows, by the paths of its arrays. A leaf that is no array
        # (a function, say) is part of the program, not of the data.
        paths = jax.tree_util.tree_leaves_with_path(node)
        parts = [(tree.path_name(path), leaf) for path, leaf in paths if path]
        if not parts:
            return {"value": None}
    ours = cls.__module__.split(".")[0] == "ergodax"
    return {
        "module": f"{cls.__module__}:{cls.__qualname__}" if ours else None,
        "fields": [[name, encode(part, arrays, special)] for name, part in parts],
    }


def decode(node: Any, arrays: Sequence[np.ndarray], special: Special | None = None) -> Any:
    """The tree of a structure that `encode` made, with its arrays. Raises: ValueError."""
    if special is not None and (found := special(node)) is not None:
        return found
    match node:
        case {"array": index}:
            return arrays[index]
        case {"key": data, "implementation": str(name)}:
            return jax.random.wrap_key_data(decode(data, arrays, special), impl=name)
        case {"value": value}:
            return value
        case {"dict": items}:
            return {key: decode(value, arrays, special) for key, value in items}
        case {"list": items}:
            return [decode(value, arrays, special) for value in items]
        case {"tuple": items}:
            return tuple(decode(value, arrays, special) for value in items)
        case {"module": None, "fields": fields}:
            return {name: decode(value, arrays, special) for name, value in fields}
        case {"module": str(name), "fields": fields}:
            return _module(name, {key: decode(value, arrays, special) for key, value in fields})
        case _:
            raise ValueError(f"unknown node {sorted(node)}")


def _module(name: str, fields: dict[str, Any]) -> Any:
    module, _, cls = name.partition(":")
    if module.split(".")[0] != "ergodax" or module.endswith("__main__"):
        raise ValueError(f"refusing to load a class of {module!r}")
    kind = getattr(importlib.import_module(module), cls)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{name} is not a module")
    unknown = set(fields) - {field.name for field in dataclasses.fields(kind)}
    if unknown:
        raise ValueError(f"{name} has no field {sorted(unknown)}")
    instance = object.__new__(kind)  # a module's own checks have passed before it was saved
    for key, value in fields.items():
        object.__setattr__(instance, key, value)
    return instance
