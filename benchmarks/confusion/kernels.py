"""Kernels in pairs, one right and one with the mistake that it is known for.

Most are written out as a user would write them, with `init` and `step` alone.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

import ergodax as ex
from benchmarks.confusion.equations import Case

LINE, WELL = ex.targets.gaussian([0.5], [[1.0]]), ex.targets.double_well()
FRICTION, COLD = 2.0, 0.25
TOLERANCE = 0.2  # of a limit where the order is asked for


class Judged(NamedTuple):
    """What a report of a kernel says, as far as the table shows it."""

    ok: bool
    fault: str


class Chain(NamedTuple):
    """State of a kernel by hand."""

    position: Array
    momentum: Array


class ByHand:
    """A kernel by hand: `move(key, x, r)` is the step, r ~ N(0, T) at the start."""

    def __init__(self, move: Callable[..., tuple[Array, Array]], temperature: float = 1.0) -> None:
        self.move, self.temperature = move, temperature

    def init(self, key: Array, position: Array) -> Chain:
        """Momenta from their law."""
        spread = jnp.sqrt(self.temperature)
        return Chain(position, spread * jax.random.normal(key, position.shape))

    def step(self, key: Array, state: Chain) -> tuple[Chain, None]:
        """One step, without Info."""
        return Chain(*self.move(key, *state)), None


def overdamped(
    diffusion: Callable[[Array], Array] = jnp.ones_like,
    *,
    gamma: bool = True,
    noise: Callable[[float], float] = lambda h: (2.0 * h) ** 0.5,
    force: float = 1.0,
) -> Callable[[float], ByHand]:
    """Euler's scheme of dx = (-D U' + D') dt + sqrt(2 D) dW in one dimension."""

    def make(h: float) -> ByHand:
        def move(key: Array, x: Array, r: Array) -> tuple[Array, Array]:
            slope = force * jax.grad(LINE.potential)(x)
            bend = jax.jvp(diffusion, (x,), (jnp.ones_like(x),))[1] if gamma else 0.0
            drift = -diffusion(x) * slope + bend
            spread = noise(h) * jnp.sqrt(diffusion(x))
            return x + h * drift + spread * jax.random.normal(key, x.shape), r

        return ByHand(move)

    return make


def underdamped(
    friction: Callable[[Array], Array] = lambda x: FRICTION * jnp.ones_like(x),
    *,
    noise: Callable[[Array, float], Array] = lambda c, h: jnp.sqrt(2.0 * c * h),
    of_position: Callable[[Array], Array] | None = None,
    gamma: bool = True,
    temperature: float = 1.0,
) -> Callable[[float], ByHand]:
    """Semi-implicit SGHMC, with friction of the position too: dx = r - F U' + T F' + noise."""

    def make(h: float) -> ByHand:
        def move(key: Array, x: Array, r: Array) -> tuple[Array, Array]:
            one, other = jax.random.split(key)
            slope, c = jax.grad(LINE.potential)(x), friction(x)
            kick = noise(c, h) * jax.random.normal(one, x.shape)
            r = r - h * slope - h * c * r + jnp.sqrt(temperature) * kick
            x_new = x + h * r
            if of_position is not None:
                f, bend = jax.jvp(of_position, (x,), (jnp.ones_like(x),))
                spread = jnp.sqrt(2.0 * f * h) * jax.random.normal(other, x.shape)
                x_new = x_new - h * f * slope + (h * bend if gamma else 0.0) + spread
            return x_new, r

        return ByHand(move, temperature)

    return make


def by_gradient(x: Array) -> Array:
    """RMSprop's preconditioner without memory: of the current gradient."""
    return 1.0 / (0.5 + jnp.abs(jax.grad(LINE.potential)(x)))


def wave(x: Array) -> Array:
    """A coefficient that depends on the position."""
    return 1.5 + jnp.sin(2.0 * x)


def noisy(compensate: bool) -> Callable[[float], Any]:
    """SGHMC with noise of variance 0.2 / h, which stays in the limit where it isn't undone."""
    return lambda h: ex.sghmc(ex.NoisyGradient(LINE, 0.2 / h), h, 2.0, compensate=compensate)


