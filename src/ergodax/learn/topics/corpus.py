"""Documents as bags of words, their vocabulary, and readers that hold one document at a time."""

import bz2
import dataclasses
import gzip
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from scipy.sparse import csr_array, vstack

from ergodax.data import archive

GAP = re.compile(r"[-\s]+")
NOT_A_LETTER = re.compile(r"[^a-z ]")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open}
FAULTS = (OSError, EOFError, UnicodeDecodeError, zlib.error, ElementTree.ParseError)
NOT_TEXT = ("file:", "image:", "category:")


class CorpusError(ValueError):
    """A file that is not what its name promises."""


class Document(NamedTuple):
    """The distinct words of a document, by number, and how often each occurs."""

    words: np.ndarray
    counts: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Words of the document, repetitions counted."""
        return int(self.counts.sum())


def tokenise(text: str) -> list[str]:
    """The words of a text: lower case, hyphens separate, all but a to z dropped.

    Example:
        >>> tokenise("Don't re-enter")
        ['dont', 're', 'enter']
    """
    return NOT_A_LETTER.sub("", GAP.sub(" ", text.lower())).split()


class Vocabulary:
    """The words a model knows, numbered from 0.

    Args:
        words: all different, at least one.

    Raises:
        ValueError: no words, or one of them twice.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        if not self.words:
            raise ValueError("words is empty: a vocabulary has at least one word.")
        word, count = Counter(self.words).most_common(1)[0]
        if count > 1:
            raise ValueError(f"words has {word!r} twice; list each word once.")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def bag(self, text: str) -> Document:
        """A text as a bag of the vocabulary's words; the others are dropped."""
        numbers = self.numbers
        found = Counter(numbers[word] for word in tokenise(text) if word in numbers)
        return Document(np.array([*found], np.int32), np.array([*found.values()], np.int32))

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        *,
        min_documents: int = 5,
        max_share: float = 0.5,
        stop_words: Collection[str] = (),
        max_words: int | None = None,
    ) -> "tuple[Vocabulary, int]":
        """Choose the words that are neither rare nor everywhere, in one pass.

        Args:
            texts: of the documents.
            min_documents: a word of fewer documents is dropped.
            max_share: a word of a larger share of the documents is dropped.
            stop_words: dropped in any case; see `english_stop_words`.
            max_words: keep the words of most documents only.

        Returns:
            The vocabulary in alphabetical order, and the number of documents.

        Raises:
            ValueError: a number out of range, or no word is left.
        """
        if not 0 < max_share <= 1:
            raise ValueError(f"max_share must be in (0, 1], not {max_share}.")
        documents, total = Counter(), 0
        for text in texts:
            documents.update(set(tokenise(text)))
            total += 1
        if not total:
            raise ValueError("the corpus is empty: it has 0 documents.")
        stops = frozenset(stop_words)
        kept = {
            word: number
            for word, number in documents.items()
            if min_documents <= number <= max_share * total and word not in stops
        }
        if not kept:
            raise ValueError(
                f"no word is in at least {min_documents} and at most {max_share:.0%} of the "
                f"{total} documents; lower min_documents or raise max_share."
            )
        frequent = sorted(kept, key=lambda word: (-kept[word], word))[:max_words]
        return cls(sorted(frequent)), total

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a UTF-8 file of one word a line; the words are put in lower case."""
        lines = path.read_text(encoding="utf-8").split("\n")
        return cls(line.strip().lower() for line in lines if line.strip())

    @classmethod
    def numbered(cls, size: int) -> "Vocabulary":
        """Stand-ins for words whose names are not known: word0, word1 ..."""
        return cls(f"word{number}" for number in range(size))


def english_stop_words() -> frozenset[str]:
    """The stop words of scikit-learn, as `tokenise` writes them.

    Example:
        >>> from ergodax.learn import topics
        >>> "the" in topics.english_stop_words()
        True
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(word for text in ENGLISH_STOP_WORDS for word in tokenise(text))


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents that are read anew at every pass, never held together.

    Attributes:
        read: starts a pass over the documents.
        vocabulary: whose numbers the documents hold.
        num_documents: in a pass.
        read_test: starts a pass over test documents that the file sets apart, or None.
    """

    read: Callable[[], Iterator[Document]]
    vocabulary: Vocabulary
    num_documents: int
    read_test: Callable[[], Iterator[Document]] | None = None

    def chunks(self, size: int = 10_000) -> Iterator[csr_array]:
        """A pass in pieces of so many documents, counts of words of shape (documents, words)."""
        documents = self.read()
        while part := list(itertools.islice(documents, size)):
            yield counted(part, len(self.vocabulary))

    def matrix(self) -> csr_array:
        """All documents at once."""
        return csr_array(vstack(list(self.chunks()), format="csr"))


def counted(documents: Iterable[Document], num_words: int) -> csr_array:
    """Documents as a matrix of counts, shape (documents, words).

    Args:
        documents: in any number.
        num_words: W, of the vocabulary.

    Example:
        >>> from ergodax.learn import topics
        >>> words = topics.Vocabulary(["cat", "dog", "law"])
        >>> documents = map(words.bag, ["Cat, dog, cat!", "the law"])
        >>> topics.counted(documents, len(words)).toarray().tolist()
        [[2, 1, 0], [0, 0, 1]]
    """
    held = list(documents)
    starts = np.cumsum([0, *(len(document.words) for document in held)])
    parts = [
        np.concatenate([np.zeros(0, np.int64), *(getattr(document, name) for document in held)])
        for name in ("counts", "words")
    ]
    return csr_array((parts[0], parts[1].astype(np.int32), starts), (len(held), num_words))


def read_texts(path: Path) -> Iterator[str]:
    """The texts of a corpus, one document at a time.

    The path is of a folder of .txt files, a MediaWiki dump (.xml, .xml.gz, .xml.bz2), or a file of
    one document a line, which may be compressed too.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such corpus: {path}")
    if path.is_dir():
        return _read_folder(path)
    return _read_mediawiki(path) if ".xml" in path.suffixes else _read_lines(path)


