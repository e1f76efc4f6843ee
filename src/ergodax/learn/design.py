"""From arrays, data frames and formulas to a design matrix, the same way for new rows.

A formula is formulaic's, with two kinds of terms that are taken out before: `(1 | name)`, an
intercept that varies between groups, and `offset(expression)`.
"""

import ast
import dataclasses
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data as _untyped

from ergodax.checks import shown

validate_data: Any = _untyped  # whose types are wrong where they are inferred
GROUP = re.compile(r"\(\s*1\s*\|\s*(`[^`]+`|[A-Za-z_][\w.]*)\s*\)")
OFFSET = re.compile(r"\boffset\s*\(")
QUOTED = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
INTERCEPT = "Intercept"


@dataclasses.dataclass(frozen=True)
class Formula:
    """A formula's parts: of the target, of the columns, of the groups and of the offset."""

    target: str
    columns: str
    group: str
    offset: str

    @classmethod
    def of(cls, text: str) -> "Formula":
        """Taken apart.

        Raises:
            ValueError: a term of groups that is not `(1 | name)`, or several; or an offset that is
                not a term of its own.
        """
        bare = _bare(text)
        place = bare.rfind("~") + 1
        target, right = text[: max(0, place - 1)], text[place:]
        if bare.count("~") > 1:
            raise ValueError(f"formula {text!r} has more than one ~.")
        columns, groups, offsets = "", [], []
        for sign, term in _terms(right):
            match, offset, bare = GROUP.fullmatch(term), _offset(term), _bare(term)
            if sign == "-" and (match or offset):
                raise ValueError(
                    f"the formula subtracts {term!r}: groups and offsets can only be added. "
                    + (f"Try + offset(-({offset}))." if offset else "Try leaving it out.")
                )
            if match:
                groups.append(match[1].strip("`"))
            elif offset:
                offsets.append(f"({offset})")
            elif "|" in bare:
                raise ValueError(
                    f"the term {term!r} of the formula is not supported: groups may have a varying "
                    "intercept, (1 | name). Write other models with ex.groups.GroupedPosterior."
                )
            elif OFFSET.search(bare):
                raise ValueError(
                    f"the term {term!r} of the formula is not supported: an offset is a term of "
                    "its own, of one expression. Try + offset(log(x) - log(z))."
                )
            else:
                columns += f" {sign} {term}"
        if len(groups) > 1:
            raise ValueError(
                f"the formula has {len(groups)} group terms, of {' and '.join(groups)}: one is "
                "supported. Write crossed and nested ones with ex.groups.GroupedPosterior."
            )
        columns = columns.strip().removeprefix("+").strip() or "1"
        group = groups[0] if groups else ""
        return cls(target.strip(), columns, group, " + ".join(offsets))


def _bare(text: str) -> str:
    """The text with names and strings in quotes blanked, of the same length."""
    return QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)


def _offset(term: str) -> str:
    """The expression of a term that is offset(expression) as a whole; else nothing."""
    try:
        call = ast.parse(_bare(term), mode="eval").body
    except SyntaxError:
        return ""
    if not isinstance(call, ast.Call) or not OFFSET.match(_bare(term)):
        return ""
    whole = isinstance(call.func, ast.Name) and len(call.args) == 1 and not call.keywords
    return term[term.index("(") + 1 : -1].strip() if whole else ""


def _terms(right: str) -> list[tuple[str, str]]:
    """The terms of a sum, with their signs; what stands in parentheses is one term."""
    found, depth, start, sign = [], 0, 0, "+"
    for place, letter in enumerate(_bare(right)):
        depth += (letter in "([{") - (letter in ")]}")
        if letter in "+-" and not depth:
            found.append((sign, right[start:place].strip()))
            start, sign = place + 1, letter
    found.append((sign, right[start:].strip()))
    return [(sign, term) for sign, term in found if term]


@dataclasses.dataclass(frozen=True)
class Matrix:
    """What is known of the rows: all in the user's units."""

    x: np.ndarray  # shape (rows, columns), without an intercept
    groups: np.ndarray | None = None  # the name of each row's group
    offset: np.ndarray | None = None


