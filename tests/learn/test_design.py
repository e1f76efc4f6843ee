"""From formulas and data frames to columns, and what is refused by name."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from ergodax.learn.design import Formula, FrameDesign

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
    ],
)
def test_other_group_terms_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Formula.of(text)


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
