"""jaxtyping as pyright is to see it: its own PyTree is a type that pyright does not know."""

from collections.abc import Sequence
from typing import Annotated as Bool
from typing import Annotated as Complex
from typing import Annotated as Float
from typing import Annotated as Int
from typing import Annotated as Int64
from typing import Annotated as Key
from typing import Annotated as UInt8
from typing import Annotated as UInt32
from typing import Any, TypeAlias

from jax import Array as Array

PyTree: TypeAlias = Any
PRNGKeyArray: TypeAlias = Array

def install_import_hook(modules: str | Sequence[str], typechecker: str | None) -> Any: ...

__all__ = [
    "Array",
    "Bool",
    "Complex",
    "Float",
    "Int",
    "Int64",
    "Key",
    "PRNGKeyArray",
    "PyTree",
    "UInt8",
    "UInt32",
    "install_import_hook",
]