class FormulaDesign:
    """The columns of a formula.

    Args:
        text: as a user writes it.
        frame: the rows to fit.

    Raises:
        ValueError: what `Formula.of` refuses, no such column, or missing values.
        TypeError: the rows are no data frame, or an offset is no number.
        ImportError: formulaic is not installed.
    """

    def __init__(self, text: str, frame: Any) -> None:
        self.formula = Formula.of(text)
        self.variables: list[str] = []  # the columns that new rows need
        self.numbers: set[str] = set()  # those of them that are no text
        matrix = self._evaluated(self.formula.columns, frame)
        self.spec = matrix.model_spec
        self.intercept = INTERCEPT in matrix.columns
        self.names = [str(name) for name in matrix.columns if name != INTERCEPT]
        needed, self.offset = set(self.spec.required_variables), None
        if self.formula.offset:
            self.offset = self._arithmetic(self.formula.offset, frame).model_spec
            needed |= set(self.offset.required_variables)
            kinds = [kind.value for kind, _ in self.offset.encoder_state.values()]
            if len(self.offset.column_names) != 1 or "categorical" in kinds:
                raise TypeError(
                    f"the offset {self.formula.offset} is not one column of numbers. Try one "
                    "such as offset(log(x))."
                )
        self.label_kinds: set[bool] = set()  # of the groups: text, other things, or both
        if self.formula.group:
            needed.add(self.formula.group)
            labels = column_of(frame, self.formula.group)
            self.label_kinds = {isinstance(label, str) for label in labels}
        self.variables = [name for name in frame.columns if name in needed]
        self.numbers = {name for name in self.variables if not is_text(frame[name])}
        self.numbers.discard(self.formula.group)

    def _evaluated(self, formula: Any, frame: Any) -> Any:
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(
                f"a formula takes its columns from a pandas DataFrame, not {shown(type(frame))}."
            )
        try:
            from formulaic import Formula as Wanted
            from formulaic import model_matrix
            from formulaic.errors import DataMismatchWarning, FormulaicError
        except ImportError as error:
            raise ImportError("formulas need formulaic: pip install 'ergodax[learn]'.") from error
        with warnings.catch_warnings():
            warnings.simplefilter("error", DataMismatchWarning)
            try:
                made: Any = Wanted
                wanted = made(formula) if isinstance(formula, str) else formula
                known = {*frame.columns, *self.variables}
                for name in sorted(set(wanted.required_variables) & known):
                    column = column_of(frame, name)
                    check_no_time(column, f"column {name!r}")
                    if name in self.numbers:
                        check_no_text(column, name)
                found = model_matrix(formula, frame, context={}, na_action="ignore")
            except DataMismatchWarning as error:
                raise ValueError(f"X has values that were not seen in fit. {error}") from None
            except (FormulaicError, SyntaxError) as error:
                columns = shown([str(name) for name in frame.columns], 300)
                raise ValueError(
                    f"the formula can't be evaluated: {error} Columns are {columns}."
                ) from error
        check_finite("X", found.to_numpy(np.float64), list(found.columns))
        return found

    def _arithmetic(self, text: str, frame: Any) -> Any:
        """What is no sum of terms: in the algebra of formulas `x - z` would be x alone."""
        return self._evaluated(f"0 + I({text})", frame)

    def matrix(self, frame: Any) -> Matrix:
        """Of any rows with the same columns."""
        found = self._evaluated(self.spec, frame)
        x = found[self.names].to_numpy(np.float64)
        groups = offset = None
        if self.offset is not None:
            offset = self._evaluated(self.offset, frame).to_numpy(np.float64).sum(axis=1)
        if self.formula.group:
            groups = column_of(frame, self.formula.group).to_numpy(object)
            self._check_labels(groups)
        return Matrix(x, groups, offset)

    def _check_labels(self, groups: np.ndarray) -> None:
        """Refuse "3" where fit had 3, or otherwise, which would be a new group."""
        for row, label in enumerate(groups):
            if (text := isinstance(label, str)) not in self.label_kinds:
                had, holds = ("numbers", "text") if text else ("text", "numbers")
                cast = "pd.to_numeric(column)" if text else "column.astype(str)"
                raise TypeError(
                    f"column {self.formula.group!r} had {had} in fit, and now holds {holds}: row "
                    f"{row} holds {shown(label)}. Try {cast}."
                )

    def target(self, frame: Any) -> np.ndarray:
        """What stands before the ~.

        Raises:
            ValueError: nothing does, or it is not one column.
        """
        text = self.formula.target
        if not text:
            raise ValueError("requires y to be passed, or a formula with a target: y ~ x.")
        if text.strip("`") in frame.columns:
            return column_of(frame, text.strip("`")).to_numpy()
        found = self._arithmetic(text, frame)
        if found.shape[1] != 1:
            raise ValueError(f"the target {text!r} has {found.shape[1]} columns; it must be one.")
        return found.to_numpy(np.float64)[:, 0]


