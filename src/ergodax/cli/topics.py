"""`ergodax topics`: topics of a stream of documents by stochastic-gradient MCMC."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from cyclopts import Parameter
from rich.console import Console

from ergodax.cli.output import Json, Output, folder, tell, tell_files, tell_json
from ergodax.report import page

TITLE = "Topics of a stream of documents"


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


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The model and the sampler; what is not given has the published value.

    Parameters
    ----------
    alpha
        Dirichlet prior of a document's topics.
    beta
        Dirichlet prior of a topic's words.
    step_size
        a of the step sizes a (1 + t / b)^-c.
    offset
        b.
    power
        c.
    friction
        Of the samplers with momentum.
    gibbs_sweeps
        Over each document; the first half is not averaged.
    batch_size
        Documents a step.
    snapshot_every
        Documents between snapshots; by default a twentieth of all.
    """

    alpha: float | None = None
    beta: float | None = None
    step_size: float | None = None
    offset: float | None = None
    power: float | None = None
    friction: float | None = None
    gibbs_sweeps: int | None = None
    batch_size: int | None = None
    snapshot_every: int | None = None


TEXT, MODEL = TextOptions(), ModelOptions()


def topics(
    corpus: Path,
    /,
    *,
    topics: int = 50,
    sampler: Literal["sgrld", "sgrhmc", "sgld", "sghmc"] = "sgrld",
    documents: int = 20_000,
    test: int = 1_000,
    held_back: Literal["tenth", "half"] = "tenth",
    text: TextOptions = TEXT,
    model: ModelOptions = MODEL,
    seed: int = 0,
    resume: bool = True,
    quick: bool = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Find the topics of a stream of documents and judge them on documents held out.

    Texts are read anew at every pass and never held in memory. A second call with the same options
    and folder does not repeat a finished run, and goes on with an interrupted one.

    Example: ergodax topics articles.txt.gz --topics 20 --sampler sgrhmc

    Parameters
    ----------
    corpus
        A file of one document a line, a folder of .txt files or a MediaWiki .xml dump, each .gz or
        .bz2 too; or an .npz file of word counts in compressed rows.
    topics
        How many.
    sampler
        That draws the topics' distributions over words.
    documents
        Used in the run; the corpus is read again if it has fewer.
    test
        Documents to test on.
    held_back
        Which part of a test document's words is predicted from the others.
    text
        How words are counted.
    model
        The model and the sampler.
    seed
        Of test set, order, start and noise.
    resume
        Use the folder's finished or interrupted run of the same options.
    quick
        At most 2,000 documents, 10 sweeps and 200 test documents.
    output
        Folder for report.html, facts.json, topics.csv; by default runs/topics-NAME.
    json_
        Print the figures as JSON instead of tables.
    """
    from ergodax.learn.topics import open_bench

    console = Console(stderr=json_)
    say = lambda line: console.print(line, highlight=False, markup=False)  # noqa: E731
    if quick:
        documents, test = min(documents, 2_000), min(test, 200)
    settings = _settings(sampler, model, topics, documents, quick)
    if documents < settings.batch_size:
        raise ValueError(f"documents must be at least {settings.batch_size}, not {documents}.")
    if test < 1:
        raise ValueError(f"test must be at least 1, not {test}.")
    opened = _open(corpus, text)
    size = f"{opened.num_documents:,} documents, {len(opened.vocabulary):,} words"
    console.print(f"[bold]{TITLE}[/bold]: {size}")
    place = folder(output, f"topics-{corpus.name.split('.')[0]}")
    bench = open_bench(
        opened, documents, test=test, held_back=held_back, seed=seed, folder=place, resume=resume,
        say=say,
    )  # fmt: skip
    run = bench.run(settings, 0, f"{sampler}-1")
    found = bench.topics(run.phi, settings)
    last = run.rows[-1]
    facts = {
        **bench.store.facts, "settings": dataclasses.asdict(settings),
        **{name: last[name] for name in ("perplexity", "alone", "seconds", "pace")},
        "npmi": float(found.coherence.mean()),
    }  # fmt: skip
    paths = _write(place, facts, run.rows, found)
    if json_:
        tell_json(facts, paths)
    else:
        figures = {name: found.table[name].map("{:.3f}".format) for name in ("share", "npmi")}
        tell(console, [found.table.assign(**figures).astype(str), *_reading(facts)])
    tell_files(console, paths)


def _reading(facts: dict[str, Any]) -> list[str]:
    """What was found, a sentence each."""
    part = {"tenth": "Every 10th", "half": "Every 2nd"}[facts["held_back"]]
    return [
        f"Held-out perplexity {facts['perplexity']:,.1f}, averaged over the later half of the "
        f"snapshots; {facts['alone']:,.1f} of the last alone. A model that knows nothing has "
        f"{facts['vocabulary']:,}, the number of words.",
        f"{part} token of {facts['test_documents']:,} test documents is held back, "
        f"{facts['held_back_tokens']:,} in all, and predicted from the document's other tokens.",
        "npmi: coherence of the 10 likeliest words of a topic; 1 if they only occur together, 0 if "
        "independent, -1 if they never meet.",
    ]


def _write(
    place: Path, facts: dict[str, Any], rows: list[dict[str, Any]], found: Any
) -> dict[str, Path]:
    """Write perplexity.csv and .png, topics.csv and .json, facts.json and report.html."""
    from matplotlib.figure import Figure

    table = pd.DataFrame(rows)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot(table["documents"], table["perplexity"], "o-", label="averaged over snapshots")
    axis.plot(table["documents"], table["alone"], "o--", label="each snapshot alone")
    axis.set(xlabel="documents seen", ylabel="held-out perplexity", yscale="log")
    axis.legend(frameon=False)
    paths = {"picture": place / "perplexity.png", "table": place / "perplexity.csv"}
    paths |= {"facts": place / "facts.json", "report": place / "report.html"}
    figure.savefig(paths["picture"], dpi=150)
    table.to_csv(paths["table"], index=False)
    page.write_facts(paths["facts"], facts)
    sections = [
        ("What was found", [_reading(facts)]),
        ("By documents seen", [(figure, "Held-out perplexity by documents seen.")]),
        ("Topics", [page.with_names(found.table)]),
        ("Settings", [facts["settings"]]),
    ]
    page.write(paths["report"], TITLE, sections)
    return paths | found.write(place)


def _settings(sampler: str, model: ModelOptions, topics: int, documents: int, quick: bool) -> Any:
    from ergodax.learn.topics import SUGGESTED, Settings

    given = {name: value for name, value in dataclasses.asdict(model).items() if value is not None}
    given.setdefault("snapshot_every", max(1, documents // (5 if quick else 20)))
    if quick:
        given.setdefault("gibbs_sweeps", 10)
    return Settings(sampler, num_topics=topics, **{**SUGGESTED[sampler], **given})


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
