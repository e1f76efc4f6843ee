"""Draws in rounds until the errors are small enough, the time is up, or more would not help."""

import dataclasses
import functools
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.diagnostics.bias import BiasReport
from ergodax.driver.sample import sample
from ergodax.driver.samples import Samples
from ergodax.stats.draws import columns, component_names
from ergodax.target.base import AbstractTarget
from ergodax.tune.bounds import piled_up
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import (
    DecisionLog,
    Inference,
    Tuned,
    differ,
    error_table,
    is_accurate,
)
from ergodax.tune.doubts import (
    LESS,
    lost_in_rounding,
    narrowness,
    shortening,
    standing_still,
    stops_near,
)
from ergodax.tune.heavy_tails import slow_tails, without_variance
from ergodax.tune.host import fold_in, split_key
from ergodax.tune.jumps import jumps_of_chains
from ergodax.tune.kept import MORE, Kept
from ergodax.tune.lengths import AT_LEAST, first_round, missing
from ergodax.tune.modes import scout, scout_low_places, unvisited
from ergodax.tune.nuts import SETTLE
from ergodax.tune.nuts_kernel import Nuts
from ergodax.tune.reparametrisation import ReparametrisedTarget
from ergodax.tune.whitening import as_given, as_sampled

ROUNDS = 6  # of sampling; each may be four times as long as the one before
LEAST = 0.1  # of the draws so far, that a round has at least
NUMBERS = 2**28  # that the draws may have, all chains together
MOST_DIVERGENT = 0.01  # a share of NUTS's trajectories
FEWEST = 8  # draws of a chain that tell anything
GRACE = 2.0  # seconds for the first draws where the time is up already
SHORTENED = 3  # times that the step is made shorter, at most
ALONE = 1.0  # times the accuracy, that the draws of shorter steps have by themselves
NON_CENTRED = ", such as standardised effects in place of effects (non-centred)"
NECK = "draws may be missing where the density narrows; try other parameters of the model{}"
LOOKED_AT = 1_000  # draws, from which a mode is told that none has come to
SURE = 3  # rounds since chains began, or their step was made shorter, after which tails end it
# Chains that will not come together: R-hat is so much above 1 and has not fallen by half of it.
APART, FALLS = 1.2, 0.5


def sample_rounds(
    target: AbstractTarget,
    tuned: Tuned,
    key: PRNGKeyArray,
    log: DecisionLog,
    *,
    accuracy: float,
    num_chains: int,
    deadline: Deadline,
    progress: bool,
    kept: Kept,
    careful: bool = False,
) -> Inference:
    """Draw, look at the errors, draw more.

    Args:
        target: what to sample.
        tuned: what to sample with.
        key: a key of `jax.random.key`.
        log: is told how many draws, and what is wrong with them.
        accuracy: the error that is small enough, in posterior sds.
        num_chains: chains.
        deadline: at which a round is cut.
        progress: show bars.
        kept: where the rounds are kept on disk.
        careful: whether divergent trajectories are met by shorter steps, and not by an inference in
            double precision.

    Raises:
        DivergenceError: a chain diverged.
    """
    rounds = _Rounds(target, tuned, log, accuracy, num_chains, deadline, progress, kept, careful)
    key_look, *keys = split_key(key, 1 + ROUNDS * (1 + 2 * SHORTENED))
    key_search = fold_in(key_look, 1)
    count = first_round(target, tuned, accuracy, num_chains)
    if tuned.piloted:
        rounds.parts.append(rounds.pilot())
        count = rounds.wanted(key_look)
    while not kept.ends(rounds.drawn, not count or rounds.drawn == rounds.most):
        rounds.draw(count, keys[rounds.drawn])
        count = rounds.wanted(key_look)
    if rounds.good and not rounds.faults:
        rounds.search(key_search)
    if tuned.doubt and not (rounds.good and not rounds.faults):
        rounds.faults, log.coarse = [tuned.doubt], False
    if rounds.calmed and not (rounds.good or rounds.faults):
        rounds.faults.append(
            f"{rounds.neck}; with shorter steps there was no time for enough of them"
        )
    if not (rounds.good or rounds.faults or log.faults):
        rounds.faults.append(rounds.shortcoming())
    draws = f"{rounds.samples.num_draws} draws of each of {num_chains} chains"
    first = "the pilot's, then " if tuned.piloted else ""
    log.decide("length", draws, f"{first}{rounds.drawn} rounds, thinned by {tuned.thin}")
    if not log.faults:  # else these follow from those
        log.faults.extend(rounds.faults)
    converged = rounds.good and not log.faults
    return Inference(rounds.samples, rounds.table, accuracy, converged, log, rounds.tuned)


