"""Drawing the batch alone: 100 rows of N, with and without replacement, and the trap."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.report import Table
from benchmarks.sections.settings import Settings
from benchmarks.tasks.logistic import BATCH_SIZE
from benchmarks.timing import Contestant, race, ratio
from ergodax.data import WithoutReplacement

TRAP = 12_214  # rows at which the trap is measured
TRAP_DRAWS = 200


def drawing_table(settings: Settings) -> Table:
    """Microseconds a batch of row numbers."""
    count, sizes = settings.draws, settings.sizes
    group = [
        Contestant(f"{name} {n}", _run(draw, n, count), count)
        for n in sizes
        for name, draw in (("distinct", _distinct), ("randint", _independent))
    ]
    group.append(Contestant(f"distinct {TRAP}", _run(_distinct, TRAP, count), count))
    group.append(Contestant("choice", _run(_choice, TRAP, TRAP_DRAWS), TRAP_DRAWS))
    times = race(group, settings.side_rounds)
    table = Table(
        f"Drawing {BATCH_SIZE} of N rows, us a batch",
        ["N", "ergodax, no row twice", "randint, with replacement", "x randint"],
    )
    for n in sizes:
        mine, plain = times[f"distinct {n}"], times[f"randint {n}"]
        cells = [f"{mine.minimum:.2f}", f"{plain.minimum:.2f}", str(ratio(mine, plain))]
        table.rows.append([f"{n:,}", *cells])
    mine, choice = times[f"distinct {TRAP}"], times["choice"]
    table.notes = [
        f"jax.random.choice(replace=False) at N={TRAP:,}: {choice.minimum:,.0f} us a batch, "
        f"{ratio(choice, mine).median:,.0f} times ours ({mine.minimum:.2f})",
    ]
    table.data = {name: timing.microseconds for name, timing in times.items()}
    return table


def _distinct(key: jax.Array, n: int) -> jax.Array:
    return WithoutReplacement().draw(key, None, n, BATCH_SIZE)[0]


def _independent(key: jax.Array, n: int) -> jax.Array:
    return jax.random.randint(key, (BATCH_SIZE,), 0, n)


def _choice(key: jax.Array, n: int) -> jax.Array:
    return jax.random.choice(key, n, (BATCH_SIZE,), replace=False)


def _run(draw: Callable, n: int, count: int) -> Callable[[int], jax.Array]:
    @jax.jit
    def compiled(key: jax.Array) -> jax.Array:
        def one(total: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            return total + draw(key, n).astype(jnp.uint32), None

        keys = jax.random.split(key, count)
        return lax.scan(one, jnp.zeros(BATCH_SIZE, jnp.uint32), keys)[0]

    return lambda seed: compiled(jax.random.key(seed))
