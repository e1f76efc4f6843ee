"""The main table: microseconds a step of one chain."""

from benchmarks.peers import blackjax_loop, handwritten, ours
from benchmarks.report import Table, verdict
from benchmarks.sections.settings import Settings
from benchmarks.tasks.logistic import Task
from benchmarks.timing import Contestant, Timing, race, ratio

SAMPLE, DEFAULT, BARE = "ergodax", "ergodax, default batches", "ergodax kernel in a scan"
HAND, FLOOR = "hand-written scan", "floor"
BLACKJAX, KERNEL, PYTHON = "BlackJAX in a scan", "BlackJAX kernel, L=10", "BlackJAX, Python loop"


def main_table(sampler: str, task: Task, settings: Settings, thin: int = 10) -> Table:
    """All contestants, one sampler."""
    rounds = settings.rounds if thin == 10 else settings.side_rounds
    times = race(_contestants(sampler, task, settings, thin), rounds)
    title = (
        f"{sampler}: N={task.num_data:,}, D={task.start.size}, batch 100, one chain, thin={thin}, "
        f"{settings.steps:,} steps a run"
    )
    table = Table(
        title,
        ["contestant", "us a step", "median", "x hand-written", "x floor", "x BlackJAX", "sd"],
    )
    for name, timing in times.items():
        against = [str(ratio(timing, times[peer])) for peer in (HAND, FLOOR, BLACKJAX)]
        scale = f"{timing.scale / times[HAND].scale:.2f}"
        table.rows.append([name, f"{timing.minimum:.2f}", f"{timing.median:.2f}", *against, scale])
        table.data[name] = {
            "microseconds": timing.microseconds,
            "sd_to_handwritten": timing.scale / times[HAND].scale,
        }
    table.notes = _verdicts(times)
    if PYTHON in times:
        table.notes.append(f"{PYTHON}: {settings.python_steps:,} steps, too few for its sd.")
    if KERNEL in times:
        table.notes.append(
            f"{KERNEL}: us a gradient, ten to a batch; it draws the momentum anew each time and "
            "forgets about ten times slower here, so its sd needs a longer run."
        )
    return table


def _contestants(sampler: str, task: Task, settings: Settings, thin: int) -> list[Contestant]:
    steps, few = settings.steps, settings.python_steps
    common = (sampler, task, steps, thin)
    group = [
        Contestant(SAMPLE, ours.run(*common, replace=True), steps),
        Contestant(DEFAULT, ours.run(*common, replace=False), steps),
        Contestant(BARE, ours.bare(*common, replace=True), steps),
        Contestant(HAND, handwritten.run(*common), steps),
        Contestant(FLOOR, handwritten.run(*common, floor=True), steps),
        Contestant(BLACKJAX, blackjax_loop.scan(*common), steps),
    ]
    if thin == 10:
        if sampler == "sghmc":
            loop = blackjax_loop.scan("sghmc kernel", task, steps, thin)
            group.append(Contestant(KERNEL, loop, steps))
        loop = blackjax_loop.python_loop(sampler, task, few, thin)
        group.append(Contestant(PYTHON, loop, few))
    return group


def _verdicts(times: dict[str, Timing]) -> list[str]:
    notes = []
    for name in (SAMPLE, DEFAULT):
        mine = times[name]
        notes += [
            verdict(f"{name} to hand-written", ratio(mine, times[HAND]).median, 1.05),
            verdict(f"{name} to the floor", ratio(mine, times[FLOOR]).median, 1.15),
            verdict(f"{name} to BlackJAX", ratio(mine, times[BLACKJAX]).median, 1.0, strict=True),
        ]
    return notes
