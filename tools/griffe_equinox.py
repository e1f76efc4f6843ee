"""Tell the documentation's reader of source code that Equinox modules are dataclasses.

A module's `__init__` is made from its fields, as a dataclass's is, but there is no decorator to
see. This extension of griffe adds it, so that the reference shows the arguments.
"""

from typing import Any

import griffe

SELF = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)


class EquinoxModules(griffe.Extension):
    """Give each Equinox module without an `__init__` the one its fields make."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Go through all classes of a package that has been loaded."""
        # All are found before the first is changed, since what is added would be inherited.
        bare = [c for c in _classes(pkg) if "__init__" not in c.all_members and _is_module(c)]
        for module in bare:
            parameters = griffe.Parameters(SELF, *_fields(module).values())
            init = griffe.Function("__init__", parameters=parameters, parent=module)
            module.set_member("__init__", init)


def _classes(parent: griffe.Module | griffe.Class) -> list[griffe.Class]:
    found = []
    for member in parent.members.values():
        if isinstance(member, griffe.Class):
            found.append(member)
        if isinstance(member, griffe.Class | griffe.Module):
            found += _classes(member)
    return found


def _family(module: griffe.Class) -> list[griffe.Class]:
    return [*reversed(module.mro()), module]


def _is_module(module: griffe.Class) -> bool:
    bases = [base for one in _family(module) for base in one.bases]
    return any(
        isinstance(base, griffe.Expr) and base.canonical_path == "equinox.Module" for base in bases
    )


def _fields(module: griffe.Class) -> dict[str, griffe.Parameter]:
    fields = {}
    for one in _family(module):
        for name, member in one.members.items():
            if not isinstance(member, griffe.Attribute) or "property" in member.labels:
                continue
            if member.annotation is None or "AbstractVar" in str(member.annotation):
                continue
            fields[name] = griffe.Parameter(
                name,
                annotation=member.annotation,
                kind=griffe.ParameterKind.positional_or_keyword,
                default=_default(member.value),
            )
    return fields


def _default(value: Any) -> Any:
    """The default of a field: the value itself, or the argument of eqx.field."""
    if not (isinstance(value, griffe.ExprCall) and value.canonical_path == "equinox.field"):
        return value
    keywords = [a for a in value.arguments if isinstance(a, griffe.ExprKeyword)]
    given = {keyword.name: keyword.value for keyword in keywords}
    return "..." if "default_factory" in given else given.get("default")
