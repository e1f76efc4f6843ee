"""What a verification found, and how it reads."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

SINGLE = 1e-5  # of a root: those of constants are kept in single precision


class Remedy(NamedTuple):
    """A change of the drift that was tried.

    Attributes:
        name: what was changed.
        fault: what is at fault if it helps.
        left: the largest relative residual that it leaves.
    """

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
            "  fault: not Gamma alone. None of the corrections that were tried mends it (relative "
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
        where = ", ".join(f"{name} = {value:.4g}" for name, value in shown)
        more = ", ..." if len(self.names) > len(shown) else ""
        return f"{text}; it fails at {failing} of them, most at {where}{more}"


def _number(x: Any) -> str:
    return f"{float(x):.2g}"
