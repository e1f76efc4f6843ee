"""The stream of documents that the methods of `python -m experiments topics` meet."""

import itertools

import numpy as np
import pytest

from ergodax.learn.topics import Corpus, Document, Vocabulary
from experiments.topics.runs import Averaged
from experiments.topics.train import batches, divide, endless, shuffled


def numbered(lengths):
    return [Document(np.arange(n, dtype=np.int32), np.ones(n, np.int32)) for n in lengths]


def test_batches_pull_no_more_than_they_need():
    pulled = []

    def source():
        for document in itertools.cycle(numbered([3, 5])):
            pulled.append(1)
            yield document

    generator = np.random.default_rng(0)
    next(batches(source(), 4))
    assert len(pulled) == 4
    next(batches(shuffled(source(), 10, generator), 4))
    assert len(pulled) <= 4 + 10 + 4 + 1


def test_each_document_is_used_once():
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, 100, 60)
    order = shuffled(numbered(lengths), 7, generator)
    assert sorted(len(d.words) for d in order) == sorted(lengths)
    stream = list(batches(numbered(lengths), 5))
    found = [document.num_tokens for batch in stream for document in batch]
    assert sorted(found) == sorted(lengths) and len(stream) == 12
    assert len(list(batches(numbered(lengths[:13]), 5))) == 2, "an unfilled batch is left over"


def test_passes_leave_out_the_test_documents():
    documents = numbered([1, 2, 3, 4])
    stream = endless(lambda: iter(documents), without=[1, 3])
    assert [len(d.words) for d in itertools.islice(stream, 5)] == [1, 3, 1, 3, 1]
    with pytest.raises(ValueError, match="hold out fewer"):
        next(endless(lambda: iter(documents), without=range(4)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: batches([], 0),
        lambda: list(shuffled([], 0, np.random.default_rng(0))),
    ],
)
def test_numbers_out_of_range(call):
    with pytest.raises(ValueError, match="must be|needed|empty"):
        call()


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


def test_only_the_later_half_of_the_snapshots_is_averaged():
    average = Averaged(np.array([1]))
    values = [0.1, 0.2, 0.4, 0.8, 0.6]
    kept = [[0.1], [0.2], [0.2, 0.4], [0.4, 0.8], [0.4, 0.8, 0.6]]
    for value, mean in zip(values, kept, strict=True):
        assert average.add(np.array([value])) == pytest.approx(1 / np.mean(mean), rel=1e-6)
