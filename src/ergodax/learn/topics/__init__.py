"""Topics of a stream of documents: latent Dirichlet allocation by stochastic-gradient MCMC."""

from ergodax.learn.topics.batches import Batch, batches, pad
from ergodax.learn.topics.corpus import (
    Corpus,
    Document,
    Vocabulary,
    english_stop_words,
    tokenise,
)
from ergodax.learn.topics.description import Topics, describe, npmi, top_words
from ergodax.learn.topics.division import Division, divide, endless, shuffled
from ergodax.learn.topics.evaluation import (
    Completion,
    HeldBack,
    infer_proportions,
    perplexity,
    split,
    word_probabilities,
)
from ergodax.learn.topics.gibbs import expected_counts
from ergodax.learn.topics.gradient import TopicGradient
from ergodax.learn.topics.kernels import SAMPLERS, topic_sampler
from ergodax.learn.topics.readers import CorpusError, open_corpus, read_bags, read_texts
from ergodax.learn.topics.runs import Bench, Run, Store, open_bench
from ergodax.learn.topics.train import SUGGESTED, Settings, Snapshot, train

__all__ = [
    "SAMPLERS",
    "SUGGESTED",
    "Batch",
    "Bench",
    "Completion",
    "Corpus",
    "CorpusError",
    "Division",
    "Document",
    "HeldBack",
    "Run",
    "Settings",
    "Snapshot",
    "Store",
    "TopicGradient",
    "Topics",
    "Vocabulary",
    "batches",
    "describe",
    "divide",
    "endless",
    "english_stop_words",
    "expected_counts",
    "infer_proportions",
    "npmi",
    "open_bench",
    "open_corpus",
    "pad",
    "perplexity",
    "read_bags",
    "read_texts",
    "shuffled",
    "split",
    "tokenise",
    "top_words",
    "topic_sampler",
    "train",
    "word_probabilities",
]
