"""From an equation and points to a report: residuals, matrices, and what would mend the drift."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.checks import legible
from ergodax.verify.differences import PROBES, Hidden, hidden
from ergodax.verify.equation import (
    Drift,
    Equation,
    Glance,
    Look,
    Product,
    glancing,
    lookout,
)
from ergodax.verify.faults import ENOUGH, Remedy, Suspect, remedies
from ergodax.verify.region import in_words

SINGLE = 1e-5  # of a root: those of constants are kept in single precision
SHOWN = 6  # coordinates of a point that are told


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
        region: which states were looked at, in words.
        hidden: what of H, D, Q or the drift changes without automatic differentiation seeing it,
            so that it is in no Gamma and in no residual, and where.
        auxiliary: for a recipe, whether `auxiliary` draws from exp(-energy), in words; None
            where it makes no variable.
        auxiliary_right: False where it does not, or where exp(-energy) gives the position
            another law than exp(-U).
        untested: for a recipe, what could be neither proved nor refuted, in words; else None.
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
    region: str
    hidden: tuple[Hidden, ...] = ()
    gamma_error: float | None = None
    root_error: float | None = None
    auxiliary: str | None = None
    auxiliary_right: bool = True
    untested: str | None = None

    @property
    def ok(self) -> bool:
        """Invariant, with nothing hidden, D positive semidefinite, Q skew, the right start.

        What is `untested` does not count.
        """
        return self.diffuses and self.invariant and not self.hidden and self.auxiliary_right

    @property
    def diffuses(self) -> bool:
        """Whether D is positive semidefinite, with the root it is said to have, and Q skew."""
        return self.psd and self.skew is not False and self.rooted

    @property
    def rooted(self) -> bool:
        """Whether the noise of a recipe has the covariance D, to the precision of its root."""
        return self.root_error is None or self.root_error <= max(self.tolerance, SINGLE)

    @property
    def worst(self) -> dict[str, float]:
        """The point of the largest relative residual, by the names of its coordinates."""
        return self._named(self.points[int(np.argmax(self.relative))])

    @property
    def corrected_by(self) -> Remedy | None:
        """The first remedy that makes the residual vanish."""
        return next((r for r in self.remedies if r.left <= self.tolerance), None)

    def __str__(self) -> str:
        """A verdict, then the evidence."""
        lines = [self._verdict(), self._residual(), f"  region: {self.region}"]
        lines.append(f"  D: {self._kind()} (least eigenvalue {_number(self.least_eigenvalue)})")
        if not self.rooted:
            lines.append(f"  D: its sqrt_mv is NOT a root, off by {_number(self.root_error)}")
        if self.skew is not None:
            lines.append(f"  Q: {'skew-symmetric' if self.skew else 'NOT skew-symmetric'}")
        if self.invariant:
            lines.append(f"  reversible: {'yes, J = 0' if self.reversible else 'no, J is not 0'}")
            lines.append(f"  Gamma: {'right' if self.corrected else 'none is needed'}")
        if self.auxiliary:
            lines.append(f"  auxiliary: {self.auxiliary}")
        lines += [f"  fault: {fault}" for fault in self._faults()]
        return "\n".join(lines)

    def _faults(self) -> list[str]:
        faults = [self._of_hidden(each) for each in self.hidden]
        if not self.invariant:
            faults.append(self._fault())
        return faults

    def _of_hidden(self, fault: Hidden) -> str:
        where = self._told(self._named(fault.at))
        if fault.jumps:
            return (
                f"{fault.part} jumps near {where}: its derivative by autodiff lacks the jump, and "
                "so do Gamma and the residual. Make it continuous"
            )
        return (
            f"{fault.part} changes near {where} as autodiff does not see: through "
            "stop_gradient, rounding or a derivative of its own. Gamma and the residual lack it"
        )

    def _named(self, point: np.ndarray) -> dict[str, float]:
        return dict(zip(self.names, map(float, point), strict=True))

    def _told(self, point: dict[str, float]) -> str:
        shown = list(point.items())[:SHOWN]
        text = ", ".join(f"{legible(name)} = {value:.4g}" for name, value in shown)
        return text + (", ..." if len(point) > len(shown) else "")

    def _kind(self) -> str:
        if self.psd:
            return "symmetric, positive semidefinite"
        symmetric = self.asymmetry <= self.tolerance
        return "NOT positive semidefinite" if symmetric else "NOT symmetric"

    def _fault(self) -> str:
        if self.corrected_by is not None:
            name, fault, left = self.corrected_by
            helped = [r.fault for r in self.remedies if r.left <= self.tolerance]
            others = [] if "Gamma" in fault else [o for o in helped if o != fault][:2]
            text = f"{fault}. With {name} the relative residual falls to {_number(left)}"
            more = ", or if ".join(others)
            return f"{text}. The same would be seen if {more}" if others else text
        failing = int(np.sum(self.relative > self.tolerance))
        if failing < ENOUGH:
            return (
                f"not known. The residual fails at {failing} of {len(self.points)} points, too "
                "few to tell which term is wrong: the fault is a local one, or give more points="
            )
        best = min(r.left for r in self.remedies)
        return (
            "not one term alone. None of the changes that were tried corrects it (relative "
            f"residual {_number(best)} at best)"
        )

    def _verdict(self) -> str:
        if self.ok:
            more = f" NOT TESTED: {self.untested}." if self.untested else ""
            return f"PROVED at these points: exp(-H/T) is invariant.{more}"
        if not self.invariant:
            return "REFUTED: exp(-H/T) is not invariant."
        if self.hidden:
            return "REFUTED: the residual vanishes, but a derivative is hidden from it."
        if self.diffuses:
            return "REFUTED: exp(-H/T) is invariant, but `auxiliary` or the energy is wrong."
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
        return f"{text}; it fails at {failing} of them, most at {self._told(self.worst)}"


def _number(x: Any) -> str:
    return f"{float(x):.2g}"


Points = Float[Array, "n d"]


@dataclasses.dataclass(frozen=True)
class Case:
    """What is to be judged.

    Args:
        equation: drift, D, H and T.
        curl: Q, if known.
        points: the states to look at.
        names: of the points' columns.
        tolerance: of the relative residual.
        num_drawn: how many points were drawn, the rest being tails; None where all were given.
        root: the R that noise is multiplied by, if known.
        gamma: the T Gamma in the drift, if known.
        fields: maps names to what they add to the drift, and the fault they show if that helps.
    """

    equation: Equation
    curl: Product | None
    points: Points
    names: list[str]
    tolerance: float
    num_drawn: int | None = None
    root: Product | None = None
    gamma: Drift | None = None
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
    points = np.asarray(case.points)
    look = lookout(case.equation, case.curl, case.root, case.gamma)
    found: Look = jax.tree.map(np.asarray, look(case.points, jnp.zeros_like(case.points)))
    residual, scale = found.residual.value, _floored(found.residual.scale)
    with np.errstate(invalid="ignore"):
        relative = np.abs(residual) / scale
    if not np.all(np.isfinite(relative)):
        where = points[int(np.argmin(np.isfinite(relative)))]
        raise ValueError(
            f"the residual is not finite at the point {where.tolist()}: drift, diffusion or "
            "potential can't be differentiated there. Pass points= where they can."
        )
    invariant, flow = bool(np.all(relative <= case.tolerance)), found.residual.flow
    still = bool(np.all(found.residual.current <= case.tolerance * _floored(flow)))

    def glance(at: Points, along: Points) -> Glance:
        return look(at, along).glance

    # In few dimensions another program takes longer to compile than it saves.
    few = points.shape[1] <= PROBES
    along_segments = glance if few else glancing(case.equation, case.curl)
    suspect = Suspect(case.equation, case.curl, case.gamma, case.fields, case.names)
    gamma = np.abs(found.gamma[:, :2]).max()
    return Report(
        points=points, names=case.names, residual=residual, relative=relative,
        current=found.residual.current, invariant=invariant, reversible=invariant and still,
        corrected=bool(gamma > case.tolerance * np.median(flow)),
        remedies=()
        if invariant
        else remedies(suspect, case.points, residual, scale, case.tolerance),
        tolerance=case.tolerance, region=in_words(points, case.names, case.num_drawn),
        hidden=hidden(along_segments, points, case.num_drawn), **_of_matrices(case, found),
    )  # fmt: skip


def _of_matrices(case: Case, found: Look) -> dict[str, Any]:
    """What the report says of D, its root, Q and Gamma."""
    d, r = found.glance.diffusion[0], found.root
    eigenvalues = np.linalg.eigvalsh(0.5 * (d + d.swapaxes(1, 2)))
    # Relative at each point: D may vary by orders of magnitude between them.
    definite = np.all(eigenvalues[:, 0] >= -case.tolerance * np.abs(eigenvalues).max(axis=1))
    asymmetry, told = _asymmetry(d, 1.0), {}
    if case.root is not None:
        gap = np.abs(r @ r.swapaxes(1, 2) - d).max(axis=(1, 2))
        told["root_error"] = float(np.max(gap / (np.abs(d).max(axis=(1, 2)) + 1e-300)))
    if case.gamma is not None:
        exact, used = found.gamma[:, :2].sum(axis=1), found.gamma[:, 2]
        sizes = np.abs(exact).max(), np.abs(used).max(), case.tolerance * found.residual.flow.max()
        told["gamma_error"] = float(np.abs(used - exact).max() / max(*sizes, 1e-300))
    return told | {
        "least_eigenvalue": float(eigenvalues.min()),
        "asymmetry": asymmetry,
        "psd": bool(definite) and asymmetry <= case.tolerance,
        "skew": None
        if case.curl is None
        else _asymmetry(found.glance.curl[0], -1.0) <= case.tolerance,
    }


def _floored(scale: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    # The floor keeps a point where every term happens to be tiny from deciding; by the median,
    # so that one point far out, where the terms are huge, does not hide all others.
    return scale + 1e-3 * np.median(scale) + 1e-300


def _asymmetry(matrix: np.ndarray, sign: float) -> float:
    """The largest entry of A - sign A^T, relative to A's at the same point."""
    gap = np.abs(matrix - sign * matrix.swapaxes(1, 2)).max(axis=(1, 2))
    return float(np.max(gap / (np.abs(matrix).max(axis=(1, 2)) + 1e-300)))
