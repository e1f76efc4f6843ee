"""`ergodax topics`: from a corpus to topics, perplexities and a report."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ergodax.cli import main
from ergodax.learn.topics import runs
from ergodax.learn.topics.corpus import Corpus, Document, Vocabulary
from ergodax.learn.topics.train import divide
from ergodax.persist import checkpoint

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FAST = ["--gibbs-sweeps", "4", "--batch-size", "20", "--test", "20"]


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
        monkeypatch, capsys, "topics", SHARED / "reuters395_bow.npz", "--topics", 4, "--documents",
        1_000, "--quick", "--test", 40, "--sampler", "sgrld", "--beta", 0.1,
        "--out", tmp_path,
    )  # fmt: skip
    assert code == 0, error
    assert "395 documents, 4,258 words" in out and "perplexity" in out
    rows = pd.read_csv(tmp_path / "perplexity.csv")
    assert rows["perplexity"].iloc[-1] < 4_258
    topics = pd.read_csv(tmp_path / "topics.csv")
    assert topics["share"].to_numpy().sum() == pytest.approx(1, rel=1e-4)
    assert [len(words.split()) for words in topics["words"]] == [10] * 4


@pytest.mark.slow
def test_a_second_call_does_not_repeat_finished_runs(monkeypatch, capsys, articles, tmp_path):
    def again(*more):
        code, out, error = ergodax(
            monkeypatch, capsys, "topics", articles, "--topics", 2, "--sampler", "sgrld",
            "--documents", 60, "--max-share", 1, *FAST, "--json", "--out", tmp_path, *more,
        )  # fmt: skip
        assert code == 0, error
        return json.loads(out)["perplexity"], error.count("finished before")

    first, found = again()
    assert found == 0
    monkeypatch.setattr(runs, "train", None)  # calling it would fail
    assert again() == (first, 1)
    monkeypatch.undo()
    assert again("--alpha", 0.2)[1] == 0, "other settings, another run"


@pytest.mark.slow
def test_text_to_topics(monkeypatch, capsys, articles, tmp_path):
    code, out, error = ergodax(
        monkeypatch, capsys, "topics", articles, "--topics", 2, "--documents", 400, "--alpha", 0.1,
        "--beta", 0.1, "--max-share", 1, "--step-size", 0.01, *FAST, "--json", "--out", tmp_path,
    )  # fmt: skip
    assert code == 0, error
    facts = json.loads(out)
    assert facts["vocabulary"] == 8 and facts["documents_in_corpus"] == 120
    names = "report.html facts.json topics.csv topics.json perplexity.csv perplexity.png"
    assert all((tmp_path / name).exists() for name in names.split())
    rows = pd.read_csv(tmp_path / "perplexity.csv")
    last = rows.iloc[-1]
    assert last["documents"] == 400 and last["perplexity"] == facts["perplexity"]
    # Who knows the subjects has 4 words to choose from, who knows nothing 8.
    assert 3.5 < facts["perplexity"] < 6 and facts["alone"] != facts["perplexity"]
    assert 0 < facts["pace"] < facts["seconds"]
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png" in page and "Topics" in page


def corpus(number=30):
    documents = [Document(np.array([n % 5, 5], np.int32), np.full(2, 9)) for n in range(number)]
    return Corpus(lambda: iter(documents), Vocabulary.numbered(6), number)


def test_no_document_is_both_learnt_and_judged():
    parts = divide(corpus(), 4, 3, seed=1)
    assert (len(parts.test), len(parts.validation), parts.num_documents) == (4, 3, 23)
    assert len(parts.left_out) == 7
    alone = divide(corpus(), 4, 0, seed=1)
    words = [[document.words.tolist() for document in each.test] for each in (parts, alone)]
    assert words[0] == words[1] and parts.left_out > alone.left_out
    shuffled = list(parts.stream(46, 1, 0))
    places = [id(document) for document in corpus_documents(parts)]
    held = {id(document) for document in (*parts.test, *parts.validation)}
    learnt = [id(document) for document in shuffled]
    assert not held & set(learnt) and held <= set(places) and len(learnt) == 46
    again = [id(document) for document in parts.stream(46, 1, 0)]
    assert again == learnt != [id(document) for document in parts.stream(46, 1, 1)]


def bags(path, counts):
    words = np.tile(np.arange(8), 60)
    np.savez(path, indptr=np.arange(0, 481, 8), indices=words, counts=counts, n_vocab=8)
    return path


def test_another_corpus_of_the_same_size_is_refused(monkeypatch, capsys, tmp_path):
    """One word occurs once more in one document, before any learning."""
    counts = np.random.default_rng(1).integers(1, 9, 480)
    call = [
        "topics", bags(tmp_path / "bags.npz", counts), "--topics", 2, "--sampler", "sgrld",
        "--documents", 40, *FAST, "--json", "--out", tmp_path / "out",
    ]  # fmt: skip
    code, out, error = ergodax(monkeypatch, capsys, *call)
    assert code == 0, error
    monkeypatch.setattr(runs, "train", None)  # calling it would fail
    assert ergodax(monkeypatch, capsys, *call)[:2] == (0, out)
    counts[333] += 1
    bags(tmp_path / "bags.npz", counts)
    code, _, error = ergodax(monkeypatch, capsys, *call)
    assert code == 2 and "a run of another corpus" in error and "--no-resume" in error
    run = tmp_path / "out" / "runs" / "sgrld-1.npz"
    part = run.with_suffix(".part")
    with np.load(run) as file:
        of = str(file["of"])
    run.unlink()
    checkpoint.save(part, {}, {"of": of})  # as an interrupted run has it
    code, _, error = ergodax(monkeypatch, capsys, *call)
    assert code == 2 and f"{part} has a run of another corpus" in error.replace("\n", "")
    _, _, error = ergodax(monkeypatch, capsys, *call, "--alpha", 0.3)  # another run altogether
    assert "not callable" in error, "it is made"


@pytest.mark.parametrize("change", ["a word", "its count", "their order", "its name"])
def test_the_digest_of_a_corpus(change):
    def digest(documents, names):
        of = Corpus(lambda: iter(documents), Vocabulary(names), len(documents))
        return divide(of, 2, 0, seed=0).digest

    words, counts = np.array([0, 1]), np.array([3, 4])
    documents, names = [Document(words, counts)] * 9, ["a", "b", "c"]
    before = digest(documents, names)
    assert before == digest([Document(words.astype(np.int32), counts)] * 9, names)
    other = {"a word": Document(np.array([0, 2]), counts), "its count": Document(words, counts + 1)}
    if change == "its name":
        names = ["a", "b", "d"]
    elif change == "their order":
        documents = [*documents[:4], Document(words[::-1], counts), *documents[5:]]
    else:
        documents = [*documents[:4], other[change], *documents[5:]]
    assert digest(documents, names) != before


def corpus_documents(parts):
    return list(parts.read())


def test_the_files_own_test_documents_come_first():
    own = [Document(np.array([0]), np.array([1]))] * 3
    with_own = Corpus(corpus().read, Vocabulary.numbered(6), 30, lambda: iter(own))
    parts = divide(with_own, 2, 0, seed=0)
    assert len(parts.test) == 2 and not parts.left_out and parts.num_documents == 30
    assert len(divide(with_own, 5, 0, seed=0).left_out) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.npz"], "no such corpus"),
        (["CORPUS", "--documents", "3"], "documents must be at least 50"),
        (["CORPUS", "--test", "0"], "test must be at least 1"),
        (["CORPUS", "--test", "500", "--max-share", "1"], "hold out fewer"),
        (["CORPUS"], "raise max_share"),
    ],
)
def test_errors_of_use(monkeypatch, capsys, articles, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    if "--max-share" not in arguments and message == "raise max_share":
        arguments = [*arguments, "--max-share", "0.1"]
    given = [articles if word == "CORPUS" else word for word in arguments]
    code, _, error = ergodax(monkeypatch, capsys, "topics", *given)
    assert code == 2 and message in error


def test_help_shows_an_example(monkeypatch, capsys):
    code, out, _ = ergodax(monkeypatch, capsys, "topics", "--help")
    assert code == 0 and "Example: ergodax topics" in out and "--vocabulary" in out
