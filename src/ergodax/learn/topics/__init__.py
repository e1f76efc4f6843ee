"""Topics of documents: latent Dirichlet allocation by Gibbs sampling of batches."""

from ergodax.learn.topics.corpus import (
    Corpus,
    CorpusError,
    Document,
    Vocabulary,
    counted,
    english_stop_words,
    open_corpus,
)
from ergodax.learn.topics.evaluation import (
    Completion,
    HeldBack,
    Topics,
    describe,
    hold_back,
    npmi,
    perplexity,
    top_words,
)
from ergodax.learn.topics.gibbs import add_words, document_weights, nothing_assigned, sweep
from ergodax.learn.topics.layout import Tokens, lay_out, shape_of
from ergodax.learn.topics.merging import merged

__all__ = [
    "Completion",
    "Corpus",
    "CorpusError",
    "Document",
    "HeldBack",
    "Tokens",
    "Topics",
    "Vocabulary",
    "add_words",
    "counted",
    "describe",
    "document_weights",
    "english_stop_words",
    "hold_back",
    "lay_out",
    "merged",
    "nothing_assigned",
    "npmi",
    "open_corpus",
    "perplexity",
    "shape_of",
    "sweep",
    "top_words",
]
