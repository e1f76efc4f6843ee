"""Sixteen chains, each with batches of its own."""

from benchmarks.peers import blackjax_loop, handwritten, ours
from benchmarks.report import Table, verdict
from benchmarks.sections.settings import Settings
from benchmarks.tasks.logistic import Task
from benchmarks.timing import Contestant, race, ratio

CHAINS = 16
MINE, DEFAULT = "ergodax, num_chains=16", "ergodax, default batches"
HAND, BLACKJAX = "hand-written, vmap", "BlackJAX, vmap"


def chains_table(sampler: str, task: Task, settings: Settings, thin: int = 10) -> Table:
    """Microseconds a chain-step: wall time over chains times steps."""
    steps = settings.chain_steps
    common, units = (sampler, task, steps, thin, CHAINS), steps * CHAINS
    group = [
        Contestant(MINE, ours.run(*common, replace=True), units),
        Contestant(DEFAULT, ours.run(*common, replace=False), units),
        Contestant(HAND, handwritten.run(*common), units),
        Contestant(BLACKJAX, blackjax_loop.scan(*common), units),
    ]
    times = race(group, settings.side_rounds)
    table = Table(
        f"{sampler}: {CHAINS} chains, thin={thin}, {steps:,} steps of each",
        ["contestant", "us a chain-step", "median", "x hand-written", "x BlackJAX"],
    )
    for name, timing in times.items():
        against = [str(ratio(timing, times[peer])) for peer in (HAND, BLACKJAX)]
        table.rows.append([name, f"{timing.minimum:.2f}", f"{timing.median:.2f}", *against])
        table.data[name] = {"microseconds": timing.microseconds}
    mine = times[MINE]
    table.notes = [
        verdict(f"{MINE} to hand-written", ratio(mine, times[HAND]).median, 1.05),
        verdict(f"{MINE} to BlackJAX", ratio(mine, times[BLACKJAX]).median, 1.0, strict=True),
    ]
    return table
