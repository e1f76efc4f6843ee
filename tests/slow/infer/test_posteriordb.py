"""Six posteriors with long reference runs, sampled with nothing tuned."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune.decisions import error_table
from ergodax.tune.infer import infer
from slow.infer.posteriordb_models import MODELS

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data" / "posteriordb"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.exists(), reason="the reference draws are not here"),
]
ERRORS = 5.0  # standard errors of both: a false alarm in a million figures


SCHOOLS = next(name for name in MODELS if "eight_schools" in name)
DEFAULT = 0.05
# What the test would see, in posterior sds. The sd between schools has a heavy tail, so that at the
# default accuracy its own sd is not known well enough; a finer run has the same power as the rest.
CASES = [(name, DEFAULT, 0.5 if name == SCHOOLS else 0.2) for name in MODELS]


@pytest.mark.parametrize(("name", "accuracy", "seen"), [*CASES, (SCHOOLS, 0.02, 0.2)])
def test_means_and_sds_are_those_of_the_reference(name, accuracy, seen):
    reference = np.load(FOLDER / f"{name}.reference.npz")
    model = MODELS[name](json.loads((FOLDER / f"{name}.data.json").read_text()))
    result = infer(
        model.target, model.init, key=jax.random.key(1), accuracy=accuracy, progress=False
    )
    assert result.converged, str(result)
    draws = np.asarray(jax.jit(jax.vmap(jax.vmap(model.parameters)))(result.samples.position))
    table = error_table(ex.Samples(draws, None, None))
    assert table["error"].max() < 2 * result.accuracy, "as accurate on the constrained scale"
    for kind in ("mean", "sd"):
        own = table[f"mcse_{kind}"] * table["sd"] / reference["sd"]
        errors = np.hypot(own, reference[f"mcse_{kind}"] / reference["sd"])
        off = np.abs(table[kind] - reference[kind]) / reference["sd"]
        assert (off < ERRORS * errors).all(), dict(zip(reference["names"], off, strict=True))
        # The negative control: a wrong answer would be seen.
        assert (off + seen > ERRORS * errors).all()
