"""What `ergodax infer` found, as texts, facts, pictures and files."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.checks import legible
from ergodax.learn.beside import Nuts, in_figures
from ergodax.learn.families import LOGISTIC, NEGATIVE_BINOMIAL, POISSON
from ergodax.learn.fit import Fit
from ergodax.learn.regression import distinct
from ergodax.report import page, pictures

ERROR = (
    "error: one Monte Carlo standard error plus the estimated bias, of the mean or of the sd, "
    "whichever is larger, in posterior sd"
)
CALIBRATION = (
    "Calibration on the held-out rows: predicted probability and observed frequency with its 95 % "
    "interval, and the number of rows."
)
AGREEMENT = (
    "Every component compared with the reference; bars are two Monte Carlo standard errors of the "
    "difference."
)
RATIO = (
    "What one unit more of a column multiplies the {} by, all others being equal: the median and "
    "the interval that has 95 % of the posterior."
)
NUTS = (
    "Compilation counts for both. What is extrapolated is the warm-up of NUTS by its pace, or its "
    "error by the square root of its draws."
)
ROWS = 40  # components in the terminal
DIGITS = {"mean": ".4g", "sd": ".4g", "error": ".2g", "ess": ",.0f", "r_hat": ".4f"}
PANELS = 9  # components in the pictures
LINES = 60  # odds or rate ratios
POINTS = 2_000  # of a chain in a trace


def legibly(fit: Fit) -> Fit:
    """The same with the components' names as they can be shown: each on one line, none too long."""
    table = fit.result.table
    names = list(distinct([legible(str(name)) for name in table.index]))
    result = dataclasses.replace(fit.result, table=table.set_axis(names))
    return dataclasses.replace(fit, result=result)


def texts(fit: Fit) -> tuple[str, pd.DataFrame]:
    """A title and the table to read: every component, or those with the largest errors."""
    table = fit.result.table
    title = "posterior in the columns' own units; the error in posterior sd"
    if len(table) > ROWS:
        order = np.argsort(-table["error"].fillna(np.inf).to_numpy(), kind="stable")[:ROWS]
        title += f"; the {ROWS} of {len(table)} components with the largest errors"
        table = table.iloc[np.sort(order)]
    cells = {"component": [str(name) for name in table.index]}
    for name, digits in DIGITS.items():
        cells[name] = ["" if pd.isna(x) else f"{x:{digits}}" for x in table[name]]
    return title, pd.DataFrame(cells)


def decisions(fit: Fit) -> pd.DataFrame:
    """The decision log, a row for each decision."""
    rows = [(d.what, d.chosen, d.why) for d in fit.result.account.decisions]
    return pd.DataFrame(rows, columns=["question", "chosen", "because"])


def predictions(fit: Fit) -> pd.DataFrame:
    """Scores on the held-out rows, a column each for the answer and the reference."""
    assert fit.held_out is not None
    columns = {"infer": fit.held_out.scores}
    if fit.reference is not None and fit.reference.held_out is not None:
        columns["reference"] = fit.reference.held_out.scores
    names = {"held-out rows": [name.replace("_", " ") for name in fit.held_out.scores]}
    values = {k: [f"{x:.5g}" for x in scores.values()] for k, scores in columns.items()}
    return pd.DataFrame(names | values)


def compared(fit: Fit) -> list[str]:
    """Sentences about the reference: none if there is none."""
    if fit.reference is None:
        return []
    ours, theirs, c = fit.result.table, fit.reference.summary, in_figures(fit.reference.comparison)
    seconds = sum(fit.result.account.seconds.values())
    return [
        "Compared with HMC on full gradients, in its posterior sd: means differ by "
        f"{c['mean_difference_rms']:.3f} rms, {c['mean_difference_max']:.3f} at most "
        f"({c['expected_from_monte_carlo_rms']:.3f} rms expected from Monte Carlo alone); ratios "
        f"of sd are {c['sd_ratio_min']:.3f} to {c['sd_ratio_max']:.3f}.",
        f"infer: {seconds:.1f} s, least ESS {ours['ess'].min():,.0f}; reference: "
        f"{fit.reference.seconds:.1f} s, least ESS {theirs['ess'].min():,.0f}, largest R-hat "
        f"{theirs['r_hat'].max():.4f}, {fit.reference.passes:,} passes through the data a chain.",
    ]


def raced(nuts: Nuts | None) -> list[str]:
    """How far NUTS came in as many seconds: no sentence if it was not asked for."""
    if nuts is None:
        return []
    time = f"The no-U-turn sampler (BlackJAX's) on all rows, for the same {nuts.seconds:.0f} s: "
    if nuts.warm < 1.0:
        told = f"{nuts.warm:.0%} of its warm-up, and no draw."
    elif np.isnan(nuts.error):
        told = f"its warm-up, and {nuts.draws} draws of each chain, too few to tell an error."
    else:
        told = f"{nuts.draws:,} draws of each chain, with errors of up to {nuts.error:.2g} sd."
    if not nuts.needed > nuts.seconds:
        return [time + told]
    times = nuts.needed / nuts.seconds
    more = f" It would need about {nuts.needed:,.0f} s, {times:.0f} times as long (extrapolated)."
    return [time + told + more]


