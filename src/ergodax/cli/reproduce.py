"""`ergodax reproduce`: the experiments of the papers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from cyclopts import App, Parameter
from rich.console import Console

from ergodax.apps.reproduce import autocorrelation as times
from ergodax.apps.reproduce import (
    bias_slopes,
    decision_pages,
    noise_pages,
    orders,
    pages,
    reduction,
)
from ergodax.apps.reproduce import figure2 as second
from ergodax.apps.reproduce import figure3 as third
from ergodax.apps.reproduce import funnel as necks
from ergodax.apps.reproduce import mixture as means
from ergodax.cli.options import Json, Output, folder, tell_files, tell_json
from ergodax.cli.show import text_table

reproduce_app = App(
    name="reproduce",
    help="""Run an experiment of a paper again: table, picture, facts and report.

    Example: ergodax reproduce figure2 --quick
    """,
)


@Parameter(name="*")
@dataclass(frozen=True)
class ReproduceOptions:
    """Options of every experiment.

    Parameters
    ----------
    quick
        A small version, in seconds, with larger errors.
    seed
        Of everything random.
    progress
        Show progress bars, where standard error is a terminal.
    output
        Folder for the picture, the CSV, facts.json and report.html; by default runs/NAME.
    json
        Print the facts as JSON instead of tables.
    """

    quick: bool = False
    seed: int = 0
    progress: bool = True
    output: Output = None
    json: Json = False


DEFAULTS = ReproduceOptions()


@reproduce_app.command
def figure2(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Ma, Chen and Fox (2015), Figure 2: which samplers have the right law in one dimension.

    SGLD, SGHMC, naive SGRHMC and gSGRHMC on x²/2 and on x⁴ - 2x², with exact and noisy gradients,
    at two step sizes and extrapolated to none; and what the metric as printed does to the double
    well.

    Example: ergodax reproduce figure2 --quick
    """
    size = second.QUICK if options.quick else second.Size()
    run_experiment(
        "figure2",
        options,
        lambda say: second.run(size, options.seed, options.progress, say),
        lambda result: {
            **{
                f"{target}: {pages.KL_TITLE}": rows.drop(columns="target")
                for target, rows in pages.laws_table(result).groupby("target")
            },
            "x⁴ - 2x² with the metric as printed (C = 0.5) and a positive one": pages.pieces_table(
                result
            ),
        },
        pages.write_figure2,
    )


