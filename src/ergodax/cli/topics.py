"""`ergodax topics`: topics of documents, how sure they are, and what they are worth."""

import contextlib
import dataclasses
import itertools
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pandas as pd
from cyclopts import Parameter
from rich.console import Console

from ergodax.cli.output import Json, Output, folder, stopped, tell, tell_files, tell_json
from ergodax.report import page

TITLE = "Topics of documents"
COHERENCE = 10_000  # documents in which the topics' words are counted


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How words are counted; ignored for an .npz file, which has them counted.

    Parameters
    ----------
    vocabulary
        A file of one word a line; by default the words are chosen from the corpus.
    stop_words
        "english" drops words such as "the", "none" keeps them.
    min_documents
        A word of fewer documents is dropped.
    max_share
        A word of a larger share of the documents is dropped.
    max_words
        Keep the words of most documents only.
    corpus_size
        Documents in the corpus; saves a pass to count them if a vocabulary is given.
    """

    vocabulary: Path | None = None
    stop_words: Literal["english", "none"] = "english"
    min_documents: int = 5
    max_share: float = 0.5
    max_words: int | None = 10_000
    corpus_size: int | None = None


TEXT = TextOptions()


def topics(
    corpus: Path,
    /,
    *,
    topics: int = 50,
    passes: int = 400,
    max_seconds: float | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    stream: bool = False,
    test: int = 500,
    held_back: Literal["tenth", "half"] = "tenth",
    text: TextOptions = TEXT,
    seed: int = 0,
    resume: bool = True,
    quick: bool = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Find the topics of documents and judge them on documents held out.

    Nothing has to be set: priors are fitted, and passes are made until more would not help. A
    second call with the same options and folder goes on with an interrupted fit, or tells what was
    found.

    Example: ergodax topics articles.txt.gz --topics 20

    Parameters
    ----------
    corpus
        A file of one document a line, a folder of .txt files or a MediaWiki .xml dump, each .gz or
        .bz2 too; or an .npz file of word counts in compressed rows.
    topics
        How many.
    passes
        Over the documents, at most.
    max_seconds
        After which the fit ends with what there is.
    alpha
        Dirichlet prior of a document's topics; by default fitted, one for each topic.
    beta
        Dirichlet prior of a topic's words; by default fitted.
    stream
        See each document once and hold none, for corpora larger than memory.
    test
        Documents to test on, at most a fifth of them.
    held_back
        Which part of a test document's words is predicted from the others.
    text
        How words are counted.
    seed
        Of everything random.
    resume
        Go on with the folder's fit of the same options.
    quick
        At most 40 passes and 200 test documents.
    output
        Folder for report.html, facts.json, topics.csv; by default runs/topics-NAME.
    json_
        Print the figures as JSON instead of tables.
    """
    import ergodax as ex
    from ergodax.learn import LatentDirichletAllocation, NotConvergedWarning

    console = Console(stderr=json_)
    if test < 1:
        raise ValueError(f"test must be at least 1, not {test}.")
    passes, test = (min(passes, 40), min(test, 200)) if quick else (passes, test)
    opened = _open(corpus, text)
    size = f"{opened.num_documents:,} documents, {len(opened.vocabulary):,} words"
    console.print(f"[bold]{TITLE}[/bold]: {size}")
    place = folder(output, f"topics-{corpus.name.split('.')[0]}")
    if not resume:
        shutil.rmtree(place / "fit", ignore_errors=True)
    model = LatentDirichletAllocation(
        topics, doc_topic_prior=alpha, topic_word_prior=beta, max_iter=passes,
        max_seconds=max_seconds, random_state=seed, verbose=True,
        checkpoint=None if stream else ex.Checkpoint(place / "fit", resume=True),
    )  # fmt: skip
    tested, pieces = _divide(opened, test, seed, stream)
    first = next(pieces)
    kept = f"what was kept is in {place / 'fit'}. The same command goes on from there."
    with warnings.catch_warnings(), contextlib.nullcontext() if stream else stopped(kept):
        warnings.simplefilter("ignore", NotConvergedWarning)  # the verdict is told below
        model.partial_fit(first) if stream else model.fit(first)
        for piece in pieces:
            model.partial_fit(piece)
    found = _Found(opened, model, tested, held_back, first[:COHERENCE], seed)
    paths = found.write(place)
    if json_:
        tell_json(found.facts, paths)
    else:
        table = found.topics.table
        figures = {name: table[name].map("{:.3f}".format) for name in ("share", "npmi")}
        tell(console, [table.assign(**figures).astype(str), *found.reading])
    tell_files(console, paths)


