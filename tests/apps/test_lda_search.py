"""The grid: axes of each sampler, cells that are kept, diverged ones among them."""

import math

import numpy as np
import pytest

from ergodax.apps.lda.corpus import Corpus, Document, Vocabulary
from ergodax.apps.lda.division import divide
from ergodax.apps.lda.evaluation import split
from ergodax.apps.lda.kernels import SAMPLERS
from ergodax.apps.lda.peers import PEERS
from ergodax.apps.lda.runs import Bench
from ergodax.apps.lda.search import changed, search
from ergodax.apps.lda.store import Run, Store
from ergodax.apps.lda.train import SUGGESTED, Settings
from ergodax.cli.lda import _grid
from ergodax.errors import DivergenceError

GRID = {"step_size": (0.1, 0.2, 0.4), "friction": (1.0, 3.0)}


class Known(Bench):
    """A bench whose perplexity is known: least at 0.2 and 3, and divergent at 0.4."""

    ran = []

    def run(self, method, settings, repeat, label):
        """The stored run or a new one."""
        found = self.store.load(label, settings)
        if found is not None:
            return found
        self.ran.append((settings.step_size, settings.friction))
        if settings.step_size == 0.4:
            raise DivergenceError("far away", step=1, chain=0, state=None)
        value = abs(settings.step_size - 0.2) + abs(settings.friction - 3.0)
        found = Run([{"perplexity": value}], np.ones((1, 1)))
        self.store.save(label, settings, found)
        return found


def bench(folder):
    documents = [Document(np.array([0, 1], np.int32), np.array([9, 9]))] * 9
    division = divide(Corpus(lambda: iter(documents), Vocabulary.numbered(2), 9), 2, 2, 0)
    completion = split(division.validation, np.random.default_rng(0))
    return Known(division, completion, 2, 4, 0, Store(folder, {}), lambda text: None)


def test_the_least_perplexity_is_chosen_and_every_cell_kept(tmp_path):
    ran = Known.ran
    best, rows = search(bench(tmp_path), "sgrhmc", Settings("sgrhmc"), GRID)
    assert (best.step_size, best.friction, best.sampler) == (0.2, 3.0, "sgrhmc")
    assert len(ran) == len(rows) == 6
    assert [row["perplexity"] for row in rows[4:]] == [math.inf, math.inf]
    # In another order, and one value more: only the new cells run.
    more = {"friction": (3.0, 1.0, 9.0), "step_size": (0.4, 0.2, 0.1)}
    again, _ = search(bench(tmp_path), "sgrhmc", Settings("sgrhmc"), more)
    assert again == best
    assert ran[6:] == [(0.4, 9.0), (0.2, 9.0), (0.1, 9.0)]


def test_numbers_keep_their_kind():
    settings = changed(Settings(), {"gibbs_sweeps": 20.0, "alpha": 1.0})
    assert settings.gibbs_sweeps == 20 and isinstance(settings.gibbs_sweeps, int)
    assert isinstance(settings.alpha, float)


def test_axes_are_those_of_the_samplers():
    samplers = ("sgrld", "sgrhmc")
    assert _grid(("a=1,2", "friction=1,3"), samplers) == {
        "sgrld": {"step_size": (1.0, 2.0)},
        "sgrhmc": {"step_size": (1.0, 2.0), "friction": (1.0, 3.0)},
    }
    assert _grid(("sgrhmc:b=5", "a=1"), samplers)["sgrhmc"] == {
        "offset": (5.0,),
        "step_size": (1.0,),
    }


@pytest.mark.parametrize("method", list(SUGGESTED))
def test_the_suggested_settings_are_legal(method):
    assert method in (*SAMPLERS, *PEERS)
    assert Settings(**SUGGESTED[method]).offset > 0
