"""The one entry point: run a kernel, get a Samples."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.driver import loop
from ergodax.driver.chains import start_chains
from ergodax.driver.progress import Report, progress_bar
from ergodax.driver.samples import Samples
from ergodax.errors import DivergenceError
from ergodax.kernel import check_kernel, check_key

SECONDS_TO_A_CHUNK = 0.5  # how often progress is shown and divergence is looked for
TOO_NOISY = (  # what Info.feasible means where a kernel has no `infeasible` of its own
    "the gradient's noise is more than the sampler injects, so compensating it would need a "
    "negative variance. Lower the step size, raise the friction or the batch size, or pass "
    "clip=True to accept some excess heat."
)
ROWS_AT_LEAST, BYTES_AT_LEAST = 4096, 2**22  # of the buffer, all chains together
BYTES_ON_THE_DEVICE = 2**28  # of draws, all chains together, before they go to the host


def sample(
    kernel: Any,
    position: PyTree = None,
    num_steps: int = 1000,
    *,
    key: Any,
    num_chains: int = 1,
    thin: int = 1,
    burn_in: int = 0,
    collect: Callable[[PyTree], PyTree] | None = None,
    progress: bool = True,
    positions: PyTree = None,
) -> Samples:
    """Run a kernel and keep its draws.

    The same key gives the same draws, however the run is cut into chunks.

    Args:
        kernel: anything with `init(key, position)` and `step(key, state)`.
        position: where every chain starts: any tree of floating-point arrays.
        num_steps: steps of each chain after burn-in; num_steps // thin are kept as draws.
        key: a key of `jax.random.key`.
        num_chains: independent chains.
        thin: keep every thin-th step's position.
        burn_in: steps before the first that counts.
        collect: function of the position; what it returns is stored in place of it.
        progress: show a bar; it is silent where standard error is not a terminal.
        positions: instead of `position`, one start for each chain along a leading axis.

    Returns:
        A Samples with `position` and `info` (axes chains, draws, ...) and `final_state`.

    Raises:
        DivergenceError: a chain's position is not finite, or compensating the gradient's noise was
            infeasible; carries the draws made before.
        TypeError: an argument of the wrong type, or an integer position.
        ValueError: a number out of range, shapes that do not fit the target.
    """
    _check_counts(num_steps=num_steps, num_chains=num_chains, thin=thin, burn_in=burn_in)
    if thin > num_steps:
        raise ValueError(f"thin={thin} leaves no draw of num_steps={num_steps}; lower thin.")
    if burn_in + num_steps >= 2**31:
        raise ValueError(f"burn_in + num_steps must be below 2^31, not {burn_in + num_steps}.")
    kernel = check_kernel(kernel)
    collect = collect or _identity
    start = start_chains(kernel, collect, position, positions, check_key(key), num_chains)
    run = _Run(kernel, collect, start, thin, num_steps // thin)
    with progress_bar(burn_in + num_steps, show=progress) as report:
        run.burn(burn_in, report)
        run.collect_draws(report)
        run.burn(num_steps % thin, report)
    return run.samples()


class _Run:
    """The host's side of one run: where it stands, and the draws so far."""

    def __init__(
        self, kernel: Any, collect: loop.Collect, start: tuple, thin: int, num_draws: int
    ) -> None:
        self.kernel, self.collect = kernel, collect
        self.keys, self.states, row = start
        self.thin, self.num_draws = thin, num_draws
        self.done = 0  # steps of each chain, burn-in included
        self.made = 0  # draws
        self.row = row
        size = max(1, sum(x.nbytes for x in jax.tree.leaves(row)))
        # A power of two, and not a small one where that is cheap, so that runs of different
        # lengths share a compiled program.
        cheap = min(ROWS_AT_LEAST, BYTES_AT_LEAST // size)
        most = max(1, cheap, min(2 * num_draws - 1, BYTES_ON_THE_DEVICE // size))
        self.capacity = 2 ** int(np.log2(most))
        self.buffer = self._rows(self.capacity, jnp.zeros)
        self.filled = 0  # rows of the buffer
        self.store = self._rows(num_draws, np.empty) if num_draws > self.capacity else None
        self.clock = _Clock()

    def burn(self, count: int, report: Report) -> None:
        """Take `count` steps and keep nothing."""
        end = self.done + count
        while self.done < end:
            now = min(end - self.done, self.clock.steps())
            before = self.states
            with self.clock.timing(now):
                self.states, well = jax.block_until_ready(
                    loop.advance(
                        self.kernel, self.keys, before, jnp.int32(self.done), jnp.int32(now)
                    )
                )
            self._check(before, well, now, drawing=False)
            self.done += now
            report(self.done, self.clock.rate)

    def collect_draws(self, report: Report) -> None:
        """Make all the draws, chunk by chunk."""
        thin = None if self.thin == 1 else jnp.int32(self.thin)
        while self.made < self.num_draws:
            left = self.num_draws - self.made
            room = self.capacity - self.filled
            now = min(left, room, max(1, self.clock.steps() // self.thin))
            before = self.states
            numbers = (jnp.int32(n) for n in (self.done, now, self.filled))
            first, count, offset = numbers
            stretch = loop.Stretch(self.keys, before, first, count, thin, offset)
            with self.clock.timing(now * self.thin):
                self.states, self.buffer, well = jax.block_until_ready(
                    loop.draw((self.kernel, self.collect, stretch), self.buffer)
                )
            self._check(before, well, now * self.thin, drawing=True)
            self.done, self.made = self.done + now * self.thin, self.made + now
            self.filled += now
            if self.filled == self.capacity and self.made < self.num_draws:
                self._flush()
                self.buffer, self.filled = self._rows(self.capacity, jnp.zeros), 0
            report(self.done, self.clock.rate)

    def samples(self) -> Samples:
        """What has been drawn."""
        if self.store is None:
            rows = jax.tree.map(np.asarray, self.buffer)  # no copy where device and host are one
        else:
            self._flush()
            rows = self.store
        position, info = jax.tree.map(lambda x: x[:, : self.made], rows)
        return Samples(tree.thaw(position), info, self.states)

    def _rows(self, count: int, make: Callable) -> PyTree:
        return jax.tree.map(lambda x: make((x.shape[0], count, *x.shape[1:]), x.dtype), self.row)

    def _flush(self) -> None:
        """Copy the filled rows to their place on the host."""

        def copy(store: np.ndarray, new: Any) -> None:
            begin = self.made - self.filled
            store[:, begin : self.made] = np.asarray(new)[:, : self.filled]

        jax.tree.map(copy, self.store, self.buffer)

    def _check(self, before: PyTree, well: Any, count: int, *, drawing: bool) -> None:
        """Stop at a chain that did not go well; find the step by taking them again."""
        failed = np.flatnonzero(~np.asarray(well))
        if not failed.size:
            return
        reached, infos = loop.replay(
            self.kernel, self.keys, before, jnp.int32(self.done), jnp.int32(count)
        )
        chain = min(failed.tolist(), key=lambda c: int(reached[c]))
        steps = int(reached[chain])
        # Up to that step every chain went well, so all of them are brought there.
        self.states, _ = loop.advance(
            self.kernel, self.keys, before, jnp.int32(self.done), jnp.int32(steps)
        )
        if drawing:
            self.made += steps // self.thin
            self.filled += steps // self.thin
        samples = self.samples() if self.made else None
        self.done += steps
        raise DivergenceError(
            _advice(
                jax.tree.map(lambda x: x[chain], infos),
                f"chain {chain}",
                self.done,
                f"The {self.made} draws of each chain made before it are in this error's .samples.",
                getattr(self.kernel, "infeasible", TOO_NOISY),
            ),
            step=self.done,
            chain=chain,
            state=self.states,
            samples=samples,
        )


class _Clock:
    """How many steps make a chunk of about `SECONDS_TO_A_CHUNK`, by what the last ones took."""

    def __init__(self) -> None:
        self.rate = 0.0

    def steps(self) -> int:
        return max(1, int(self.rate * SECONDS_TO_A_CHUNK)) if self.rate else 64

    def timing(self, count: int) -> "_Timing":
        return _Timing(self, count)


class _Timing:
    def __init__(self, clock: _Clock, count: int) -> None:
        self.clock, self.count = clock, count

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, *exception: Any) -> None:
        self.clock.rate = self.count / max(time.perf_counter() - self.begin, 1e-9)


def _identity(position: PyTree) -> PyTree:
    return position


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer, not {value!r}.")
        least = 0 if name == "burn_in" else 1
        if not least <= value < 2**31:
            raise ValueError(f"{name} must lie in [{least}, 2^31), not {value}.")


def _advice(info: Any, chain: str, step: int, kept: str, infeasible: str) -> str:
    if getattr(info, "feasible", None) is not None and not bool(info.feasible):
        return f"{chain} stopped at step {step}: {infeasible} {kept}"
    size = getattr(info, "step_size", None)
    now = "Try" if size is None else f"The step size was {float(size):.3g}; try"
    return (
        f"{chain} left the finite numbers at step {step}. {now} a step size ten times smaller, a "
        f"start nearer the mode, or standardised data. {kept}"
    )
