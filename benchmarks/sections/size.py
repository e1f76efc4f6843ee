"""A step at ten thousand and at ten million examples: the same batch, the same work."""

from benchmarks.environment import peak_memory
from benchmarks.peers import handwritten, ours
from benchmarks.report import Table
from benchmarks.sections.settings import Settings
from benchmarks.tasks import logistic
from benchmarks.timing import Contestant, race, ratio
from ergodax.data import Neighbours

DIMENSION = 10
NEAR = Neighbours()
WHO = {
    "ours": "ergodax",
    "default": "default batches",
    "near": "neighbours",
    "hand": "hand-written",
}


def size_table(settings: Settings) -> Table:
    """SGLD with D=10 on ever more rows, everything in one race, beside the hand-written loop.

    The library does the same work at every N. What grows is the memory that a random row comes
    from: beyond the cache each of the 100 rows of a batch is a miss, for everybody.
    """
    steps, sizes = settings.size_steps, settings.sizes
    group = []
    for n in sizes:
        task = logistic.make(n, DIMENSION)
        common = ("sgld", task, steps, 10)
        group += [
            Contestant(f"ours {n}", ours.run(*common, replace=True), steps),
            Contestant(f"default {n}", ours.run(*common, replace=False), steps),
            Contestant(f"near {n}", ours.run(*common, replace=False, batching=NEAR), steps),
            Contestant(f"hand {n}", handwritten.run(*common), steps),
        ]
    times = race(group, settings.side_rounds)
    table = Table(
        f"sgld at growing N: D={DIMENSION}, batch 100, thin=10, {steps:,} steps a run",
        ["N", "MB", "ergodax", "default batches", "neighbours", "hand-written", "x hand-written"],
    )
    for n in sizes:
        cells = [f"{times[f'{who} {n}'].minimum:.2f}" for who in WHO]
        against = str(ratio(times[f"ours {n}"], times[f"hand {n}"]))
        table.rows.append([f"{n:,}", f"{n * (DIMENSION + 1) * 4e-6:,.0f}", *cells, against])
    table.data = {name: timing.microseconds for name, timing in times.items()}
    for who, name in WHO.items():
        grown = ratio(times[f"{who} {sizes[-1]}"], times[f"{who} {sizes[0]}"])
        table.notes.append(f"{name}: largest N to smallest N {grown}")
    table.notes.append(
        "What grows is the hardware's: a random row of a large array is a cache miss, in the "
        "hand-written loop too, and is not for neighbouring rows (`data.Neighbours`). "
        f"Peak memory {peak_memory():.2f} GB."
    )
    return table