def _read_lines(path: Path) -> Iterator[str]:
    """One document a line; of a line `id TAB title TAB text` the text. Blank lines are skipped."""
    with _opened(path) as file:
        for line in file:
            if line.strip():
                fields = line.decode("utf-8").rstrip("\r\n").split("\t", 2)
                yield fields[2] if len(fields) == 3 else "\t".join(fields)


def _read_folder(path: Path) -> Iterator[str]:
    """One document a .txt file, those of folders within too, in the order of their names."""
    files = sorted(path.rglob("*.txt"))
    if not files:
        raise CorpusError(f"{path} has no .txt files; one document a file is expected.")
    for file in files:
        with _opened(file) as content:
            text = content.read().decode("utf-8")
        yield text


def _read_mediawiki(path: Path) -> Iterator[str]:
    """The articles of a MediaWiki dump as plain text, redirects and other pages left out."""
    pages = 0
    with _opened(path) as file:
        steps = ElementTree.iterparse(file, events=("start", "end"))
        root = next(steps)[1]
        for event, element in steps:
            if event == "end" and _name(element) == "page":
                pages += 1
                wikitext = _article(element)
                root.clear()  # else the tree of the whole dump would grow in memory
                if wikitext is not None:
                    yield strip_wikitext(wikitext)
    if not pages:
        raise CorpusError(f"{path} has no <page>; a MediaWiki export is expected.")


def strip_wikitext(wikitext: str) -> str:
    """Wikitext without templates, tags, files and brackets of links. Raises: CorpusError."""
    try:
        import mwparserfromhell  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise CorpusError(
            "a MediaWiki dump needs mwparserfromhell; try pip install mwparserfromhell."
        ) from None
    code = mwparserfromhell.parse(wikitext)
    for link in code.filter_wikilinks(recursive=False):
        if str(link.title).strip().lower().startswith(NOT_TEXT):
            code.remove(link)
    return str(code.strip_code())


def read_bags(path: Path, vocabulary: Vocabulary | None = None) -> Corpus:
    """A sparse matrix of word counts in an .npz file, documents by words, in compressed rows.

    The arrays are `indptr`, `indices` and `counts` (or `data`); with the prefixes `train_` and
    `test_` the file sets test documents apart. Words are named by the vocabulary given, an array
    `vocab`, or numbered by `n_vocab` or the matrix's `shape`. The matrix is held in memory.

    Raises:
        CorpusError: no .npz, arrays are missing or contradict each other.
    """
    try:
        arrays = archive.read(path, archive.names(path))
    except (OSError, ValueError) as error:
        raise CorpusError(str(error)) from None
    parts = [_rows(path, arrays, "train_" if "train_indptr" in arrays else "")]
    if "test_indptr" in arrays:
        parts.append(_rows(path, arrays, "test_"))
    most = 1 + max((int(part.indices.max()) for part in parts if part.nnz), default=0)
    names = vocabulary or _vocabulary(arrays, most)
    if most > len(names):
        raise CorpusError(f"{path} has word {most - 1}, the vocabulary only {len(names)} words.")
    read, *read_test = (partial(_documents, part) for part in parts)
    return Corpus(read, names, len(parts[0].indptr) - 1, *read_test)


