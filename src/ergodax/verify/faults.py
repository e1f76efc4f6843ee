"""Which single change of a term makes the residual vanish: the residual is linear in the drift."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.verify.equation import Drift, Equation, Product, Vector, compiled, divergence, matrix

MOST_GROUPS = 8  # variables, or coordinates of a vector, that are looked at one by one
NEAR = 1e-3  # of a factor to a number that has a name
ENOUGH = 3  # points where the residual fails, for a fit: one equation is met by any one factor


class Remedy(NamedTuple):
    """A change of the drift, the fault it shows, and the largest relative residual left."""

    name: str
    fault: str
    left: float


class Suspect(NamedTuple):
    """An equation whose residual does not vanish.

    `gamma` is the T Gamma that was used, where it is known; `fields` maps names to what they add
    to the drift and the fault they show if that helps; `names` are those of the coordinates.
    """

    equation: Equation
    curl: Product | None
    gamma: Drift | None
    fields: dict[str, tuple[Drift, str]]
    names: list[str]


Gains = dict[str, Float[np.ndarray, "n d"]]  # what each coordinate of a field adds to the residual


def remedies(
    suspect: Suspect,
    points: Float[Array, "n d"],
    residual: Float[np.ndarray, " n"],
    scale: Float[np.ndarray, " n"],
    tolerance: float,
) -> tuple[Remedy, ...]:
    """What was tried, and how much of the residual each leaves relative to its scale.

    The blocks of Q are tried only where nothing simpler has helped.
    """
    groups, gains = _groups(suspect.names), _gains(suspect, _simple_fields(suspect), points)
    known = [*_of_gamma(suspect, gains), *_of_fields(suspect, gains)]
    tried = [Remedy(name, fault, _left(residual + added, scale)) for name, fault, added in known]
    t = suspect.equation.temperature
    enough = int(np.sum(np.abs(residual) > tolerance * scale)) >= ENOUGH
    if enough:
        tried += _fitted(list(_terms(gains, groups, suspect.curl)), residual, scale, t)
    if suspect.curl is not None and min(remedy.left for remedy in tried) > tolerance:
        blocks = groups | _halves(suspect.names)
        gains |= _gains(suspect, _block_fields(suspect, blocks), points)
        # First, because a block over the wrong index may look like one entry that is missing.
        for name, fault, added in _transposed(gains, blocks):
            tried.append(Remedy(name, fault, _left(residual + added, scale)))
        if enough:
            tried += _fitted(list(_block_terms(gains, blocks)), residual, scale, t)
        if suspect.gamma is not None:
            added = (gains["div D"] + gains["div Q"] - gains["gamma"]).sum(axis=1)
            name, fault = "div(D + Q) in place of the Gamma given", "Gamma is wrong"
            tried.append(Remedy(name, fault, _left(residual + added, scale)))
    return tuple(tried)


def _left(residual: Float[np.ndarray, " n"], scale: Float[np.ndarray, " n"]) -> float:
    with np.errstate(invalid="ignore"):
        worst = float(np.max(np.abs(residual) / scale))
    return worst if np.isfinite(worst) else float("inf")


def _groups(names: list[str]) -> dict[str, list[int]]:
    """The coordinates of each variable; of one vector, each coordinate, if they are few."""
    groups: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        groups.setdefault(name.partition("[")[0], []).append(k)
    if len(groups) == 1:
        groups = {name: [k] for k, name in enumerate(names)}
    return groups if len(groups) <= MOST_GROUPS else {}


def _halves(names: list[str]) -> dict[str, list[int]]:
    """The halves of a state that is one vector, such as positions and momenta in a row."""
    half, odd = divmod(len(names), 2)
    variables = {name.partition("[")[0] for name in names}
    if odd or half < 2 or len(variables) > 1:
        return {}
    name = variables.pop()
    return {f"{name}[:{half}]": [*range(half)], f"{name}[{half}:]": [*range(half, 2 * half)]}


def _squares(groups: dict[str, list[int]]) -> list[tuple[str, str]]:
    """The blocks off the diagonal that can be transposed."""
    pairs = [(a, b) for a in groups for b in groups if a != b]
    return [(a, b) for a, b in pairs if len(groups[a]) == len(groups[b]) > 1]


Fields = Callable[[Vector], dict[str, Vector]]


def _gains(suspect: Suspect, fields: Fields, points: Float[Array, "n d"]) -> Gains:
    """Of each field F, d F_i / d z_i - F_i d H / d z_i / T, coordinate by coordinate."""
    equation = suspect.equation

    def at(z: Vector) -> dict[str, Vector]:
        def along(direction: Vector) -> tuple[Any, Any]:
            values, slopes = jax.jvp(fields, (z,), (direction,))
            return values, jax.tree.map(lambda slope: jnp.vdot(slope, direction), slopes)

        force = equation.force(z) / equation.temperature
        basis = jnp.eye(z.size, dtype=z.dtype)
        values, slopes = jax.vmap(along, out_axes=(None, 0))(basis)
        return jax.tree.map(lambda value, slope: slope - value * force, values, slopes)

    return jax.tree.map(np.asarray, compiled(lambda p: jax.lax.map(at, p))(points))


def _simple_fields(suspect: Suspect) -> Fields:
    equation, t = suspect.equation, suspect.equation.temperature
    curl = suspect.curl or _least_curl(equation)

    def fields(z: Vector) -> dict[str, Vector]:
        pull = equation.diffusion(z, equation.force(z))
        spread = t * divergence(equation.diffusion, z)
        found = {"friction": -pull, "div D": spread, "div Q": t * divergence(curl, z)}
        found["drift"] = equation.drift(z)
        added = {f"field {name}": field(z) for name, (field, _) in suspect.fields.items()}
        return found | added

    return fields


def _block_fields(suspect: Suspect, groups: dict[str, list[int]]) -> Fields:
    equation, curl, t = suspect.equation, suspect.curl, suspect.equation.temperature
    assert curl is not None

    def fields(z: Vector) -> dict[str, Vector]:
        force = equation.force(z)
        found = {} if suspect.gamma is None else {"gamma": suspect.gamma(z)}
        for b, columns in groups.items():
            mask = jnp.zeros_like(z).at[np.array(columns)].set(1.0)
            found[f"-Q grad {b}"] = -curl(z, mask * force)
            found[f"div Q {b}"] = t * _part(curl, columns, z)
        for a, b in _squares(groups):
            rows, columns = np.array(groups[a]), np.array(groups[b])

            def turned(y: Vector, v: Vector, rows: Any = rows, columns: Any = columns) -> Vector:
                block = matrix(curl, y)[np.ix_(rows, columns)]
                return jnp.zeros_like(y).at[rows].set(block.T @ v[columns])

            found[f"-Q^T grad {a} {b}"] = -turned(z, force)
            found[f"div Q^T {a} {b}"] = t * divergence(turned, z)
        return found

    return fields


def _part(product: Product, columns: list[int], z: Vector) -> Vector:
    """sum over j among the columns of d A_ij / d z_j."""
    eye = jnp.eye(z.size, dtype=z.dtype)[np.array(columns)]
    slopes = [jax.jvp(lambda y, e=e: product(y, e), (z,), (e,))[1] for e in eye]
    return jnp.sum(jnp.stack(slopes), axis=0)


def _least_curl(equation: Equation) -> Product:
    """The smallest skew Q with f = -(D + Q) grad H, where there is one: products with it."""

    def product(z: Vector, v: Vector) -> Vector:
        force = equation.force(z)
        rest = equation.drift(z) + equation.diffusion(z, force)
        size = jnp.vdot(force, force)
        return (force * jnp.vdot(rest, v) - rest * jnp.vdot(force, v)) / size

    return product


Change = tuple[str, str, Float[np.ndarray, " n"]]


def _of_gamma(suspect: Suspect, gains: Gains) -> Iterator[Change]:
    """A Gamma that is missing, has a wrong sign or is without the temperature."""
    t = suspect.equation.temperature
    d, q = gains["div D"].sum(axis=1), gains["div Q"].sum(axis=1)
    known = suspect.curl is not None
    name = "Q" if known else "a Q that its drift implies"
    missing, wrong = "Gamma is missing", "Gamma is wrong"
    yield "Gamma = div D added", missing, d
    yield f"Gamma = div(D + Q) added, with {name},", missing, d + q
    yield f"div Q added to Gamma, with {name},", missing, q
    yield "the sign of div D turned", wrong, 2.0 * d
    if known:
        yield "the sign of Gamma turned", wrong, 2.0 * (d + q)
        yield "the sign of div Q turned", wrong, 2.0 * q
    if t != 1.0:
        yield "div D multiplied by the temperature", wrong, (1.0 - 1.0 / t) * d
        yield "Gamma multiplied by the temperature", wrong, (1.0 - 1.0 / t) * (d + q)


def _of_fields(suspect: Suspect, gains: Gains) -> Iterator[Change]:
    for name, (_, fault) in suspect.fields.items():
        yield name, fault, gains[f"field {name}"].sum(axis=1)


class Term(NamedTuple):
    """A term of the drift: its name, what is added for each unit, and whether it is in the drift.

    Of a term that ought to be there a part is missing; of one that is there, too much may be.
    """

    name: str
    added: Float[np.ndarray, " n"]
    wanted: bool


def _fitted(
    terms: list[Term],
    residual: Float[np.ndarray, " n"],
    scale: Float[np.ndarray, " n"],
    t: float,
) -> Iterator[Remedy]:
    """Each term with the factor that makes the residual least; a term that is 0 has none."""
    y = residual / scale
    seen: list[np.ndarray] = []
    for term in terms:
        x = term.added / scale
        size = float(np.linalg.norm(x))
        if not np.isfinite(size) or size <= 1e-12:
            continue
        if term.wanted:  # such as Gamma of the one variable that has one
            if any(abs(x @ other) > (1.0 - 1e-12) * size for other in seen):
                continue
            seen.append(x / size)
        a = -float(y @ x) / size**2
        if not term.wanted and abs(1.0 + a) < NEAR:  # without it there is no equation
            continue
        present = 1.0 - a if term.wanted else 1.0 / (1.0 + a)
        change = "added" if abs(present) < NEAR else f"multiplied by {1.0 / present:.4g}"
        fault = f"{term.name} {_factor(present, t)}"
        yield Remedy(f"{term.name} {change}", fault, _left(residual + a * term.added, scale))


def _terms(gains: Gains, groups: dict[str, list[int]], curl: Product | None) -> Iterator[Term]:
    flow = gains["drift"] - gains["friction"] - gains["div D"]
    d, q, friction = (gains[name].sum(axis=1) for name in ("div D", "div Q", "friction"))
    yield Term("Gamma = div D", d, True)
    if curl is not None:
        yield Term("Gamma = div(D + Q)", d + q, True)
        yield Term("div Q, of Gamma,", q, True)
    yield Term("the friction -D grad H", friction, True)
    yield Term("D, of the noise,", -friction - d, False)
    for name, rows in groups.items():
        part = gains["friction"][:, rows].sum(axis=1)
        yield Term(f"the friction -D grad H of {name}", part, True)
        yield Term(f"Gamma = div D of {name}", gains["div D"][:, rows].sum(axis=1), True)
    for name, rows in groups.items():
        yield Term(f"in d {name} all but the friction", flow[:, rows].sum(axis=1), False)
    for name, rows in groups.items():
        yield Term(f"the drift of {name}", gains["drift"][:, rows].sum(axis=1), False)


def _block_terms(gains: Gains, groups: dict[str, list[int]]) -> Iterator[Term]:
    for a, rows in groups.items():
        for b in groups:
            pair = f"Q[{a}, {b}]"
            turn, spread = (gains[f"{part} {b}"][:, rows] for part in ("-Q grad", "div Q"))
            yield Term(f"-{pair} d H / d {b}", turn.sum(axis=1), True)
            yield Term(f"div {pair}, of Gamma,", spread.sum(axis=1), True)


def _factor(present: float, t: float) -> str:
    """What it means that a term has a factor."""
    names = [(0.0, "is missing"), (-1.0, "has the wrong sign")]
    names += [(0.5, "is half of what it should be"), (2.0, "is twice what it should be")]
    if t != 1.0:
        names += [(t, "has a factor T too many"), (1.0 / t, "lacks a factor T")]
    near = [name for value, name in names if abs(present - value) <= NEAR * max(1.0, abs(value))]
    # As many digits as tell it from 1, four at least.
    told = next((one for k in range(4, 18) if (one := f"{present:.{k}g}") != "1"), "1")
    return " or ".join(near) or f"has the factor {told} in place of 1"


def _transposed(gains: Gains, groups: dict[str, list[int]]) -> Iterator[Change]:
    """A block of Q that stands transposed in the drift, or whose div is over the wrong index."""
    for a, b in _squares(groups):
        rows, block = groups[a], f"Q[{a}, {b}]"
        turned = (gains[f"-Q grad {b}"] - gains[f"-Q^T grad {a} {b}"])[:, rows].sum(axis=1)
        index = (gains[f"div Q {b}"] - gains[f"div Q^T {a} {b}"])[:, rows].sum(axis=1)
        yield f"div {block} over columns", f"div {block}, of Gamma, is over the wrong index", index
        yield f"{block} transposed", f"{block} is transposed in the drift", turned
        yield f"{block} transposed", f"{block} is transposed in drift and Gamma", turned + index
