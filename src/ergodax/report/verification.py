"""A verification as texts, facts and files."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ergodax.report import page
from ergodax.verify import KernelReport, Report


class Found(NamedTuple):
    """What a verification tells."""

    title: str  # what was verified, on what
    ok: bool  # proved, or consistent
    sentences: list[str]  # the verdict and what belongs to it
    texts: dict[str, pd.DataFrame]  # tables by title
    facts: dict[str, Any]  # everything that is a number, for JSON


def of_recipe(report: Report, title: str, settings: dict[str, Any]) -> Found:
    """What `verify.recipe` found: as the report says it, and the corrections that were tried."""
    verdict, *lines = (line.strip() for line in str(report).splitlines())
    faults = [line for line in lines if line.startswith("fault: ")]
    rows = [line.partition(": ")[::2] for line in lines if line not in faults]
    texts = {"What was found": pd.DataFrame(rows, columns=["question", "found"])}
    if not report.invariant:
        texts["Changes of the drift that were tried"] = pd.DataFrame(
            {
                "change": [remedy.name.rstrip(",") for remedy in report.remedies],
                "fault if it helps": [remedy.fault for remedy in report.remedies],
                "residual left": [f"{remedy.left:.2g}" for remedy in report.remedies],
                "helps": ["yes" if r.left <= report.tolerance else "no" for r in report.remedies],
            }
        )
    return Found(title, report.ok, [verdict, *faults], texts, settings | _recipe_facts(report))


def of_kernel(report: KernelReport, title: str, settings: dict[str, Any]) -> Found:
    """What `verify.kernel` found: the limits as h -> 0 with the orders, and biases by step size."""
    fixed, single = report.limits
    functions = {"function": list(report.functions)}
    limits = {
        f"after time {report.duration:.3g}": _with_errors(*fixed),
        "one step / h": _with_errors(*single),
        "order in h": _with_errors(*report.orders, digits=2),
    }
    steps = zip(report.step_sizes, report.bias.value, report.bias.error, strict=True)
    by_step = {f"h = {h:.3g}": _with_errors(value, error) for h, value, error in steps}
    texts = {
        "Limit of the bias as h → 0, in sd of each function": pd.DataFrame(functions | limits),
        f"Bias after time {report.duration:.3g}, likewise": pd.DataFrame(functions | by_step),
    }
    return Found(title, report.ok, [report.verdict], texts, settings | _kernel_facts(report))


def _with_errors(values: np.ndarray, errors: np.ndarray, digits: int = 3) -> list[str]:
    pairs = zip(values, errors, strict=True)
    return [f"{v:.{digits}f}±{e:.{digits}f}" if np.isfinite(v) else "" for v, e in pairs]


def _recipe_facts(report: Report) -> dict[str, Any]:
    """Everything that is a number, for JSON."""
    worst = int(np.argmax(report.relative))
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
        "root_error": report.root_error, "region": report.region,
        "hidden": [hidden._asdict() | {"at": hidden.at.tolist()} for hidden in report.hidden],
        "auxiliary": report.auxiliary, "auxiliary_right": report.auxiliary_right,
        "untested": report.untested,
        "corrected_by": report.corrected_by and report.corrected_by._asdict(),
        "remedies": [remedy._asdict() for remedy in report.remedies],
    }  # fmt: skip


def _kernel_facts(report: KernelReport) -> dict[str, Any]:
    """Everything that is a number, for JSON."""
    fixed, single = report.limits
    limits = zip(report.functions, *fixed, *single, strict=True)
    names = ("function", "limit", "limit_error", "one_step_limit", "one_step_limit_error")
    verdicts = {True: "consistent", False: "refuted", None: "inconclusive"}
    return {
        "verdict": verdicts[report.right_limit], "ok": report.ok, "sentence": report.verdict,
        "order": report.order, "order_error": report.order_error,
        "resolution": report.resolution,
        "stationary_resolution": report.stationary_resolution, "tolerance": report.tolerance,
        "critical": report.critical, "worst": report.worst, "duration": report.duration,
        "num_draws": report.num_draws, "budget": report.budget, "diverged": report.diverged,
        "step_sizes": report.step_sizes.tolist(),
        "limits": [dict(zip(names, row, strict=True)) for row in limits],
        "biases": [row._asdict() for row in report.table],
    }  # fmt: skip


def write(folder: Path, found: Found, drawn: tuple[Any, str]) -> dict[str, Path]:
    """Write picture.png, facts.json and report.html."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"picture": folder / "picture.png", "facts": folder / "facts.json"}
    paths["report"] = folder / "report.html"
    drawn[0].savefig(paths["picture"], dpi=150)
    page.write_facts(paths["facts"], found.facts)
    settings = {k: v for k, v in found.facts.items() if not isinstance(v, dict | list)}
    sections = [
        ("Verdict", [found.sentences]),
        ("The picture", [drawn]),
        *((name, [table]) for name, table in found.texts.items()),
        ("What was run", [settings]),
    ]
    page.write(paths["report"], found.title, sections)
    return paths