def open_corpus(
    path: Path,
    vocabulary: Vocabulary | None = None,
    *,
    num_documents: int | None = None,
    min_documents: int = 5,
    max_share: float = 0.5,
    stop_words: Collection[str] = (),
    max_words: int | None = None,
) -> Corpus:
    """Open any corpus that can be read.

    Texts without a vocabulary take one pass to choose it; with one, a pass to count them, which
    `num_documents` saves.

    Args:
        path: an .npz file of word counts (see `read_bags`), a folder of .txt files, a MediaWiki
            dump (.xml), or a file of one document a line; the last two may be .gz or .bz2.
        vocabulary: the words to count; by default `Vocabulary.build` chooses them.
        num_documents: in a pass, if it is known.
        min_documents: of `Vocabulary.build`, as are the following.
        max_share: likewise.
        stop_words: likewise.
        max_words: likewise.

    Returns:
        The corpus, read anew at every pass.

    Raises:
        FileNotFoundError: there is no such file.
        CorpusError: the file cannot be read as what its name promises.
        ValueError: no word is left for the vocabulary, or no document.

    Example:
        >>> import pathlib, tempfile
        >>> from ergodax.learn import topics
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for number, text in enumerate(["cat and dog", "dog and law", "law and cat"]):
        ...         _ = pathlib.Path(folder, f"{number}.txt").write_text(text)
        ...     corpus = topics.open_corpus(pathlib.Path(folder), min_documents=2, max_share=0.9)
        >>> corpus.num_documents, corpus.vocabulary.words  # "and" is in too many
        (3, ('cat', 'dog', 'law'))
    """
    if not path.exists():
        raise FileNotFoundError(f"no such corpus: {path}")
    if path.suffix == ".npz":
        return read_bags(path, vocabulary)
    if vocabulary is None:
        vocabulary, found = Vocabulary.build(
            read_texts(path),
            min_documents=min_documents,
            max_share=max_share,
            stop_words=stop_words,
            max_words=max_words,
        )
    else:
        found = num_documents or sum(1 for _ in read_texts(path))
    if not found:
        raise CorpusError(f"{path} has no documents.")
    bag = vocabulary.bag
    return Corpus(lambda: map(bag, read_texts(path)), vocabulary, found)


@contextmanager
def _opened(path: Path) -> Generator[IO[bytes]]:
    opener: Any = OPENERS.get(path.suffix, open)
    try:
        with opener(path, "rb") as file:
            yield file
    except FAULTS as error:
        raise CorpusError(f"{path} cannot be read: {error}") from error


def _name(element: ElementTree.Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def _article(page: ElementTree.Element) -> str | None:
    """The wikitext of a page of the main namespace that is no redirect."""
    parts = {_name(element): element for element in page.iter()}
    space = parts["ns"].text if "ns" in parts else "0"
    if space != "0" or "redirect" in parts or "text" not in parts:
        return None
    return parts["text"].text or ""


def _rows(path: Path, arrays: dict[str, np.ndarray], prefix: str) -> csr_array:
    """The matrix of the arrays with this prefix."""
    counts = "counts" if f"{prefix}counts" in arrays else "data"
    names = [prefix + name for name in ("indptr", "indices", counts)]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise CorpusError(f"{path} has no array {missing[0]!r}; it has {', '.join(arrays)}.")
    starts, words, numbers = (arrays[name] for name in names)
    if numbers.size and (numbers.min() < 1 or (numbers != np.floor(numbers)).any()):
        raise CorpusError(f"{path}: {names[2]!r} must hold whole numbers of at least 1.")
    try:
        shape = len(starts) - 1, 1 + int(words.max(initial=0))
        rows = csr_array((numbers.astype(np.int32), words, starts), shape)
        rows.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise CorpusError(f"{path}: {names[0]!r} and {names[1]!r} don't fit: {error}") from None
    if len(words) != starts[-1]:
        raise CorpusError(f"{path}: {names[0]!r} ends at {starts[-1]}, not at {len(words)}.")
    return rows


def _vocabulary(arrays: dict[str, np.ndarray], least: int) -> Vocabulary:
    if "vocab" in arrays:
        return Vocabulary(str(word) for word in arrays["vocab"])
    if "n_vocab" in arrays:
        return Vocabulary.numbered(int(arrays["n_vocab"]))
    return Vocabulary.numbered(int(arrays["shape"][1]) if "shape" in arrays else least)


def _documents(rows: csr_array) -> Iterator[Document]:
    for first, last in pairwise(rows.indptr):
        yield Document(rows.indices[first:last].astype(np.int32), rows.data[first:last])
