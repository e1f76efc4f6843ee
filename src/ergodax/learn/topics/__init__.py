"""Topics of a stream of documents: latent Dirichlet allocation by stochastic-gradient MCMC."""

from ergodax.learn.topics.corpus import (
    Corpus,
    CorpusError,
    Document,
    Vocabulary,
    english_stop_words,
    open_corpus,
)
from ergodax.learn.topics.evaluation import HeldBack, Topics
from ergodax.learn.topics.runs import Bench, Run, Store, open_bench
from ergodax.learn.topics.sampler import SAMPLERS, TopicGradient, topic_sampler
from ergodax.learn.topics.train import SUGGESTED, Settings, Snapshot, batches, train

__all__ = [
    "SAMPLERS",
    "SUGGESTED",
    "Bench",
    "Corpus",
    "CorpusError",
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
    "english_stop_words",
    "open_bench",
    "open_corpus",
    "topic_sampler",
    "train",
]