@dataclasses.dataclass
class _Rounds:
    """What has been drawn, and what is known of it."""

    target: AbstractTarget
    tuned: Tuned
    log: DecisionLog
    accuracy: float
    num_chains: int
    deadline: Deadline
    progress: bool
    kept: Kept
    careful: bool = False
    parts: list[Samples] = dataclasses.field(default_factory=list)
    drawn: int = 0  # rounds; the pilot's draws are none
    r_hats: list[float] = dataclasses.field(default_factory=list)  # the largest, of each round
    faults: list[str] = dataclasses.field(default_factory=list)
    late: bool = False  # the last round was cut
    looking: float = 0.0  # seconds for a draw of each chain, that the last look took
    shortened: int = 0  # times the step was
    before: int = 0  # parts that had been drawn when it was last
    divergent: bool = False  # more trajectories than may, and not at an edge
    calmed: int = 0  # times the step was shortened since trajectories diverged
    longer: int = 0  # rounds that had been drawn when it last was
    compared: bool = False  # their draws, with those of the shorter steps

    def wanted(self, key: PRNGKeyArray) -> int:
        """How many draws of each chain there shall be in the next round, after a look."""
        self.look(key)
        return self._jumping() or self._calmer() or self.more() or self._deeper(key)

    def _calmer(self) -> int:
        """How many with a shorter step, in place of draws of which too many trajectories diverged.

        Where they then reach where they did not, `_deeper` finds the step too long there.
        """
        kernel = self.tuned.kernel
        careful = self.careful or isinstance(self.target, ReparametrisedTarget) or self._last()
        if not (careful and self.divergent and isinstance(kernel, Nuts)):
            return 0
        time = not self.deadline.over or self.kept.has(f"round-{self.drawn}")
        if self.calmed == SHORTENED or not time or self.late or self.drawn == self.most:
            return 0
        h = float(kernel.step_size)
        why = f"{self._divergent():.1%} of the trajectories diverged with {h:.3g}"
        self.log.decide("shorter step", f"{LESS * h:.3g}", why)
        starts = self.parts[-1].final_state.position
        kernel = dataclasses.replace(kernel, step_size=LESS * kernel.step_size)
        self.tuned = dataclasses.replace(self.tuned, kernel=kernel, starts=starts, burn_in=SETTLE)
        self.parts, self.r_hats, self.faults, self.log.coarse = [], [], [], False
        self.calmed, self.longer = self.calmed + 1, self.drawn
        return AT_LEAST

    def _last(self) -> bool:
        """Whether no time is left for another inference; of one that is kept no clock tells."""
        another = self.deadline.is_enough_for_another(self.kept.max_seconds)
        return not another and self.kept.given is None

    def _jumping(self) -> int:
        """How many with jumps between the places where chains of NUTS stay, which is tried once."""
        kernel, coordinates = self.tuned.kernel, self.tuned.coordinates
        if not (self._stay_apart() and isinstance(kernel, Nuts)) or kernel.jumps is not None:
            return 0
        time = not self.deadline.over or self.kept.has(f"round-{self.drawn}")
        draws = coordinates.of_chains(as_sampled(self.target, self.samples.position))
        jumps = jumps_of_chains(coordinates, draws)
        if jumps is None or not time or self.drawn == self.most:
            return 0
        why = f"they stay at {len(jumps.centres)} places, between which they jump from now on"
        self.log.decide("chains", "begin anew where they are", why)
        starts = self.parts[-1].final_state.position
        kernel = dataclasses.replace(kernel, jumps=jumps)
        self.tuned = dataclasses.replace(self.tuned, kernel=kernel, starts=starts, burn_in=SETTLE)
        self.parts, self.r_hats, self.faults = [], [], []
        return AT_LEAST

    def search(self, key: PRNGKeyArray) -> None:
        """Where chains jump between modes: whether a second search finds one they do not know."""
        kernel, coordinates = self.tuned.kernel, self.tuned.coordinates
        if not isinstance(kernel, Nuts) or kernel.jumps is None:
            return
        if self.deadline.over:
            self.faults.append(
                "the time was up before a second search for modes; try a larger max_seconds"
            )
            return
        draws = as_sampled(self.target, self.samples.position)
        u = coordinates.of_chains(draws).reshape(-1, coordinates.dimension)
        u = u[:: -(-len(u) // LOOKED_AT)]
        with self.log.timing("modes"):
            key_scouts, key_looks = split_key(key, 2)
            options = {"deadline": self.deadline}
            found = scout(self.target, coordinates.centre, key=key_scouts, **options)
            found = scout_low_places(self.target, coordinates, found, key=key_looks, **options)
            mode = unvisited(self.target, coordinates, found, u, self.deadline)
        if mode is not None:
            self.faults.append(
                "a second search from other places led to a mode to which no chain has come, so "
                "there may be many; try ex.replica_exchange, or parameters of which only one "
                "setting fits"
            )

    def _deeper(self, key: PRNGKeyArray) -> int:
        """How many with a shorter step, where draws lie up to where this one is unstable.

        The draws of the longer steps are left out: a chain that comes to such a place stays there
        for long, which its error does not tell before it has. Where they differ from those of the
        shorter steps, which are unstable somewhere too, no draws are to be trusted.
        """
        kernel = self.tuned.kernel
        if self.faults or not (self.good and isinstance(kernel, Nuts)) or self.compared:
            return 0
        last, coordinates = self.parts[-1], self.tuned.coordinates
        draws, norms = as_sampled(self.target, last.position), last.info.gradient_norm
        top, usual = narrowness(self.target, coordinates, draws, norms, key=key)
        h = float(kernel.step_size)
        factor = shortening(h, top, usual)
        unstable = factor < 1.0
        # In a second run of an inference that is kept, what was drawn decides and not the time.
        time = not self.deadline.over or self.kept.has(f"round-{self.drawn}")
        if unstable and self.shortened < SHORTENED and time and self.drawn < self.most:
            why = f"draws lie up to where a step of {h:.3g} is unstable, or nearly so"
            self.log.decide("shorter step", f"{factor * h:.3g}", why)
            less = dataclasses.replace(kernel, step_size=factor * kernel.step_size)
            self.tuned = dataclasses.replace(self.tuned, kernel=less)
            self.before, self.shortened = len(self.parts), self.shortened + 1
            self.longer = self.drawn
            return min(AT_LEAST, self.samples.num_draws)
        if not (self.shortened or unstable):
            return 0
        few = self._few() if self.shortened else 0
        if few and time and not self.late and self.drawn < self.most:
            return few
        if few or self.late or not self.shortened:
            short = "the rounds had too few" if time and not self.late else "there was no time for"
            self.faults.append(f"{self.neck}; {short} draws with shorter steps")
            return 0
        self._compare(key, unstable)
        return self.more()

    def _few(self) -> int:
        """How many draws the shorter steps lack, to tell by themselves that all agree."""
        then = _joined(self.parts[self.before :])
        table, enough = self._errors(then), ALONE * self.accuracy
        return 0 if is_accurate(table, enough) else missing(table, enough, then.num_draws)

    def _compare(self, key: PRNGKeyArray, unstable: bool) -> None:
        """What the shorter steps found, which are those that count, with what was found before."""
        self.compared = True
        first, then = (_joined(x) for x in (self.parts[: self.before], self.parts[self.before :]))
        before, after = (self._errors(part) for part in (first, then))
        self.parts, self.r_hats = self.parts[self.before :], []
        self.look(key)
        if unstable and differ(before, after, self.accuracy):
            self.faults.append(f"{self.neck}: the shorter the step, the farther they lead")

    @property
    def effects(self) -> str:
        """What to try for effects: only where draws told that scales follow other parameters."""
        return NON_CENTRED if isinstance(self.target, ReparametrisedTarget) else ""

    @property
    def neck(self) -> str:
        """That draws may be missing."""
        return NECK.format(self.effects)

    @property
    def most(self) -> int:
        """Rounds at most: those with longer steps than now come on top."""
        return self.longer + ROUNDS

    @property
    def constrain(self) -> Any:
        """The map to the values that the user sees, where there are constraints."""
        return getattr(self.target, "constrain", None)

    @functools.cached_property
    def bias(self) -> BiasReport | None:
        """Of what the user sees."""
        if self.tuned.bias is None or self.constrain is None:
            return self.tuned.bias
        constrain = self.constrain
        return self.tuned.bias.of(lambda draws: jax.tree.map(np.asarray, constrain(draws)))

    def pilot(self) -> Samples:
        """The draws of the tuned kernel in the pilot run."""
        assert self.bias is not None
        both = self.bias.samples
        return Samples(both.position["coarse"], both.info, both.final_state.coarse)

    @functools.cached_property
    def fixed(self) -> list[str]:
        """The components that a constraint fixes: the same at any two places."""
        constrain = self.constrain
        if constrain is None:
            return []
        centre = tree.freeze(self.tuned.coordinates.centre)
        here, there = (
            tree.freeze(constrain(jax.tree.map(lambda x, y=y: jnp.full_like(x, y), centre)))
            for y in (0.25, 1.0)
        )
        same = Samples(jax.tree.map(lambda a, b: (a == b)[None, None], here, there), None, None)
        return [
            component
            for name, fixed in same.named().items()
            for component, yes in zip(component_names(name, fixed), fixed.ravel(), strict=True)
            if yes
        ]

    def draw(self, count: int, key: PRNGKeyArray) -> None:
        """One more round of so many draws of each chain, or as many as there is time for."""
        thin, positions, early = self.tuned.thin, self.tuned.starts, 0
        if self.parts:
            positions = self.parts[-1].final_state.position
        else:
            early = -(-self.tuned.burn_in // thin)  # draws that are left out
        with self.log.timing("sampling"):
            ahead = sum(part.num_draws for part in self.parts) + early + count
            seconds = self.deadline.left() - ahead * self.looking
            name, seconds = f"round-{self.drawn}", max(seconds, 0.0)
            part = self._sample(name, positions, early + count, key, seconds)
            self.late = self.kept.made(name, part.num_draws)
            if self.late and not self.parts and part.num_draws < AT_LEAST:
                # Most of it was compilation; a few draws say more than none.
                begin, more = part.final_state.position, AT_LEAST - part.num_draws
                key = fold_in(key, 1)
                rest = self._sample(name + MORE, begin, more, key, GRACE)
                self.kept.made(name + MORE, rest.num_draws)
                part = _joined([part, rest])
        self.parts.append(part.without(min(early, max(0, part.num_draws - FEWEST))))
        self.drawn += 1

    def _sample(
        self, name: str, positions: PyTree, draws: int, key: PRNGKeyArray, seconds: float
    ) -> Samples:
        draws, checkpoint = self.kept.round(name, draws)
        return sample(
            self.tuned.kernel,
            positions=positions,
            num_steps=draws * self.tuned.thin,
            key=key,
            num_chains=self.num_chains,
            thin=self.tuned.thin,
            collect=as_given(self.target, self.tuned.coordinates),
            progress=self.progress,
            max_seconds=seconds,
            checkpoint=checkpoint,
        )

    def look(self, key: PRNGKeyArray) -> None:
        """Measure the errors, and note what more draws would not mend."""
        began = time.perf_counter()
        with self.log.timing("diagnostics"):
            self.samples = _joined(self.parts)
            self.table = self._errors(self.samples, self.bias)
        self.r_hats.append(float(self.table["r_hat"].max()))
        self.good = is_accurate(self.table, self.accuracy)
        self.faults = []
        if self.samples.num_draws < FEWEST:
            few = f"there was time for {self.samples.num_draws} draws of a chain only"
            self.faults.append(f"{few}; try a larger max_seconds")
            return
        divergent = self._divergent()
        self.divergent = divergent > MOST_DIVERGENT and not self._edge(key)
        if self.divergent:
            self.log.coarse = not self.log.faults
            self.faults.append(
                f"{divergent:.1%} of the trajectories diverged, so draws are missing where the "
                f"density curves most; try other parameters of the model{self.effects}"
            )
        draws, u = as_sampled(self.target, self.samples.position), self.tuned.coordinates
        told = lost_in_rounding(self.target, u, draws, diverged=self.divergent)
        told = told or piled_up(self.target, self.samples.position, self.accuracy)
        if told := standing_still(draws) or told:
            self.log.coarse = not self.log.faults
            self.faults.insert(0, told)
        elif self._stay_apart():
            self.faults.append(self._apart())
        elif not self.good and len(self.r_hats) >= SURE and (told := self._without_variance()):
            self.faults.append(told)
        self.looking = (time.perf_counter() - began) / max(1, self.samples.num_draws)

    def _errors(self, samples: Samples, bias: BiasReport | None = None) -> Any:
        return error_table(samples, bias, self.fixed, self._modes(samples))

    def _modes(self, samples: Samples) -> np.ndarray | None:
        """The known mode to which each draw belongs; None where chains know of one only."""
        jumps = getattr(self.tuned.kernel, "jumps", None)
        if jumps is None:
            return None
        draws = as_sampled(self.target, samples.position)
        return jumps.of_chains(self.tuned.coordinates.of_chains(draws))

    def _without_variance(self) -> str:
        return without_variance(*self._worst(), self._modes(self.samples))

    def _worst(self) -> tuple[str, np.ndarray]:
        """The component with the largest error, and its draws."""
        worst = int(np.argmax(np.nan_to_num(self.table["error"].to_numpy())))
        return str(self.table.index[worst]), columns(self.samples.position).values[..., worst]

    def _divergent(self) -> float:
        if not isinstance(self.tuned.kernel, Nuts):
            return 0.0
        return float(np.mean(~np.asarray(self.samples.info.accepted)))

    def _edge(self, key: PRNGKeyArray) -> bool:
        """Whether trajectories end where the density stops, which does no harm to the draws."""
        coordinates = self.tuned.coordinates
        return stops_near(self.target, coordinates, self.parts[-1].final_state.position, key=key)

    def _stay_apart(self) -> bool:
        """Whether R-hat does not fall although the draws have more than doubled."""
        if len(self.r_hats) < 2 or self.late:
            return False
        before, now = self.r_hats[-2:]
        return now > APART and now - 1.0 > FALLS * (before - 1.0)

    def _apart(self) -> str:
        worst = str(self.table["r_hat"].idxmax())
        return (
            f"the chains stay apart: R-hat of {worst} is {self.r_hats[-1]:.2f} and does not fall. "
            "The posterior has several modes, or a direction in which it mixes very slowly; try "
            "ex.replica_exchange, or parameters of which only one setting fits"
        )

    def more(self) -> int:
        """How many draws of each chain to make next; 0 where it is enough, or would not help."""
        table, drawn = self.table, self.samples.num_draws
        biased = (table[["bias_mean", "bias_sd"]].max(axis=1) > self.accuracy).any()
        if self.good or biased or self.faults or self.log.faults or self.late:
            return 0
        room = NUMBERS // (self.num_chains * self.tuned.coordinates.dimension) - drawn
        count = min(missing(table, self.accuracy, drawn), room)
        return count if count >= LEAST * drawn and not self.deadline.over else 0

    def shortcoming(self) -> str:
        """Why the errors are not small enough."""
        table = self.table
        worst = str(table["error"].fillna(np.inf).idxmax())
        row = table.loc[worst]
        error = f"{worst} has an error of {row['error']:.2g} posterior sd, not {self.accuracy:g}"
        if max(row["bias_mean"], row["bias_sd"]) > self.accuracy:
            return f"{error}, most of it the bias of the step; try a larger max_seconds"
        if self.r_hats[-1] > APART:
            component = str(table["r_hat"].idxmax())
            error = f"the chains have not come together: R-hat of {component} {self.r_hats[-1]:.2f}"
        elif told := self._without_variance():
            return told
        late = self.late or self.deadline.over
        ended = f"{self.drawn} rounds" if self.drawn == self.most else "all there is room for"
        if told := slow_tails(*self._worst(), self.accuracy, self._modes(self.samples)):
            ended = "the time was up, and " if late else f"after {ended} "
            return f"{ended}{error}: {told}{self.effects}"
        if not late:
            return f"{error}, after {ended}"
        mcse = float(np.nanmax(table[["mcse_mean", "mcse_sd"]].to_numpy()))
        times = max((mcse / self.accuracy) ** 2, 1.1)
        return (
            f"the time was up, and {error}; that takes about {times:.2g} times as many draws: try "
            "a larger max_seconds, or fewer parameters"
        )


def _joined(parts: list[Samples]) -> Samples:
    """Rounds of the same chains as one run."""
    if len(parts) == 1:
        return parts[0]
    rows = [(p.position, p.info) for p in parts]
    join = lambda *x: np.concatenate(x, axis=1) if eqx.is_array_like(x[0]) else x[0]  # noqa: E731
    position, info = jax.tree.map(join, *rows)
    return Samples(position, info, parts[-1].final_state)
