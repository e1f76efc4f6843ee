"""Tables of texts, and facts as JSON has them."""

import numpy as np
import pandas as pd

from experiments import page
from experiments.ma_chen_fox_2015 import figure3


def test_tables_are_texts_in_rows():
    row = {"noise": 0.0, "sampler": "SGLD", "step_size": 0.02}
    row |= {f"bias_{name}{end}": 0.0123 for name in ("x1²", "x2") for end in ("", "_error")}
    row |= {f"ess_{name}": 12.34 for name in figure3.QUANTITIES}
    result = figure3.Result(pd.DataFrame([row]), pd.DataFrame(), {}, [], {})
    table = figure3.mixing_table(result)
    assert table.iloc[0]["bias of E x2"] == "0.012 ± 0.012" and table.iloc[0]["ESS x1"] == "12.3"


def test_facts_are_plain_json():
    facts = {"a": [np.float64(1.5), float("nan")], "b": {"c": (np.inf, "text", 3)}}
    assert page.plain(facts) == {"a": [1.5, None], "b": {"c": [None, "text", 3]}}
