"""`python -m experiments topics`: samplers and their peers on one stream of documents."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from ergodax.learn.topics import HeldBack, Vocabulary, english_stop_words, open_corpus
from experiments.command import DEFAULTS, Many, Options, finish, place_for, speaker
from experiments.data import find
from experiments.topics import comparison
from experiments.topics.report import TITLE, present
from experiments.topics.samplers import SAMPLERS
from experiments.topics.train import SUGGESTED, Settings

OF_SAMPLERS = ("step_size", "offset", "power", "friction")
WITH_MOMENTUM = ("sgrhmc", "sghmc")
SHORT = {"a": "step_size", "b": "offset", "c": "power", "topics": "num_topics"}


def topics(
    corpus: Path,
    /,
    *,
    methods: Annotated[tuple[str, ...], Many] = ("sgrld", "sgrhmc", "scikit-learn", "gensim"),
    documents: int = 20_000,
    test: int = 1_000,
    repeats: int = 3,
    held_back: HeldBack = "tenth",
    set_: Annotated[tuple[str, ...], Many] = (),
    grid: Annotated[tuple[str, ...], Many] = (),
    grid_documents: int | None = None,
    vocabulary: Path | None = None,
    max_share: float = 0.5,
    resume: bool = True,
    options: Options = DEFAULTS,
) -> None:
    """Topics by SGRLD, SGRHMC, SGLD or SGHMC beside scikit-learn, gensim and tomotopy.

    All meet the same stream and predict the same held-out words. A second call with the same
    options and folder does not repeat its finished runs.

    Example: python -m experiments topics articles.txt.gz --set topics=20 --grid a=0.01,0.1

    Parameters
    ----------
    corpus
        A file of one document a line, a folder of .txt files or a MediaWiki .xml dump, each .gz or
        .bz2 too; or an .npz file of word counts in compressed rows.

    Methods:
        sgrld, sgrhmc, sgld, sghmc; scikit-learn, gensim, tomotopy. What is not installed is
        skipped.
    documents
        Used in each run; the corpus is read again if it has fewer.
    test
        Documents to test on; with --grid as many others choose from the grid.
    repeats
        Runs of each method, for the error of the perplexity.
    held_back
        Which part of a test document's words is predicted from the others.
    set_
        NAME=VALUE of the model and the samplers: topics, alpha, beta, a, b and c of the step sizes
        a (1 + t / b)^-c, friction, gibbs_sweeps, batch_size, snapshot_every. Priors, batches and
        snapshots are the peers' too.
    grid
        Values to try before the runs, NAME=V1,V2 for the samplers or METHOD:NAME=V1,V2; b and c of
        a peer are of its learning rate (b + t)^-c.
    grid_documents
        Used in each run of the grid; by default as many as in the others.
    vocabulary
        A file of one word a line; by default the words are chosen from the corpus.
    max_share
        A word of a larger share of the documents is dropped.
    resume
        Use the folder's finished runs of the same options.
    """
    path = find(corpus, "corpus", "CORPUS")
    if options.quick:
        documents, test, repeats = min(documents, 2_000), min(test, 200), min(repeats, 2)
    given = dict(_axis(text, "--set") for text in set_)
    single = {name: values[0] for name, values in given.items()}
    chosen = comparison.Options(
        {name: _settings(name, single, documents, options.quick) for name in methods},
        documents,
        test,
        repeats,
        parse_grid(grid, methods),
        grid_documents,
        held_back,
        options.seed,
        resume,
    )
    words = None if vocabulary is None else Vocabulary.read(vocabulary)
    opened = open_corpus(
        path, words, max_share=max_share, stop_words=english_stop_words(), max_words=10_000
    )
    say, place = speaker(options), place_for(f"topics-{corpus.name.split('.')[0]}", options)
    say(f"{TITLE}: {opened.num_documents:,} documents, {len(opened.vocabulary):,} words")
    result = comparison.run(opened, chosen, say, place)
    next(iter(result.topics.values())).write(place)
    if len(result.grid):
        result.grid.to_csv(place / "grid.csv", index=False)
    finish(present(result), "perplexity", place, options)


def _settings(method: str, given: dict[str, float], documents: int, quick: bool) -> Settings:
    """The suggested settings of a method, with those that are given."""
    ours = method in SAMPLERS
    rest = {name: value for name, value in given.items() if ours or name not in OF_SAMPLERS}
    start: dict[str, Any] = {"snapshot_every": max(1, documents // (5 if quick else 20))}
    if quick:
        start["gibbs_sweeps"] = 10
    base = Settings(method if ours else SAMPLERS[0], **start | SUGGESTED.get(method, {}))
    unknown = set(rest) - {field.name for field in dataclasses.fields(Settings)}
    if unknown:
        raise ValueError(f"--set has {sorted(unknown)}, which are no numbers of the settings.")
    return comparison.changed(base, rest)


def parse_grid(
    texts: tuple[str, ...], methods: tuple[str, ...]
) -> dict[str, dict[str, tuple[float, ...]]]:
    """The values to try for each sampler; only those with a momentum have a friction."""
    grid: dict[str, dict[str, tuple[float, ...]]] = {}
    for text in texts:
        method, colon, axis = text.rpartition(":")
        name, values = _axis(axis, "--grid")
        for each in [method] if colon else [m for m in methods if m in SAMPLERS]:
            if colon or name != "friction" or each in WITH_MOMENTUM:
                grid.setdefault(each, {})[name] = values
    return grid


def _axis(text: str, option: str) -> tuple[str, tuple[float, ...]]:
    name, _, values = text.partition("=")
    try:
        numbers = tuple(float(value) for value in values.split(","))
    except ValueError:
        raise ValueError(
            f"{option} has {text!r}; NAME=V1,V2 is expected, such as a=0.001,0.01."
        ) from None
    return SHORT.get(name, name), numbers
