"""The parts of the experiment on networks: tasks, figures, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from ergodax.network import Prediction
from experiments.networks import comparison, report, scores, tasks
from experiments.networks.commands import networks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(11)
    path = tmp_path_factory.mktemp("arrays")
    x = rng.normal(3.0, 2.0, size=(80, 3))
    y = 5.0 + 10.0 * np.sin(x[:, 0]) + rng.normal(size=80)
    mask = np.stack([np.arange(80) % 4 == k for k in range(3)])
    np.savez(path / "numbers.npz", x=x, y=y, test_mask=mask)
    np.savez(path / "plain.npz", x=x, y=y)
    labels = rng.integers(3, size=90)
    images = rng.integers(0, 60, size=(90, 4, 4)) + 60 * np.eye(4, dtype=int)[labels][:, None]
    images = images.astype(np.uint8)
    np.savez(
        path / "images.npz", x_train=images[:60], y_train=labels[:60] + 4, x_test=images[60:],
        y_test=labels[60:] + 4,
    )  # fmt: skip
    return path


def ran(capsys, *arguments):
    networks([str(a) for a in arguments], result_action="return_value", exit_on_error=False)
    return capsys.readouterr().out


@pytest.mark.parametrize("word", ["regress", "classify", "cold"])
def test_help_shows_an_example(capsys, word):
    assert f"Example: python -m experiments networks {word}" in ran(capsys, word, "--help")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["regress", "none.npz"], FileNotFoundError, "no such file"),
        (["regress", "numbers.npz", "--split", "3"], ValueError, r"split must lie in \[0, 3\)"),
        (["regress", "images.npz"], ValueError, "must have the arrays x and y"),
        (["regress", "numbers.npz", "--methods", "VI"], ValueError, "no such method"),
        (["regress", "numbers.npz", "--splits", "0"], ValueError, "splits must be at least 1"),
        (["regress", "numbers.npz", "--steps", "10"], ValueError, "steps must be at least 100"),
        (["regress", "numbers.npz", "--width", "0"], ValueError, "width must be at least 1"),
        (["regress", "numbers.npz", "--prior-scale", "0"], ValueError, "prior_scale must be"),
        (["classify", "numbers.npz"], ValueError, "must have the arrays"),
        (["classify", "images.npz", "--unseen", "9"], ValueError, "unseen class 9"),
        (["classify", "images.npz", "--seeds", "0"], ValueError, "seeds must be at least 1"),
        (
            ["cold", "images.npz", "--temperatures", "0"],
            ValueError,
            "temperatures must be positive",
        ),
    ],
)
def test_errors_of_use(capsys, folder, arguments, error, message):
    word, file, *more = arguments
    with pytest.raises(error, match=message):
        ran(capsys, word, folder / file, *more)


def test_a_split_is_standardised_by_its_training_rows(folder):
    task = tasks.regression(folder / "numbers.npz", 1)
    assert len(task.y_test) == 20
    np.testing.assert_allclose(task.x.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(task.y.std(), 1, rtol=1e-5)
    with np.load(folder / "numbers.npz") as arrays:
        y, held_out = arrays["y"], arrays["test_mask"][1]
    np.testing.assert_allclose(
        task.y_test * task.unit + y[~held_out].mean(), y[held_out], rtol=1e-4
    )


def test_without_a_mask_a_tenth_is_held_out_at_random(folder):
    one, again, two = (tasks.regression(folder / "plain.npz", s) for s in (0, 0, 1))
    assert len(one.y_test) == 8 and len(one.y) == 72
    np.testing.assert_array_equal(one.y_test, again.y_test)
    assert not np.array_equal(one.y_test, two.y_test)


def test_images_turned_and_classes_unseen(folder):
    task = tasks.classification(folder / "images.npz")
    assert task.classes == 3 and set(task.y) == {0, 1, 2} and task.strange is not None
    one = task.x_test[0].reshape(4, 4)
    np.testing.assert_array_equal(task.strange[0].reshape(4, 4), np.rot90(one))
    left = tasks.classification(folder / "images.npz", unseen=(5,))
    assert left.classes == 2 and set(left.y_test) == {0, 1} and left.strange is not None
    assert len(left.strange) + len(left.y_test) == 30


def test_figures_of_a_prediction_by_hand(folder):
    task = tasks.regression(folder / "numbers.npz", 0)
    apart = np.resize([0.1, -0.2], 20)
    prediction = Prediction(
        1, task.y_test + apart, np.zeros(20), 0.25, np.full(20, -1.0), np.full(20, -1.0),
        below=np.full(20, 0.5),
    )  # fmt: skip
    figures = scores.scores(task, prediction)
    assert figures["rmse"] == pytest.approx(np.sqrt(0.025) * task.unit, rel=1e-5)
    assert figures["log_likelihood"] == pytest.approx(-1.0 - np.log(task.unit))
    assert figures["noise"] == pytest.approx(0.5 * task.unit)
    errors = scores.errors(task, prediction)
    # The mean of 20 squares of 0.1 or 0.2 has standard error 0.015 / sqrt(20), of its root half
    # that over the root.
    expected = 0.5 * 0.015 / np.sqrt(20) / np.sqrt(0.025) * task.unit
    assert errors["log_likelihood"] == 0 and errors["rmse"] == pytest.approx(expected, rel=0.3)


def test_figures_are_cut_at_their_errors():
    assert scores.measured(-2.3456, 0.034) == "-2.346±0.034"
    assert scores.measured(123.456, 7.7) == "123.5±7.7"
    assert scores.measured(0.012345, None) == "0.0123"


def test_differences_are_paired():
    values = {"method": ["MAP", "ensemble"] * 2, "repetition": [0, 0, 1, 1]}
    runs = pd.DataFrame(values | {"log_likelihood": [1.0, 5.0, 3.0, 9.0]})
    result = comparison.Result(pd.DataFrame(), runs, {}, {})
    assert "MAP -5.0±1.0" in report.differences(result)[0]
    assert report.differences(comparison.Result(pd.DataFrame(), runs.head(2), {}, {})) == []


def test_the_options_are_checked():
    with pytest.raises(ValueError, match="members must be at least 1"):
        comparison.Settings(members=0)