def _divide(opened: Any, test: int, seed: int, stream: bool) -> tuple[Any, Iterator[Any]]:
    """Documents to test on, and those to learn from: all at once, or the pieces of a stream.

    The file's own test documents are taken if it has any, else documents at random, of a stream's
    first piece.
    """
    from ergodax.learn.topics import counted

    pieces = opened.chunks() if stream else iter([opened.matrix()])
    first = next(pieces)
    if opened.read_test is not None:
        documents = itertools.islice(opened.read_test(), test)
        return counted(documents, first.shape[1]), itertools.chain([first], pieces)
    order = np.random.default_rng(seed).permutation(first.shape[0])
    number = min(test, first.shape[0] // 5)
    if not number:
        raise ValueError(f"{first.shape[0]} documents are too few: none is left to test on.")
    return first[order[:number]], itertools.chain([first[np.sort(order[number:])]], pieces)


class _Found:
    """What is told of a fit, on the terminal and on a page."""

    def __init__(
        self, opened: Any, model: Any, tested: Any, held_back: Any, sample: Any, seed: int
    ) -> None:
        from ergodax.learn.topics import describe, hold_back, perplexity

        held = hold_back(tested, np.random.default_rng([seed, 1]), held_back)
        given = held.probabilities(
            jax.random.key(seed), model.predictive_draws(), model.doc_topic_prior_
        )
        shares = model.components_.sum(axis=1) / model.components_.sum()
        mean = model.draws_.mean(axis=0)
        self.trace = pd.DataFrame(model.trace_, columns=["passes", "log likelihood"])
        self.topics = describe(mean, shares, opened.vocabulary, sample, min(10, mean.shape[1]))
        self.verdict = model.verdict_
        self.facts: dict[str, Any] = {
            "documents": opened.num_documents,
            "vocabulary": len(opened.vocabulary),
            "test_documents": tested.shape[0],
            "held_back": held_back,
            "held_back_tokens": int(held.counts.sum()),
            "perplexity": perplexity(given, held.counts),
            "npmi": float(self.topics.coherence.mean()),
            "passes": model.n_iter_,
            "converged": model.converged_,
            "verdict": model.verdict_,
            "alpha": model.doc_topic_prior_.tolist(),
            "beta": model.topic_word_prior_,
            "seed": seed,
        }

    @property
    def reading(self) -> list[str]:
        """What was found, a sentence each."""
        facts: dict[str, Any] = self.facts
        part = {"tenth": "Every 10th", "half": "Every 2nd"}[facts["held_back"]]
        return [
            self.verdict,
            f"Held-out perplexity {facts['perplexity']:,.1f}. A model that knows nothing has "
            f"{facts['vocabulary']:,}, the number of words.",
            f"{part} token of {facts['test_documents']:,} test documents is held back, "
            f"{facts['held_back_tokens']:,} in all, and predicted from the document's other "
            "tokens.",
            "npmi: coherence of the 10 likeliest words of a topic; 1 if they only occur together, "
            "0 if independent, -1 if they never meet.",
        ]

    def write(self, place: Path) -> dict[str, Path]:
        """Write trace.csv and .png, topics.csv and .json, facts.json and report.html."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4), layout="constrained")
        axis = figure.subplots()
        axis.plot(self.trace["passes"], self.trace["log likelihood"], "o-")
        axis.set(xlabel="passes", ylabel="log likelihood of a word, nats")
        paths = {"picture": place / "trace.png", "table": place / "trace.csv"}
        paths |= {"facts": place / "facts.json", "report": place / "report.html"}
        figure.savefig(paths["picture"], dpi=150)
        self.trace.to_csv(paths["table"], index=False)
        page.write_facts(paths["facts"], self.facts)
        sections = [
            ("What was found", [self.reading]),
            ("By passes", [(figure, "Log likelihood of a word of the fit, by passes.")]),
            ("Topics", [page.with_names(self.topics.table)]),
        ]
        page.write(paths["report"], TITLE, sections)
        return paths | self.topics.write(place)


def _open(path: Path, text: TextOptions) -> Any:
    from ergodax.learn.topics import Vocabulary, english_stop_words, open_corpus

    return open_corpus(
        path,
        None if text.vocabulary is None else Vocabulary.read(text.vocabulary),
        num_documents=text.corpus_size,
        min_documents=text.min_documents,
        max_share=text.max_share,
        stop_words=english_stop_words() if text.stop_words == "english" else (),
        max_words=text.max_words,
    )
