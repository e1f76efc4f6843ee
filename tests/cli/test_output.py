"""What is printed keeps its names on a narrow terminal, and its figures on one of ASCII."""

import io
import sys

import pandas as pd
import pytest
from rich.console import Console

from ergodax.cli import main, output

NAMES = ["age", "income", "residual sd"]
TEXTS = pd.DataFrame(
    {"component": NAMES, **{name: ["-0.12345"] * 3 for name in ("mean", "sd", "error", "r_hat")}}
)


def printed(width):
    file = io.StringIO()
    output.show(Console(file=file, width=width), TEXTS)
    return file.getvalue()


@pytest.mark.parametrize(("width", "left_out"), [(80, []), (40, ["error", "r_hat"])])
def test_names_stay_and_the_last_figures_go(width, left_out):
    lines = printed(width).splitlines()
    assert [line.split("  ")[0].strip() for line in lines[2:5]] == NAMES
    kept = [name for name in ("mean", "sd", "error", "r_hat") if name not in left_out]
    assert lines[0].split() == ["component", *kept]
    assert all(line.count("-0.12345") == len(kept) for line in lines[2:5])
    told = [f"left out, as the terminal is narrow: {', '.join(left_out)}"] if left_out else []
    assert " ".join(lines[5:]).split() == " ".join(told).split()


def test_on_the_narrowest_terminal_names_and_one_column_are_left():
    assert "income" in printed(24) and "mean" in printed(24)


def test_a_sign_that_the_terminal_lacks_is_replaced(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["ergodax"])
    monkeypatch.setattr(main, "app", lambda arguments: Console().print("N(0, 1\u00b2) and on"))
    main.main()
    stream.flush()
    assert stream.buffer.getvalue() == b"N(0, 1?) and on\n"


def test_control_c_is_one_line_and_status_130(monkeypatch, capsys):
    def stopped(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", stopped)
    with pytest.raises(SystemExit, match="130"):
        main.main()
    assert capsys.readouterr().err == "stopped: nothing was kept.\n"
