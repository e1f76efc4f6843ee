"""The dynamics side by side: `python -m benchmarks dynamics`."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import jax

from benchmarks import environment
from benchmarks.dynamics import cost, laws, mnist, passes
from benchmarks.report import Table
from benchmarks.strangers.bank import Absent
from benchmarks.timing import Timing, ratio


def samplers_table(coordinates: int, steps: int, rounds: int) -> Table:
    """Sampler x order x law x cost."""
    table = Table(
        "Order, bias and cost of a step",
        ["sampler", "h", "order, all rows", "bias at h, %", "order, batches", "bias at h, % ",
         "us a step", "x sgld"],
    )  # fmt: skip
    times = cost.timings(steps, rounds)
    for name, sampler in laws.SAMPLERS.items():
        found = laws.row(sampler, jax.random.key(0), coordinates)
        table.rows.append([name, f"{sampler.step_size:g}", *found, *_cost(times, name)])
        print(" ", *table.rows[-1], flush=True)
    table.rows.append(["scir", "", "", "", "", "", *_cost(times, "scir")])
    table.data = {name: timing.microseconds for name, timing in times.items()}
    table.notes += [
        "Bias of E x^2 on the double well (x^2 - 1)^2 / 4, sampled, with one standard error; "
        f"batches of one row of eight, whose gradient has variance {laws.NOISE:.3g}.",
        "Order: from h and h / 2; - where a bias is less than 4 standard errors. At these steps "
        "higher orders count too.",
        "Steps: logistic regression, N = 12,214, d = 129, batches of 100, thin=10, float32; scir "
        "on 129 categories of as many rows. Best round; the ratio is the median of rounds.",
    ]
    return table


def _cost(times: dict[str, Timing], name: str) -> list[str]:
    return [f"{times[name].minimum:.1f}", f"{ratio(times[name], times['sgld']).median:.2f}"]


def passes_table() -> Table:
    """Passes over the data until every mean and sd is right, by batches and condition number."""
    settings = [(m, c) for c in passes.CONDITIONS for m in passes.BATCHES]
    table = Table(
        f"Passes over the data until means and sds are within {passes.GOAL} sd, "
        f"d = {passes.DIMENSION:,}",
        ["method", *(f"{m} batches, condition {c:g}" for m, c in settings)],
    )
    with jax.enable_x64(True):
        for name, method in passes.METHODS.items():
            found = [passes.best(method, passes.well_specified(m, c)) for m, c in settings]
            table.rows.append([name, *(f"{each:,.1f}" for each, _, _ in found)])
            table.data[name] = found
    table.notes += [
        "Exact laws, of the mean of a normal law from a start 10 sds off in each coordinate; noise "
        "of m batches has the variance (m - 1) k in a coordinate of curvature k; the "
        "best of 40 step sizes and 6 frictions for each cell. A sweep is two passes, and counts "
        "whole.",
        "V is the covariance of the gradient's noise, which NOGIN is told. On a normal law BAOAB "
        "and NOGIN have no bias of their own, which favours them.",
    ]
    return table


TABLES = ("samplers", "passes", "mnist")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks dynamics", description="Order, law and cost of every sampler."
    )
    parser.add_argument("--quick", action="store_true", help="rougher, in about a minute")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    options = parser.parse_args(arguments)
    facts, begin, tables = environment.describe(), time.perf_counter(), []
    print("\n".join(f"{name:>12}: {value}" for name, value in facts.items()), flush=True)
    settings = (512, 2_000, 3) if options.quick else (laws.COORDINATES, 10_000, 7)
    makers = {
        "samplers": lambda: samplers_table(*settings), "passes": passes_table, "mnist": mnist.table
    }  # fmt: skip
    for name in TABLES if options.only is None else (options.only,):
        try:
            tables.append(makers[name]())
        except Absent as missing:
            print(f"{name} is left out: {missing}")
            continue
        print(f"\n{tables[-1].text()}\n", flush=True)
    facts["took"] = f"{time.perf_counter() - begin:.0f} s"
    print(f"took {facts['took']}")
    if options.markdown is not None:
        head = ["# The dynamics side by side", "", "Written by `python -m benchmarks dynamics "
                "--markdown`; do not edit.", ""]  # fmt: skip
        lines = [*head, *(f"- {name}: {value}" for name, value in facts.items())]
        parts = ["\n".join(lines), *(table.markdown() for table in tables)]
        options.markdown.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
