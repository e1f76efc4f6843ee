"""New mutants by the operators of Cosmic Ray, and by one of ours: a term is left out.

The sample is stratified: as many from every module, and within a module the files take turns.
Strings, annotations, decorators and subscripts are left alone, and what makes an error message.
"""

import ast
import random
from collections.abc import Iterator
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from parso.python.tree import Operator as Sign

from benchmarks.mutants.mutant import ROOT, Mutant
from benchmarks.mutants.places import MODULES

SWAPS = (
    *("BinaryOperator_" + pair for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul")),
    *("ComparisonOperator_" + pair for pair in ("Lt_LtE", "Lt_GtE", "LtE_Gt", "Gt_GtE", "Gt_LtE")),
    *("ComparisonOperator_" + pair for pair in ("GtE_Gt", "GtE_Lt", "Eq_NotEq", "NotEq_Eq")),
    *("ComparisonOperator_" + pair for pair in ("Is_IsNot", "IsNot_Is")),
    "UnaryOperator_USub_UAdd",
    "UnaryOperator_Delete_Not",
)
OPERATORS = (
    *(f"core/Replace{name}" for name in SWAPS),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/NumberReplacer"),
    *("core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"),
)


class DropTerm(Operator):
    """a + b and a - b become a, a * b becomes a."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        """Where a term can be left out."""
        if node.type in ("arith_expr", "term") and node.start_pos[0] == node.end_pos[0]:
            sign = node.children[-2]
            if isinstance(sign, Sign) and sign.value in "+-*":
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The node without its last term."""
        node.children = node.children[:-2]
        return node

    @classmethod
    def examples(cls) -> tuple:
        """None: those of Cosmic Ray are for its own documentation."""
        return ()


def operators() -> dict[str, Operator]:
    """By the name that a mutant's record has."""
    found = {name.rpartition("/")[2]: cosmic_ray.plugins.get_operator(name)() for name in OPERATORS}
    return found | {"DropTerm": DropTerm()}


def left_alone(text: str) -> list[tuple[Any, Any]]:
    """Where nothing is computed: indices, annotations, decorators, texts, checks, errors."""
    found = []
    for node in ast.walk(ast.parse(text)):
        parts = [node]
        match node:
            case ast.Subscript():
                parts = [node.slice]
            case ast.FunctionDef():
                parts = [*node.decorator_list, *filter(None, [node.returns])]
            case ast.ClassDef():
                parts = node.decorator_list
            case ast.AnnAssign():
                parts = [node.annotation]
            case ast.Call() if "check" not in ast.unparse(node.func):
                parts = [k for k in node.keywords if k.arg in ("axis", "strict")]
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.arg() | ast.Call():
                pass
            case _:
                continue
        for part in parts:
            end = (part.end_lineno, part.end_col_offset)
            found.append(((part.lineno, part.col_offset), end))
    return found


def candidates(text: str) -> list[tuple[str, Operator, int]]:
    """All mutations of a file: name of the operator, the operator, which of its places."""
    nodes, found = list(ast_nodes(get_ast(text))), []
    alone, functions = left_alone(text), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            functions.append(((node.body[0].lineno, 0), (node.end_lineno, node.end_col_offset)))
    for name, operator in operators().items():
        places = [place for node in nodes for place in operator.mutation_positions(node)]
        for k, (start, end) in enumerate(places):
            one_line = start[0] == end[0] and any(a <= start and end <= b for a, b in functions)
            if one_line and not any(a <= start and end <= b for a, b in alone):
                found.append((name, operator, k))
    return found


def mutant(file: str, text: str, name: str, operator: Operator, k: int) -> Mutant | None:
    """One mutation as a changed line; None where that is not what it is."""
    try:
        mutated = mutate_code(text, operator, k)
        ast.parse(mutated or "")
    except SyntaxError:
        return None
    old, new = text.split("\n"), (mutated or "").split("\n")
    if len(old) != len(new):
        return None
    changed = [n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if len(changed) != 1:
        return None
    n = changed[0]
    return Mutant(file, name, old[n], new[n], which=old[:n].count(old[n]))


def generated(count: int, seed: int, known: list[Mutant]) -> list[Mutant]:
    """New mutants, `count` of every module, none of a line that `known` has already."""
    rng, found = random.Random(seed), []
    lines = {(m.file, m.old, m.which) for m in known}
    for folder, named in MODULES.values():
        texts = {f"{folder}/{f}": (ROOT / "src/ergodax" / folder / f).read_text() for f in named}
        kept = {file: candidates(text) for file, text in texts.items()}
        for each in kept.values():
            rng.shuffle(each)
        files, made = list(kept), 0
        rng.shuffle(files)
        while made < count and any(kept.values()):
            for file in files:
                one = None
                while kept[file] and one is None:
                    one = mutant(file, texts[file], *kept[file].pop())
                    if one is not None and (one.file, one.old, one.which) in lines:
                        one = None
                if one is not None and made < count:
                    lines.add((one.file, one.old, one.which))
                    found.append(one)
                    made += 1
    return found
