"""Reading tables: what is kept, what is coded, what is refused."""

import numpy as np
import pandas as pd
import pytest

from ergodax.learn import tables


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    size = 40
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, size),
            "ward": rng.choice(["north", "south", "west"], size),
            "constant": np.ones(size),
            "died": rng.choice(["no", "yes"], size),
        }
    )


def read(path, target, model="logistic"):
    return tables.of_columns(*tables.read_columns(path, target), model)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_text_columns_become_indicators(frame, tmp_path, suffix):
    path = tmp_path / f"patients.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    table = read(path, "died")
    assert table.names == ["age", "constant", "ward[south]", "ward[west]"]
    assert table.classes == ("no", "yes")
    np.testing.assert_array_equal(table.target, frame["died"] == "yes")
    np.testing.assert_array_equal(table.features[:, 2], frame["ward"] == "south")


def test_npz_flattens_images_and_picks_classes(tmp_path):
    images = np.arange(5 * 2 * 2).reshape(5, 2, 2)
    np.savez(tmp_path / "d.npz", x=images, y=np.array([7, 9, 1, 9, 7]))
    table = tables.read_npz(tmp_path / "d.npz", "x", "y", ("7", "9"))
    np.testing.assert_array_equal(table.features, images.reshape(5, 4)[[0, 1, 3, 4]])
    np.testing.assert_array_equal(table.target, [0, 1, 1, 0])


def test_components_are_learnt_from_the_training_rows_alone(frame, tmp_path):
    frame.to_csv(tmp_path / "p.csv", index=False)
    train, test = tables.split(read(tmp_path / "p.csv", "died"), 0.25, 1)
    assert len(train.target) == 30 and len(test.target) == 10
    a, b = tables.varying([train, test])
    assert a.names == ["age", "ward[south]", "ward[west]"], "the constant is dropped"
    np.testing.assert_array_equal(b.features[:, 0], test.features[:, 0])
    c, d = tables.varying([train, test], components=2)
    assert c.names == ["component[0]", "component[1]"]
    assert abs(np.corrcoef(c.features[:, 0], c.features[:, 1])[0, 1]) < 1e-10
    axes = np.linalg.svd(a.features - a.features.mean(axis=0), full_matrices=False)[2][:2]
    by_training_rows = (b.features - a.features.mean(axis=0)) @ axes.T
    np.testing.assert_allclose(np.abs(d.features), np.abs(by_training_rows), atol=1e-9)


def test_a_number_to_predict(frame, tmp_path):
    path = tmp_path / "p.csv"
    frame.to_csv(path, index=False)
    table = read(path, "age", "linear")
    assert table.names == ["constant", "ward[south]", "ward[west]", "died[yes]"]
    np.testing.assert_allclose(table.target, frame["age"])
    refuse("is not a number; try --model logistic", read, path, "ward", "linear")
    refuse("no such file", read, tmp_path / "none.csv", "age", "linear")
    frame.assign(age=np.inf).to_csv(path, index=False)
    refuse("NaN or infinite", read, path, "age", "linear")


def test_classes_in_their_order_and_rows_without_gaps(frame, tmp_path):
    path = tmp_path / "p.csv"
    frame.loc[[3, 5], "age"] = np.nan
    frame.to_csv(path, index=False)
    refuse("2 of 40 rows", tables.read_columns, path, "ward")
    columns = tables.read_columns(path, "ward", drop_missing=True)
    table = tables.of_columns(*columns, tables.suitable(columns[1]))
    assert table.classes == ("north", "south", "west") and len(table.target) == 38
    kept = frame["ward"].drop(index=[3, 5])
    assert [table.classes[int(k)] for k in table.target] == kept.tolist()
    two = tables.read_columns(path, "died", drop_missing=True)
    assert tables.suitable(two[1]) == "logistic"
    refuse("has 2 different values", tables.of_columns, *two, "multinomial")
    frame.assign(age=np.nan).to_csv(path, index=False)  # then there is nothing to keep
    with pytest.raises(ValueError, match="40 of 40 rows"):
        tables.read_columns(path, "ward", drop_missing=True)


def test_a_column_is_constant_whatever_rounding_says():
    """The standard deviation of 0.1, thirty times, is 1e-17 and not 0."""
    x = np.column_stack([np.full(30, 0.1), np.arange(30.0)])
    table = tables.Table(x, np.zeros(30), ["tenth", "count"], ())
    told = []
    assert tables.varying([table], tell=told.append)[0].names == ["count"]
    assert told == ["Left out, since they are constant over the rows to fit: ['tenth']."]


def refuse(match, function, *arguments):
    with pytest.raises((ValueError, FileNotFoundError), match=match):
        function(*arguments)


def test_refusals_say_what_to_do(frame, tmp_path):
    path = tmp_path / "p.csv"
    frame.to_csv(path, index=False)
    refuse("no such file", read, tmp_path / "none.csv", "died")
    refuse("not a column", read, path, "dead")
    refuse("two classes.*--classes", read, path, "ward")
    refuse("must end in", read, tmp_path, "died")
    frame.loc[3, "age"] = np.nan
    frame.to_csv(path, index=False)
    refuse("1 of 40 rows.*age", read, path, "died")
    np.savez(tmp_path / "d.npz", x=np.ones((4, 2)), y=[0, 1, 0, 1])
    refuse("no array 'z'", tables.read_npz, tmp_path / "d.npz", "x", "z")
    whole = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    refuse("not an .npz file, or it is damaged", tables.read_npz, tmp_path / "cut.npz", "x", "y")
    (tmp_path / "bent.npz").write_bytes(whole.replace(b"\x3f", b"\x3e"))
    refuse("can't be read: Bad CRC", tables.read_npz, tmp_path / "bent.npz", "x", "y")
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.ones(3))
    refuse("np.savez makes an .npz file", tables.read_npz, tmp_path / "one.npz", "x", "y")
    (tmp_path / "none.csv").touch()
    refuse("none.csv can't be read as .csv: No columns", read, tmp_path / "none.csv", "y")
    constant = tables.read_npz(tmp_path / "d.npz", "x", "y")
    refuse("constant", tables.varying, [constant])
    refuse("leaves a part empty", tables.split, constant, 0.01, 0)
