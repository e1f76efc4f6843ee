"""`python -m benchmarks nuts`: the comparison from its options to its table, picture and files."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.nuts import race
from benchmarks.nuts.contestants import OURS, Measured
from benchmarks.nuts.problem import PRIOR_SCALE, from_table
from benchmarks.nuts.race import PATIENCE, Options, Result
from benchmarks.report import Table
from ergodax.learn import tables

DESCRIPTION = """\
Race infer against NUTS on logistic regressions: of growing size, or on a table. ESS per second
while sampling and end to end, gradients to an effective draw, errors against a reference in double
precision, microseconds a step. The whole takes some ten minutes, --quick two."""
EXAMPLES = """\
examples:
  python -m benchmarks nuts --sizes 500 50000 --peers blackjax
  python -m benchmarks nuts --data mnist.npz --classes 7 9 --components 128"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write; wrong use ends with exit status 2."""
    parser = _parser()
    given = parser.parse_args(arguments)
    say = lambda text: print(text, file=sys.stderr if given.json else sys.stdout, flush=True)  # noqa: E731
    try:
        result = _measured(given, say)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    paths = write(result, given.output)
    if given.json:
        print(json.dumps(result.facts | {"files": {k: str(path) for k, path in paths.items()}}))
    else:
        print("\n".join([table(result).text(), *(f"- {v}" for v in result.verdicts)]))
    say(f"written: {', '.join(map(str, paths.values()))}")