def order(make: Callable[[float], Any], claim: int, counts: tuple[int, ...], time: float) -> Any:
    """Whether the weak order on the double well is the one claimed, to within a half."""
    steps = [time / n for n in counts]
    options = {"step_sizes": steps, "duration": time, "num_draws": 2**18, "tolerance": TOLERANCE}
    report = ex.verify.kernel(make, WELL, key=jax.random.key(0), **options)
    found = report.order
    if found is None:
        return Judged(False, "no order is resolved")
    ok = report.ok and abs(found - claim) < 0.5
    return Judged(ok, "" if ok else f"order {found:.1f} for {claim}")


def limit(make: Callable[[float], Any], temperature: float) -> Judged:
    """Whether the limit is right."""
    report = ex.verify.kernel(make, LINE, key=jax.random.key(0), temperature=temperature)
    wrong = "undecided" if report.right_limit is None else f"the mean of {report.worst}"
    return Judged(report.ok, "" if report.ok else wrong)


def pairs() -> dict[str, tuple[Any, Any, float]]:
    """A right kernel, a wrong one, the temperature."""
    full, well = ex.FullGradient(LINE), ex.FullGradient(WELL)
    langevin = lambda h: ex.langevin(full, h, FRICTION)  # noqa: E731
    cold = lambda h: ex.sghmc(full, h, FRICTION, temperature=COLD)  # noqa: E731
    no_mass = lambda h: ex.sghmc(full, h, FRICTION, temperature=COLD**2)  # noqa: E731
    metric = lambda x: 1.5 + jnp.sin(2.0 * x)  # noqa: E731
    return {
        "noise of h for sqrt(2 h)": (overdamped(), overdamped(noise=lambda h: h), 1.0),
        "half of the gradient": (overdamped(), overdamped(force=0.5), 1.0),
        "no Gamma": (overdamped(wave), overdamped(wave, gamma=False), 1.0),
        "preconditioner of the current gradient": (
            overdamped(by_gradient),
            overdamped(by_gradient, gamma=False),
            1.0,
        ),
        "noise of C sqrt(2 h)": (
            underdamped(),
            underdamped(noise=lambda c, h: c * jnp.sqrt(2.0 * h)),
            1.0,
        ),
        "noise of a constant friction": (
            underdamped(wave),
            underdamped(wave, noise=lambda c, h: jnp.sqrt(3.0 * h)),
            1.0,
        ),
        "friction of the position without Gamma": (
            underdamped(of_position=wave),
            underdamped(of_position=wave, gamma=False),
            1.0,
        ),
        "the temperature squared": (cold, no_mass, COLD),
        "momenta of temperature 1": (
            underdamped(temperature=COLD),
            lambda h: ByHand(underdamped(temperature=COLD)(h).move, 1.0),
            COLD,
        ),
        "gradient noise not undone": (noisy(compensate=True), noisy(compensate=False), 1.0),
        "naive SGRHMC": (
            lambda h: ex.sgrhmc(full, h, metric),
            lambda h: ex.counterexamples.naive_sgrhmc(full, h, metric),
            1.0,
        ),
        "another target": (
            langevin,
            lambda h: ex.langevin(ex.FullGradient(ex.targets.gaussian([0.5], [[1.3]])), h),
            1.0,
        ),
        "order 2 of SGLD": (
            lambda: order(lambda h: ex.langevin(well, h), 2, (3, 4, 6, 12), 0.66),
            lambda: order(lambda h: ex.sgld(well, h), 2, (4, 8, 16, 32), 0.28),
            0.0,
        ),
    }


def cases() -> Iterator[Case]:
    """Both of each pair."""
    for name, (*both, temperature) in pairs().items():
        for label, make in zip(("right", name), both, strict=True):
            call = make if temperature == 0.0 else lambda m=make, t=temperature: limit(m, t)
            yield Case(f"kernel, {name}: {label}", label == "right", call)
