"""The host's side of one run: chunk after chunk, until all steps are taken."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ergodax.cluster.processes import Agreement
from ergodax.data.block import detach
from ergodax.data.prefetch import Prefetch
from ergodax.driver import loop
from ergodax.driver.clock import SECONDS_TO_A_CHUNK, Clock
from ergodax.driver.executor import Executor
from ergodax.driver.interruption import Stop
from ergodax.driver.progress import Report
from ergodax.driver.samples import Samples
from ergodax.errors import CheckpointError, DivergenceError, Interrupted, StorageError
from ergodax.persist.checkpointer import Checkpointer
from ergodax.persist.draw_buffer import DrawBuffer
from ergodax.persist.fingerprint import compare, fingerprint

TOO_NOISY = (  # what Info.feasible means where a kernel has no `infeasible` of its own
    "the gradient's noise is more than the sampler injects, so compensating it would need a "
    "negative variance. Lower the step size, raise the friction or the batch size, or pass "
    "clip=True to accept some excess heat."
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long a run is.

    Attributes:
        burn_in: steps before the first that counts.
        num_steps: steps after them.
        thin: steps to a draw.
    """

    burn_in: int
    num_steps: int
    thin: int

    @property
    def total(self) -> int:
        """Steps in all."""
        return self.burn_in + self.num_steps

    @property
    def num_draws(self) -> int:
        """Draws in all."""
        return self.num_steps // self.thin

    @property
    def last_draw(self) -> int:
        """The step after which all draws are made."""
        return self.burn_in + self.num_draws * self.thin