def _measured(given: argparse.Namespace, say: Callable[[str], None]) -> Result:
    sizes = None if given.sizes is None else tuple(round(n) for n in given.sizes)
    dimension = 10 if given.dimension is None else given.dimension
    options = Options(sizes, dimension, tuple(given.peers), given.quick, given.seed)
    if given.data is None:
        return race.run(options, say)
    if sizes is not None or given.dimension is not None:
        raise ValueError("--sizes and --dimension are for made-up data, not for --data FILE.")
    classes = None if given.classes is None else tuple(given.classes)
    if given.data.suffix == ".npz":
        target = given.target or "y_train"
        read = tables.read_npz(given.data, given.features, target, classes, given.categorical)
    else:
        columns = tables.read_columns(given.data, given.target)
        read = tables.of_columns(*columns, "logistic", classes)
    say(f"{given.data.name}: a long exact run as the reference")
    more = {"prior_scale": given.prior_scale, "components": given.components, "seed": given.seed}
    problem, title = from_table(read, **more)
    return race.race([problem], f"{given.data.name}, {title}", options, say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks nuts", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    sizes = "rows (500 to 5,000,000; with --quick 500 to 50,000)"
    add("--sizes", nargs="+", type=float, metavar="N", help=sizes)
    add("--dimension", type=int, help="coefficients (10)")
    add("--data", type=Path, help="a table instead: CSV, Parquet or npz (x_train, y_train)")
    add("--target", help="the column to predict; of an .npz file the array (y_train)")
    add("--features", default="x_train", help="the array of features of an .npz file")
    add("--categorical", help="an array of codes there: a column becomes indicators")
    add("--classes", nargs=2, help="the two values of the target to keep, where it has more")
    add("--components", type=int, help="reduce the features to so many principal components first")
    prior = "sd of each coefficient's normal prior on a table (10)"
    add("--prior-scale", type=float, default=PRIOR_SCALE, help=prior)
    peers = "whose NUTS; those not installed are skipped"
    add("--peers", nargs="+", default=["blackjax", "numpyro", "nutpie"], help=peers)
    add("--quick", action="store_true", help="smaller sizes, and a goal of ESS 2,000, not 10,000")
    add("--seed", type=int, default=0, help="of data and samplers")
    folder = "folder of nuts.md, nuts.json and nuts.png (runs/nuts)"
    add("--output", "--out", type=Path, default=Path("runs/nuts"), help=folder)
    add("--json", action="store_true", help="print the figures as JSON instead of a table")
    return parser


def table(result: Result) -> Table:
    """The figures to read, and below them how they are read."""
    goal = result.limits.goal
    columns = (
        "N", "sampler", "ESS/s", "ESS/s end to end", "s to goal", "set-up s", "us a step", "grads",
        "error of mean", "of sd",
    )  # fmt: skip
    made = Table(result.facts["title"], columns, notes=_reading(result))
    for row in result.rows:
        star = "*" if row.extrapolated else ""
        cells = (
            f"{row.num_data:,}", row.sampler, _number(row.rate),
            _number(row.end_to_end(goal)) + star,
            _number(row.to_goal) + star, _number(row.setup_seconds), _number(row.microseconds),
            "none" if row.gradients_each is None else _number(row.gradients_each),
            f"{row.error_mean:.3f}", f"{row.error_sd:.3f}",
        )  # fmt: skip
        made.rows.append(list(cells))
    return made


def _reading(result: Result) -> list[str]:
    goal, facts = result.limits.goal, result.facts
    known = facts["references"].values()
    told = ", ".join(dict.fromkeys(each["told"] for each in known))
    worst = max(each["error"] for each in known)
    return [
        f"{facts['chains']} chains each, float32 data, {facts['dimension']} coefficients with "
        f"N(0, {facts['prior_scale']:g}²) priors, {facts['cores']} cores, load "
        f"{facts['load_before']:.1f} before and {facts['load_after']:.1f} after.",
        f"ESS/s: ArviZ's bulk ESS of the worst coefficient, while sampling, compiled. "
        f"ESS/s end to end: {goal:,.0f} over the seconds to ESS {goal:,.0f} (every mcse at most "
        f"{goal**-0.5:.2g} sd), compilation, mode, warm-up and tuning counted.",
        f"* not reached within {result.limits.most:g} s of sampling, {PATIENCE:g} times that where "
        "the table is large and the reference had to be sampled: extrapolated from the rate.",
        "grads: gradients of the whole data to an effective draw; minibatches make none.",
        "errors: the largest of any coefficient, in posterior sd (means) and relative (sds), Monte "
        f"Carlo error of the draws included. The reference is {told}; its own standard errors are "
        f"at most {worst:.2g} sd.",
        "A step is one of all chains together; a step of NUTS is a trajectory.",
        *result.skipped,
    ]


def write(result: Result, folder: Path) -> dict[str, Path]:
    """Write nuts.md, nuts.json and nuts.png; returns the paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"markdown": "md", "facts": "json", "picture": "png"}
    paths = {name: folder / f"nuts.{end}" for name, end in kinds.items()}
    notes = [f"{row.sampler}, N = {row.num_data:,}: {row.note}" for row in result.rows]
    parts = [table(result).markdown().removeprefix("#")]
    for heading, sentences in (("Verdicts", result.verdicts), ("Notes", notes)):
        parts.append("\n".join([f"## {heading}", "", *(f"- {text}" for text in sentences)]))
    paths["markdown"].write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    paths["facts"].write_text(json.dumps(result.facts, indent=2) + "\n", encoding="utf-8")
    show(result).savefig(paths["picture"], dpi=150)
    return paths


def show(result: Result) -> Any:
    """ESS per second: against N on logarithmic axes, or as bars where there is one N."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    one = len({row.num_data for row in result.rows}) == 1
    shape = {"figsize": (10, 1.6 + 0.4 * len(result.rows) if one else 4.2), "layout": "constrained"}
    figure, axes = plt.subplots(1, 2, sharey=True, **shape)
    goal, draw = result.limits.goal, _bars if one else _lines
    draw(axes[0], result.rows, lambda row: row.rate, hollow=False)
    draw(axes[1], result.rows, lambda row: row.end_to_end(goal), hollow=True)
    axes[0].set_title("while sampling")
    axes[1].set_title(f"end to end, to ESS {goal:,.0f}; hollow: extrapolated")
    at = result.overtakes
    if at is not None:
        axes[1].axvline(at, color="0.4", lw=1, ls=":")
        text = f"infer overtakes\nat about {float(f'{at:.1g}'):,.0f} rows"
        axes[1].text(at, 0.97, text, transform=axes[1].get_xaxis_transform(), va="top", fontsize=9)
    if not one:
        axes[0].legend(frameon=False)
        axes[0].set_ylabel("ESS per second")
    return figure


def _lines(
    axis: Any, rows: list[Measured], value: Callable[[Measured], float], *, hollow: bool
) -> None:
    for number, sampler in enumerate(dict.fromkeys(row.sampler for row in rows)):
        mine = [row for row in rows if row.sampler == sampler]
        colour, width = f"C{number}", 2.0 if sampler == OURS else 1.2
        sizes = [row.num_data for row in mine]
        axis.plot(sizes, [value(row) for row in mine], color=colour, label=sampler, lw=width)
        for row in mine:
            face = "white" if hollow and row.extrapolated else colour
            axis.plot(row.num_data, value(row), "o", color=colour, markerfacecolor=face)
    axis.set(xscale="log", yscale="log", xlabel="rows N")
    axis.grid(alpha=0.3)


def _bars(
    axis: Any, rows: list[Measured], value: Callable[[Measured], float], *, hollow: bool
) -> None:
    names, values = [row.sampler for row in rows], [value(row) for row in rows]
    colours = [f"C{number}" for number in range(len(rows))]
    faces = [
        "white" if hollow and row.extrapolated else colour
        for row, colour in zip(rows, colours, strict=True)
    ]
    drawn = axis.barh(names, values, height=0.6, color=faces, edgecolor=colours)
    axis.bar_label(drawn, [_number(v) for v in values], padding=4)
    axis.set(xscale="log", xlim=(0.3 * min(values), 5.0 * max(values)), xlabel="ESS per second")
    if not axis.yaxis_inverted():
        axis.invert_yaxis()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
