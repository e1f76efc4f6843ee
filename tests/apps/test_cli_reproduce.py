"""`ergodax reproduce` as a user meets it."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from ergodax.apps.reproduce import figure2, figure3, pages, singular
from ergodax.cli import main
from ergodax.report import page as report

SIZES = {  # the form of the files, not the numbers, is looked at here
    "figure2": (figure2, figure2.Size(6, 8, 60.0, 12, singular.Size(30, 2.0))),
    "figure3": (figure3, figure3.Size(40, 2000, 4, steps=(0.02, 0.04))),
}


def ergodax(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["ergodax", "reproduce", *arguments])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr()
    return stop.value.code, out.out, " ".join(out.err.split())


@pytest.mark.parametrize("words", [[], ["figure2"], ["figure3"]])
def test_help_shows_an_example(monkeypatch, capsys, words):
    code, out, _ = ergodax(monkeypatch, capsys, *words, "--help")
    assert code == 0
    assert "xample: ergodax reproduce figure" in out


def test_an_unknown_experiment_is_an_error(monkeypatch, capsys):
    code, _, err = ergodax(monkeypatch, capsys, "figure9")
    assert code != 0 and "figure9" in err


@pytest.mark.parametrize("name", SIZES)
def test_the_files(monkeypatch, capsys, tmp_path, name):
    module, size = SIZES[name]
    monkeypatch.setattr(module, "QUICK", size)
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "out"
    code, out, err = ergodax(
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
    page = (folder / "report.html").read_text()
    assert "gSGRHMC" in page and "data:image/png" in page
    assert all(verdict in page for verdict in facts["verdicts"])
    assert "Infinity" not in out and "NaN" not in out


def test_tables_are_texts_in_rows():
    row = {"noise": 0.0, "sampler": "SGLD", "step_size": 0.02}
    row |= {f"bias_{name}{end}": 0.0123 for name in ("x1²", "x2") for end in ("", "_error")}
    row |= {f"ess_{name}": 12.34 for name in figure3.QUANTITIES}
    result = figure3.Result(pd.DataFrame([row]), pd.DataFrame(), {}, [], {})
    table = pages.mixing_table(result)
    assert table.iloc[0]["bias of E x2"] == "0.012 ± 0.012" and table.iloc[0]["ESS x1"] == "12.3"


def test_facts_are_plain_json():
    facts = {"a": [np.float64(1.5), float("nan")], "b": {"c": (np.inf, "text", 3)}}
    assert report.plain(facts) == {"a": [1.5, None], "b": {"c": [None, "text", 3]}}
