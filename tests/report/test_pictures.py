"""Pictures of reports: what is drawn, and names as the user wrote them."""

import matplotlib
import numpy as np
import pytest

from ergodax.report import pictures

matplotlib.use("Agg")


@pytest.mark.parametrize("name", [r"$\frac{a$", "a$b", "$x$", r"\$", "50% of $"])
def test_a_users_name_is_no_formula(name):
    draws = np.random.default_rng(0).normal(size=(2, 50, 1))
    for figure in (pictures.traces(draws, [name]), pictures.marginals(draws, [name], draws)):
        figure.canvas.draw()  # TeX's grammar would end in a ValueError here
        title = figure.axes[0].title
        shown, kind = title._preprocess_math(title.get_text())
        assert not kind and shown == name


def test_the_plane_that_is_shown():
    plane = pictures.plane
    assert plane(["momentum[0]", "momentum[1]", "position[0]", "position[1]"]) == [2, 3]
    assert plane(["momentum[0]", "position[0]", "thermostat"]) == [1, 0]
    assert plane(["position[0]"]) == [0]
    assert plane([f"position[{k}]" for k in range(3)]) == []
    assert plane(["position.a", "position.b"]) == []
