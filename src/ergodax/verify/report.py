"""From an equation and points to a report: residuals, matrices, and what would mend the drift."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.checks import legible
from ergodax.verify.equation import (
    Drift,
    Equation,
    Product,
    Residual,
    Vector,
    compiled,
    divergence,
    flow_out,
    matrices,
    residuals,
)

SINGLE = 1e-5  # of a root: those of constants are kept in single precision


class Remedy(NamedTuple):
    """A change of the drift, the fault it shows, and the largest relative residual left."""

    name: str
    fault: str
    left: float


@dataclasses.dataclass(frozen=True)
class Report:
    """Whether a stochastic differential equation leaves exp(-H / T) invariant, and by how much not.

    Attributes:
        points: where it was evaluated, shape (n, d), the variables raveled in the order `names`.
        names: of the columns of `points`.
        residual: div J / pi at each point, shape (n,); zero everywhere if and only if invariant.
        relative: its size relative to the terms that cancel in it, shape (n,).
        current: the norm of J / pi at each point, shape (n,); zero if and only if reversible.
        least_eigenvalue: the least of D over all points.
        asymmetry: the largest entry of D - D^T, relative to D at the same point.
        invariant: no relative residual above the tolerance.
        reversible: invariant, and no current.
        psd: whether D is symmetric and positive semidefinite at all points.
        skew: whether Q is skew-symmetric at all points; None where Q is not known.
        corrected: whether div D or div Q is not zero, so that there is a Gamma.
        remedies: where it is not invariant, the changes of the drift that were tried.
        gamma_error: for a recipe, how far the Gamma that the sampler uses is from div(D + Q).
        root_error: for a recipe, how far R R^T is from D, relative, where R is the root that the
            sampler multiplies its noise by; None where D has none.
        tolerance: of the relative residual.
    """

    points: np.ndarray
    names: list[str]
    residual: np.ndarray
    relative: np.ndarray
    current: np.ndarray
    least_eigenvalue: float
    asymmetry: float
    invariant: bool
    reversible: bool
    psd: bool
    skew: bool | None
    corrected: bool
    remedies: tuple[Remedy, ...]
    tolerance: float
    gamma_error: float | None = None
    root_error: float | None = None

    @property
    def ok(self) -> bool:
        """Invariant, with a D that is positive semidefinite and a Q that is skew-symmetric."""
        return self.invariant and self.psd and self.skew is not False and self.rooted

    @property
    def rooted(self) -> bool:
        """Whether the noise of a recipe has the covariance D, to the precision of its root."""
        return self.root_error is None or self.root_error <= max(self.tolerance, SINGLE)

    @property
    def worst(self) -> dict[str, float]:
        """The point of the largest relative residual, by the names of its coordinates."""
        where = self.points[int(np.argmax(self.relative))]
        return dict(zip(self.names, map(float, where), strict=True))

    @property
    def mended_by(self) -> Remedy | None:
        """The first remedy that makes the residual vanish."""
        return next((r for r in self.remedies if r.left <= self.tolerance), None)

    def __str__(self) -> str:
        """A verdict, then the evidence."""
        lines = [self._verdict(), self._residual()]
        lines.append(f"  D: {self._kind()} (least eigenvalue {_number(self.least_eigenvalue)})")
        if not self.rooted:
            lines.append(f"  D: its sqrt_mv is NOT a root, off by {_number(self.root_error)}")
        if self.skew is not None:
            lines.append(f"  Q: {'skew-symmetric' if self.skew else 'NOT skew-symmetric'}")
        if self.invariant:
            lines.append(f"  reversible: {'yes, J = 0' if self.reversible else 'no, J is not 0'}")
            lines.append(f"  Gamma: {'right' if self.corrected else 'none is needed'}")
        else:
            lines.append(self._fault())
        return "\n".join(lines)

    def _kind(self) -> str:
        if self.psd:
            return "symmetric, positive semidefinite"
        symmetric = self.asymmetry <= self.tolerance
        return "NOT positive semidefinite" if symmetric else "NOT symmetric"

    def _fault(self) -> str:
        if self.mended_by is not None:
            name, fault, left = self.mended_by
            return f"  fault: {fault}. With {name} the relative residual falls to {_number(left)}"
        best = min(r.left for r in self.remedies)
        return (
            "  fault: not Gamma alone. None of the remedies that were tried corrects it (relative "
            f"residual {_number(best)} at best)"
        )

    def _verdict(self) -> str:
        if self.ok:
            return "PROVED at these points: exp(-H/T) is invariant."
        if not self.invariant:
            return "REFUTED: exp(-H/T) is not invariant."
        return "REFUTED: the residual vanishes, but D and Q do not make a diffusion."

    def _residual(self) -> str:
        k = int(np.argmax(self.relative))
        text = (
            f"  residual div J / pi: at most {_number(abs(self.residual[k]))}, relative "
            f"{_number(self.relative[k])}, over {len(self.points)} points"
        )
        if self.invariant:
            return text
        failing = int(np.sum(self.relative > self.tolerance))
        shown = list(self.worst.items())[:6]
        where = ", ".join(f"{legible(name)} = {value:.4g}" for name, value in shown)
        more = ", ..." if len(self.names) > len(shown) else ""
        return f"{text}; it fails at {failing} of them, most at {where}{more}"


def _number(x: Any) -> str:
    return f"{float(x):.2g}"


Points = Float[Array, "n d"]


@dataclasses.dataclass(frozen=True)
class Case:
    """What is to be judged: an equation, Q if known, points with names, and further remedies.

    `fields` maps names to what they add to the drift, and the fault they show if that helps.
    """

    equation: Equation
    curl: Product | None
    points: Points
    names: list[str]
    tolerance: float
    fields: dict[str, tuple[Drift, str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse points that are not finite."""
        if not bool(jnp.all(jnp.isfinite(self.points))):
            raise ValueError("points must be finite. Pass points= of your own.")


