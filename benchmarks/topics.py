"""`LatentDirichletAllocation` with nothing set, beside scikit-learn, gensim and tomotopy.

    python -m benchmarks topics --data FOLDER reuters wiki:10000 text simulated:300
    python -m benchmarks topics simulated:3000 --topics 20 --search

Corpora: `reuters` (reuters395_bow.npz), `wiki:N` (the first N training articles of wiki_bow.npz),
`text` (wiki_articles.txt.gz, words chosen from it) and `simulated:N` (documents of the model, with
a tenth of the topics' words frequent; its true topics are a row of the table). A tenth of the
tokens of each test document is held back and predicted from the others, given each method's topics
and its own alpha, by the same code. Peers that are not installed are left out. With --search the
peers also run with other priors and more passes, and the best perplexity on the test documents
themselves is told, which flatters them. Seconds are of all cores, compilation included.
"""

import argparse
import functools
import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.sparse import csr_array

from benchmarks import environment
from benchmarks.report import Table
from ergodax.learn import LatentDirichletAllocation
from ergodax.learn.topics import (
    counted,
    english_stop_words,
    hold_back,
    npmi,
    open_corpus,
    perplexity,
    shape_of,
    top_words,
)

TEST = 500
PEERS = {"scikit-learn": "sklearn", "gensim": "gensim", "tomotopy": "tomotopy"}
FILES = {
    "wiki": "wiki_bow.npz",
    "reuters": "reuters395_bow.npz",
    "text": "wiki_articles.txt.gz",
}
FIRST = 1_000  # documents of a stream that are fitted, and of each later part
COHERENCE = 10_000  # documents in which pairs of words are counted


class Found(NamedTuple):
    """A method's topics, draws of them, and its prior of documents' weights."""

    phis: np.ndarray  # (draws, K, W)
    alpha: np.ndarray  # (K,)
    told: str = ""


