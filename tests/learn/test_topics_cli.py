"""`ergodax topics`: from a corpus to topics, perplexities and a report."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ergodax.cli import main
from ergodax.learn import LatentDirichletAllocation
from ergodax.learn.topics import learning

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def ergodax(monkeypatch, capsys, *arguments):
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["ergodax", *map(str, arguments)])
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


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "reuters395_bow.npz").exists(), reason="shared data are not here")
def test_reuters(monkeypatch, capsys, tmp_path):
    code, out, error = ergodax(
        monkeypatch, capsys, "topics", SHARED / "reuters395_bow.npz", "--topics", 20, "--quick",
        "--out", tmp_path,
    )  # fmt: skip
    assert code == 0, error
    assert "395 documents, 4,258 words" in out
    found = json.loads((tmp_path / "facts.json").read_text())
    # scikit-learn has about 1,700 at its defaults, a model that knows nothing 4,258.
    assert found["perplexity"] < 1_900 and found["npmi"] > 0.1
    topics = pd.read_csv(tmp_path / "topics.csv")
    assert topics["share"].to_numpy().sum() == pytest.approx(1, rel=1e-4)
    assert [len(words.split()) for words in topics["words"]] == [10] * 20


@pytest.mark.parametrize(
    ("stream", "words"),
    [((), "what was kept is in {}. The same command"), (("--stream",), "nothing was kept")],
)
def test_control_c_says_what_is_kept(monkeypatch, capsys, articles, tmp_path, stream, words):
    def interrupted(*_):
        raise KeyboardInterrupt

    for name in ("fit", "partial_fit"):
        monkeypatch.setattr(LatentDirichletAllocation, name, interrupted)
    given = ["topics", articles, "--topics", 2, *stream, "--out", tmp_path]
    code, _, error = ergodax(monkeypatch, capsys, *given)
    assert code == 130 and words.format(tmp_path / "fit") in error


@pytest.mark.slow
@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_text_to_topics(monkeypatch, capsys, articles, tmp_path, stream):
    def called():
        code, out, error = ergodax(
            monkeypatch, capsys, "topics", articles, "--topics", 2, "--max-share", 1, "--test", 20,
            "--json", "--out", tmp_path, "--quick", *stream,
        )  # fmt: skip
        assert code == 0, error
        return json.loads(out)

    facts = called()
    assert facts["vocabulary"] == 8 and facts["documents"] == 120 and facts["test_documents"] == 20
    names = "report.html facts.json topics.csv topics.json trace.csv trace.png"
    assert all((tmp_path / name).exists() for name in names.split())
    # Who knows the subjects has 4 words to choose from, who knows nothing 8.
    assert 3.5 < facts["perplexity"] < 4.6
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png" in page and "Topics" in page
    if not stream:  # a second call tells what was found
        monkeypatch.setattr(learning, "sample", None)  # calling it would fail
        assert called() == facts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.npz"], "no such corpus"),
        (["CORPUS", "--passes", "0"], "max_iter must be at least 1"),
        (["CORPUS", "--alpha", "-1"], "doc_topic_prior must be"),
        (["CORPUS", "--test", "0"], "test must be at least 1"),
        (["CORPUS"], "raise max_share"),
    ],
)
def test_errors_of_use(monkeypatch, capsys, articles, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    share = "0.1" if message == "raise max_share" else "1"
    arguments = [*arguments, "--max-share", share]
    given = [articles if word == "CORPUS" else word for word in arguments]
    code, _, error = ergodax(monkeypatch, capsys, "topics", *given)
    assert code == 2 and message in error


def test_help_shows_an_example(monkeypatch, capsys):
    code, out, _ = ergodax(monkeypatch, capsys, "topics", "--help")
    assert code == 0 and "Example: ergodax topics" in out and "--vocabulary" in out
