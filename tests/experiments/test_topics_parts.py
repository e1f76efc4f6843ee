"""The grid of the topics' samplers, its cells that are kept, and what is refused."""

import gzip
import math
import sys

import numpy as np
import pytest

import ergodax as ex
from ergodax.learn.topics import Corpus, Document, Vocabulary
from experiments import __main__ as main
from experiments.topics import peers
from experiments.topics.commands import parse_grid
from experiments.topics.comparison import changed, search
from experiments.topics.peers import PEERS
from experiments.topics.runs import Bench, Run, Store, open_bench
from experiments.topics.samplers import SAMPLERS
from experiments.topics.train import SUGGESTED, Settings

GRID = {"step_size": (0.1, 0.2, 0.4), "friction": (1.0, 3.0)}


class Known(Bench):
    """A bench whose perplexity is known: least at 0.2 and 3, and divergent at 0.4."""

    ran = []

    def run(self, settings, repeat, label, learner=None):
        """The stored run or a new one."""
        found = self.store.load(label, settings)
        if found is not None:
            return found
        self.ran.append((settings.step_size, settings.friction))
        if settings.step_size == 0.4:
            raise ex.DivergenceError("far away", step=1, chain=0, state=None)
        value = abs(settings.step_size - 0.2) + abs(settings.friction - 3.0)
        found = Run([{"perplexity": value}], np.ones((1, 1)))
        self.store.save(label, settings, found)
        return found


def bench(folder):
    documents = [Document(np.array([0, 1], np.int32), np.array([9, 9]))] * 9
    corpus = Corpus(lambda: iter(documents), Vocabulary.numbered(2), 9)
    of = open_bench(corpus, 4, test=2, validation=2, folder=folder)
    return Known(**{**vars(of), "store": Store(folder, {})})


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
    assert parse_grid(("a=1,2", "friction=1,3"), samplers) == {
        "sgrld": {"step_size": (1.0, 2.0)},
        "sgrhmc": {"step_size": (1.0, 2.0), "friction": (1.0, 3.0)},
    }
    assert parse_grid(("sgrhmc:b=5", "a=1"), samplers)["sgrhmc"] == {
        "offset": (5.0,),
        "step_size": (1.0,),
    }


@pytest.mark.parametrize("method", list(SUGGESTED))
def test_the_suggested_settings_are_legal(method):
    assert method in (*SAMPLERS, *PEERS)
    assert Settings(**SUGGESTED[method]).offset > 0


def ran(monkeypatch, capsys, *arguments):
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["experiments", "topics", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr()
    return stop.value.code or 0, out.out, " ".join(out.err.split())


@pytest.fixture(scope="module")
def articles(tmp_path_factory):
    """Articles on either of two subjects, whose words do not meet."""
    generator = np.random.default_rng(0)
    subjects = [["cat", "dog", "horse", "mouse"], ["sun", "moon", "star", "comet"]]
    path = tmp_path_factory.mktemp("articles") / "articles.txt.gz"
    with gzip.open(path, "wt") as file:
        for number in range(120):
            words = generator.choice(subjects[number % 2], 30)
            file.write(f"{number}\ttitle\t{' '.join(words)}\n")
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.npz"], "no such file: none.npz"),
        (["CORPUS", "--documents", "3"], "documents must be at least 50"),
        (["CORPUS", "--repeats", "0"], "repeats must be at least 1"),
        (["CORPUS", "--methods", "mallet"], "methods has 'mallet'"),
        (["CORPUS", "--set", "d=1"], "--set has ['d']"),
        (["CORPUS", "--grid", "d=1"], "grid has 'd'"),
        (["CORPUS", "--methods", "sgrld", "--grid", "sgld:a=1"], "grid has 'sgld'"),
        (["CORPUS", "--grid-documents", "3"], "grid_documents must be at least 50"),
        (["CORPUS", "--grid", "a"], "NAME=V1,V2 is expected"),
        (["CORPUS", "--test", "500", "--max-share", "1"], "hold out fewer"),
        (["CORPUS", "--max-share", "0.1"], "raise max_share"),
    ],
)
def test_errors_of_use(monkeypatch, capsys, articles, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    given = [articles if word == "CORPUS" else word for word in arguments]
    code, _, error = ran(monkeypatch, capsys, *given)
    assert code == 2 and message in error


def test_what_is_not_installed_is_skipped_in_words(monkeypatch):
    monkeypatch.setitem(peers.NEEDED, "gensim", "a_package_that_is_not_there")
    assert peers.missing("gensim") == "a_package_that_is_not_there"
