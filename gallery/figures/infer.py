"""What `ex.infer` decided on six posteriors, and what it found beside the exact law.

An inference takes seconds, a slider may not. So the inferences are kept in infer.json, which
`python -m gallery.figures.infer` makes anew; they are of one key and of nobody's choosing.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

import ergodax as ex
from gallery.figures import tables

KEPT = Path(__file__).with_suffix(".json")
DRAWS = 500  # of each chain that are kept
SECONDS = 60.0  # that an inference may take
POINTS = 400  # of a grid
Grid = tuple[np.ndarray, np.ndarray] | None  # values of the coordinate, and its density there


@dataclasses.dataclass(frozen=True)
class Problem:
    """A posterior that is given to `infer`.

    Attributes:
        made: makes the target, a start, and the exact law of the coordinate that is shown.
        coordinate: its number in the position.
        shown: its name.
    """

    made: Callable[[], tuple[Any, Any, Grid]]
    coordinate: int
    shown: str


@dataclasses.dataclass(frozen=True)
class Inferred:
    """One inference.

    Attributes:
        name: of the problem.
        shown: the coordinate's name.
        verdict: as `infer` puts it.
        converged: whether it says so.
        decisions: in their order.
        seconds: of each stage, compilation included.
        took: of all, in seconds.
        draws: of the coordinate, the first of each chain.
        grid: values of the coordinate; empty where it has no law.
        density: there.
    """

    name: str
    shown: str
    verdict: str
    converged: bool
    decisions: list[dict[str, str]]
    seconds: dict[str, float]
    took: float
    draws: list[list[float]]
    grid: list[float]
    density: list[float]

    def first(self, draws: int) -> Float[np.ndarray, "chains draws"]:
        """The first of each chain."""
        return np.asarray(self.draws)[:, :draws]

    def histogram(self, draws: int) -> pd.DataFrame:
        """Of the first draws of each chain."""
        values = self.first(draws)
        low, high = self.ends
        return tables.histogram(values, low, high, 50)

    @property
    def ends(self) -> tuple[float, float]:
        """Of the picture's axis: of the exact law, or of the draws where there is none."""
        values = np.asarray(self.grid or self.draws)
        return float(values.min()), float(values.max())

    def exact(self) -> pd.DataFrame:
        """The exact density: columns x and density, empty where the posterior has none."""
        return pd.DataFrame({"x": self.grid, "density": self.density}, dtype=float)

    def stages(self) -> pd.DataFrame:
        """Columns stage and seconds, of those that took a hundredth of a second."""
        long = {stage: s for stage, s in self.seconds.items() if s >= 0.01}
        return pd.DataFrame({"stage": list(long), "seconds": list(long.values())})


# --- Six posteriors -----------------------------------------------------------------------


def _logistic(rows: int) -> tuple[Any, Any, Grid]:
    """A logistic regression with an intercept and a slope."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=rows).astype(np.float32)
    y = (rng.random(rows) < 1.0 / (1.0 + np.exp(0.5 - x))).astype(np.float32)

    def log_likelihood(w: Any, row: Any) -> Any:
        score = w[0] + w[1] * row[0]
        return row[1] * score - jax.nn.softplus(score)

    wide, ones, slope = x.astype(float), float(y.sum()), float(y @ x.astype(float))

    def potential(a: float, b: float) -> float:
        likelihood = a * ones + b * slope - np.logaddexp(0.0, a + b * wide).sum()
        return 0.5 * (a**2 + b**2) / 25.0 - likelihood

    target = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2) / 25.0, log_likelihood, (x, y))
    law = _marginal_of(potential, (-0.5, 1.0), 40.0 / np.sqrt(rows), 1)
    return target, jnp.zeros(2), law


def _outliers() -> tuple[Any, Any, Grid]:
    """Rows of Student's law with 2 degrees of freedom; its centre and the log of its scale."""
    y = np.random.default_rng(1).standard_t(2.0, size=20_000).astype(np.float32) + 3.0

    def log_likelihood(p: Any, y: Any) -> Any:
        return -p[1] - 1.5 * jnp.log1p(0.5 * ((y - p[0]) * jnp.exp(-p[1])) ** 2)

    def potential(centre: float, log_scale: float) -> float:
        off = (y.astype(float) - centre) * np.exp(-log_scale)
        likelihood = -len(y) * log_scale - 1.5 * np.log1p(0.5 * off**2).sum()
        return 0.5 * (centre**2 + log_scale**2) / 100.0 - likelihood

    target = ex.Posterior(lambda p: -0.5 * jnp.sum(p**2) / 100.0, log_likelihood, y)
    return target, jnp.zeros(2), _marginal_of(potential, (3.0, 0.0), 0.16, 0)


