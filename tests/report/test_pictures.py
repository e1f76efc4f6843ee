"""Pictures of reports: what is drawn, and names as the user wrote them."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from ergodax.report import pictures

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    """Matplotlib warns of many figures that nobody closes."""
    yield
    plt.close("all")


@pytest.mark.parametrize("name", [r"$\frac{a$", "a$b", "$x$", r"\$", "50% of $"])
def test_a_users_name_is_no_formula(name):
    draws = np.random.default_rng(0).normal(size=(2, 50, 1))
    for figure in (pictures.traces(draws, [name]), pictures.marginals(draws, [name], draws)):
        figure.canvas.draw()  # TeX's grammar would end in a ValueError here
        title = figure.axes[0].title
        shown, kind = title._preprocess_math(title.get_text())
        assert not kind and shown == name


@pytest.mark.parametrize("name", ["x" * 10_000, "a\n" * 3000, "\u202egnp.exe", "\x1b[2J", ""])
def test_a_name_takes_one_line_of_a_picture(name, tmp_path):
    """Else a picture is larger than Matplotlib makes one, or has characters that are no signs."""
    draws = np.random.default_rng(0).normal(size=(2, 50, 1))
    figure = pictures.traces(draws, [name])
    figure.savefig(tmp_path / "a.png", dpi=110, bbox_inches="tight")
    shown = figure.axes[0].title.get_text()
    assert shown.isprintable() and 0 < len(shown) < 300


def test_the_plane_that_is_shown():
    plane = pictures.plane
    assert plane(["momentum[0]", "momentum[1]", "position[0]", "position[1]"]) == [2, 3]
    assert plane(["momentum[0]", "position[0]", "thermostat"]) == [1, 0]
    assert plane(["position[0]"]) == [0]
    assert plane([f"position[{k}]" for k in range(3)]) == []
    assert plane(["position.a", "position.b"]) == []


def test_ratios_of_units_that_are_too_large_are_those_of_a_part(tmp_path):
    """A coefficient of 3e6 has no odds ratio in double precision."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 100, 3)) * [1e5, 1e-6, 0.1] + [3e6, 1e-5, 0.5]
    figure = pictures.ratios(draws, ["grams", "income", "age"])
    axis = figure.axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["grams, 1e-06", "income", "age"]
    points = axis.lines[0].get_xdata()
    np.testing.assert_allclose(points, np.exp([3.0, 1e-5, 0.5]), rtol=0.2)
    figure.savefig(tmp_path / "odds.png")


def test_of_a_race_only_what_was_not_measured_is_hatched():
    figure = pictures.race({"infer": (20.0, 20.0), "NUTS": (20.0, 300.0)})
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == [20.0, 20.0, 0.0, 280.0]
    assert [bool(bar.get_hatch()) for bar in bars] == [False, False, True, True]
    unknown = pictures.race({"infer": (20.0, 20.0), "NUTS": (20.0, np.nan)})
    assert not any(bar.get_hatch() for bar in unknown.axes[0].patches)
