"""What a table may not have is named before any work begins: the column, and a row."""

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest

from ergodax.learn import tables

ROWS = 60
GOOD = {"x": np.arange(ROWS) % 7 + 0.5, "y": np.arange(ROWS) % 2}


def csv(path, **columns):
    pd.DataFrame(GOOD | columns).to_csv(path / "t.csv", index=False)
    return path / "t.csv"


def read(path, target, model="logistic"):
    return tables.of_columns(*tables.read_columns(path, target), model)


def column_with(value, row=17):
    return [value if k == row else str(k) for k in range(ROWS)]


def dates(count=ROWS):
    return pd.date_range("2026-01-01", periods=count)


def words(count):
    return [f"w{k % count}" for k in range(ROWS)]


COLUMNS = {
    "a text cell": (column_with("n/d"), "'bad' has numbers, but also text: 'n/d' in row 17"),
    "a unit": (column_with("17 kg"), "'bad' has numbers, but also text: '17 kg' in row 17"),
    "an integer too large": (column_with("9" * 23), "'bad' has an integer too large.*in row 17"),
    "a negative one": (column_with("-" + "9" * 23), "'bad' has an integer too large.*in row 17"),
    "an id": (words(ROWS), "'bad' is text with 60 different values in 60 rows, such as 'w0'"),
    "nearly an id": (words(31), "'bad' is text with 31 different values in 60 rows"),
    "dates": (dates(), "'bad' has dates as text, such as '2026-01-01' in row 0"),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_is_named(kind, tmp_path):
    values, message = COLUMNS[kind]
    with pytest.raises(ValueError, match=f"t.csv: column {message}"):
        read(csv(tmp_path, bad=values), "y")


DATES = [
    "2026-11-23", "2026/1/2", "23.11.2026", "11/23/26", "23 Nov 2026", "23-nov-26",
    "November 23, 2026", "2026-11-23 10:15", "2026-11-23T10:15:00Z",
]  # fmt: skip
NO_DATES = [
    "may", "march 3", "10.0.0.1", "1-2", "1.2.3.4", "v1.2.3", "2026 north", "555-12-3456", "10:15",
    "123 45", "17 kg", "1,23,4",
]  # fmt: skip


@pytest.mark.parametrize("date", DATES)
def test_few_dates_are_no_words_either(date, tmp_path):
    """Of few days each would be an indicator, as if no day were nearer to one than to another."""
    other = date.replace("23", "24").replace("/2", "/3")
    path = csv(tmp_path, when=[(date, other)[k % 2] for k in range(ROWS)])
    with pytest.raises(ValueError, match="'when' has dates as text.*days since the first"):
        read(path, "y")


@pytest.mark.parametrize("word", NO_DATES)
def test_words_that_are_no_dates_and_no_numbers(word, tmp_path):
    assert read(csv(tmp_path, word=[word, word + "a"] * 30), "y").names[1:]
    path = csv(tmp_path, word=[(word, "2026-11-23", "other")[k % 3] for k in range(ROWS)])
    assert len(read(path, "y").names) == 3


@pytest.mark.parametrize("count", [2, 30])
def test_few_values_are_coded(count, tmp_path):
    table = read(csv(tmp_path, word=words(count)), "y")
    assert len(table.names) == count  # x, and all values but the first


NUMBERS = [
    "1,234", "1,234.5", "1.234,5", "0,5", "1 234", "1'234", "5%", "5 %", "$5", "-$5", "5 €",
    "2:35", "12:05:30", "5:30 pm", "1.5D+01", "0x15", "1/5", "120/85", "5kg", "5 cm", "1.5 °C",
]  # fmt: skip


@pytest.mark.parametrize("target", [False, True], ids=["feature", "target"])
@pytest.mark.parametrize("number", [*NUMBERS, "2026-11-23"])
def test_numbers_and_dates_in_another_writing_are_no_categories(number, target, tmp_path):
    values = [number.replace("5", str(k % 7)).replace("23", str(10 + k % 7)) for k in range(ROWS)]
    path = csv(tmp_path, **{"y" if target else "bad": values})
    with pytest.raises(ValueError, match="each would become a category"):
        tables.read_columns(path, "y")


@pytest.mark.parametrize("kinds", [("2WD", "4WD"), ("2a", "2b", "3a"), ("1st", "2nd", "3rd")])
def test_kinds_that_begin_with_a_number_are_categories(kinds, tmp_path):
    path = csv(tmp_path, kind=[kinds[k % len(kinds)] for k in range(ROWS)])
    assert len(read(path, "y").names) == len(kinds)


def test_two_values_of_the_target_are_classes_however_they_are_written(tmp_path):
    path = csv(tmp_path, y=[("5%", "10%")[k % 2] for k in range(ROWS)])
    assert read(path, "y").classes == ("10%", "5%")


def test_codes_among_which_few_are_numbers_are_text(tmp_path):
    wards = [("7" if k % 3 == 0 else "north") for k in range(ROWS)]
    assert read(csv(tmp_path, ward=wards), "y").names == ["x", "ward[north]"]
    # And a number whose name is that which pandas would give to an indicator.
    also = csv(tmp_path, ward=wards, ward_north=range(ROWS))
    assert read(also, "y").names == ["x", "ward_north", "ward[north]"]


def test_many_indicators_of_several_columns(tmp_path):
    path = csv(tmp_path, a=words(20), b=words(25), c=words(30), d=words(3))
    with pytest.raises(ValueError, match=r"74 indicators, more than the 60 rows; most.*'c' \(30"):
        read(path, "y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a;b;y\n1,5;2;0\n", r"';' between its values.*sep=';'"),
        ("a\tb\ty\n1\t2\t0\n", "between its values"),
        ("a,b,y\n", "a header and no rows"),
        ("a,b,y\n\n\n\n", "a header and no rows"),
        ("größe,y\n1,0\n", "can't be read as .csv.*save it as UTF-8"),
        ("a,b,z\n1,2,0\n", "^target='y' is not a column of"),
        ("y\n1\n2\n", "has the target alone"),
        ("a,y\n1,0.5\ninf,1.5\n3,2.5\n", "'a' is NaN or infinite in row 1"),
        ("a,y\n1,0.5\n2,1.5\n3,-inf\n", "'y' is NaN or infinite in row 2"),
    ],
)
def test_files_of_other_kinds_are_refused_with_what_to_do(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        read(path, "y", "linear")


def test_lines_may_end_as_on_an_old_macintosh(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,y\r1,0.5\r2,1.5\r3,2.5\r")
    assert read(path, "y", "linear").target.tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("first", [0, 1])
def test_row_numbers_without_a_name_are_left_out_and_told(first, tmp_path):
    frame = pd.DataFrame(GOOD)
    frame.index += first
    frame.to_csv(tmp_path / "t.csv")
    told = []
    features, _ = tables.read_columns(tmp_path / "t.csv", "y", tell=told.append)
    assert list(features) == ["x"] and "has no name and numbers the rows" in told[0]
    frame.index = frame.index[::-1]
    frame.to_csv(tmp_path / "t.csv")
    assert list(tables.read_columns(tmp_path / "t.csv", "y")[0]) == ["Unnamed: 0", "x"]


def test_integers_that_become_one_floating_point_number_are_refused(tmp_path):
    near = 10**18 + np.arange(ROWS)
    with pytest.raises(ValueError, match="'bad' has integers that differ by less.*Subtract"):
        tables.read_columns(csv(tmp_path, bad=near), "y")
    apart = 10**18 + 10**9 * np.arange(ROWS)
    features, _ = tables.read_columns(csv(tmp_path, good=apart), "y")
    assert len(np.unique(features["good"].to_numpy())) == ROWS


def test_classes_are_whole_numbers_though_another_row_has_a_gap(tmp_path):
    path = csv(tmp_path, y=[np.nan if k == 5 else float(k % 2) for k in range(ROWS)])
    columns = tables.read_columns(path, "y", drop_missing=True)
    for classes in (None, ("0", "1"), ("0.0", "1.0")):
        assert tables.of_columns(*columns, "logistic", classes).classes == ("0", "1")


def test_a_name_that_stands_twice(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,a,y\n" + "1,2,3,0\n4,5,6,1\n" * 20)
    with pytest.raises(ValueError, match="'a' stands over the columns 1 and 3"):
        read(path, "y")


def test_rows_longer_than_the_header(tmp_path):
    """Pandas would take the first column for the rows' names and shift all others."""
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n" + "1,2,3,0\n4,5,6,1\n" * 20)
    with pytest.raises(ValueError, match="t.csv can't be read as .csv: Length of header"):
        read(path, "y")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_far_more_columns_than_rows(suffix, tmp_path, monkeypatch):
    """They are counted in the header: reading 200,000 columns takes half a minute."""
    count = 200_000 if suffix == "csv" else 500
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        lines = [",".join(f"c{k}" for k in range(count)), *[",".join(["1"] * count)] * 6]
        path.write_text("\n".join(lines))
    else:
        pd.DataFrame({f"c{k}": [1.0] * 6 for k in range(count)}).to_parquet(path)
    for owner, name in ((pd, "read_csv"), (parquet.ParquetFile, "read")):
        monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("the rows were read"))
    with pytest.raises(ValueError, match=f"has {count} columns, more than 10 for each of its rows"):
        read(path, "c0")


def test_parquet_kinds_that_are_no_numbers(tmp_path):
    for values, kind in (
        (dates(), "Timestamp"),
        ([[1.0]] * ROWS, "array"),
        ([b"a"] * ROWS, "b'a'"),
    ):
        pd.DataFrame(GOOD | {"bad": values}).to_parquet(tmp_path / "t.parquet")
        with pytest.raises(TypeError, match=f"'bad' has neither numbers nor text, but {kind}"):
            read(tmp_path / "t.parquet", "y")


@pytest.mark.parametrize("index", ["x", "y", ["x", "y"], None])
def test_a_named_index_of_a_parquet_file_is_a_column(index, tmp_path):
    frame = pd.DataFrame(GOOD | {"z": np.arange(ROWS) % 5})
    frame = frame[frame["z"] > 0] if index is None else frame.set_index(index)
    frame.to_parquet(tmp_path / "t.parquet")
    table = read(tmp_path / "t.parquet", "y")
    assert set(table.names) == {"x", "z"}
    np.testing.assert_array_equal(table.target, frame.reset_index()["y"])


def test_names_of_several_levels_in_a_parquet_file(tmp_path):
    names = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    pd.DataFrame(GOOD).set_axis(names, axis=1).to_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet", "('a', 'y')").names == ["('a', 'x')"]


TYPES = {
    "Int64": (pd.array([1, 2, 3] * 20, "Int64"), ["x", "bad"]),
    "boolean": (pd.array([True, False, True] * 20, "boolean"), ["x", "bad"]),
    "category": (pd.Categorical(["u", "v", "w"] * 20), ["x", "bad[v]", "bad[w]"]),
    "category of numbers": (pd.Categorical([1, 2, 3] * 20), ["x", "bad"]),
    "truth values with a gap": ([True, False, None] * 20, ["x", "bad"]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_types_of_a_parquet_file(kind, tmp_path):
    values, names = TYPES[kind]
    pd.DataFrame(GOOD | {"bad": values}).to_parquet(tmp_path / "t.parquet")
    columns = tables.read_columns(tmp_path / "t.parquet", "y", drop_missing=True)
    assert list(columns[0]) == names


def with_gaps(gap, *values):
    return [gap if k % 10 == 0 else values[k % len(values)] for k in range(ROWS)]


@pytest.mark.parametrize("word", ["None", "null", "nan", "N/A"])
def test_a_word_for_missing_is_a_level_of_text_and_a_gap_among_numbers(word, tmp_path):
    told = []
    path = csv(tmp_path, who=with_gaps(word, "Ann", "Bob"), x=with_gaps(word, 1, 2, 5))
    with pytest.raises(ValueError, match=r"6 of 60 rows .* in the columns \{'x': 6\}"):
        tables.read_columns(path, "y")
    features, _ = tables.read_columns(path, "y", drop_missing=True, tell=told.append)
    assert features["x"].to_list().count(5.0) == 18 and len(features) == 54
    assert told == ["6 of 60 rows are left out, with gaps in {'x': 6}."]
    path = csv(tmp_path, who=with_gaps(word, "Ann", "Bob"))
    names = {"x", *(f"who[{name}]" for name in sorted(["Ann", "Bob", word])[1:])}
    assert set(tables.read_columns(path, "y", drop_missing=True, tell=pytest.fail)[0]) == names


GAPS = [["1,234", "5,678"], ["2026-11-23", "2026-11-24"], ["True", "False"], ["1", "2", "3", "x"]]


@pytest.mark.parametrize("values", GAPS)
def test_what_is_no_words_has_gaps(values, tmp_path):
    with pytest.raises(ValueError, match=r"missing values.*\{'bad': 6\}"):
        tables.read_columns(csv(tmp_path, bad=with_gaps("NA", *values)), "y")


@pytest.mark.parametrize("gap", [None, "NA"])
def test_an_empty_cell_of_text_is_a_gap_and_so_is_that_of_r(gap, tmp_path):
    with pytest.raises(ValueError, match=r"missing values.*\{'who': 6\}"):
        tables.read_columns(csv(tmp_path, who=with_gaps(gap, "Ann", "None", "Bob")), "y")


@pytest.mark.parametrize("drop_missing", [False, True])
def test_columns_without_a_value_are_named(drop_missing, tmp_path):
    path = csv(tmp_path, a=[None] * ROWS, b=with_gaps(None, 1, 2), c=[None] * ROWS)
    with pytest.raises(ValueError, match=r"drop the columns \['a', 'c'\], which are empty\.$"):
        tables.read_columns(path, "y", drop_missing=drop_missing)