class Run:
    """Where a run stands.

    Args:
        where: the run lives.
        start: keys and first states of all chains, and zeros in the shape of a draw of each of
            this process's.
        plan: how long.
        checkpointer: what goes to disk.
        first: the number of the first step, which its key follows from.
    """

    def __init__(
        self, where: Executor, start: tuple, plan: Plan, checkpointer: Checkpointer, first: int = 0
    ) -> None:
        self.where, self.plan, self.checkpointer = where, plan, checkpointer
        self.processes = where.processes
        self.keys, states, row = start
        self.first = first
        self.done = 0  # steps of each chain, burn-in included
        self.clock = Clock(min(SECONDS_TO_A_CHUNK, checkpointer.every))
        self.identity: dict[str, str] = {}
        if checkpointer.file is not None or self.processes.count > 1:
            counts = {"thin": plan.thin, "burn_in": plan.burn_in}
            counts |= {"first step": first} if first else {}
            with self.processes.together():
                self.identity = fingerprint(
                    where.kernel, where.collect, *where.mine((self.keys, states)), **counts
                )
        self.processes.alike(self.identity, num_steps=plan.num_steps, kept=checkpointer.kinds)
        checkpointer.settle(self.processes)
        with self.processes.together():
            if checkpointer.resumes:
                compare(self.identity, checkpointer.facts()["fingerprint"], checkpointer.file)
            self.prefetch = Prefetch(where, states)
            self.states = detach(states)[1]
            self.draws = DrawBuffer(where, row, plan.num_draws, checkpointer.open(row))
            if checkpointer.resumes:
                self._go_on()
            elif checkpointer.active:
                self._save()

    def to_end(self, report: Report, stop: Stop) -> None:
        """Take all the steps.

        Raises:
            DivergenceError: a chain did not go well.
            Interrupted: the run was asked to stop.
            StorageError: draws or checkpoint could not be written, or rows of a stream not be read.
        """
        try:
            self._all_chunks(report, stop)
        finally:
            self.prefetch.close()

    def _all_chunks(self, report: Report, stop: Stop) -> None:
        todo = Agreement(self.clock.steps(), 0, False)
        while self.done < self.plan.total:
            left = self.prefetch.left
            self._chunk(todo.steps if left is None else min(todo.steps, left), at_most=left)
            self._refill()  # before anything is saved: a resumed run begins with it
            report(self.done, self.clock.rate)
            mine = Agreement(self.clock.steps(), stop.signal, self.checkpointer.due)
            todo = self.processes.agree(mine)
            if todo.due or (todo.signal and self.checkpointer.active):
                with self.processes.together():
                    self._save()
            elif not self.draws.room:
                with self.processes.together():
                    self._save_draws()
            if todo.signal and self.done < self.plan.total:
                raise self._interrupted(todo.signal)
        if self.checkpointer.active:
            with self.processes.together():
                self._save()

    def _refill(self) -> None:
        """Go to the next rows of a stream where they are due."""
        with self.processes.together():
            try:
                self.states = self.prefetch.refill(self.states)
            except (OSError, ValueError) as error:
                if self.checkpointer.active:
                    self._save()
                raise StorageError(
                    f"the run stopped at step {self.done}, where the next rows could not be read: "
                    f"{error} {self._kept()}",
                    samples=self.samples() if self.draws.made else None,
                ) from error

    def _kept(self) -> str:
        return f"The {self.draws.made} draws of each chain are in this error's .samples."

    def samples(self) -> Samples:
        """What has been drawn."""
        return Samples(*self.draws.drawn(), self._final())

    def _final(self) -> PyTree:
        return self.where.mine(self.prefetch.whole(self.states))

    def _chunk(self, steps: int, *, at_most: int | None) -> None:
        """Take about `steps` steps, to the end of burn-in or of a draw; no more than `at_most`."""
        drawn = self.done - self.plan.burn_in
        if drawn < 0:
            self._advance(min(steps, -drawn))
            return
        if self.done >= self.plan.last_draw:
            self._advance(min(steps, self.plan.total - self.done))
            return
        thin, taken = self.plan.thin, drawn % self.plan.thin
        if at_most is not None and at_most < thin - taken:
            self._advance(at_most)
            return
        left = self.plan.num_draws - self.draws.made
        self._draw(min(left, self.draws.room, max(1, (steps + taken) // thin)), taken)

    def _advance(self, count: int) -> None:
        """Take `count` steps and keep nothing."""
        before = self.states
        with self.clock.timing(count):
            self.states, well = self.where.advance(
                self.keys, self.prefetch.rows, before, self._number(), jnp.int32(count)
            )
        self._check(before, well, count)
        self.done += count
        self.prefetch.taken(self.states, count)

    def _draw(self, draws: int, taken: int) -> None:
        """Make draws; `taken` steps of the first have been taken."""
        before, count = self.states, draws * self.plan.thin - taken
        thin = None if self.plan.thin == 1 else jnp.int32(self.plan.thin)
        numbers = (draws, taken, self.draws.filled)
        how_many, begun, offset = (jnp.int32(n) for n in numbers)
        stretch = loop.Stretch(
            self.keys,
            self.prefetch.rows,
            before,
            self._number(-taken),
            how_many,
            thin,
            begun,
            offset,
        )
        with self.clock.timing(count):
            self.states, self.draws.buffer, well = self.where.draw(stretch, self.draws.buffer)
        self._check(before, well, count, taken)
        self.draws.add(draws)
        self.done += count
        self.prefetch.taken(self.states, count)

    def _number(self, more: int = 0) -> Any:
        """The number of the next step, which its key follows from."""
        return jnp.int32(self.first + self.done + more)

    def _check(self, before: PyTree, well: Any, count: int, taken: int | None = None) -> None:
        """Stop at a chain that did not go well; find the step by taking them again."""
        failed = np.flatnonzero(~self.where.whole(well))
        if not failed.size:
            return
        where = (self.keys, self.prefetch.rows, before, self._number())
        reached, infos = self.where.whole(self.where.replay(*where, jnp.int32(count)))
        chain = min(failed.tolist(), key=lambda c: int(reached[c]))
        steps = int(reached[chain])
        # Up to that step every chain went well, so all of them are brought there.
        self.states, _ = self.where.advance(*where, jnp.int32(steps))
        if taken is not None:
            self.draws.add((taken + steps) // self.plan.thin)
        self.done += steps
        if self.checkpointer.active:
            self._save_draws()
        samples = self.samples() if self.draws.made else None
        raise DivergenceError(
            _advice(
                jax.tree.map(lambda x: x[chain], infos),
                f"chain {chain}",
                self.done,
                f"The {self.draws.made} draws of each chain made before it are in this error's "
                ".samples.",
                getattr(self.where.kernel, "infeasible", TOO_NOISY),
            ),
            step=self.done,
            chain=chain,
            state=self._final(),
            samples=samples,
        )

    def _go_on(self) -> None:
        """Continue where the checkpoint stands."""
        states, facts = self.checkpointer.load(self.where.mine(self.states))
        self.states = self.where.put(states)
        if facts["done"] > self.plan.total:
            raise CheckpointError(
                f"the run in {self.checkpointer.file} has taken {facts['done']} steps, more than "
                f"the {self.plan.total} asked for. Pass at least as many, or load its draws."
            )
        if self.draws.store is not None:
            self.draws.store.truncate(facts["made"])
        self.done, self.draws.made = facts["done"], facts["made"]
        self.prefetch.restore(self.states)

    def _save_draws(self) -> None:
        try:
            self.draws.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def _save(self) -> None:
        """Bring the draws to disk, then where the run stands: never the other way round."""
        self._save_draws()
        try:
            mine = self.where.mine(self.states)
            self.checkpointer.write(mine, self.done, self.draws.made, self.identity)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> StorageError:
        return StorageError(
            f"the run could not be saved at step {self.done}: {error}. Make room, or give back the "
            f"right to write.{self.checkpointer.how_to_go_on()} {self._kept()}",
            samples=self.samples() if self.draws.made else None,
        )

    def _interrupted(self, signal: int) -> Interrupted:
        return Interrupted(
            f"stopped at step {self.done} of {self.plan.total}. The {self.draws.made} draws of "
            f"each chain are {self.checkpointer.where()}.{self.checkpointer.how_to_go_on()}",
            signal=signal,
            samples=self.samples() if self.draws.made else None,
        )


def _advice(info: Any, chain: str, step: int, kept: str, infeasible: str) -> str:
    if getattr(info, "feasible", None) is not None and not bool(info.feasible):
        return f"{chain} stopped at step {step}: {infeasible} {kept}"
    size = getattr(info, "step_size", None)
    now = "Try" if size is None else f"The step size was {float(size):.3g}; try"
    return (
        f"{chain} diverged at step {step}. {now} a step size ten times smaller, a "
        f"start nearer the mode, or standardised data. {kept}"
    )