@reproduce_app.command
def figure3(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Ma, Chen and Fox (2015), Figure 3, left: who mixes best on a correlated target.

    SGLD, SGHMC and gSGRHMC, each at the step size that is best for it among those with a bias of
    5% or less: first steps, and effective draws per 1000 gradients.

    Example: ergodax reproduce figure3 --quick
    """
    size = third.QUICK if options.quick else third.Size()
    run_experiment(
        "figure3",
        options,
        lambda say: third.run(size, options.seed, options.progress, say),
        lambda result: {
            "relative bias, and effective draws per 1000 gradients": pages.mixing_table(result)
        },
        pages.write_figure3,
    )


@reproduce_app.command
def noise_orders(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Matthews and Weare (2018), section 5.1: what gradient noise does to a law, by step size.

    NOGIN, SGHMC, CC-ADL, SGNHT, BAOAB, SGLD and mSGLD on N(0, 1) and on (x² - 1)²/4, with noise
    that depends on the position: exact laws, their orders in h, and error by gradients spent.

    Example: ergodax reproduce noise-orders --quick
    """
    size = orders.QUICK if options.quick else orders.Size()
    run_experiment(
        "noise-orders",
        options,
        lambda say: orders.run(size, options.seed, options.progress, say),
        lambda result: {
            "orders in h of the errors of the variance, of E x⁴ and in total variation": (
                noise_pages.slopes_table(result)
            ),
            f"chains on (x² - 1)²/4 at h = {orders.RACE:g}": noise_pages.race_table(result),
        },
        noise_pages.write_orders,
    )


@reproduce_app.command
def autocorrelation(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Matthews and Weare (2018), section 4.3: autocorrelation under NOGIN by gradient noise.

    On N(0, 1) without friction, at three step sizes: from the matrix of a step, by the closed
    form of the slow mode, as printed, and by ArviZ on chains.

    Example: ergodax reproduce autocorrelation --quick
    """
    size = times.QUICK if options.quick else times.Size()
    run_experiment(
        "autocorrelation",
        options,
        lambda say: times.run(size, options.seed, options.progress, say),
        lambda result: {"autocorrelation time in steps": noise_pages.times_table(result)},
        noise_pages.write_autocorrelation,
    )


@reproduce_app.command
def mixture(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Matthews and Weare (2018), section 5.2: a mixture's means, by batch size and passes.

    NOGIN with the exact covariance of the gradient, with a moving average and with each batch's
    own, SGHMC and BAOAB, against quadrature.

    Example: ergodax reproduce mixture --quick
    """
    size = means.QUICK if options.quick else means.Size()
    run_experiment(
        "mixture",
        options,
        lambda say: means.run(size, options.seed, options.progress, say),
        lambda result: {
            "relative error of the posterior's second moments, by batch size": (
                noise_pages.errors_table(result)
            )
        },
        noise_pages.write_mixture,
    )


@reproduce_app.command
def bias(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Stationary bias by step size and by batch: exact laws, and what pairs of chains measure.

    SGLD, BAOAB and NOGIN on (x² - 1)²/4 with noisy gradients: their orders in the step size. SGLD
    on a regression: a batch's bias is a product of step size and 1/n, and vanishes with either.

    Example: ergodax reproduce bias --quick
    """
    size = bias_slopes.QUICK if options.quick else bias_slopes.Size()
    run_experiment(
        "bias",
        options,
        lambda say: bias_slopes.run(size, options.seed, options.progress, say),
        lambda result: {
            "orders in the sampler's own step size": decision_pages.slopes_table(result),
            "relative biases by pairs of chains at h and h/2": decision_pages.pairs_table(result),
            "what a batch adds, by pairs of chains": decision_pages.batches_table(result),
        },
        decision_pages.write_bias,
    )


@reproduce_app.command
def variance_reduction(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Errors of posterior moments by passes: SGLD with plain batches and what improves on it.

    SVRG, SAGA, control variates of order 1 and 2, zero-variance estimates, falling steps, and
    NOGIN, on a linear regression with 10,000 examples.

    Example: ergodax reproduce variance-reduction --quick
    """
    size = reduction.QUICK if options.quick else reduction.Size()
    run_experiment(
        "variance-reduction",
        options,
        lambda say: reduction.run(size, options.seed, options.progress, say),
        lambda result: {
            f"rms errors after {size.passes[-1]} passes": decision_pages.reduction_table(result)
        },
        decision_pages.write_reduction,
    )


@reproduce_app.command
def funnel(*, options: ReproduceOptions = DEFAULTS) -> None:
    """Neal's funnel: SGLD against SGRLD with the inverse metric diag(1, exp(v)).

    Probabilities of v after equally many gradients, beside the exact law of SGRLD's steps.

    Example: ergodax reproduce funnel --quick
    """
    size = necks.QUICK if options.quick else necks.Size()
    run_experiment(
        "funnel",
        options,
        lambda say: necks.run(size, options.seed, options.progress, say),
        lambda result: {"probabilities of v": decision_pages.funnel_table(result)},
        decision_pages.write_funnel,
    )


def run_experiment(
    name: str,
    options: ReproduceOptions,
    run: Callable[[Callable[[str], None]], Any],
    tables: Callable[[Any], dict[str, pd.DataFrame]],
    write: Callable[[Any, Path], dict[str, Path]],
    note: str = "",
) -> None:
    """Run an experiment, write its files, and print what was found.

    Args:
        name: of the experiment.
        options: of every experiment.
        run: the experiment, given what prints a line; its result has `facts` and `verdicts`.
        tables: of texts by title, from the result.
        write: the files, given the result and a folder; their paths by name.
        note: how the tables are read.
    """
    console = Console(stderr=options.json)
    place = folder(options.output, name)
    console.print(f"[bold]{pages.TITLES[name]}[/bold]")
    begin = time.perf_counter()
    result = run(lambda text: console.print(text, highlight=False))
    result.facts["seconds"] = time.perf_counter() - begin
    paths = write(result, place)
    if options.json:
        tell_json(result.facts, paths)
    else:
        for title, table in tables(result).items():
            console.print("", text_table(table, title))
        for sentence in ([note] if note else []) + [f"- {v}" for v in result.verdicts]:
            console.print(sentence, highlight=False)
    tell_files(console, paths)
