"""Dynamics of the literature as drift and diffusion, right and with one mechanical mistake.

Each dynamics is H, D(z) and Q(z) of the state z = (x, r, zeta); its drift is
-(D + Q) grad H + T div(D + Q). A mutation changes one term of drift or diffusion, whatever the
dynamics and the target. Every dynamics meets every target, once right and once with a mutation that
changes its law; the mutations take turns.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ergodax as ex

FRICTION = 0.7
TEMPERATURES = (1.0, 0.5, 2.0)


class Case(NamedTuple):
    """A name, whether it is right, and a call that verifies it."""

    name: str
    right: bool
    verify: Callable[[], Any]  # a report, or what has `ok` and is told by `command.said`


class Dynamics(NamedTuple):
    """H, D and Q on the raveled state, and the coordinates that belong to x."""

    energy: Callable[[Array], Array]
    diffusion: Callable[[Array], Array]
    curl: Callable[[Array], Array]
    size: int
    dimension: int
    transposed: Callable[[Array], Array] | None = None  # Q with its block of x and r transposed


def targets() -> dict[str, Any]:
    """In one to ten dimensions."""
    root = np.random.default_rng(0).standard_normal((10, 10)) / 4.0 + np.eye(10)
    return {
        "gaussian 1": ex.targets.gaussian(0.3, 0.5),
        "banana 2": ex.targets.banana(),
        "mixture 2": ex.targets.mixture([[1.0, 0.0], [-1.0, 0.5]], np.diag([0.5, 1.5])),
        "funnel 3": ex.targets.funnel(3, 1.0),
        "double well 3": ex.targets.double_well(dimension=3),
        "gaussian 10": ex.targets.gaussian(np.zeros(10), root @ root.T),
    }


def direction(x: Array) -> Array:
    """All entries depend on their neighbours."""
    return 0.6 * jnp.sin(x + 1.3 * jnp.roll(x, 1))


def metric(x: Array) -> Array:
    """G^-1 = I + s s^T."""
    s = direction(x)
    return jnp.eye(x.size, dtype=x.dtype) + s[:, None] * s[None]


def factor(x: Array) -> Array:
    """A root of a metric that is not symmetric: L = I + diag + a shift of s."""
    s = direction(x)
    return jnp.diag(1.2 + s) + jnp.eye(x.size, k=1, dtype=x.dtype) * jnp.cos(x)[:, None]


def block(*rows: Any) -> Array:
    """A matrix from blocks."""
    return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows], axis=0)


def overdamped(target: Any, t: float) -> Dynamics:
    """SGRLD, MATH D.2: z = x, D = G^-1(x), Q = 0."""
    d = target.mean.size
    return Dynamics(target.potential, metric, lambda z: jnp.zeros((d, d)), d, d)


def rotating(target: Any, t: float) -> Dynamics:
    """Irreversible Langevin dynamics whose D and Q both depend on x."""
    d = target.mean.size

    def curl(x: Array) -> Array:
        s = jnp.cos(x)
        turn = jnp.arange(1.0, d + 1.0)[:, None] * s[None] / d
        return turn - turn.T

    return Dynamics(target.potential, metric, curl, d, d)


def underdamped(target: Any, t: float) -> Dynamics:
    """SGHMC, MATH D.5, with a matrix of masses: D = diag(0, C), Q canonical."""
    d = target.mean.size
    mass = jnp.asarray(0.5 * np.eye(d) + 0.5 / d)
    inverse, zero = jnp.linalg.inv(mass), jnp.zeros((d, d))
    return Dynamics(
        lambda z: target.potential(z[:d]) + 0.5 * z[d:] @ inverse @ z[d:],
        lambda z: block([zero, zero], [zero, FRICTION * mass]),
        lambda z: block([zero, -jnp.eye(d)], [jnp.eye(d), zero]),
        2 * d,
        d,
    )


def riemannian(target: Any, t: float) -> Dynamics:
    """SGRHMC, MATH D.7: D = diag(0, C G^-1), Q = [[0, -L], [L^T, 0]]."""
    d = target.mean.size
    zero = jnp.zeros((d, d))

    def curl(turn: bool) -> Callable[[Array], Array]:
        def q(z: Array) -> Array:
            a = factor(z[:d])
            return block([zero, -a], [a if turn else a.T, zero])

        return q

    return Dynamics(
        lambda z: target.potential(z[:d]) + 0.5 * z[d:] @ z[d:],
        lambda z: block([zero, zero], [zero, FRICTION * metric(z[:d])]),
        curl(turn=False),
        2 * d,
        d,
        curl(turn=True) if d > 1 else None,
    )


def thermostat(target: Any, t: float) -> Dynamics:
    """SGNHT, MATH D.6, with mu = d: Q[r, zeta] = r / mu."""
    d = target.mean.size
    friction = jnp.concatenate([jnp.zeros(d), jnp.full(d, FRICTION), jnp.zeros(1)])

    def energy(z: Array) -> Array:
        kinetic = 0.5 * z[d : 2 * d] @ z[d : 2 * d]
        return target.potential(z[:d]) + kinetic + 0.5 * d * (z[-1] - FRICTION) ** 2

    def curl(z: Array) -> Array:
        upper = jnp.zeros((2 * d + 1, 2 * d + 1)).at[:d, d : 2 * d].set(-jnp.eye(d))
        upper = upper.at[d : 2 * d, -1].set(z[d : 2 * d] / d)
        return upper - upper.T

    return Dynamics(energy, lambda z: jnp.diag(friction), curl, 2 * d + 1, d)


def curved(target: Any, t: float) -> Dynamics:
    """RMHMC with friction, MATH D.4: H has r^T G^-1 r / 2 + (T / 2) log det G."""
    d = target.mean.size
    zero = jnp.zeros((d, d))

    def energy(z: Array) -> Array:
        inverse = metric(z[:d])
        volume = jnp.linalg.slogdet(inverse)[1]
        return target.potential(z[:d]) + 0.5 * z[d:] @ inverse @ z[d:] - 0.5 * t * volume

    return Dynamics(
        energy,
        lambda z: block([zero, zero], [zero, FRICTION * jnp.eye(d)]),
        lambda z: block([zero, -jnp.eye(d)], [jnp.eye(d), zero]),
        2 * d,
        d,
    )


class Terms(NamedTuple):
    """The factors of the terms of the drift, and of D in the noise."""

    friction: float = 1.0
    of_d: float = 1.0
    of_q: float = 1.0
    noise: float = 1.0
    force: float = 1.0  # the gradient in x, outside the friction
    index: bool = False  # div Q with the block transposed
    transposed: bool = False  # Q grad H with the block transposed
    tails: bool = False
    hidden: str = ""


def equation(dynamics: Dynamics, t: float, terms: Terms, edge: float) -> tuple[Any, Any]:
    """Drift and diffusion with these factors."""
    d = dynamics.dimension

    def spread(z: Array) -> Array:
        if terms.hidden == "stop_gradient":
            return dynamics.diffusion(jax.lax.stop_gradient(z))
        if terms.hidden == "where":
            return dynamics.diffusion(z) * jnp.where(z[0] > edge - 2.0, 1.5, 1.0)
        return dynamics.diffusion(z)

    def divergence(matrix: Callable[[Array], Array], z: Array) -> Array:
        return jnp.einsum("ijj->i", jax.jacfwd(matrix)(z))

    other = dynamics.transposed or dynamics.curl
    turned, over = (other if on else dynamics.curl for on in (terms.transposed, terms.index))

    def drift(z: Array) -> Array:
        slope = jax.grad(dynamics.energy)(z)
        pushed = slope.at[:d].multiply(terms.force)
        gamma = terms.of_d * divergence(spread, z) + terms.of_q * divergence(over, z)
        found = t * gamma - terms.friction * spread(z) @ slope - turned(z) @ pushed
        push = jax.nn.relu(z[0] - edge) ** 2 if terms.tails else 0.0
        return found.at[0].add(push)

    return drift, lambda z: terms.noise * spread(z)


# Which mistakes change the law of which dynamics: where D or Q are constant, Gamma can't be wrong.
FRICTIONS = {
    "half the friction": Terms(friction=0.5),
    "friction with the wrong sign": Terms(friction=-1.0),
    "noise of 4 D": Terms(noise=2.0),
    "an error beyond 2.5 sd": Terms(tails=True),
}
GAMMAS = {
    "no div D": Terms(of_d=0.0),
    "half of div D": Terms(of_d=0.5),
    "div D with the wrong sign": Terms(of_d=-1.0),
    "D behind stop_gradient": Terms(hidden="stop_gradient"),
    "D with the jump of a where": Terms(hidden="where"),
}
FORCES = {"twice the force": Terms(force=2.0), "force with the wrong sign": Terms(force=-1.0)}
TURNS = {
    "no div Q": Terms(of_q=0.0),
    "half of div Q": Terms(of_q=0.5),
    "div Q with the wrong sign": Terms(of_q=-1.0),
    "div Q twice": Terms(of_q=2.0),
}
BLOCKS = {
    "div L for div L^T": Terms(index=True),
    "L for L^T": Terms(transposed=True),
    "L for L^T, in Gamma too": Terms(index=True, transposed=True),
}
DYNAMICS = {
    "overdamped": (overdamped, GAMMAS | FRICTIONS),
    "rotating": (rotating, TURNS | GAMMAS),
    "underdamped": (underdamped, FORCES | FRICTIONS),
    "riemannian": (riemannian, BLOCKS | TURNS),
    "thermostat": (thermostat, TURNS | FRICTIONS),
    "curved": (curved, FRICTIONS | FORCES),
}


def cases() -> Iterator[Case]:
    """Every dynamics on every target: right, and with one mistake."""
    for m, (name, (make, mutations)) in enumerate(DYNAMICS.items()):
        turn = 0
        for k, (place, target) in enumerate(targets().items()):
            if target.mean.size == 1 and name in ("rotating", "riemannian"):
                continue  # Q of one coordinate is 0, and L its own transpose
            t = TEMPERATURES[(k + m) % 3]
            wrong = list(mutations)[turn % len(mutations)]
            turn += 1
            for label, terms in (("right", Terms()), (wrong, mutations[wrong])):
                title = f"{name}, {place}, T = {t:g}: {label}"
                yield Case(title, label == "right", _call(make, target, t, terms))


def _call(make: Any, target: Any, t: float, terms: Terms) -> Callable[[], ex.verify.Report]:
    def verify() -> ex.verify.Report:
        with jax.enable_x64(True):
            dynamics = make(target, t)
            # Of the law at T, as wide as sqrt(T) times that at 1.
            wide = float(jnp.sqrt(t * target.covariance[0, 0]))
            edge = float(target.mean[0]) + 2.5 * wide
            drift, diffusion = equation(dynamics, t, terms, edge)
            return ex.verify.sde(
                drift,
                diffusion,
                dynamics.energy,
                dimension=dynamics.size,
                temperature=t,
                curl=dynamics.curl if make in (rotating, riemannian) else None,
            )

    return verify
