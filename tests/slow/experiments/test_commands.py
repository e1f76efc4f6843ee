"""The figures' commands as a user meets them."""

import html
import json
import sys

import pandas as pd
import pytest

from experiments import __main__ as main
from experiments.ma_chen_fox_2015 import figure2, figure3
from experiments.ma_chen_fox_2015 import singular_metric as singular

SIZES = {  # the form of the files, not the numbers, is looked at here
    "figure2": (figure2, figure2.Size(6, 8, 60.0, 12, singular.Size(30, 2.0))),
    "figure3": (figure3, figure3.Size(40, 2000, 4, steps=(0.02, 0.04))),
}


def ran(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["experiments", *arguments])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr()
    return stop.value.code, out.out, " ".join(out.err.split())


@pytest.mark.parametrize("name", SIZES)
def test_the_files(monkeypatch, capsys, tmp_path, name):
    module, size = SIZES[name]
    monkeypatch.setattr(module, "QUICK", size)
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "out"
    code, out, err = ran(
        monkeypatch, capsys, name, "--quick", "--seed", "3", "--output", str(folder), "--json"
    )
    assert code == 0, err
    written = {path.name for path in folder.iterdir()}
    assert written == {f"{name}.png", f"{name}.csv", "facts.json", "report.html"}
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads(out)
    stored = json.loads((folder / "facts.json").read_text())
    assert facts == stored | {"files": facts["files"]} and facts["seed"] == 3
    assert len(pd.read_csv(folder / f"{name}.csv")) == {"figure2": 50, "figure3": 12}[name]
    text = (folder / "report.html").read_text()
    assert "gSGRHMC" in text and "data:image/png" in text
    assert all(verdict in html.unescape(text) for verdict in facts["verdicts"])
    assert "Infinity" not in out and "NaN" not in out