def column_of(frame: Any, name: str) -> Any:
    """A column without missing values.

    Raises:
        ValueError: there is none of this name, or it has some.
    """
    if name not in frame.columns:
        columns = shown([str(each) for each in frame.columns], 300)
        raise ValueError(f"{name!r} is not a column of X: {columns}.")
    _check_one_of_each_name(frame, [name])
    column: Any = frame[name]
    if column.isna().any():
        row = int(np.argmax(column.isna().to_numpy()))
        raise ValueError(f"X contains NaN in column {name!r}, row {row}. Drop or impute it.")
    return column


TIMES = {"datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period", "interval"}


def check_no_time(column: Any, what: str) -> None:
    """Fail with the name of what holds times: as numbers they would be nanoseconds.

    Raises:
        TypeError: it does.
    """
    if pd.api.types.infer_dtype(column, skipna=True) in TIMES:
        raise TypeError(
            f"{what} holds times ({column.dtype}), which are no numbers. Code it as "
            "one, such as (column - column.min()).dt.days, or as its month or weekday."
        )


def check_no_text(column: Any, name: Any) -> None:
    """Fail with the name of a column of text that had numbers in fit.

    Raises:
        TypeError: it is one.
    """
    if len(column) and is_text(column):
        raise TypeError(
            f"column {str(name)!r} had numbers in fit, and now holds text: row 0 holds "
            f"{shown(column.iloc[0])}. Try pd.to_numeric(column)."
        )


def check_table(frame: Any, design: "FrameDesign | None" = None, fitted: Any = ()) -> None:
    """Fail with the name of a column that can't be numbers or indicators.

    Args:
        frame: arrays, of which it says nothing, or a data frame.
        design: of the rows that were fitted, if text was among them.
        fitted: names of the columns that were fitted.

    Raises:
        TypeError: a column holds times, or other things than numbers and text; or an array where
            a frame was fitted.
        ValueError: no columns, or two of one name.
    """
    if not isinstance(frame, pd.DataFrame):
        if design is not None:
            raise TypeError(
                "fit was given a data frame with text in it, so new rows must be a pandas "
                f"DataFrame with its columns, not {shown(type(frame))}."
            )
        return
    if not len(frame.columns):
        raise ValueError("X has no columns: Found array with 0 feature(s) while 1 is required.")
    _check_one_of_each_name(frame, list(frame.columns))
    fitted = set(fitted)
    for name, column in frame.items():
        check_no_time(column, f"column {str(name)!r}")
        if name in fitted and (design is None or name not in design.levels):
            check_no_text(column, name)
        if column.dtype != object or is_text(column):
            continue
        numbers: Any = pd.to_numeric(column, errors="coerce")
        none = (numbers.isna() & column.notna()).to_numpy()
        if none.any():
            row = int(np.argmax(none))
            raise TypeError(
                f"column {str(name)!r} is neither all numbers nor all text: row {row} holds "
                f"{shown(column.iloc[row])}. Make it one of the two, such as column.astype(str)."
            )


def _check_one_of_each_name(frame: Any, names: list[Any]) -> None:
    twice = [name for name in names if list(frame.columns).count(name) > 1]
    if twice:
        raise ValueError(f"X has several columns of the name {twice[0]!r}: rename them.")


class FrameDesign:
    """The columns of a data frame; text, categories and truth values become indicators.

    Args:
        frame: the rows to fit. Of each column that is no number, the first level has no indicator.
    """

    intercept = None  # as the estimator says

    def __init__(self, frame: Any) -> None:
        self.levels = {name: _levels(frame[name]) for name in frame.columns if is_text(frame[name])}
        self.names = []
        for name in frame.columns:
            levels = self.levels.get(name)
            more = [f"{name}[{level}]" for level in levels[1:]] if levels else [str(name)]
            self.names += more if levels is not None else [str(name)]

    def matrix(self, frame: Any) -> Matrix:
        """Of any rows with the same columns.

        Raises:
            ValueError: missing values, or a level that was not seen.
        """
        parts = []
        for name in frame.columns:
            column = frame[name]
            if name not in self.levels:
                numbers: Any = pd.to_numeric(column)
                values = numbers.to_numpy(np.float64, na_value=np.nan)
                parts.append(values[:, None])
                continue
            column_of(frame, name)
            levels, values = self.levels[name], column.astype(str).to_numpy()
            new = ~np.isin(values, levels)
            if new.any():
                row = int(np.argmax(new))
                raise ValueError(
                    f"column {name!r} has the value {shown(values[row])} in row {row}, which was "
                    f"not seen in fit. It had {shown(levels, 300)}."
                )
            parts.append(values[:, None] == np.asarray(levels[1:], dtype=object))
        x = np.hstack([part.astype(np.float64) for part in parts])
        check_finite("X", x, self.names)
        return Matrix(x)