def judge(case: Case) -> Report:
    """Evaluate the residual, look at D and Q, and try what usually mends a drift.

    Raises:
        ValueError: the residual is not finite at some point.
    """
    equation, points = case.equation, case.points
    found = residuals(equation, points)
    relative = _relative(found)
    if not np.all(np.isfinite(relative)):
        where = np.asarray(points)[int(np.argmin(np.isfinite(relative)))]
        raise ValueError(
            f"the residual is not finite at the point {where.tolist()}: drift, diffusion or "
            "potential can't be differentiated there. Pass points= where they can."
        )
    still = np.asarray(found.current) <= case.tolerance * _floored(found.flow)
    invariant = bool(np.all(relative <= case.tolerance))
    d = np.asarray(matrices(equation.diffusion, points))
    eigenvalues = np.linalg.eigvalsh(0.5 * (d + d.swapaxes(1, 2)))
    # Relative at each point: D may vary by orders of magnitude between them.
    definite = np.all(eigenvalues[:, 0] >= -case.tolerance * np.abs(eigenvalues).max(axis=1))
    asymmetry, skew = _asymmetry(d, 1.0), None
    if case.curl is not None:
        skew = _asymmetry(np.asarray(matrices(case.curl, points)), -1.0) <= case.tolerance
    return Report(
        points=np.asarray(points), names=case.names, residual=np.asarray(found.value),
        relative=relative, current=np.asarray(found.current),
        least_eigenvalue=float(eigenvalues.min()), asymmetry=asymmetry, invariant=invariant,
        reversible=invariant and bool(np.all(still)),
        psd=bool(definite) and asymmetry <= case.tolerance, skew=skew,
        corrected=_has_divergence(case, found),
        remedies=() if invariant else _remedies(case, found), tolerance=case.tolerance,
    )  # fmt: skip


