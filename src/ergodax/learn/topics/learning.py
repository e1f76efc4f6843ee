"""From a matrix of counts to draws of its topics: a search, a burn-in, and draws.

All phases are runs of `ex.sample`. The search has more topics than are wanted, and those that are
alike are merged. The priors are fitted between runs of the burn-in and are fixed in the third
phase, so that its draws have the posterior's law given them.
"""

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from ergodax.driver import sample
from ergodax.errors import CheckpointError, StorageError
from ergodax.kernel import State
from ergodax.learn.topics import hyperparameters
from ergodax.learn.topics.kernel import TopicGibbs, dirichlet
from ergodax.learn.topics.layout import LANES, lay_out, shape_of
from ergodax.learn.topics.merging import merged
from ergodax.persist import checkpoint

FIRST_ALPHA, FIRST_BETA = 0.1, 0.05
ROUND = 10  # passes of a round of search and burn-in, or a sixteenth of all if these are few
SEARCH = 2  # rounds of the search, by which topics have come apart
MORE = 2  # times as many topics in the search: with as many as are wanted, some hold two
LEAST = 8  # rounds of the burn-in before it can end: the first ones leave the search's mode
# Tokens of a block and between two draws of phi, for each word: with so many the work on tokens is
# at least as much as that on the K W numbers of phi. Measured on a CPU it is 1 ns a token and
# topic; for a number of phi 4 ns a step, and 100 ns a draw.
OF_BLOCK, OF_DRAW = 8, 100
STORED = 2**28  # bytes of draws at most, but for the first `LEAST_DRAWS`
LEAST_DRAWS = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long to go on.

    Attributes:
        num_topics: K.
        alpha: of the prior of the documents' weights; None to fit it, one for each topic.
        beta: of the prior of the topics' words; None to fit it.
        max_passes: over the corpus, of all phases.
        tolerance: what twice the passes may add to the log likelihood of a token, in nats.
        max_seconds: after which it ends with what there is; None for never.
        num_draws: of the topics.
        seed: of everything random.
    """

    num_topics: int
    alpha: float | None
    beta: float | None
    max_passes: int
    tolerance: float
    max_seconds: float | None
    num_draws: int
    seed: int


@dataclasses.dataclass
class Learned:
    """What has been learnt so far.

    Attributes:
        state: of the kernel, with more topics than are wanted while it searches.
        alpha: of the documents' weights, one for each topic.
        beta: of the topics' words.
        passes: so far.
        trace: passes and log likelihood of a token, in nats, after each round.
        burnt: passes when the burn-in was over; 0 before.
        draws: of phi, a list of arrays (K, W).
        gain: what the later half of the burn-in changed in the log likelihood; infinite before it
            can be told.
        settled: whether the burn-in ended because more of it gained less than the tolerance.
    """

    state: State
    alpha: Float[np.ndarray, " K"]
    beta: float
    passes: int = 0
    trace: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    burnt: int = 0
    draws: list[np.ndarray] = dataclasses.field(default_factory=list)
    gain: float = math.inf
    settled: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """All but the arrays."""
        names = ("beta", "passes", "trace", "burnt", "gain", "settled")
        return {name: getattr(self, name) for name in names} | {"alpha": self.alpha.tolist()}


class Learning:
    """Learns the topics of one corpus.

    Args:
        bags: whole counts of words, shape (documents, words).
        plan: how long to go on.
        file: where it is kept after each round; None keeps nothing.
        resume: go on with what the file has.
        report: called with the passes so far and passes a second.

    Raises:
        CheckpointError: the file is there and `resume` is False, or is of other counts or settings.
    """

    def __init__(
        self,
        bags: csr_array,
        plan: Plan,
        file: Path | None = None,
        resume: bool = False,
        report: Callable[[int, float], None] = lambda passes, rate: None,
    ) -> None:
        self.plan, self.file, self.report = plan, file, report
        documents, self.num_words = shape_of(bags)
        self.num_tokens = int(bags.sum())
        blocks = max(1, min(documents // LANES, self.num_tokens // (OF_BLOCK * self.num_words)))
        self.num_blocks, self.round = blocks, max(1, min(ROUND, plan.max_passes // 16))
        order = np.random.default_rng(plan.seed).permutation(documents)
        self.tokens, _ = lay_out(bags, np.array_split(order, blocks))
        # A power of two, so that most tables share the program that counts up to it.
        self.longest = 1 << int(np.max(bags.sum(axis=1), initial=1)).bit_length()
        self.key = jax.random.key(plan.seed)
        size = 4 * plan.num_topics * self.num_words
        self.num_draws = min(plan.num_draws, max(LEAST_DRAWS, STORED // size))
        many = MORE * plan.num_topics if plan.num_topics > 1 else 1
        self.digest = "" if file is None else _digest(bags, plan)
        self.began = time.perf_counter()
        self.learned = self._load(file, resume) if file and file.exists() else self._start(many)

    def to_end(self) -> Learned:
        """Go on until everything has been done, or the time is up."""
        found, plan = self.learned, self.plan
        while len(found.trace) < SEARCH and not self._late():
            self._round(searching=True)
        if len(found.alpha) > plan.num_topics:
            self._merge()
        while not found.burnt:
            self._round(searching=False)
            found.settled = found.gain < plan.tolerance
            enough = found.passes + self.round > plan.max_passes * 2 // 3
            if found.settled or enough or self._late():
                found.burnt = max(1, found.passes)
        wanted = max(LEAST_DRAWS, min(self.num_draws, plan.max_passes - found.burnt))
        every = max(1, found.burnt // (2 * wanted))
        while len(found.draws) < wanted and not (found.draws and self._late()):
            self._draw(min(-(-wanted // 2), wanted - len(found.draws)), every)
        return found

    def _told_gain(self) -> float:
        """What the later half of the burn-in changed; the search, nearer to the mode, is apart."""
        trace = self.learned.trace[SEARCH:]
        values = [value for passes, value in trace if not 0 < self.learned.burnt < passes]
        half = len(values) // 2
        return abs(values[2 * half - 1] - values[half - 1]) if 2 * half >= LEAST else math.inf

    def _late(self) -> bool:
        limit = self.plan.max_seconds
        return limit is not None and time.perf_counter() - self.began > limit

    def _kernel(self, searching: bool) -> TopicGibbs:
        tokens_a_block = max(1, self.num_tokens // self.num_blocks)
        every = min(self.num_blocks, -(-OF_DRAW * self.num_words // tokens_a_block))
        found = self.learned
        alpha, beta = jnp.asarray(found.alpha, jnp.float32), jnp.float32(found.beta)
        return TopicGibbs(self.tokens, alpha, beta, every, searching)

    def _round(self, *, searching: bool) -> None:
        """A round of the first two phases: passes, then the priors that suit what was found."""
        self._sample(self.round, self.round, searching)
        found, tables = self.learned, self._tables()
        if not searching:
            if self.plan.alpha is None:
                found.alpha = hyperparameters.fit_alpha(tables, found.alpha)
            if self.plan.beta is None:
                found.beta = hyperparameters.fit_beta(tables, found.beta)
        self._judge(tables)

    def _merge(self) -> None:
        """As many topics as are wanted, of those that the search has found."""
        found, number = self.learned, self.plan.num_topics
        before, like = found.state.auxiliary, found.state.position.dtype
        becomes = merged(np.asarray(before["counts"]), number, found.beta)
        counts, phi = np.zeros((2, number, self.num_words))
        pseudo = np.asarray(before["counts"]) + found.beta
        np.add.at(counts, becomes, before["counts"])
        np.add.at(phi, becomes, np.asarray(found.state.position) * pseudo.sum(axis=1)[:, None])
        new = jnp.asarray(np.append(becomes, number), jnp.int32)  # the last for no topic
        auxiliary = {"assigned": new[before["assigned"]], "counts": jnp.asarray(counts, jnp.int32)}
        position = jnp.asarray(phi / phi.sum(axis=1, keepdims=True), like)
        found.state = dataclasses.replace(found.state, position=position, auxiliary=auxiliary)
        found.alpha = found.alpha[:number]  # all the same, before they are fitted

    def _draw(self, number: int, every: int) -> None:
        """Draws of phi, one in `every` passes."""
        drawn = self._sample(number * every, every, searching=False)
        if not len(drawn):  # the time was up before the first
            drawn = np.asarray(self.learned.state.position)[None]
        self.learned.draws += list(drawn)
        self._judge(self._tables())

    def _sample(self, passes: int, every: int, searching: bool) -> Float[np.ndarray, "draws K W"]:
        """Run the kernel from where it is; phi after each `every` passes."""
        found, began = self.learned, time.perf_counter()
        before, limit = found.passes, self.plan.max_seconds
        run = sample(
            self._kernel(searching),
            state=jax.tree.map(lambda x: x[None], found.state),
            num_steps=passes * self.num_blocks,
            thin=every * self.num_blocks,
            key=jax.random.fold_in(self.key, len(found.trace) + 1),
            progress=False,
            max_seconds=None if limit is None else max(0.0, limit - (began - self.began)),
        )
        found.state = jax.tree.map(lambda x: x[0], run.final_state)
        found.passes = int(found.state.step) // self.num_blocks
        self.report(found.passes, (found.passes - before) / (time.perf_counter() - began))
        return np.asarray(run.position)[0]

    def _tables(self) -> hyperparameters.Tables:
        held = self.learned.state.auxiliary
        return hyperparameters.count_tables(
            self.tokens, held["assigned"], held["counts"], self.longest
        )

    def _judge(self, tables: hyperparameters.Tables) -> None:
        found = self.learned
        value = hyperparameters.log_likelihood(tables, found.alpha, found.beta)
        found.trace.append((found.passes, value))
        found.gain = self._told_gain()
        if self.file is not None:
            tree = {"state": found.state, "draws": found.draws}
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                checkpoint.save(self.file, tree, {"of": self.digest, **found.facts})
            except OSError as error:
                raise StorageError(f"{self.file} can't be written: {error}") from error

    def _start(self, num_topics: int) -> Learned:
        """No token has a topic; phi is a draw of the prior."""
        plan, shape = self.plan, (num_topics, self.num_words)
        alpha = np.full(shape[0], FIRST_ALPHA if plan.alpha is None else plan.alpha)
        beta = FIRST_BETA if plan.beta is None else plan.beta
        first = TopicGibbs(self.tokens, jnp.asarray(alpha, jnp.float32), jnp.float32(beta))
        phi = dirichlet(jax.random.fold_in(self.key, 0), jnp.full(shape, beta, jnp.float32))
        return Learned(first.init(self.key, phi), alpha, float(beta))

    def _load(self, file: Path, resume: bool) -> Learned:
        if not resume:
            raise CheckpointError(f"{file} has a fit already; resume=True goes on with it.")
        facts, arrays = checkpoint.read(file)
        if facts["of"] != self.digest:
            raise CheckpointError(
                f"{file} has a fit of other documents, or of other settings of it. Choose another "
                "folder, or remove it."
            )
        start, drawn = self._start(len(facts["alpha"])), sum("'draws'" in name for name in arrays)
        like = jax.ShapeDtypeStruct(start.state.position.shape, start.state.position.dtype)
        tree, facts = checkpoint.load(file, {"state": start.state, "draws": [like] * drawn})
        alpha, trace = np.asarray(facts["alpha"]), [tuple(pair) for pair in facts["trace"]]
        return Learned(
            tree["state"], alpha, facts["beta"], facts["passes"], trace, 
            facts["burnt"], [np.asarray(draw) for draw in tree["draws"]], facts["gain"],
            facts["settled"],
        )  # fmt: skip


def _digest(bags: csr_array, plan: Plan) -> str:
    """Of the counts, and of the settings that the draws depend on."""
    settings = {k: v for k, v in dataclasses.asdict(plan).items() if k != "max_seconds"}
    found = hashlib.blake2b(repr((bags.shape, settings)).encode(), digest_size=16)
    for array in (bags.indptr, bags.indices, bags.data):
        found.update(np.ascontiguousarray(array, "<i8").data)
    return found.hexdigest()