def _funnel() -> tuple[Any, Any, Grid]:
    """Neal's funnel with nine narrow directions."""

    def potential(p: Any) -> Any:
        v, x = p[0], p[1:]
        return v**2 / 18.0 + 0.5 * jnp.sum(x**2) * jnp.exp(-v) + 4.5 * v

    v = np.linspace(-10.0, 10.0, POINTS)
    return ex.Target(potential), jnp.zeros(10), (v, _normalised(v, np.exp(-(v**2) / 18.0)))


def _modes() -> tuple[Any, Any, Grid]:
    """Two normal modes with 0.3 and 0.7 of the mass, twelve of their sds apart."""
    x = np.linspace(-5.0, 5.0, POINTS)
    density = 0.3 * np.exp(-2.0 * (x + 3.0) ** 2) + 0.7 * np.exp(-2.0 * (x - 3.0) ** 2)
    target = ex.targets.mixture([[-3.0], [3.0]], 0.25, [0.3, 0.7])
    return target, jnp.zeros(1), (x, _normalised(x, density))


def _separated() -> tuple[Any, Any, Grid]:
    """A logistic regression without a prior whose rows a threshold separates."""
    x = np.random.default_rng(2).uniform(-2.0, 2.0, 200).astype(np.float32)
    y = (x > 0.3).astype(np.float32)

    def log_likelihood(w: Any, row: Any) -> Any:
        score = w[0] + w[1] * row[0]
        return row[1] * score - jax.nn.softplus(score)

    return ex.Posterior(lambda w: 0.0, log_likelihood, (x, y)), jnp.zeros(2), None


PROBLEMS = {
    "logistic regression, 300 rows": Problem(lambda: _logistic(300), 1, "slope"),
    "logistic regression, 200,000 rows": Problem(lambda: _logistic(200_000), 1, "slope"),
    "20,000 rows with outliers": Problem(_outliers, 0, "centre"),
    "a funnel": Problem(_funnel, 0, "log of the width"),
    "two modes": Problem(_modes, 0, "position"),
    "separated classes, no prior": Problem(_separated, 1, "slope"),
}


def _normalised(x: Float[np.ndarray, " points"], density: Float[np.ndarray, " points"]) -> Any:
    return density / (density.sum() * (x[1] - x[0]))


def _marginal_of(
    potential: Callable[[float, float], float], about: Any, width: float, shown: int
) -> Grid:
    """The marginal of one of two coordinates, summed over a grid about a point."""
    axes = [centre + width * np.linspace(-0.5, 0.5, 81) for centre in about]
    energy = np.array([[potential(a, b) for b in axes[1]] for a in axes[0]])
    mass = np.exp(energy.min() - energy)
    if max(mass[0].max(), mass[-1].max(), mass[:, 0].max(), mass[:, -1].max()) > 1e-4:
        raise ValueError("the grid is too narrow")
    return axes[shown], _normalised(axes[shown], mass.sum(axis=1 - shown))


# --- Making and reading -------------------------------------------------------------------


def inferred(name: str, seconds: float = SECONDS) -> Inferred:
    """Run `infer` on one of the problems."""
    problem = PROBLEMS[name]
    target, start, law = problem.made()
    begin = time.perf_counter()
    result = ex.infer(target, start, key=jax.random.key(0), max_seconds=seconds, progress=False)
    took = time.perf_counter() - begin
    draws = np.asarray(result.samples.position, float)[:, :DRAWS, problem.coordinate]
    grid, density = ([], []) if law is None else (x.astype(float).tolist() for x in law)
    log = result.account
    return Inferred(
        name, problem.shown, result.verdict(), result.converged,
        [dataclasses.asdict(decision) for decision in log.decisions],
        dict(log.seconds), took, draws.tolist(), grid, density,
    )  # fmt: skip


@functools.cache
def kept() -> dict[str, Inferred]:
    """The inferences that are kept, by problem."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    return {each["name"]: Inferred(**each) for each in found}


def rounded(value: Any) -> Any:
    """Numbers with five digits, in whatever holds them."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    """Run all six and keep them."""
    found = []
    for name in PROBLEMS:
        each = inferred(name)
        print(f"{name}: {each.verdict} ({each.took:.1f} s)", flush=True)
        found.append(rounded(dataclasses.asdict(each)))
    KEPT.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
