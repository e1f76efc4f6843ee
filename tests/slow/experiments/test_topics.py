"""The grid: axes of each sampler, cells that are kept, diverged ones among them."""

import gzip
import json
import math
import sys

import numpy as np
import pandas as pd
import pytest

import ergodax as ex
from ergodax.learn.topics import (
    SAMPLERS,
    SUGGESTED,
    Bench,
    Corpus,
    Document,
    Run,
    Settings,
    Store,
    Vocabulary,
    open_bench,
)
from experiments import __main__ as main
from experiments.topics import peers
from experiments.topics.commands import parse_grid
from experiments.topics.comparison import changed, search
from experiments.topics.peers import PEERS

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


def test_text_to_topics(monkeypatch, capsys, articles, tmp_path):
    code, out, error = ran(
        monkeypatch, capsys, articles, "--methods", "sgrld", "scikit-learn", "--documents", 400,
        "--repeats", 2, "--set", "topics=2", "alpha=0.1", "beta=0.1", "gibbs_sweeps=4",
        "batch_size=20", "--test", 20, "--max-share", 1, "--grid", "a=0.01,0.001", "sgrld:b=100",
        "--grid-documents", 200, "--json", "--out", tmp_path,
    )  # fmt: skip
    assert code == 0, error
    facts = json.loads(out)
    assert facts["vocabulary"] == 8 and facts["documents_in_corpus"] == 120
    assert {row["method"] for row in facts["summary"]} == {"sgrld", "scikit-learn"}
    assert len(facts["grid"]) == 2
    best = min(facts["grid"], key=lambda row: row["perplexity"])
    assert facts["settings"]["sgrld"]["step_size"] == best["step_size"]
    names = "report.html facts.json topics.csv topics.json perplexity.csv perplexity.png grid.csv"
    assert all((tmp_path / name).exists() for name in names.split())
    rows = pd.read_csv(tmp_path / "perplexity.csv")
    assert set(rows["repeat"]) == {0, 1}
    assert rows["documents"].to_numpy().max() == 400
    # Who knows the subjects has 4 words to choose from, who knows nothing 8.
    ours = next(row for row in facts["summary"] if row["method"] == "sgrld")
    assert 3.5 < ours["perplexity"] < 6
    # The peers' predictions are averaged as ours are, and the last is shown alone too.
    for row in facts["summary"]:
        last = [each for each in rows.to_dict("records")
                if each["method"] == row["method"] and each["documents"] == 400]  # fmt: skip
        assert row["perplexity"] != row["alone"]
        for name in ("perplexity", "alone"):
            assert row[name] == pytest.approx(np.mean([each[name] for each in last]))
        assert 0 < row["pace"] < row["seconds"]
    assert facts["peak_memory_mb"] > 100
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png" in page and "Topics: sgrld" in page


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of their compiled modules
@pytest.mark.parametrize("peer", list(peers.PEERS))
def test_peers_find_two_subjects(peer):
    if peers.missing(peer):
        pytest.skip(f"{peers.missing(peer)} is not installed")
    words = [np.arange(4, dtype=np.int32), np.arange(4, 8, dtype=np.int32)]
    documents = [Document(words[n % 2], np.full(4, 5)) for n in range(400)]
    settings = Settings(sampler="sgrld", num_topics=2, alpha=0.1, beta=0.1, batch_size=20,
                        snapshot_every=200)  # fmt: skip
    found = list(
        peers.PEERS[peer](settings, iter(documents), num_documents=400, vocabulary_size=8, seed=0)
    )
    assert found[-1].documents == 400
    phi = np.asarray(found[-1].phi)
    np.testing.assert_allclose(phi.sum(axis=1), 1, rtol=1e-5)
    first = phi[:, :4].sum(axis=1)
    assert first.max() > 0.9 and first.min() < 0.1


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
