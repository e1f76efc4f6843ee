"""`ergodax lda`: topics of a stream of documents by stochastic-gradient MCMC."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from ergodax.cli.options import Json, Many, Output, folder, tell_files, tell_json
from ergodax.cli.show import text_table

Sampler = Literal["sgrld", "sgrhmc", "sgld", "sghmc"]
OF_SAMPLERS = ("step_size", "offset", "power", "friction")
WITH_MOMENTUM = ("sgrhmc", "sghmc")
SHORT = {"a": "step_size", "b": "offset", "c": "power"}


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


def lda(
    corpus: Path,
    /,
    *,
    topics: int = 50,
    sampler: Annotated[tuple[Sampler, ...], Many] = ("sgrld",),
    documents: int = 20_000,
    test: int = 1_000,
    repeats: int = 3,
    held_back: Literal["tenth", "half"] = "tenth",
    compare: bool = False,
    peers: Annotated[tuple[str, ...], Many] = ("scikit-learn", "gensim"),
    grid: Annotated[tuple[str, ...], Many] = (),
    grid_documents: int | None = None,
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
    and folder does not repeat its finished runs, and goes on with an interrupted one.

    Example: ergodax lda articles.txt.gz --topics 20 --sampler sgrld sgrhmc --grid a=0.01,0.1

    Parameters
    ----------
    corpus
        A file of one document a line, a folder of .txt files or a MediaWiki .xml dump, each .gz or
        .bz2 too; or an .npz file of word counts in compressed rows.
    topics
        How many.
    sampler
        One or several, run on the same stream.
    documents
        Used in each run; the corpus is read again if it has fewer.
    test
        Documents to test on; with --grid as many others choose from the grid.
    repeats
        Runs of each method, for the error of the perplexity.
    held_back
        Which part of a test document's words is predicted from the others.
    compare
        Run the peers on the same stream too.
    peers
        scikit-learn, gensim, tomotopy; those not installed are skipped.
    grid
        Values to try before the runs, NAME=V1,V2 for the samplers or METHOD:NAME=V1,V2; a, b and c
        are those of the step size, and b and c of a peer's learning rate (b + t)^-c.
    grid_documents
        Used in each run of the grid; by default as many as in the others.
    text
        How words are counted.
    model
        The model and the sampler.
    seed
        Of test set, order, start and noise.
    resume
        Use the folder's finished and interrupted runs of the same options.
    quick
        At most 2,000 documents, 2 runs, 10 sweeps and 200 test documents.
    output
        Folder for report.html, facts.json, topics.csv; by default runs/lda-NAME.
    json_
        Print the figures as JSON instead of tables.
    """
    from ergodax.apps.lda import experiment, pages

    console = Console(stderr=json_)
    if quick:
        documents, test, repeats = min(documents, 2_000), min(test, 200), min(repeats, 2)
    methods = (*sampler, *(peers if compare else ()))
    options = experiment.Options(
        {name: _settings(name, model, topics, documents, quick) for name in methods},
        documents,
        test,
        repeats,
        _grid(grid, sampler),
        grid_documents,
        held_back,
        seed,
        resume,
    )
    opened = _open(corpus, text)
    console.print(
        f"[bold]{pages.TITLE}[/bold]: {opened.num_documents:,} documents, "
        f"{len(opened.vocabulary):,} words"
    )
    say = lambda line: console.print(line, highlight=False, markup=False)  # noqa: E731
    place = folder(output, f"lda-{corpus.name.split('.')[0]}")
    result = experiment.run(opened, options, say, place)
    paths = pages.write(result, place)
    if json_:
        tell_json(pages.facts(result), paths)
    else:
        console.print(text_table(pages.texts(result)))
        for sentence in pages.reading(result):
            say(sentence)
    tell_files(console, paths)


def _settings(sampler: str, model: ModelOptions, topics: int, documents: int, quick: bool) -> Any:
    from ergodax.apps.lda.kernels import SAMPLERS
    from ergodax.apps.lda.train import SUGGESTED, Settings

    ours = sampler in SAMPLERS
    given = {
        name: value
        for name, value in dataclasses.asdict(model).items()
        if value is not None and (ours or name not in OF_SAMPLERS)
    }
    given.setdefault("snapshot_every", max(1, documents // (5 if quick else 20)))
    if quick:
        given.setdefault("gibbs_sweeps", 10)
    chosen = {**SUGGESTED.get(sampler, {}), **given}
    return Settings(sampler if ours else SAMPLERS[0], num_topics=topics, **chosen)


def _grid(
    texts: tuple[str, ...], samplers: tuple[str, ...]
) -> dict[str, dict[str, tuple[float, ...]]]:
    """The values to try for each sampler; only those with a momentum have a friction."""
    grid: dict[str, dict[str, tuple[float, ...]]] = {}
    for text in texts:
        sampler, colon, axis = text.rpartition(":")
        name, values = _axis(axis)
        for each in [sampler] if colon else samplers:
            if colon or name != "friction" or each in WITH_MOMENTUM:
                grid.setdefault(each, {})[name] = values
    return grid


def _axis(text: str) -> tuple[str, tuple[float, ...]]:
    name, _, values = text.partition("=")
    try:
        numbers = tuple(float(value) for value in values.split(","))
    except ValueError:
        raise ValueError(
            f"--grid has {text!r}; NAME=V1,V2 is expected, such as a=0.001,0.01."
        ) from None
    return SHORT.get(name, name), numbers


def _open(path: Path, text: TextOptions) -> Any:
    from ergodax.apps.lda.corpus import Vocabulary, english_stop_words
    from ergodax.apps.lda.readers import open_corpus

    return open_corpus(
        path,
        None if text.vocabulary is None else Vocabulary.read(text.vocabulary),
        num_documents=text.corpus_size,
        min_documents=text.min_documents,
        max_share=text.max_share,
        stop_words=english_stop_words() if text.stop_words == "english" else (),
        max_words=text.max_words,
    )
