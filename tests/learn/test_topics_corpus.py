"""Corpora: words, readers of every format, faults named, batches padded little."""

import bz2
import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest

from ergodax.learn.topics import corpus as readers
from ergodax.learn.topics.corpus import (
    CorpusError,
    Document,
    Vocabulary,
    english_stop_words,
    open_corpus,
    read_bags,
    read_texts,
    tokenise,
)

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
needs_wiki = pytest.mark.skipif(
    not (SHARED / "wiki_bow.npz").exists(), reason="shared data are not here"
)
TEXTS = ["A cat and a dog.", "The cat sat", "dogs don't re-enter"]
DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">
<siteinfo><sitename>Test</sitename></siteinfo>
<page><title>Cat</title><ns>0</ns><id>1</id><revision><id>7</id>
<text>The '''cat''' is a [[mammal|small mammal]].{{cn}} [[File:Cat.jpg|thumb|caption]]</text>
</revision></page>
<page><title>Kitten</title><ns>0</ns><redirect title="Cat" /><revision>
<text>#REDIRECT [[Cat]]</text></revision></page>
<page><title>Talk:Cat</title><ns>1</ns><revision><text>chatter</text></revision></page>
<page><title>Dog</title><ns>0</ns><revision><text>Dogs bark.&lt;ref&gt;A book&lt;/ref&gt;
[[Category:Dogs]]</text></revision></page></mediawiki>
"""


def as_dict(document):
    return dict(zip(document.words.tolist(), document.counts.tolist(), strict=True))


def numbered(lengths):
    return [Document(np.arange(n, dtype=np.int32), np.ones(n, np.int32)) for n in lengths]


def test_words_are_lower_case_letters():
    assert tokenise("Don't re-enter\tCAFÉ 42 x") == ["dont", "re", "enter", "caf", "x"]


def test_the_vocabulary_drops_what_is_rare_and_what_is_everywhere():
    texts = ["a b c", "a b", "a c c", "a d"]
    assert Vocabulary.build(texts, min_documents=2, max_share=0.5)[0].words == ("b", "c")
    assert Vocabulary.build(texts, min_documents=1, max_share=1.0)[1] == 4
    two = Vocabulary.build(texts, min_documents=1, max_share=1.0, max_words=2)[0]
    assert two.words == ("a", "b")
    stopped = Vocabulary.build(texts, min_documents=2, max_share=1.0, stop_words={"a"})[0]
    assert stopped.words == ("b", "c")
    assert "the" in english_stop_words()
    with pytest.raises(ValueError, match="lower min_documents"):
        Vocabulary.build(texts, min_documents=9)
    with pytest.raises(ValueError, match="'a' twice"):
        Vocabulary(["a", "b", "a"])


def test_a_bag_counts_the_words_of_the_vocabulary():
    bag = Vocabulary(["cat", "dog"]).bag("Cat, cat; a dog: mouse")
    assert as_dict(bag) == {0: 2, 1: 1} and bag.num_tokens == 3
    assert len(Vocabulary(["cat"]).bag("mouse").words) == 0


def test_lines_plain_and_compressed(tmp_path):
    content = b"7\tCat\tThe cat\n\nplain\ttext\n"
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    for name in ("a.txt", "a.txt.gz"):
        assert list(read_texts(tmp_path / name)) == ["The cat", "plain\ttext"]


def test_a_folder_of_texts(tmp_path):
    (tmp_path / "deep").mkdir()
    for name, text in zip(("b.txt", "a.txt", "deep/c.txt"), TEXTS, strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "d.pdf").write_bytes(b"\xff")
    assert list(read_texts(tmp_path)) == [TEXTS[1], TEXTS[0], TEXTS[2]]


@pytest.mark.parametrize("suffix", [".xml", ".xml.bz2"])
def test_a_mediawiki_dump(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(readers, "strip_wikitext", lambda wikitext: wikitext)
    path = tmp_path / f"dump{suffix}"
    path.write_bytes(bz2.compress(DUMP.encode()) if suffix.endswith("bz2") else DUMP.encode())
    texts = list(read_texts(path))
    assert len(texts) == 2, "no redirect, no page of another namespace"
    assert "'''cat'''" in texts[0] and texts[1].startswith("Dogs bark.<ref>")


def test_wikitext_becomes_text():
    pytest.importorskip("mwparserfromhell", reason="mwparserfromhell is not installed")
    text = readers.strip_wikitext(
        "The '''cat''' is a [[mammal|small mammal]].{{cn}} [[File:C.jpg|thumb|x]][[Category:Y]]"
    )
    assert text.split() == ["The", "cat", "is", "a", "small", "mammal."]


def test_without_the_wikitext_parser_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mwparserfromhell", None)
    with pytest.raises(CorpusError, match="pip install mwparserfromhell"):
        readers.strip_wikitext("x")


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


ROWS = {"indptr": [0, 2, 3], "indices": [0, 2, 1], "counts": [1, 4, 2]}


def test_bags_of_words_in_every_layout(tmp_path):
    plain = open_corpus(save(tmp_path / "a.npz", **ROWS, vocab=["u", "v", "w"]))
    assert plain.vocabulary.words == ("u", "v", "w") and plain.num_documents == 2
    assert [as_dict(d) for d in plain.read()] == [{0: 1, 2: 4}, {1: 2}]
    assert list(map(as_dict, plain.read())) == list(map(as_dict, plain.read())), "passes repeat"
    scipy = {"indptr": ROWS["indptr"], "indices": ROWS["indices"], "data": ROWS["counts"]}
    assert len(read_bags(save(tmp_path / "b.npz", **scipy, shape=[2, 9])).vocabulary) == 9
    parts = {f"{part}_{name}": v for part in ("train", "test") for name, v in ROWS.items()}
    apart = read_bags(save(tmp_path / "c.npz", **parts, n_vocab=5))
    assert len(apart.vocabulary) == 5 and apart.read_test is not None
    assert [d.num_tokens for d in apart.read_test()] == [5, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": [0, 2, 4]}, "'indptr' and 'indices' don't fit"),
        ({"indptr": [0, 3, 2]}, "'indptr' and 'indices' don't fit"),
        ({"indptr": [1, 2, 3]}, "'indptr' and 'indices' don't fit"),
        ({"indptr": [0, 2]}, "ends at 2, not at 3"),
        ({"counts": [1, 0, 2]}, "at least 1"),
        ({"counts": [1, 1.5, 2]}, "whole numbers"),
        ({"indices": [0, -1, 1]}, "'indptr' and 'indices' don't fit"),
        ({"vocab": ["u", "v"]}, "has word 2, the vocabulary only 2 words"),
    ],
)
def test_contradictions_in_bags_are_named(tmp_path, change, message):
    with pytest.raises(CorpusError, match=message):
        read_bags(save(tmp_path / "bad.npz", **{**ROWS, **change}))


def test_faulty_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "strip_wikitext", str)
    cases = {
        "a.npz": (b"not a zip", "not an .npz"),
        "b.txt.gz": (b"not gzip", "b.txt.gz cannot be read"),
        "c.txt": (b"caf\xe9\n", "c.txt cannot be read.*utf-8"),
        "d.xml": (DUMP.encode()[:400], "d.xml cannot be read"),
        "e.xml": (b"<a></a>", "no <page>"),
        "f.txt.gz": (gzip.compress(b"word " * 99)[:-9], "f.txt.gz cannot be read"),
        "g.txt": (b"\n", "0 documents"),
        "h.xml.bz2": (b"BZh9no", "h.xml.bz2 cannot be read"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            open_corpus(tmp_path / name)
    with pytest.raises(CorpusError, match="no array 'indptr'"):
        read_bags(save(tmp_path / "i.npz", x=[1]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="no .txt files"):
        list(read_texts(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match="no such corpus"):
        open_corpus(tmp_path / "none.txt")


def test_readers_are_lazy(tmp_path):
    """A fault after the first documents is met only when they are used up."""
    (tmp_path / "a.txt").write_bytes(b"one\n" * 5_000 + b"\xff\n")
    stream = read_texts(tmp_path / "a.txt")
    assert list(itertools.islice(stream, 5_000)) == ["one"] * 5_000
    with pytest.raises(CorpusError):
        next(stream)


def test_a_dump_streams_in_constant_memory(tmp_path, monkeypatch):
    """Pages are dropped from the tree: 40 times the pages need no more memory."""
    import tracemalloc

    monkeypatch.setattr(readers, "strip_wikitext", len)
    page = f"<page><ns>0</ns><revision><text>{'word ' * 400}</text></revision></page>\n"
    peaks = []
    for number in (50, 2_000):
        path = tmp_path / f"{number}.xml"
        path.write_text(f"<mediawiki>{page * number}</mediawiki>")
        tracemalloc.start()
        assert sum(1 for _ in read_texts(path)) == number
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] + 100_000, "the file is 4 MB"


@needs_wiki
def test_the_tokeniser_counts_wikipedia_as_its_published_bags_do():
    vocabulary = Vocabulary.read(SHARED / "wiki_vocab.txt")
    assert len(vocabulary) == 7_702
    file = np.load(SHARED / "wiki_bow.npz")
    ids, starts = file["train_ids"], file["train_indptr"]
    words, counts = file["train_indices"], file["train_counts"]
    row = {int(number): place for place, number in enumerate(ids)}
    with gzip.open(SHARED / "wiki_articles.txt.gz", "rt", encoding="utf-8") as lines:
        numbers = [int(line.split("\t", 1)[0]) for line in itertools.islice(lines, 100)]
    texts = read_texts(SHARED / "wiki_articles.txt.gz")
    for number, text in zip(numbers, texts, strict=False):
        part = slice(starts[row[number]], starts[row[number] + 1])
        expected = dict(zip(words[part].tolist(), counts[part].tolist(), strict=True))
        assert as_dict(vocabulary.bag(text)) == expected


def test_chunks_have_every_document_once(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a b a\nb\nb b b\n")
    corpus = open_corpus(path, Vocabulary(["a", "b"]))
    pieces = list(corpus.chunks(2))
    assert [piece.shape for piece in pieces] == [(2, 2), (1, 2)]
    assert corpus.matrix().toarray().tolist() == [[2, 1], [0, 1], [0, 3]]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Vocabulary([]),
        lambda: Vocabulary.numbered(0),
        lambda: Vocabulary.build(["a"], max_share=0.0),
        lambda: Vocabulary.build([]),
    ],
)
def test_numbers_out_of_range(call):
    with pytest.raises(ValueError, match="must be|needed|empty"):
        call()
