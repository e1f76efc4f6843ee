"""The whole regression job: fit, reference, evaluation, files."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pandas as pd
from jax.sharding import Mesh

from ergodax import report
from ergodax.apps import regression
from ergodax.learn import evaluate
from ergodax.learn.tables import Table
from ergodax.report import pictures

PANELS = 9  # coefficients shown in the pictures


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user may set; None means chosen from the measured noise.

    Attributes:
        batch_size: n; None for a quarter of the rows, at most 100.
        step_size: h, in whitened coordinates.
        num_steps: of each chain.
        num_chains: chains of both samplers.
        prior_scale: standard deviation of each coefficient's prior.
        reference_draws: of each reference chain; 0 for no reference.
        seed: of everything.
        progress: show bars.

    Raises:
        ValueError: a number out of range.
    """

    batch_size: int | None = None
    step_size: float | None = None
    num_steps: int | None = None
    num_chains: int = 4
    prior_scale: float = 1.0
    reference_draws: int = 2000
    seed: int = 0
    progress: bool = True

    def __post_init__(self) -> None:
        """Refuse before any work what would fail or mislead after it."""
        if not 0 < self.prior_scale < float("inf"):
            raise ValueError(f"prior_scale must be positive and finite, not {self.prior_scale}.")
        if self.num_chains < 1:
            raise ValueError(f"num_chains must be at least 1, not {self.num_chains}.")
        if self.num_steps is not None and self.num_steps < 4:
            raise ValueError(f"num_steps must be at least 4, not {self.num_steps}.")
        if self.reference_draws and self.reference_draws < 4:
            raise ValueError("reference_draws must be 0, for none, or at least 4.")


@dataclasses.dataclass(frozen=True)
class Result:
    """What a job found.

    Attributes:
        fit: the minibatch run.
        summary: its table.
        held_out: its performance.
        settings: what was chosen.
        reference: the full-gradient run and its performance, if asked for.
        comparison: of the two.
        facts: everything that is a number, for JSON.
    """

    fit: regression.Fit
    summary: pd.DataFrame
    held_out: evaluate.HeldOut
    settings: regression.Settings
    reference: regression.Fit | None
    comparison: evaluate.Comparison | None
    facts: dict[str, Any]


def run(
    train: Table,
    test: Table,
    options: Options,
    say: Callable[[str], None] = lambda text: None,
    *,
    mesh: Mesh | None = None,
) -> Result:
    """Fit, compare and evaluate.

    Args:
        train: prepared rows to fit (see `tables.prepare`).
        test: prepared rows held out.
        options: see Options.
        say: called with a line before each stage.
        mesh: devices to split the chains over; see `ergodax.sample`.

    Raises:
        ValueError: an option out of range, or data that can't be fitted.
        DivergenceError: a step size too large.
    """
    rows, columns = train.features.shape
    batch_size = options.batch_size or max(2, min(100, rows // 4))
    key_whiten, key_fit, key_reference = jax.random.split(jax.random.key(options.seed), 3)
    say(f"{rows} rows, {columns} coefficients: finding the mode and the gradient noise around it")
    model = regression.prepare_model(train, options.prior_scale, batch_size, key_whiten)
    settings = regression.choose(model.whitening, batch_size, options.step_size, options.num_steps)
    say(
        f"SGHMC: {options.num_chains} chains of {settings.num_steps:,} steps, batches of "
        f"{batch_size}, step size {settings.step_size:.3g} in whitened coordinates"
    )
    common: dict[str, Any] = {"num_chains": options.num_chains, "progress": options.progress}
    common["mesh"] = mesh
    fit = regression.run_sghmc(model, settings, key_fit, **common)
    summary = evaluate.summary_of(fit, train.names)
    scores = evaluate.held_out(fit, test)
    reference = comparison = None
    facts: dict[str, Any] = {
        "rows": rows, "held_out_rows": len(test.target), "coefficients": columns,
        "prior_scale": options.prior_scale, **dataclasses.asdict(settings),
        "friction": regression.FRICTION, "num_chains": options.num_chains, "seed": options.seed,
        "seconds": fit.seconds, "passes_through_the_data": fit.passes,
        "least_ess": float(summary["ess"].to_numpy().min()),
        "largest_r_hat": float(summary["r_hat"].to_numpy().max()),
        "held_out": scores.as_dict(),
    }  # fmt: skip
    if options.reference_draws:
        say(f"reference: HMC with full gradients, {options.reference_draws:,} draws a chain")
        draws = options.reference_draws
        reference = regression.run_reference(model, key_reference, num_draws=draws, **common)
        comparison = evaluate.compare(summary, evaluate.summary_of(reference, train.names))
        facts["reference"] = {
            "seconds": reference.seconds, "passes_through_the_data": reference.passes,
            "held_out": evaluate.held_out(reference, test).as_dict(),
        }  # fmt: skip
        facts["comparison"] = comparison.as_dict()
    return Result(fit, summary, scores, settings, reference, comparison, facts)


def write(result: Result, train: Table, test: Table, folder: Path, title: str) -> dict[str, Path]:
    """Write draws.nc, summary.csv, facts.json and report.html into a folder.

    Returns:
        The paths by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        "draws": folder / "draws.nc",
        "summary": folder / "summary.csv",
        "facts": folder / "facts.json",
        "report": folder / "report.html",
    }
    names = {"dims": {"w": ["coefficient"]}, "coords": {"coefficient": train.names}}
    result.fit.samples.to_arviz(**names).to_netcdf(paths["draws"], engine="h5netcdf")
    result.summary.to_csv(paths["summary"])
    paths["facts"].write_text(json.dumps(result.facts, indent=2) + "\n", encoding="utf-8")
    report.write(paths["report"], title, sections(result, train, test))
    return paths


def sections(result: Result, train: Table, test: Table) -> list[tuple[str, str]]:
    """The report's sections: what ran, held-out rows, comparison, pictures, summary."""
    draws = regression.draws_of(result.fit)
    shown = pictures.furthest(result.summary, PANELS)
    names = [train.names[k] for k in shown]
    thin = result.settings.thin
    plain = {k: v for k, v in result.facts.items() if not isinstance(v, dict)}
    table = evaluate.reliability(result.held_out.probabilities, test.target)
    parts = [
        ("What was run", report.key_values(plain)),
        (
            "Held-out rows",
            report.key_values(dict(result.held_out.as_dict()))
            + report.picture(
                pictures.calibration(table),
                "Calibration: predicted probability against observed frequency with 95% intervals, "
                "and the number of rows.",
            ),
        ),
    ]
    if result.reference is not None and result.comparison is not None:
        other = regression.draws_of(result.reference)
        parts.append(
            (
                "Beside the full-gradient reference",
                report.key_values(dict(result.comparison.as_dict()))
                + report.picture(
                    pictures.agreement(result.comparison.table),
                    "Every coefficient beside the reference; bars are two Monte Carlo standard "
                    "errors of the difference.",
                )
                + report.picture(
                    pictures.marginals(draws[..., shown], names, other[..., shown]),
                    "Marginals of the coefficients least like the prior's centre; filled: "
                    "minibatch SGHMC, outline: reference.",
                ),
            )
        )
    parts += [
        ("Traces", report.picture(pictures.traces(draws[..., shown], names, thin), "Traces.")),
        (
            "Autocorrelation",
            report.picture(
                pictures.autocorrelations(draws[..., shown], names, thin),
                "Autocorrelation of each chain.",
            ),
        ),
        ("Summary of every coefficient", report.data_frame(result.summary)),
    ]
    return parts
