"""From formulas and data frames to columns, and what is refused by name."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from ergodax.learn.design import Formula, FormulaDesign, FrameDesign

FRAME: Any = pd.DataFrame({"x": [1.0, 2.0, 4.0], "kind": ["b", "a", "b"], "plane": ["p", "q", "p"]})


def test_a_formula_is_taken_apart():
    found = Formula.of("late ~ x + C(kind, Treatment(-1)) - 1 + offset(log(t) - 1) + (1 | plane)")
    assert found == Formula("late", "x + C(kind, Treatment(-1)) - 1", "plane", "(log(t) - 1)")
    assert Formula.of("y ~ (1|`tail number`)") == Formula("y", "1", "tail number", "")
    assert Formula.of("x + `a - b`") == Formula("", "x + `a - b`", "", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ (x | plane)", r"term '\(x \| plane\)' of the formula is not supported"),
        ("y ~ (1 | plane / kind)", "GroupedPosterior"),
        ("y ~ (1 | plane) + (1 | kind)", "2 group terms, of plane and kind"),
        ("y ~ x ~ z", "more than one ~"),
        ("y ~ x - (1 | plane)", r"subtracts '\(1 \| plane\)'.*Try leaving it out"),
        ("y ~ x - offset(x)", r"subtracts 'offset\(x\)'.*Try \+ offset\(-\(x\)\)"),
        ("y ~ offset(x) * offset(z)", "an offset is a term of its own"),
        ("y ~ offset(x:z)", "an offset is a term of its own, of one expression"),
        ("y ~ offset(x, z)", "an offset is a term of its own"),
    ],
)
def test_other_terms_of_groups_and_offsets_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Formula.of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("offset(x - z)", [-1.0, -3.0, -4.0]),
        ("offset(x * z)", [2.0, 10.0, 32.0]),
        ("offset(x ** 2)", [1.0, 4.0, 16.0]),
        ("offset(2 * `a|b`)", [2.0, 4.0, 8.0]),
        ("offset (-x)", [-1.0, -2.0, -4.0]),
        ("offset(x) + offset(x)", [2.0, 4.0, 8.0]),
        ("offset(log(x) - log(z))", np.log([1 / 2, 2 / 5, 4 / 8])),
    ],
)
def test_an_offset_is_arithmetic(text, expected):
    frame = FRAME.assign(**{"z": [2.0, 5.0, 8.0], "a|b": FRAME["x"]})
    design = FormulaDesign(f"kind + {text}", frame)
    found: Any = design.matrix(frame).offset
    np.testing.assert_allclose(found, expected)
    assert design.names == ["kind[T.b]"]


@pytest.mark.parametrize("text", ["kind", "poly(x, 2)", "kind + plane"])
def test_an_offset_is_one_column_of_numbers(text):
    with pytest.raises(TypeError, match="the offset .* is not one column of numbers. Try"):
        FormulaDesign(f"x + offset({text})", FRAME)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x - z", [-1.0, -3.0, -4.0]),
        ("x**2", [1.0, 4.0, 16.0]),
        ("2 * `a|b` / z", [1.0, 0.8, 1.0]),
        ("np.log(x) + 1", np.log([1.0, 2.0, 4.0]) + 1.0),
        ("I(x - z)", [-1.0, -3.0, -4.0]),
        ("kind == 'b'", [1.0, 0.0, 1.0]),
        ("kind", ["b", "a", "b"]),
        ("`a|b`", [1.0, 2.0, 4.0]),
    ],
)
def test_a_target_is_arithmetic(text, expected):
    """In the algebra of formulas `x - z` and `x**2` would be x."""
    frame = FRAME.assign(**{"z": [2.0, 5.0, 8.0], "a|b": FRAME["x"]})
    found = FormulaDesign(f"{text} ~ x", frame).target(frame)
    if text == "kind":
        assert found.tolist() == expected
    else:
        np.testing.assert_allclose(found, np.asarray(expected, float))


def test_a_target_of_several_columns_is_refused():
    with pytest.raises(ValueError, match="the target .* has 2 columns; it must be one"):
        FormulaDesign("poly(x, 2) ~ z", FRAME.assign(z=1.0)).target(FRAME)


def test_a_name_in_backticks_may_hold_any_sign():
    frame = FRAME.assign(**{"a|b": [3.0, 1.0, 2.0], "c~d": FRAME["x"]})
    design = FormulaDesign("`c~d` ~ `a|b` + (1 | plane)", frame)
    assert design.names == ["a|b"] and design.formula.target == "`c~d`"
    np.testing.assert_array_equal(design.target(frame), FRAME["x"])


def test_new_rows_need_what_stands_on_the_right_alone():
    frame = FRAME.assign(y=1.0, unused="u", z=[2.0, 5.0, 8.0])
    design = FormulaDesign("y ~ x + offset(log(z)) + (1 | plane)", frame)
    new = frame[["plane", "z", "x"]].assign(more=0)
    np.testing.assert_array_equal(design.matrix(new).x, FRAME[["x"]])
    for name in ("plane", "z", "x"):
        with pytest.raises(ValueError, match=f"'{name}' is not a column of X"):
            design.matrix(new.drop(columns=name))


def test_text_where_fit_had_numbers_is_named():
    """Of one row it would be one indicator, and so fit in silently."""
    design = FormulaDesign("x", FRAME)
    with pytest.raises(TypeError, match="column 'x' had numbers in fit, and now holds text: row 0"):
        design.matrix(FRAME[:1].assign(x="a"))


@pytest.mark.parametrize(
    ("fitted", "new", "message"),
    [
        ([0, 1, 0], ["0", "1", "0"], "'g' had numbers in fit, and now holds text: row 0 holds '0'"),
        (["0", "1", "0"], ["0", 1, 0], "'g' had text in fit, and now holds numbers: row 1 holds 1"),
    ],
)
def test_labels_of_groups_of_another_type_are_named(fitted, new, message):
    """Each would be a new group."""
    for kind in (object, "category"):
        frame: Any = FRAME.assign(g=pd.Series(fitted, dtype=object).astype(kind))
        with pytest.raises(TypeError, match=message):
            FormulaDesign("x + (1 | g)", frame).matrix(FRAME.assign(g=pd.Series(new, dtype=object)))


@pytest.mark.parametrize(
    "new", [[1.0, 0.0, 2.0], pd.Categorical([1, 0, 2]), pd.array([1, 0, 2], "Int64")]
)
def test_labels_that_are_equal_numbers_are_the_same_groups(new):
    design = FormulaDesign("x + (1 | g)", FRAME.assign(g=[0, 1, 0]))
    groups: Any = design.matrix(FRAME.assign(g=new)).groups
    assert [{0: "a", 1: "b"}.get(label) for label in groups] == ["b", "a", None]


def test_text_becomes_indicators():
    design = FrameDesign(FRAME[["x", "kind"]])
    assert design.names == ["x", "kind[b]"]
    np.testing.assert_array_equal(design.matrix(FRAME[["x", "kind"]]).x[:, 1], [1, 0, 1])
    ordered: Any = FRAME[["kind"]].astype(pd.CategoricalDtype(["b", "a", "never"]))
    assert FrameDesign(ordered).names == ["kind[a]"]
    with pytest.raises(ValueError, match="column 'kind' has the value 'z' in row 1"):
        design.matrix(FRAME[["x", "kind"]].assign(kind=["a", "z", "a"]))
    with pytest.raises(ValueError, match="NaN in column 'kind', row 2"):
        design.matrix(FRAME[["x", "kind"]].assign(kind=["a", "a", None]))
    with pytest.raises(ValueError, match="NaN in column 'x', row 0"):
        design.matrix(FRAME[["x", "kind"]].assign(x=[np.nan, 1.0, 1.0]))
