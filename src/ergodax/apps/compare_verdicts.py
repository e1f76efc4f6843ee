"""What a comparison was to show, and whether it does."""

import math
from collections.abc import Callable, Iterator

from ergodax.apps.compare_measure import OURS, Measured

SAMPLING_GOALS = {500: 0.8, 50_000: 50.0, 500_000: 400.0}
ALL_IN_GOALS = {50_000: 5.0, 500_000: 30.0}
MEAN_GOAL, SD_GOAL = 0.1, 0.1
GROWTH_GOAL = 1.5  # a step at the largest N against the smallest that takes batches


def verdicts(rows: list[Measured], goal: float) -> Iterator[str]:
    """A sentence for each goal, met or not met.

    Args:
        rows: of all sizes.
        goal: the effective sample size of a finished run.
    """
    sampling, all_in = _ratios(rows, _rate), _ratios(rows, lambda row: row.all_in(goal))
    for num_data in sorted({row.num_data for row in rows}):
        ours = next(row for row in rows if row.num_data == num_data and row.sampler == OURS)
        at = f"N = {num_data:,}"
        if num_data in sampling:
            goals = SAMPLING_GOALS.get(num_data), ALL_IN_GOALS.get(num_data)
            yield f"{at}: {_ratio('while sampling', sampling[num_data], goals[0])}"
            yield f"{at}: {_ratio('all in', all_in[num_data], goals[1])}"
        good = ours.error_mean < MEAN_GOAL and ours.error_sd < SD_GOAL
        yield (
            f"{at}: errors of infer at most {ours.error_mean:.3f} sd (means) and "
            f"{100 * ours.error_sd:.1f} % (sds); goal below {MEAN_GOAL:g} sd and "
            f"{100 * SD_GOAL:g} %: {_met(good)}"
        )
    if len(sampling) > 1:
        both = (("while sampling", sampling), ("all in", all_in))
        yield "; ".join(_overtaking_text(what, ratios) for what, ratios in both)
    yield from _growth(rows)


def _growth(rows: list[Measured]) -> Iterator[str]:
    """A step's time at the largest N against the smallest that takes batches."""
    batches = [r for r in rows if r.sampler == OURS and "batches" in r.note]
    if len({r.num_data for r in batches}) > 1:
        first, last = batches[0], batches[-1]
        growth = last.microseconds / first.microseconds
        yield (
            f"a step of infer's kernel takes {first.microseconds:.1f} us at N = "
            f"{first.num_data:,} and {last.microseconds:.1f} us at N = {last.num_data:,}, "
            f"{growth:.2f} times as long; goal at most {GROWTH_GOAL:g}: "
            f"{_met(growth <= GROWTH_GOAL)}"
        )


def _rate(row: Measured) -> float:
    return row.rate


def _overtaking_text(what: str, ratios: dict[int, float]) -> str:
    at, sizes = overtaking(ratios), list(ratios)
    if at is not None:
        return f"{what}, infer overtakes the best NUTS at about {float(f'{at:.1g}'):,.0f} rows"
    ahead = ratios[sizes[-1]] > 1
    where = f"from {sizes[0]:,}" if ahead else f"up to {sizes[-1]:,}"
    return f"{what}, {'infer' if ahead else 'NUTS'} is ahead {where} rows"


def _ratio(what: str, ratio: float, goal: float | None) -> str:
    text = f"{what}, infer makes {ratio:.3g} times the best NUTS's effective draws a second"
    return text if goal is None else f"{text}; goal at least {goal:g}: {_met(ratio >= goal)}"


def _met(good: bool) -> str:
    return "met" if good else "NOT MET"


def _ratios(rows: list[Measured], value: Callable[[Measured], float]) -> dict[int, float]:
    """By the number of rows, ours over the best peer's; sizes without peers are left out."""
    ratios = {}
    for num_data in sorted({row.num_data for row in rows}):
        here = [row for row in rows if row.num_data == num_data]
        peers = [value(row) for row in here if row.sampler != OURS]
        ours = [value(row) for row in here if row.sampler == OURS]
        if peers and ours:
            ratios[num_data] = ours[0] / max(peers)
    return ratios


def overtaking(ratios: dict[int, float]) -> float | None:
    """The number of rows from which on a ratio is above 1, by straight lines on log scales.

    Args:
        ratios: by the number of rows, ascending.

    Returns:
        None where it is always above 1, or below at the end.
    """
    points = [(math.log(n), math.log(ratio)) for n, ratio in ratios.items()]
    below = [k for k, (_, ratio) in enumerate(points) if ratio < 0]
    if not below or below[-1] == len(points) - 1:
        return None
    (n0, r0), (n1, r1) = points[below[-1] : below[-1] + 2]
    return math.exp(n0 - r0 * (n1 - n0) / (r1 - r0))


def overtaking_all_in(rows: list[Measured], goal: float) -> float | None:
    """`overtaking` of the effective draws a second with everything counted.

    Args:
        rows: of all sizes.
        goal: the effective sample size of a finished run.
    """
    return overtaking(_ratios(rows, lambda row: row.all_in(goal)))