def columns_of(
    estimator: Any, X: Any, design: FrameDesign | None = None, *, reset: bool
) -> tuple[Matrix, FrameDesign | None]:
    """Rows as numbers, text as indicators by the design, which is that of these rows on `reset`.

    Raises:
        TypeError: what `check_table` refuses.
        ValueError: what it, the design or scikit-learn refuses; numbers that are not finite.
    """
    check_table(X, design, () if reset else getattr(estimator, "feature_names_in_", ()))
    if reset and isinstance(X, pd.DataFrame) and any(is_text(X[name]) for name in X.columns):
        design = FrameDesign(X)
    if design is not None:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        return design.matrix(X), design
    x = validate_data(estimator, X, dtype=np.float64, reset=reset, ensure_all_finite=False)
    check_finite("X", x, list(getattr(estimator, "feature_names_in_", [])) or None)
    return Matrix(x), None


def is_text(column: Any) -> bool:
    """Whether a column becomes indicators."""
    kinds = pd.api.types
    if isinstance(column.dtype, pd.CategoricalDtype) or kinds.is_string_dtype(column.dtype):
        return not (column.dtype == object and kinds.infer_dtype(column, skipna=True) != "string")
    return False


def _levels(column: Any) -> list[str]:
    values = column.dropna()
    if isinstance(column.dtype, pd.CategoricalDtype):
        present = set(values.astype(str))
        return [str(level) for level in column.cat.categories if str(level) in present]
    return sorted(set(values.astype(str)))


def as_numbers(y: np.ndarray, classifier: str) -> np.ndarray:
    """A target as numbers.

    Raises:
        TypeError: it holds times.
        ValueError: it holds text, or missing or infinite values.
    """
    check_no_time(y, "y")
    try:
        found = np.asarray(y, np.float64)
    except (TypeError, ValueError):
        _check_none_missing(y)
        numbers: Any = pd.to_numeric(pd.Series(y, dtype=object), errors="coerce")
        raise ValueError(
            f"y must be numbers, not {shown(str(y[int(np.argmax(numbers.isna()))]))}; for classes "
            f"see {classifier}."
        ) from None
    check_finite("y", found)
    return found


def check_labels(y: np.ndarray) -> None:
    """Fail with the row of a class that is missing, or no text where others are, or otherwise.

    Raises:
        ValueError: there is one.
    """
    _check_none_missing(y)
    text = np.array([isinstance(label, str) for label in y]) if y.dtype == object else y[:0]
    if len(text) and text.any() and not text.all():
        row = int(np.argmax(text != text[0]))
        raise ValueError(
            f"y has text and other labels, {shown(y[0])} in row 0 and {shown(y[row])} in row {row}."
            " Try y.astype(str)."
        )


def classes_of(y: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """The classes of labels in their order, or of those `among` them.

    Raises:
        ValueError: what `check_labels` and scikit-learn refuse, or there is one class.
    """
    check_labels(y)
    check_classification_targets(y)
    found = np.unique(y if among is None else among)
    if len(found) < 2:
        raise ValueError(
            f"y has one class only, {shown(found.tolist()[0])}: at least 2 are needed."
        )
    return found


def _check_none_missing(y: np.ndarray) -> None:
    check_finite("y", np.where(pd.isna(y), np.nan, 0.0))


def check_finite(what: str, x: np.ndarray, names: list[Any] | None = None) -> None:
    """Fail with the place of the first number that is none.

    Raises:
        ValueError: there is one.
    """
    bad = ~np.isfinite(x)
    if not bad.any():
        return
    row, *column = (int(k) for k in np.argwhere(bad)[0])
    kind = "NaN" if np.isnan(x[(row, *column)]) else "infinity"
    where = f"column {names[column[0]] if names else column[0]!r}, " if column else ""
    raise ValueError(
        f"Input {what} contains {kind} in {where}row {row}: {int(bad.sum())} of {x.size} values "
        "are missing or infinite. Drop or impute them."
    )
