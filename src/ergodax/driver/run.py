"""The host's side of one run: chunk after chunk, until all steps are taken."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ergodax.cluster.processes import Agreement, Together
from ergodax.data.block import detach
from ergodax.data.prefetch import Prefetch
from ergodax.driver.executor import Executor
from ergodax.driver.loop import Stretch, asks_host
from ergodax.driver.progress import (
    LATE,
    SECONDS_TO_A_CHUNK,
    Clock,
    Report,
    Stop,
    status_if_uncaught,
)
from ergodax.driver.samples import Samples
from ergodax.errors import (
    CallbackError,
    CheckpointError,
    DivergenceError,
    Interrupted,
    StorageError,
)
from ergodax.persist.checkpoint import Checkpointer
from ergodax.persist.draw_buffer import DrawBuffer
from ergodax.persist.fingerprint import compare, fingerprint, surroundings, warn_of_rounding

TOO_NOISY = (  # what Info.feasible means where a kernel has no `infeasible` of its own
    "the gradient's noise is more than the sampler injects, so compensating it would need a "
    "negative variance. Lower the step size, raise the friction or the batch size, or pass "
    "clip=True to accept some variance inflation."
)


class Plan(NamedTuple):
    """How long a run is."""

    burn_in: int  # steps before the first that counts
    num_steps: int  # steps after them
    thin: int  # steps to a draw

    @property
    def total(self) -> int:
        """Steps in all."""
        return self.burn_in + self.num_steps

    @property
    def num_draws(self) -> int:
        """Draws in all."""
        return self.num_steps // self.thin


class Run:
    """Where a run stands.

    Args:
        where: the run lives.
        start: what its `start` returns.
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
        self.surroundings = surroundings(where.mesh)
        if checkpointer.file is not None or self.processes.count > 1:
            counts = {"thin": plan.thin, "burn_in": plan.burn_in}
            counts |= {"first step": first} if first else {}
            with self.processes.together():
                self.identity = fingerprint(
                    where.kernel,
                    where.collect,
                    *where.mine((self.keys, states)),
                    kept=checkpointer.file is not None,
                    **counts,
                )
        self.processes.alike(self.identity, num_steps=plan.num_steps, kept=checkpointer.kinds)
        if isinstance(self.processes, Together):
            checkpointer.settle(self.processes.common)
        with self.processes.together():
            if checkpointer.resumes:
                facts = checkpointer.facts()
                compare(self.identity, facts["fingerprint"], checkpointer.file)
                warn_of_rounding(self.surroundings, facts["surroundings"], facts["done"])
            self.prefetch = Prefetch(where, states)
            self.states = detach(states)[1]
            self.draws = DrawBuffer(where, row, plan.num_draws, checkpointer.open(row))
            if checkpointer.resumes:
                self._go_on()
            elif checkpointer.active:
                self._save()

    def to_end(self, report: Report, stop: Stop) -> None:
        """Take all the steps, or those for which there is time."""
        todo = Agreement(self.clock.steps(), 0, False)
        with contextlib.closing(self.prefetch):
            while self.done < self.plan.total:
                left = self.prefetch.left
                self._chunk(todo.steps if left is None else min(todo.steps, left), at_most=left)
                self._refill()  # before anything is saved: a resumed run begins with it
                report(self.done, self.clock.rate)
                mine = Agreement(self.clock.steps(), stop.reason, self.checkpointer.due)
                todo = self.processes.agree(mine)
                if todo.signal == LATE:
                    break
                if todo.due or (todo.signal and self.checkpointer.active):
                    with self.processes.together():
                        self._save()
                elif not self.draws.room:
                    with self.processes.together():
                        self._save(state=False)
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
            except Exception as error:  # of the system, or of the user's iterator
                if self.checkpointer.active:
                    self._save()
                told = str(error) if isinstance(error, OSError | ValueError) else repr(error)
                raise StorageError(
                    f"the run stopped at step {self.done}, where the next rows could not be read: "
                    f"{told} {self._kept()}",
                    samples=self._drawn(),
                ) from error

    def _kept(self) -> str:
        return f"The {self.draws.made} draws of each chain are in this error's .samples."

    def samples(self) -> Samples:
        """What has been drawn."""
        return Samples(*self.draws.drawn(), self._final())

    def _drawn(self) -> Samples | None:
        """For an error: what has been drawn, if anything."""
        return self.samples() if self.draws.made else None

    def _final(self) -> PyTree:
        return self.where.mine(self.prefetch.whole(self.states))

    def _chunk(self, steps: int, *, at_most: int | None) -> None:
        """Take about `steps` steps, to the end of burn-in or of a draw; no more than `at_most`."""
        drawn = self.done - self.plan.burn_in
        if drawn < 0:
            self._advance(min(steps, -drawn))
            return
        if self.draws.made >= self.plan.num_draws:
            self._advance(min(steps, self.plan.total - self.done))
            return
        thin, taken = self.plan.thin, drawn % self.plan.thin
        if at_most is not None and at_most < thin - taken:
            self._advance(at_most)
            return
        left = self.plan.num_draws - self.draws.made
        self._draw(min(left, self.draws.room, max(1, (steps + taken) // thin)), taken)

    def compile(self) -> None:
        """Compile the program of draws that are a step each, by making none of them."""
        zero = jnp.int32(0)
        stretch = Stretch(self._number(), count=zero, thin=None, taken=zero, offset=zero)
        self.where.draw(self._chains(), stretch, self.draws.buffer)

    def _advance(self, count: int) -> None:
        """Take `count` steps and keep nothing."""
        chains = self._chains()
        with self._timed(count):
            self.states, well = self.where.advance(chains, self._number(), jnp.int32(count))
        self._check(chains, well, count)
        self._taken(count)

    def _draw(self, draws: int, taken: int) -> None:
        """Make draws; `taken` steps of the first have been taken."""
        thin = self.plan.thin
        chains, count = self._chains(), draws * thin - taken
        in_program = asks_host() and not taken
        stretch = Stretch(
            first=self._number(-taken),
            count=jnp.int32(draws),
            thin=None if thin == 1 else thin if in_program else jnp.int32(thin),
            taken=jnp.int32(taken),
            offset=jnp.int32(self.draws.filled),
        )
        with self._timed(count):
            self.states, self.draws.buffer, well = self.where.draw(
                chains, stretch, self.draws.buffer
            )
        self._check(chains, well, count, taken)
        self.draws.add(draws)
        self._taken(count)

    @contextlib.contextmanager
    def _timed(self, count: int) -> Iterator[None]:
        """A context that takes `count` steps; what a callback raises ends the run with its draws.

        Raises:
            CallbackError: a callback raised an error.
        """
        try:
            with self.clock.timing(count):
                yield
        except (ValueError, RuntimeError) as error:  # which of the two depends on the device
            if not self.where.calls_python or "Callback" not in str(error):
                raise
            if self.checkpointer.active:
                self._save()
            reason = [line for line in str(error).splitlines() if line.strip()][-1].strip()
            last = self.done + count - 1
            steps = f"step {last}" if count == 1 else f"one of the steps {self.done} to {last}"
            raise CallbackError(
                f"a callback raised an error at {steps}: {reason} {self._kept()}",
                step=self.done,
                samples=self._drawn(),
            ) from error

    def _chains(self) -> tuple[PyTree, PyTree, PyTree]:
        return self.keys, self.prefetch.rows, self.states

    def _taken(self, count: int) -> None:
        self.done += count
        self.prefetch.taken(self.states, count)

    def _number(self, more: int = 0) -> Int[Array, ""]:
        """The number of the next step, which its key follows from."""
        return jnp.int32(self.first + self.done + more)

    def _check(self, chains: tuple, well: Array, count: int, taken: int | None = None) -> None:
        """Stop at a chain that did not go well; find the step by taking them again."""
        failed = np.flatnonzero(~self.where.whole(well))
        if not failed.size:
            return
        first = self._number()
        reached, infos = self.where.whole(self.where.replay(chains, first, jnp.int32(count)))
        chain = min(failed.tolist(), key=lambda c: int(reached[c]))
        steps = int(reached[chain])
        # Up to that step every chain went well, so all of them are brought there.
        self.states, _ = self.where.advance(chains, first, jnp.int32(steps))
        if taken is not None:
            self.draws.add((taken + steps) // self.plan.thin)
        self.done += steps
        if self.checkpointer.active:
            self._save(state=False)
        raise DivergenceError(
            _advice(
                jax.tree.map(lambda x: x[chain], infos),
                f"chain {chain}",
                self.done,
                f"The {self.draws.made} draws of each chain made before it are in this error's "
                ".samples.",
                _infeasible(self.where.kernel),
            ),
            step=self.done,
            chain=chain,
            state=self._final(),
            samples=self._drawn(),
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
        made = max(0, facts["done"] - self.plan.burn_in) // self.plan.thin
        if facts["done"] < 0 or facts["made"] != made:
            raise CheckpointError(
                f"{self.checkpointer.file} contradicts itself: {facts['made']} draws after "
                f"{facts['done']} steps, where there must be {made}. Begin a new run in another "
                "folder."
            )
        if self.draws.store is not None:
            self.draws.store.truncate(made)
        self.done, self.draws.made = facts["done"], made
        self.prefetch.restore(self.states)

    def _save(self, *, state: bool = True) -> None:
        """Bring the draws to disk, then where the run stands: never the other way round."""
        try:
            self.draws.flush()
            if state:
                facts = {"done": self.done, "made": self.draws.made}
                facts |= {"fingerprint": self.identity, "surroundings": self.surroundings}
                self.checkpointer.write(self.where.mine(self.states), facts)
        except OSError as error:
            raise StorageError(
                f"the run could not be saved at step {self.done}: {error}. Make room, or give back "
                f"the right to write.{self.checkpointer.how_to_go_on()} {self._kept()}",
                samples=self._drawn(),
            ) from error

    def _interrupted(self, signal: int) -> Interrupted:
        status_if_uncaught()
        return Interrupted(
            f"stopped at step {self.done} of {self.plan.total}. The {self.draws.made} draws of "
            f"each chain are {self.checkpointer.where()}.{self.checkpointer.how_to_go_on()}",
            signal=signal,
            samples=self._drawn(),
        )


def _infeasible(kernel: Any) -> str:
    """What a step that is not feasible asked for: of this kernel, or of the one inside it."""
    inside = getattr(kernel, "kernel", None)
    own = getattr(kernel, "infeasible", None)
    return own or (TOO_NOISY if inside is None else _infeasible(inside))


def _advice(info: PyTree, chain: str, step: int, kept: str, infeasible: str) -> str:
    if getattr(info, "feasible", None) is not None and not bool(info.feasible):
        return f"{chain} stopped at step {step}: {infeasible} {kept}"
    size = getattr(info, "step_size", None)
    now = "Try" if size is None else f"The step size was {float(size):.3g}; try"
    return (
        f"{chain} diverged at step {step}. {now} a step size ten times smaller, a "
        f"start nearer the mode, or standardised data. {kept}"
    )