def facts(fit: Fit) -> dict[str, Any]:
    """Everything that is a number, for JSON."""
    result = fit.result
    told: dict[str, Any] = {
        "converged": result.converged, "verdict": result.verdict(), "accuracy": result.accuracy,
        "error_means": ERROR, "meaning": list(fit.model.meaning),
        "rows": fit.model.num_rows,
        "components": result.table.to_dict("index"),
        "decisions": [vars(decision) for decision in result.account.decisions],
        "seconds": dict(result.account.seconds),
    }  # fmt: skip
    if fit.held_out is not None:
        told["held_out"] = fit.held_out.scores
    if fit.reference is not None:
        told["reference"] = {
            "components": fit.reference.summary.to_dict("index"),
            "held_out": fit.reference.held_out and fit.reference.held_out.scores,
            "seconds": fit.reference.seconds,
            "passes_through_the_data": fit.reference.passes,
        }
        told["comparison"] = in_figures(fit.reference.comparison)
    if fit.nuts is not None:
        told["nuts"] = dataclasses.asdict(fit.nuts)
    return told


def write(fit: Fit, folder: Path, title: str) -> dict[str, Path]:
    """Write draws.zarr, summary.csv, account.txt, facts.json and report.html."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"draws": "draws.zarr", "summary": "summary.csv", "account": "account.txt",
             "facts": "facts.json", "report": "report.html"}  # fmt: skip
    paths = {key: folder / name for key, name in names.items()}
    columns = list(distinct(fit.model.columns))
    dims, coords = {"coefficient": ["column"]}, {"column": columns}
    if fit.model.classes:
        dims = {"coefficient": ["class", "column"], "intercept": ["class"]}
        coords |= {"class": list(distinct(list(fit.model.classes)))}
    fit.result.samples.save(paths["draws"], dims=dims, coords=coords)
    fit.result.table.to_csv(paths["summary"])
    page.write_facts(paths["facts"], facts(fit))
    fit = legibly(fit)
    lines = [str(fit.result), ERROR, *fit.model.meaning, *compared(fit), *raced(fit.nuts)]
    paths["account"].write_text("\n".join(lines) + "\n", encoding="utf-8")
    page.write(paths["report"], title, _sections(fit))
    return paths


def _sections(fit: Fit) -> list[page.Section]:
    """Verdict, table, predictions, reference, pictures, decisions."""
    result, table = fit.result, fit.result.table
    shown = pictures.furthest(table, PANELS)
    names = [str(table.index[k]) for k in shown]
    draws, other = _columns(result.samples.position)[..., shown], None
    thin = max(1, draws.shape[1] // POINTS)
    which = "the components furthest from zero" if len(table) > PANELS else "each component"
    caption = f"Draws of {which}."
    parts: list[page.Section] = [
        ("Verdict", [[result.verdict(), ERROR]]),
        ("Posterior", [[*fit.model.meaning], page.with_names(table)]),
    ]
    family = fit.model.units.family
    what, ratio = ("odds", "odds ratio") if family is LOGISTIC else ("mean", "rate ratio")
    if family in (LOGISTIC, POISSON, NEGATIVE_BINOMIAL):
        lines = pictures.furthest(table.iloc[: len(fit.model.columns)], LINES)
        columns = _columns(result.samples.position)[..., lines]
        picture = pictures.ratios(columns, [str(table.index[k]) for k in lines], ratio)
        parts.append((f"{ratio.capitalize()}s", [(picture, RATIO.format(what))]))
    if fit.held_out is not None:
        calibration = pictures.reliability(fit.held_out.calibration)
        parts.append(("Held-out rows", [predictions(fit), (calibration, CALIBRATION)]))
    if fit.reference is not None:
        other = _columns(fit.reference.samples.position)[..., shown]
        caption = f"Draws of {which}; filled: infer, outline: the reference."
        agreement = pictures.agreement(fit.reference.comparison), AGREEMENT
        parts.append(("Compared with the full-gradient reference", [compared(fit), agreement]))
    if fit.nuts is not None:
        seconds, name = fit.nuts.seconds, "infer" if result.converged else "infer, not converged"
        bars = {name: (seconds, seconds), "NUTS": (seconds, fit.nuts.needed)}
        parts.append(("As long with NUTS", [raced(fit.nuts), (pictures.race(bars), NUTS)]))
    marginals = pictures.marginals(draws, names, other), caption
    paths = f"Paths of {which}, a colour for each chain."
    seconds = {name: f"{value:.1f} s" for name, value in result.account.seconds.items()}
    return [
        *parts,
        ("Marginals", [marginals]),
        ("Traces", [(pictures.traces(draws[:, ::thin], names, thin), paths)]),
        ("What was decided, and why", [decisions(fit)]),
        ("Seconds", [seconds]),
    ]


def _columns(draws: dict[str, np.ndarray]) -> np.ndarray:
    """All components, shape (chains, draws, components), in the table's order."""
    parts = [draws[name].reshape(*draws[name].shape[:2], -1) for name in sorted(draws)]
    return np.concatenate(parts, axis=-1)