def corpus(name: str, data: Path, topics: int, seed: int) -> tuple[Any, Any, Found | None]:
    """Documents to learn from and to test on, and the topics where they are known."""
    kind, _, number = name.partition(":")
    if kind == "simulated":
        rng = np.random.default_rng(seed)
        words = 2_000
        phi = rng.dirichlet(np.full(words, 0.1), topics)
        weights = rng.dirichlet(np.full(topics, 0.1), int(number) + TEST)
        lengths = rng.poisson(100, len(weights))
        rows = [rng.multinomial(n, w @ phi) for n, w in zip(lengths, weights, strict=True)]
        bags = csr_array(np.array(rows))
        return bags[TEST:], bags[:TEST], Found(phi[None], np.full(topics, 0.1))
    opened = open_corpus(
        data / FILES[kind], stop_words=english_stop_words(), max_words=10_000, min_documents=5
    )
    bags = opened.matrix()
    if opened.read_test is not None:
        test = counted(opened.read_test(), len(opened.vocabulary))[:TEST]
        return bags[: int(number or 10_000)], test, None
    order = np.random.default_rng(seed).permutation(opened.num_documents)
    tested = min(TEST, opened.num_documents // 8)
    return bags[order[tested:]], bags[order[:tested]], None


def ours(bags: csr_array, topics: int, seed: int, **settings: Any) -> Found:
    """Nothing set but the number of topics."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LatentDirichletAllocation(topics, random_state=seed, **settings).fit(bags)
    return Found(model.predictive_draws(), model.doc_topic_prior_, f"{model.n_iter_} passes")


def streamed(bags: csr_array, topics: int, seed: int) -> Found:
    """The first documents by `fit`, each other one seen once by `partial_fit`."""
    model = LatentDirichletAllocation(topics, random_state=seed)
    seconds = 0.0
    for start in range(0, shape_of(bags)[0], FIRST):
        part, began = bags[start : start + FIRST], time.process_time()
        model.partial_fit(part)
        seconds = 100 * (time.process_time() - began) / shape_of(part)[0]
    told = f"{FIRST} by fit, then once; 100 of the last in {seconds:.3f} s"
    return Found(model.predictive_draws(), model.doc_topic_prior_, told)


def scikit_learn(bags: csr_array, topics: int, seed: int, **settings: Any) -> Found:
    """Variational Bayes."""
    from sklearn.decomposition import LatentDirichletAllocation as Variational

    model: Any = Variational(topics, random_state=seed, **settings).fit(bags)
    phi = model.components_ / model.components_.sum(axis=1, keepdims=True)
    return Found(phi[None], np.full(topics, model.doc_topic_prior_))


def gensim(bags: csr_array, topics: int, seed: int, **settings: Any) -> Found:
    """Online variational Bayes."""
    from gensim.models import LdaModel  # pyright: ignore[reportMissingImports]

    ends = zip(bags.indptr, bags.indptr[1:], strict=False)
    documents = [
        list(zip(bags.indices[a:b].tolist(), bags.data[a:b].tolist(), strict=True)) for a, b in ends
    ]
    names = {number: str(number) for number in range(shape_of(bags)[1])}
    given: dict[str, Any] = {"id2word": names, "random_state": seed, "eval_every": None}
    model: Any = LdaModel(documents, num_topics=topics, **given, **settings)
    weights = model.state.get_lambda()
    return Found((weights / weights.sum(axis=1, keepdims=True))[None], np.asarray(model.alpha))


def tomotopy(bags: csr_array, topics: int, seed: int, passes: int = 200, **settings: Any) -> Found:
    """Collapsed Gibbs sampling, priors fitted."""
    from tomotopy import LDAModel  # pyright: ignore[reportMissingImports]

    model = LDAModel(k=topics, seed=seed, rm_top=0, **settings)
    counts: Any = bags.data
    for a, b in zip(bags.indptr, bags.indptr[1:], strict=False):
        if b > a:
            model.add_doc([str(w) for w in np.repeat(bags.indices[a:b], counts[a:b])])
    model.train(passes, workers=1)
    columns = [int(word) for word in model.used_vocabs]
    known = np.array([model.get_topic_word_dist(topic) for topic in range(topics)])
    # A word of no document it leaves out; it is given what a word has that a topic does not have.
    phi = np.repeat(known.min(axis=1, keepdims=True), shape_of(bags)[1], axis=1)
    phi[:, columns] = known
    return Found((phi / phi.sum(axis=1, keepdims=True))[None], np.asarray(model.alpha))


METHODS: dict[str, Callable[..., Found]] = {
    "ergodax": ours,
    "ergodax, a stream": streamed,
    "scikit-learn": scikit_learn,
    "gensim": gensim,
    "tomotopy": tomotopy,
}
SEARCHED: dict[str, list[dict[str, Any]]] = {
    "scikit-learn": [
        {"doc_topic_prior": a, "topic_word_prior": b, "max_iter": 50}
        for a in (0.02, 0.1) for b in (0.05, 0.3)
    ],
    "gensim": [{"alpha": "auto", "eta": "auto", "passes": n} for n in (10, 30)],
    "tomotopy": [{"passes": 500}],
}  # fmt: skip


def judged(found: Found, bags: Any, held: Any, seed: int) -> tuple[float, float]:
    """Perplexity, and the mean NPMI of the topics."""
    phis = found.phis.astype(np.float32)
    given = held.probabilities(jax.random.key(seed), phis, found.alpha, burn_in=30)
    coherence = npmi(top_words(found.phis.mean(axis=0), 10), bags[:COHERENCE])
    return perplexity(given, held.counts), float(coherence.mean())


def rows(name: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each method on a corpus."""
    bags, test, truth = corpus(name, given.data, given.topics, given.seed)
    held = hold_back(test, np.random.default_rng([given.seed, 1]))
    calls: dict[str, Callable[[], Found]] = {}
    if truth is not None:
        calls["the true topics"] = lambda: truth
    for method, call in METHODS.items():
        if method in given.methods and _is_there(method):
            calls[method] = functools.partial(call, bags, given.topics, given.seed)
            for settings in SEARCHED.get(method, []) if given.search else []:
                shown = ", ".join(f"{key}={value}" for key, value in settings.items())
                whole = functools.partial(call, bags, given.topics, given.seed, **settings)
                calls[f"{method}, {shown}"] = whole
    found = []
    for method, call in calls.items():
        began = time.process_time()
        topics = call()
        seconds = time.process_time() - began
        value, coherence = judged(topics, bags, held, given.seed)
        row = {
            "corpus": name, "method": method, "perplexity": f"{value:,.0f}",
            "NPMI": f"{coherence:.3f}", "seconds": f"{seconds:,.1f}",
            "s/100 documents": f"{100 * seconds / shape_of(bags)[0]:.3f}", "remark": topics.told,
        }  # fmt: skip
        print(" | ".join(row.values()), flush=True)
        found.append(row)
    return found


def _is_there(method: str) -> bool:
    return method not in PEERS or importlib.util.find_spec(PEERS[method]) is not None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks topics", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("corpora", nargs="+", help="reuters, wiki:N, text, simulated:N")
    parser.add_argument("--data", type=Path, default=Path("."), help="folder of the files")
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--search", action="store_true", help="the peers with other settings too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    given = parser.parse_args(arguments)
    facts = environment.describe()
    table = Table(
        "Topics with nothing set",
        ("corpus", "method", "perplexity", "NPMI", "seconds", "s/100 documents", "remark"),
        notes=[", ".join(f"{key} {facts[key]}" for key in ("date", "cores", "jax", "load before"))],
    )
    for name in given.corpora:
        for row in rows(name, given):
            table.rows.append(list(row.values()))
    print(f"\n{table.text()}")
    if given.markdown:
        given.markdown.write_text(table.markdown() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
