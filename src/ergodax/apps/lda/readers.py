"""Readers of corpora: each yields one document at a time, whatever the file's size."""

import bz2
import gzip
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np

from ergodax.apps.lda.corpus import Corpus, Document, Vocabulary
from ergodax.learn import archive

OPENERS = {".gz": gzip.open, ".bz2": bz2.open}
FAULTS = (OSError, EOFError, UnicodeDecodeError, zlib.error, ElementTree.ParseError)
NOT_TEXT = ("file:", "image:", "category:")


class CorpusError(ValueError):
    """A file that is not what its name promises."""


def read_texts(path: Path) -> Iterator[str]:
    """The texts of a corpus, one document at a time.

    Args:
        path: a folder of .txt files, a MediaWiki dump (.xml, .xml.gz, .xml.bz2), or a file of one
            document a line, which may be compressed too.

    Raises:
        FileNotFoundError: there is no such file.
        CorpusError: the file cannot be read as what its name promises.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such corpus: {path}")
    if path.is_dir():
        return read_folder(path)
    return read_mediawiki(path) if ".xml" in path.suffixes else read_lines(path)


def read_lines(path: Path) -> Iterator[str]:
    """One document a line; of a line `id TAB title TAB text` the text. Blank lines are skipped.

    Args:
        path: of the file, UTF-8; .gz and .bz2 are decompressed.

    Raises:
        CorpusError: not UTF-8, or a broken archive.
    """
    with _opened(path) as file:
        for line in file:
            if line.strip():
                fields = line.decode("utf-8").rstrip("\r\n").split("\t", 2)
                yield fields[2] if len(fields) == 3 else "\t".join(fields)


def read_folder(path: Path) -> Iterator[str]:
    """One document a .txt file, those of folders within too, in the order of their names.

    Args:
        path: of the folder.

    Raises:
        CorpusError: no .txt file, or one that is not UTF-8.
    """
    files = sorted(path.rglob("*.txt"))
    if not files:
        raise CorpusError(f"{path} has no .txt files; one document a file is expected.")
    for file in files:
        with _opened(file) as content:
            text = content.read().decode("utf-8")
        yield text


def read_mediawiki(path: Path) -> Iterator[str]:
    """The articles of a MediaWiki XML dump as plain text, redirects and other pages left out.

    Args:
        path: of the dump, .xml, .xml.gz or .xml.bz2.

    Raises:
        CorpusError: not well-formed XML, no page at all, or mwparserfromhell is not installed.
    """
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
    """Wikitext without templates, tags, categories, files and the brackets of links.

    Args:
        wikitext: of one article.

    Raises:
        CorpusError: mwparserfromhell is not installed.
    """
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
    """A sparse matrix of word counts, documents by words, in compressed rows.

    The arrays are `indptr`, `indices` and `counts` (or `data`); with the prefixes `train_` and
    `test_` the file sets test documents apart. Words are named by an array `vocab`, numbered by
    `n_vocab` or the matrix's `shape`. The matrix is held in memory, unlike texts.

    Args:
        path: of the .npz file.
        vocabulary: names the words; by default the file's.

    Raises:
        CorpusError: no .npz, arrays are missing or contradict each other.
    """
    try:
        arrays = archive.read(path, archive.names(path))
    except (OSError, ValueError) as error:
        raise CorpusError(str(error)) from None
    prefix = "train_" if "train_indptr" in arrays else ""
    parts = _rows(path, arrays, prefix)
    test = _rows(path, arrays, "test_") if "test_indptr" in arrays else None
    indices = [part[1] for part in (parts, test) if part is not None]
    most = 1 + max((int(each.max()) for each in indices if each.size), default=0)
    names = vocabulary or _vocabulary(arrays, most)
    if most > len(names):
        raise CorpusError(f"{path} has word {most - 1}, the vocabulary only {len(names)} words.")
    return Corpus(
        lambda: _documents(*parts),
        names,
        len(parts[0]) - 1,
        None if test is None else lambda: _documents(*test),
    )


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
        path: an .npz file of word counts, or anything `read_texts` takes.
        vocabulary: the words to count; by default `Vocabulary.build` chooses them.
        num_documents: in a pass, if it is known.
        min_documents: see `Vocabulary.build`.
        max_share: see `Vocabulary.build`.
        stop_words: see `Vocabulary.build`.
        max_words: see `Vocabulary.build`.

    Returns:
        The corpus, read anew at every pass.

    Raises:
        FileNotFoundError: there is no such file.
        CorpusError: the file cannot be read as what its name promises.
        ValueError: no word is left for the vocabulary, or no document.
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
def _opened(path: Path) -> Iterator[IO[bytes]]:
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


def _rows(
    path: Path, arrays: dict[str, np.ndarray], prefix: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = "counts" if f"{prefix}counts" in arrays else "data"
    names = [prefix + name for name in ("indptr", "indices", counts)]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise CorpusError(f"{path} has no array {missing[0]!r}; it has {', '.join(arrays)}.")
    starts, words, numbers = (arrays[name] for name in names)
    if not starts.size or starts[0] != 0 or (np.diff(starts.astype(np.int64)) < 0).any():
        raise CorpusError(f"{path}: {names[0]!r} must start at 0 and never decrease.")
    if not starts[-1] == len(words) == len(numbers):
        raise CorpusError(
            f"{path}: {names[0]!r} ends at {starts[-1]}, but {names[1]!r} has {len(words)} and "
            f"{names[2]!r} {len(numbers)} entries."
        )
    if numbers.size and (numbers.min() < 1 or (numbers != np.floor(numbers)).any()):
        raise CorpusError(f"{path}: {names[2]!r} must hold whole numbers of at least 1.")
    if words.size and words.min() < 0:
        raise CorpusError(f"{path}: {names[1]!r} has a negative number of a word.")
    return starts.astype(np.int64), words, numbers


def _vocabulary(arrays: dict[str, np.ndarray], least: int) -> Vocabulary:
    if "vocab" in arrays:
        return Vocabulary(str(word) for word in arrays["vocab"])
    if "n_vocab" in arrays:
        return Vocabulary.numbered(int(arrays["n_vocab"]))
    return Vocabulary.numbered(int(arrays["shape"][1]) if "shape" in arrays else least)


def _documents(starts: np.ndarray, words: np.ndarray, counts: np.ndarray) -> Iterator[Document]:
    for first, last in zip(starts[:-1], starts[1:], strict=True):
        yield Document(words[first:last].astype(np.int32), counts[first:last].astype(np.int32))