def _relative(found: Residual) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # what is not finite is refused, or a remedy of no use
        return np.abs(np.asarray(found.value)) / _floored(found.scale)


def _floored(scale: Float[Array, " n"]) -> np.ndarray:
    # The floor keeps a point where every term happens to be tiny from deciding; by the median,
    # so that one point far out, where the terms are huge, does not hide all others.
    sizes = np.asarray(scale)
    return sizes + 1e-3 * np.median(sizes) + 1e-300


def _asymmetry(matrix: np.ndarray, sign: float) -> float:
    """The largest entry of A - sign A^T, relative to A's at the same point."""
    gap = np.abs(matrix - sign * matrix.swapaxes(1, 2)).max(axis=(1, 2))
    return float(np.max(gap / (np.abs(matrix).max(axis=(1, 2)) + 1e-300)))


def _remedies(case: Case, found: Residual) -> tuple[Remedy, ...]:
    """Drifts that differ by a Gamma, and how much of the residual each leaves: it is linear."""
    equation, t = case.equation, case.equation.temperature
    curl = case.curl or _least_curl(equation)
    fields = [lambda z: divergence(equation.diffusion, z), lambda z: divergence(curl, z)]
    d, q, *more = _added(case, [*fields, *(field for field, _ in case.fields.values())])
    name = "Q" if case.curl is not None else "a Q that its drift implies"
    missing, wrong = "Gamma is missing", "Gamma is wrong"
    tried = [
        ("Gamma = div D added", missing, t * d),
        (f"Gamma = div(D + Q) added, with {name},", missing, t * d + t * q),
        (f"div Q added to Gamma, with {name},", missing, t * q),
        ("the sign of div D turned", wrong, 2.0 * t * d),
    ]
    if case.curl is not None:
        tried.append(("the sign of Gamma turned", wrong, 2.0 * t * (d + q)))
        tried.append(("the sign of div Q turned", wrong, 2.0 * t * q))
    if t != 1.0:
        tried.append(("div D multiplied by the temperature", wrong, (t - 1.0) * d))
        tried.append(("Gamma multiplied by the temperature", wrong, (t - 1.0) * (d + q)))
    tried += [(n, f, added) for (n, (_, f)), added in zip(case.fields.items(), more, strict=True)]
    remedies = []
    for remedy, fault, added in tried:
        worst = float(_relative(found._replace(value=found.value + added)).max())
        remedies.append(Remedy(remedy, fault, worst if np.isfinite(worst) else float("inf")))
    return tuple(remedies)


def _added(case: Case, fields: list[Drift]) -> Float[Array, "fields n"]:
    """What the residual gains at each point where a field is added to the drift."""

    def gains(z: Vector) -> Float[Array, " fields"]:
        return jnp.stack([flow_out(case.equation, field, z) for field in fields])

    return compiled(lambda points: jax.lax.map(gains, points).T)(case.points)


def _least_curl(equation: Equation) -> Callable[[Vector, Vector], Vector]:
    """The smallest skew Q with f = -(D + Q) grad H, where there is one: products with it."""

    def product(z: Vector, v: Vector) -> Vector:
        force = equation.force(z)
        rest = equation.drift(z) + equation.diffusion(z, force)
        size = jnp.vdot(force, force)
        return (force * jnp.vdot(rest, v) - rest * jnp.vdot(force, v)) / size

    return product


def _has_divergence(case: Case, found: Residual) -> bool:
    products = [case.equation.diffusion] + ([case.curl] if case.curl is not None else [])

    @compiled
    def largest(points: Points) -> Float[Array, ""]:
        sizes = [jax.vmap(lambda z, p=p: jnp.abs(divergence(p, z)))(points) for p in products]
        return case.equation.temperature * jnp.max(jnp.stack(sizes))

    return bool(largest(case.points[:8]) > case.tolerance * jnp.median(found.flow))
