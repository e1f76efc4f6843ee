"""Topics by several methods, from a corpus to perplexities and a page; and the peers."""

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pytest

from ergodax.learn.topics import Document
from experiments import __main__ as main
from experiments.topics import peers
from experiments.topics.train import Settings


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
