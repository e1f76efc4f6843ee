"""A verification as texts, facts and files."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ergodax.report import page
from ergodax.report.page import sentences_list
from ergodax.verify import KernelReport, Report, bias

VARIABLES = 12  # of the worst point that are shown
Texts = dict[str, pd.DataFrame]  # by title


class Found(NamedTuple):
    """What a verification tells.

    Attributes:
        title: what was verified, on what.
        ok: proved, or consistent.
        sentences: the verdict and what belongs to it.
        texts: tables by title.
        facts: everything that is a number, for JSON.
    """

    title: str
    ok: bool
    sentences: list[str]
    texts: Texts
    facts: dict[str, Any]


def of_recipe(report: Report, title: str, settings: dict[str, Any]) -> Found:
    """What `verify.recipe` found.

    Args:
        report: printed, it says the same.
        title: what was verified, on what.
        settings: what was verified, for the facts.
    """
    lines = [line.strip() for line in str(report).splitlines()]
    sentences = [lines[0], *(line for line in lines[1:] if line.startswith("fault: "))]
    facts = settings | recipe_facts(report)
    return Found(title, report.ok, sentences, recipe_texts(report), facts)


def of_kernel(report: KernelReport, title: str, settings: dict[str, Any]) -> Found:
    """What `verify.kernel` found.

    Args:
        report: printed, it says the same.
        title: what was verified, on what.
        settings: what was verified, for the facts.
    """
    facts = settings | kernel_facts(report)
    return Found(title, report.ok, [report.verdict], kernel_texts(report), facts)


def recipe_texts(report: Report) -> Texts:
    """The evidence; where it is refuted, where most and what would mend the drift."""
    texts = {"What was found": pd.DataFrame(_evidence(report), columns=["question", "found"])}
    if not report.invariant:
        where = [(name, f"{value:.6g}") for name, value in list(report.worst.items())[:VARIABLES]]
        texts["Where it fails most"] = pd.DataFrame(where, columns=["variable", "value"])
        texts["Changes of the drift that were tried"] = pd.DataFrame(
            {
                "change": [remedy.name.rstrip(",") for remedy in report.remedies],
                "fault if it helps": [remedy.fault for remedy in report.remedies],
                "residual left": [f"{remedy.left:.2g}" for remedy in report.remedies],
                "helps": ["yes" if r.left <= report.tolerance else "no" for r in report.remedies],
            }
        )
    return texts


def _evidence(report: Report) -> list[tuple[str, str]]:
    worst = int(np.argmax(report.relative))
    failing = int(np.sum(report.relative > report.tolerance))
    if report.psd:
        kind = "symmetric, positive semidefinite"
    else:
        symmetric = report.asymmetry <= report.tolerance
        kind = "NOT positive semidefinite" if symmetric else "NOT symmetric"
    rows = [
        ("residual div J / pi, largest", f"{abs(report.residual[worst]):.2g}"),
        ("relative to the terms that cancel in it", f"{report.relative[worst]:.2g}"),
        ("points at which it fails", f"{failing} of {len(report.points)}"),
        ("D", f"{kind} (least eigenvalue {report.least_eigenvalue:.2g})"),
    ]
    if report.skew is not None:
        rows.append(("Q", "skew-symmetric" if report.skew else "NOT skew-symmetric"))
    if report.root_error is not None:
        root = "right" if report.rooted else "NOT a root of D"
        off = f"off by {report.root_error:.2g}"
        rows.append(("root of D that multiplies the noise", f"{root} ({off})"))
    if report.gamma_error is not None and report.gamma_error > report.tolerance:
        rows.append(("Gamma", f"NOT div(D + Q) (off by {report.gamma_error:.2g})"))
    elif report.gamma_error is not None:
        rows.append(("Gamma", "div(D + Q)" if report.corrected else "none is needed"))
    if report.invariant:
        rows.append(("reversible", "yes, J = 0" if report.reversible else "no, J is not 0"))
    return rows


def recipe_facts(report: Report) -> dict[str, Any]:
    """Everything that is a number, for JSON."""
    worst = int(np.argmax(report.relative))
    mended = report.mended_by
    return {
        "verdict": "proved" if report.ok else "refuted", "ok": report.ok,
        "points": len(report.points),
        "residual": float(report.residual[worst]),
        "relative_residual": float(report.relative[worst]),
        "failing_points": int(np.sum(report.relative > report.tolerance)),
        "tolerance": report.tolerance, "worst_point": report.worst,
        "invariant": report.invariant, "reversible": report.reversible, "psd": report.psd,
        "skew": report.skew, "least_eigenvalue": report.least_eigenvalue,
        "asymmetry": report.asymmetry, "gamma_error": report.gamma_error,
        "root_error": report.root_error,
        "mended_by": None if mended is None else mended._asdict(),
        "remedies": [remedy._asdict() for remedy in report.remedies],
    }  # fmt: skip


def kernel_texts(report: KernelReport) -> Texts:
    """The limits as h -> 0 with the orders, and the biases by step size."""
    fixed, single = report.limits
    functions = {"function": list(report.functions)}
    limits = {
        f"after time {report.duration:.3g}": _with_errors(*fixed),
        "one step / h": _with_errors(*single),
        "order in h": _with_errors(*bias.order(report.step_sizes, report.bias), digits=2),
    }
    steps = zip(report.step_sizes, report.bias.value, report.bias.error, strict=True)
    by_step = {f"h = {h:.3g}": _with_errors(value, error) for h, value, error in steps}
    return {
        "Limit of the bias as h → 0, in sd of each function": pd.DataFrame(functions | limits),
        f"Bias after time {report.duration:.3g}, likewise": pd.DataFrame(functions | by_step),
    }


def _with_errors(values: np.ndarray, errors: np.ndarray, digits: int = 3) -> list[str]:
    return [
        f"{v:.{digits}f}±{e:.{digits}f}" if np.isfinite(v) else ""
        for v, e in zip(values, errors, strict=True)
    ]


def kernel_facts(report: KernelReport) -> dict[str, Any]:
    """Everything that is a number, for JSON."""
    fixed, single = report.limits
    limits = zip(report.functions, *fixed, *single, strict=True)
    names = ("function", "limit", "limit_error", "one_step_limit", "one_step_limit_error")
    verdicts = {True: "consistent", False: "refuted", None: "inconclusive"}
    return {
        "verdict": verdicts[report.right_limit], "ok": report.ok, "sentence": report.verdict,
        "order": report.order, "order_error": report.order_error,
        "resolution": report.resolution, "tolerance": report.tolerance,
        "critical": report.critical, "worst": report.worst, "duration": report.duration,
        "num_draws": report.num_draws, "budget": report.budget, "diverged": report.diverged,
        "step_sizes": report.step_sizes.tolist(),
        "limits": [dict(zip(names, row, strict=True)) for row in limits],
        "biases": [row._asdict() for row in report.table],
    }  # fmt: skip


def write(folder: Path, found: Found, drawn: tuple[Any, str]) -> dict[str, Path]:
    """Write picture.png, facts.json and report.html.

    Args:
        folder: made if it does not exist.
        found: what is told.
        drawn: a figure and its caption.

    Returns:
        The paths by name.
    """
    paths = page.results(folder, "picture", drawn[0], None, found.facts, facts_name="facts")
    settings = {k: v for k, v in found.facts.items() if not isinstance(v, dict | list)}
    sections = [
        ("Verdict", sentences_list(found.sentences)),
        ("The picture", page.picture(*drawn)),
        *((name, page.text_table(table)) for name, table in found.texts.items()),
        ("What was run", page.key_values(settings)),
    ]
    page.write(paths["report"], found.title, sections)
    return paths
