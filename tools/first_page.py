"""The picture and the figures of the first page, from the files of the benchmarks.

    python tools/first_page.py

writes docs/pictures/nuts.svg, whose colours can be read on white and on black, and a table into
README.md.
"""

import math
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
SOURCE = BENCHMARKS / "NUTS.md"
PAGE = ROOT / "README.md"
MARK = "<!-- python tools/first_page.py writes the table. -->\n"
PICTURE = ROOT / "docs" / "pictures" / "nuts.svg"

GREY = "#808080"
COLOURS = {
    "ergodax infer": "#3f7fd6",
    "BlackJAX NUTS": "#d97706",
    "NumPyro NUTS": "#2f9e6b",
    "nutpie NUTS": "#b3589a",
}
PANELS = {"ESS/s": "while sampling", "ESS/s end to end": "everything counted"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 310, 200, 64, 36, 40, 44
ROWS, RATES = (2.5, 6.9), (0.5, 5.7)  # decades of the axes


class Point(NamedTuple):
    """ESS per second at a number of rows."""

    rows: float
    rate: float
    extrapolated: bool


def read(text: str, column: str) -> dict[str, list[Point]]:
    """The points of each sampler.

    Args:
        text: of benchmarks/NUTS.md.
        column: of its first table.
    """
    lines = [line for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    series: dict[str, list[Point]] = {}
    for row in rows:
        cell = row[header.index(column)]
        point = Point(_number(row[0]), _number(cell), cell.endswith("*"))
        series.setdefault(row[1], []).append(point)
    return series


def crossover(text: str) -> float | None:
    """From how many rows on infer is ahead, everything counted; None where it always is."""
    found = re.search(r"end to end, infer overtakes the best NUTS at about ([\d,]+) rows", text)
    return None if found is None else _number(found[1])


def _number(text: str) -> float:
    return float(text.rstrip("*").replace(",", ""))


def ratios(text: str, column: str) -> list[tuple[float, float]]:
    """Numbers of rows, and what infer makes in the time in which the best NUTS makes 1."""
    series = read(text, column)
    ours, *others = (series.pop("ergodax infer"), *series.values())
    best = [max(points, key=lambda point: point.rate) for points in zip(*others, strict=True)]
    return [(one.rows, one.rate / other.rate) for one, other in zip(ours, best, strict=True)]


def table() -> str:
    """The figures, as Markdown."""
    nuts, steps, strangers = (
        (BENCHMARKS / name).read_text(encoding="utf-8")
        for name in ("NUTS.md", "RESULTS.md", "STRANGERS.md")
    )
    times = {
        column: ", ".join(
            f"{float(f'{ratio:.3g}'):,g} at {rows:,.0f}" for rows, ratio in ratios(nuts, column)
        )
        for column in PANELS
    }
    errors = [
        max(p.rate for p in read(nuts, name)["ergodax infer"])
        for name in ("error of mean", "of sd")
    ]
    outcomes = re.findall(r"^\| [\w-]+ \| float\d+, \d+ \| ([^|]+?) \|", strangers, re.MULTILINE)
    right, wrong = outcomes.count("right"), sum("wrong" in outcome for outcome in outcomes)
    by_hand = re.findall(r"ergodax to hand-written: ([\d.]+)", steps)[:2]
    rows = [
        (
            "ESS per second of `infer` to the best NUTS's (BlackJAX, NumPyro) by number of rows",
            times["ESS/s"],
            "nuts",
        ),
        (
            "the same, with compilation, mode, warm-up and tuning counted",
            times["ESS/s end to end"],
            "nuts",
        ),
        (
            "largest error of `infer` there",
            f"{errors[0]:.2g} sd (means), {errors[1]:.1%} (sds)",
            "nuts",
        ),
        (
            "runs of 110 unlike posteriors, single precision with two keys and double, 120 s each",
            f"{right} of {len(outcomes)} right, {wrong} wrong and called right",
            "strangers",
        ),
        ("a step of SGLD, of SGHMC, to one by hand in JAX", ", ".join(by_hand), "steps"),
    ]
    lines = ["| what | measured | `python -m benchmarks` |", "|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {what} | {value} | `{name}` |" for what, value, name in rows), ""]
    )


def page(text: str) -> str:
    """README.md with the figures of now.

    Args:
        text: of README.md.
    """
    before, _, after = text.partition(MARK)
    return before + MARK + "\n" + table() + "\n" + after[after.index("## ") :]


def picture(text: str) -> str:
    """The SVG.

    Args:
        text: of benchmarks/NUTS.md.
    """
    width = 2 * (LEFT + WIDTH + RIGHT)
    height = TOP + HEIGHT + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{GREY}" role="img">',
        "<title>ESS per second of infer and NUTS by number of rows</title>",
    ]
    for i, column in enumerate(PANELS):
        left = LEFT + i * width / 2
        mark = crossover(text) if column == "ESS/s end to end" else None
        parts += [
            f'<g transform="translate({left:.0f},{TOP})">',
            *_panel(text, column, mark),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _panel(text: str, column: str, mark: float | None) -> list[str]:
    parts = [_text(WIDTH / 2, -22, f"ESS per second, {PANELS[column]}", "middle")]
    for decade in range(math.ceil(RATES[0]), math.floor(RATES[1]) + 1):
        parts += [_line((0, _y(10**decade)), (WIDTH, _y(10**decade)), GREY, 0.3)]
        parts += [_text(-8, _y(10**decade) + 4, f"{10**decade:,}", "end")]
    for decade in range(math.ceil(ROWS[0]), math.floor(ROWS[1]) + 1):
        parts += [_text(_x(10**decade), HEIGHT + 18, f"{10**decade:,}", "middle")]
    parts += [_text(WIDTH / 2, HEIGHT + 36, "rows of data", "middle")]
    if mark is not None:
        parts += [_line((_x(mark), 0), (_x(mark), HEIGHT), GREY, 1, dashes="4 4")]
        parts += [_text(_x(mark) + 6, HEIGHT - 8, f"infer ahead from {mark:,.0f} rows", "start")]
    series = read(text, column)
    highest = max(points[-1].rate for points in series.values() if _falls(points))
    for name, points in series.items():
        parts += _series(name, points, below=points[-1].rate < highest)
    return parts


def _falls(points: list[Point]) -> bool:
    return points[0].rate > points[1].rate


def _series(name: str, points: list[Point], below: bool) -> list[str]:
    colour, at = COLOURS[name], [(_x(p.rows), _y(p.rate)) for p in points]
    parts = [_line(*pair, colour, 2) for pair in zip(at, at[1:], strict=False)]
    for (x, y), point in zip(at, points, strict=True):
        fill = "none" if point.extrapolated else colour
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"/>']
    if not _falls(points):
        return [*parts, _text(at[1][0], at[1][1] - 12, name, "middle", colour)]
    x, y = at[len(at) // 2]  # a falling line has room on its right, and below it on its left
    if below:
        return [*parts, _text(x - 8, y + 14, name, "end", colour)]
    return [*parts, _text(x + 8, y - 4, name, "start", colour)]


def _x(rows: float) -> float:
    return WIDTH * (math.log10(rows) - ROWS[0]) / (ROWS[1] - ROWS[0])


def _y(rate: float) -> float:
    return HEIGHT * (RATES[1] - math.log10(rate)) / (RATES[1] - RATES[0])


def _line(begin: tuple, end: tuple, colour: str, width: float, dashes: str = "none") -> str:
    (x1, y1), (x2, y2) = begin, end
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}" stroke-dasharray="{dashes}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str, colour: str = GREY) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
