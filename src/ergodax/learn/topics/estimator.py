"""Topics of documents in scikit-learn's convention."""

import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ergodax.checks import flag, real_number, whole_number
from ergodax.driver.progress import progress_bar
from ergodax.learn.base import NotConvergedWarning, validate_data
from ergodax.learn.topics.evaluation import hold_back, perplexity, top_words
from ergodax.learn.topics.gibbs import document_weights
from ergodax.learn.topics.layout import shape_of
from ergodax.learn.topics.learning import Learned, Learning, Plan
from ergodax.learn.topics.stream import Stream
from ergodax.persist.checkpoint import check_checkpoint

FILE = "topics"  # in the folder of a checkpoint


class LatentDirichletAllocation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Latent Dirichlet allocation, sampled: the topics of documents, and how sure they are.

    The model: each topic's distribution over words is phi_k ~ Dirichlet(beta); each document's
    weights are theta_d ~ Dirichlet(alpha_1, ..., alpha_K); each of its words has a topic
    z ~ theta_d, and is w ~ phi_z. `fit` draws (phi, z) from their posterior by Gibbs sampling of
    batches of documents (see `TopicGibbs`), which has no step size and nothing to be tuned; alpha
    and beta are those at which what was found is likeliest, and no draw is kept before they are.

    Args:
        n_components: number of topics, K.
        doc_topic_prior: alpha, positive, the same for all topics; by default fitted for each.
        topic_word_prior: beta, positive; by default fitted.
        max_iter: passes over the documents, at most.
        tol: a fit has converged when twice the passes gain less in the log likelihood of a word,
            in nats; about the relative change of the perplexity.
        max_seconds: after which the fit ends with what there is; by default never.
        num_draws: of the topics that are kept, evenly spaced over the last part of the passes.
        random_state: of everything random, as in scikit-learn.
        checkpoint: an `ex.Checkpoint`, in whose folder a fit is kept after every few passes.
        verbose: show a progress bar, where standard error is a terminal.

    Attributes:
        components_: pseudo-counts of words in topics, shape (n_components, n_features); divided by
            the sum of its row it is the posterior mean of phi.
        draws_: draws of phi, shape (draws, n_components, n_features).
        topic_sd_: posterior sd of phi, shape (n_components, n_features).
        doc_topic_prior_: alpha, shape (n_components,).
        topic_word_prior_: beta.
        trace_: passes, and log likelihood of a word in nats after them.
        n_iter_: passes that were made.
        converged_: whether `tol` was reached.
        verdict_: what was found about that, in words.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import LatentDirichletAllocation
        >>> counts = np.repeat(np.kron(np.eye(2, dtype=int), np.full((1, 4), 5)), 30, axis=0)
        >>> model = LatentDirichletAllocation(2, random_state=0).fit(counts)
        >>> weights = model.transform(counts)
        >>> weights.shape, bool(weights[0].argmax() != weights[-1].argmax())
        ((60, 2), True)

    Reference:
        Blei, Ng and Jordan, Latent Dirichlet allocation, 2003; Griffiths and Steyvers, Finding
        scientific topics, 2004; Wallach, Mimno and McCallum, Rethinking LDA: why priors matter,
        2009.
    """

    def __init__(
        self,
        n_components: Any = 10,
        *,
        doc_topic_prior: Any = None,
        topic_word_prior: Any = None,
        max_iter: Any = 400,
        tol: Any = 0.02,
        max_seconds: Any = None,
        num_draws: Any = 20,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: Any = False,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.num_draws = num_draws
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> "LatentDirichletAllocation":
        """Draw the topics given documents.

        Args:
            X: how often each word occurs, whole numbers of shape (documents, words), sparse or
                not, such as scikit-learn's CountVectorizer makes.
            y: ignored.

        Raises:
            TypeError: settings of the wrong kind.
            ValueError: NaN, negative or fractional counts, no words at all, or a number out of
                range.
            CheckpointError: the checkpoint is of other documents or settings.

        Warns:
            NotConvergedWarning: with what more passes would gain.
        """
        plan = self._plan()
        bags = self._counts(X, reset=True)
        kept = check_checkpoint(self.checkpoint)
        if kept is not None and kept.folder is None:
            raise ValueError("checkpoint has store= alone; give it a folder, to keep the fit in.")
        file = None if kept is None or kept.folder is None else Path(kept.folder) / FILE
        resume = kept is not None and kept.resume
        with progress_bar(
            plan.max_passes, show=self.verbose, what="topics", unit="passes"
        ) as report:
            found = Learning(bags, plan, file, resume, report).to_end()
        self._documents, self._stream = shape_of(bags)[0], None
        self._unseen = np.asarray(bags.sum(axis=0)).ravel() == 0
        self._take(found)
        if not self.converged_:
            warnings.warn(self.verdict_, NotConvergedWarning, stacklevel=2)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> "LatentDirichletAllocation":
        """Learn from documents that are not seen again: memory does not grow with their number.

        The first call fits the model to its documents; give it some hundreds or more. Later ones
        go on from there, or from `fit`. What is learnt from a document is weighted by its place in
        the stream, since the first ones met topics that were not yet good.

        Args:
            X: counts of the next documents, as in `fit`.
            y: ignored.
        """
        if not hasattr(self, "components_"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)
                return self.fit(X)
        bags = self._counts(X, reset=False)
        if self._stream is None:
            counts = self.components_ - self.topic_word_prior_
            self._stream = Stream(
                np.maximum(counts, 0.0), self._documents, self.doc_topic_prior_,
                self.topic_word_prior_, self._seed,
            )  # fmt: skip
        self._stream.learn(bags)
        self._unseen &= np.asarray(bags.sum(axis=0)).ravel() == 0
        self._draws, self.components_ = None, self._stream.counts + self.topic_word_prior_
        seen = self._stream.documents - self._documents
        self.verdict_ = f"The first documents: {self._first} Since then {seen:,} were seen once."
        return self

    @property
    def draws_(self) -> Float[np.ndarray, "draws K W"]:
        """Draws of phi; of a stream they are made when they are asked for."""
        if self._draws is None:
            assert self._stream is not None  # which alone leaves them to be made
            self._draws = self._stream.draws(self._num_draws)
        return self._draws

    @property
    def topic_sd_(self) -> Float[np.ndarray, "K W"]:
        """Posterior sd of phi."""
        return self.draws_.std(axis=0)

    def transform(self, X: Any) -> Float[np.ndarray, "documents K"]:
        """The expected weights of the topics in each document, averaged over the draws.

        Args:
            X: counts of words, as in `fit`. A document without words has the prior's weights.

        Returns:
            Rows that sum to 1.
        """
        check_is_fitted(self)
        bags = self._counts(X, reset=False)
        phis = self.predictive_draws()
        return document_weights(self._key(1), bags, phis, self.doc_topic_prior_).mean(axis=0)

    def perplexity(self, X: Any) -> float:
        """exp(-mean log probability) of half of the words of documents, given the other half.

        It says among how many equally likely words one would have to guess. Each word's
        probability is the average over the draws.

        Args:
            X: counts of words, as in `fit`; of other documents.

        Raises:
            ValueError: no document has two words.
        """
        check_is_fitted(self)
        held = hold_back(self._counts(X, reset=False), np.random.default_rng(0), "half")
        found = held.probabilities(self._key(2), self.predictive_draws(), self.doc_topic_prior_)
        return perplexity(found, held.counts)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log probability of a held-back word, see `perplexity`; more is better."""
        return -float(np.log(self.perplexity(X)))

    def predictive_draws(self) -> Float[np.ndarray, "draws K W"]:
        """The draws of phi to predict with: words that no document had are at their expectation.

        Their phi_kw is independent of all that was seen, and of most draws less than any float, so
        that a new document with such a word would have the probability 0.
        """
        check_is_fitted(self)
        expected = self.topic_word_prior_ / self.components_.sum(axis=1)
        return np.where(self._unseen, expected[None, :, None], self.draws_).astype(np.float32)

    def summary(self, feature_names: Any = None, top: int = 10) -> pd.DataFrame:
        """A row for each topic, the most frequent first.

        Args:
            feature_names: of the words; by default those of the data frame that was fitted, else
                their numbers.
            top: words of each topic.

        Returns:
            The topic's number, its share of all words, and its likeliest words, each followed by
            its probability and that probability's posterior sd, in per cent.

        Raises:
            ValueError: not a name for each column.
        """
        check_is_fitted(self)
        columns, names = self.components_.shape[1], feature_names
        if names is None:
            names = getattr(self, "feature_names_in_", np.arange(columns))
        names = [str(name) for name in names]
        if len(names) != columns:
            raise ValueError(f"feature_names has {len(names)} names, but X {columns} columns.")
        mean, shares = self.draws_.mean(axis=0), self.components_.sum(axis=1)
        best = top_words(mean, min(whole_number("top", top), len(names)))
        words = [
            ", ".join(
                f"{names[w]} ({100 * mean[k, w]:.1f} +- {100 * self.topic_sd_[k, w]:.1f})"
                for w in row
            )
            for k, row in enumerate(best)
        ]
        table = pd.DataFrame(
            {"topic": range(len(words)), "share": shares / shares.sum(), "words": words}
        )
        return table.sort_values("share", ascending=False, kind="stable", ignore_index=True)

    def _plan(self) -> Plan:
        """The settings, checked."""
        for name in ("doc_topic_prior", "topic_word_prior", "max_seconds"):
            if getattr(self, name) is not None:
                real_number(name, getattr(self, name), above=0.0)
        real_number("tol", self.tol, above=0.0)
        flag("verbose", self.verbose)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return Plan(
            whole_number("n_components", self.n_components),
            self.doc_topic_prior,
            self.topic_word_prior,
            whole_number("max_iter", self.max_iter),
            float(self.tol),
            self.max_seconds,
            whole_number("num_draws", self.num_draws),
            self._seed,
        )

    def _counts(self, X: Any, *, reset: bool) -> csr_array:
        """Whole counts, zeros left out."""
        given = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=reset)
        bags = csr_array(given)
        bags.sum_duplicates()
        bags.eliminate_zeros()
        if bags.nnz and bags.data.min() < 0:
            raise ValueError(f"Negative values in data passed to {type(self).__name__}.")
        broken = bags.data != np.floor(bags.data)
        if broken.any():
            raise ValueError(
                f"X must hold counts of words, whole numbers; it has {bags.data[broken][0]:g}. "
                "Weights such as tf-idf are no counts: use CountVectorizer."
            )
        if reset and not bags.nnz:
            raise ValueError("X has no words at all: every count is 0.")
        return csr_array((bags.data.astype(np.int64), bags.indices, bags.indptr), bags.shape)

    def _take(self, found: Learned) -> None:
        self._draws, self.n_iter_ = np.stack(found.draws), found.passes
        self._num_draws = len(found.draws)
        self.trace_ = list(found.trace)
        self.doc_topic_prior_, self.topic_word_prior_ = found.alpha, found.beta
        mean = self._draws.mean(axis=0, dtype=float)
        totals = np.asarray(found.state.auxiliary["counts"], float).sum(axis=1)
        pseudo = totals + self.topic_word_prior_ * mean.shape[1]
        self.components_ = mean / mean.sum(axis=1, keepdims=True) * pseudo[:, None]
        self._n_features_out = mean.shape[0]
        self.converged_ = found.settled
        self.verdict_ = self._first = self._verdict(found)

    def _verdict(self, found: Learned) -> str:
        change = f"{100 * np.expm1(found.gain):.1f} %"
        told = f"the later half of the burn-in changed the perplexity of the fit by {change}"
        if found.settled:
            return f"Converged after {found.passes} passes: {told}."
        if np.isinf(found.gain):
            return f"Not converged: {found.passes} passes are too few to tell; raise max_iter."
        return (
            f"Not converged after {found.passes} passes: {told}, more than tol={self.tol:g} "
            "allows. Raise max_iter, or max_seconds where it is set, for better topics, or tol if "
            "these are good enough."
        )

    def _key(self, number: int) -> Any:
        return jax.random.fold_in(jax.random.key(self._seed), 2**30 + number)

    def __sklearn_tags__(self) -> Any:
        """Counts are not negative and may be sparse; weights are of single precision."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = []
        return tags
