"""From an equation and points to a report: residuals, matrices, and what would mend the drift."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.verify.equation import (
    LARGEST,
    Drift,
    Equation,
    Product,
    Residual,
    Vector,
    divergence,
    flow_out,
    matrices,
    residuals,
)
from ergodax.verify.report import Remedy, Report

Points = Float[Array, "n d"]


@dataclasses.dataclass(frozen=True)
class Case:
    """What is to be judged.

    Attributes:
        equation: drift, D, H and T.
        curl: products with Q, where it is known.
        points: where.
        names: of their columns.
        tolerance: of the relative residual.
        fields: further remedies by name: what they add to the drift, and the fault they show.
    """

    equation: Equation
    curl: Product | None
    points: Points
    names: list[str]
    tolerance: float
    fields: dict[str, tuple[Drift, str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would take too long, and points that are not finite."""
        if self.points.shape[1] > LARGEST:
            raise ValueError(
                f"the state has {self.points.shape[1]} numbers, and the residual is exact only up "
                f"to {LARGEST}. The recipe is the same in fewer dimensions: verify it there."
            )
        if not bool(jnp.all(jnp.isfinite(self.points))):
            raise ValueError("points must be finite. Pass points= of your own.")


def judge(case: Case) -> Report:
    """Evaluate the residual, look at D and Q, and try what usually mends a drift.

    Args:
        case: see `Case`.

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
    flow = np.asarray(found.flow)
    still = np.asarray(found.current) <= case.tolerance * (flow + 1e-3 * flow.mean() + 1e-300)
    invariant = bool(np.all(relative <= case.tolerance))
    d = np.asarray(matrices(equation.diffusion, points))
    size = max(float(np.abs(d).max()), 1e-300)
    least = float(np.linalg.eigvalsh(0.5 * (d + d.swapaxes(1, 2))).min())
    asymmetry, skew = float(np.abs(d - d.swapaxes(1, 2)).max()) / size, None
    psd = least >= -case.tolerance * size and asymmetry <= case.tolerance
    if case.curl is not None:
        q = np.asarray(matrices(case.curl, points))
        failure = float(np.abs(q + q.swapaxes(1, 2)).max()) / max(float(np.abs(q).max()), 1e-300)
        asymmetry, skew = max(asymmetry, failure), failure <= case.tolerance
    return Report(
        points=np.asarray(points), names=case.names, residual=np.asarray(found.value),
        relative=relative, current=np.asarray(found.current), least_eigenvalue=least,
        asymmetry=asymmetry, invariant=invariant, reversible=invariant and bool(np.all(still)),
        psd=psd, skew=skew, corrected=_has_divergence(case),
        remedies=() if invariant else _remedies(case, found), tolerance=case.tolerance,
    )  # fmt: skip


def _relative(found: Residual) -> np.ndarray:
    scale = np.asarray(found.scale)
    # The floor keeps a point where every term happens to be tiny from deciding.
    return np.abs(np.asarray(found.value)) / (scale + 1e-3 * scale.mean() + 1e-300)


def _remedies(case: Case, found: Residual) -> tuple[Remedy, ...]:
    """Drifts that differ by a Gamma, and how much of the residual each leaves.

    The residual is linear in the drift, so each field is differentiated once for all of them.
    """
    equation, t = case.equation, case.equation.temperature
    curl = case.curl or _least_curl(equation)
    d = _added(equation, lambda z: divergence(equation.diffusion, z), case.points)
    q = _added(equation, lambda z: divergence(curl, z), case.points)
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
    tried += [(n, fault, _added(equation, f, case.points)) for n, (f, fault) in case.fields.items()]
    remedies = []
    for remedy, fault, added in tried:
        worst = float(_relative(found._replace(value=found.value + added)).max())
        remedies.append(Remedy(remedy, fault, worst if np.isfinite(worst) else float("inf")))
    return tuple(remedies)


def _added(equation: Equation, field: Drift, points: Points) -> Float[Array, " n"]:
    """What the residual gains at each point where the field is added to the drift."""
    return jax.jit(lambda p: jax.lax.map(lambda z: flow_out(equation, field, z), p))(points)


def _least_curl(equation: Equation) -> Callable[[Vector, Vector], Vector]:
    """The smallest skew Q with f = -(D + Q) grad H, where there is one: products with it."""

    def product(z: Vector, v: Vector) -> Vector:
        force = equation.force(z)
        rest = equation.drift(z) + equation.diffusion(z, force)
        size = jnp.vdot(force, force)
        return (force * jnp.vdot(rest, v) - rest * jnp.vdot(force, v)) / size

    return product


def _has_divergence(case: Case) -> bool:
    products = [case.equation.diffusion] + ([case.curl] if case.curl is not None else [])
    few = case.points[:8]
    sizes = [jax.vmap(lambda z, p=p: jnp.abs(divergence(p, z)).max())(few) for p in products]
    return float(jnp.max(jnp.stack(sizes))) > case.tolerance
