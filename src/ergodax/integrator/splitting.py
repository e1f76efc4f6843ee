"""Splittings of Langevin dynamics, written as the string of their letters."""

from collections import Counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import flag
from ergodax.gradient.base import Estimate, GradientEstimator, check_estimator
from ergodax.integrator import flows
from ergodax.kernel import Info, Kernel, State, kinetic_temperature, named, report_step
from ergodax.recipe.dynamics.momentum import check_thermal_mass, draw_momentum, thermostat_start
from ergodax.recipe.operators import Operator, as_definite
from ergodax.schedule import Schedule, as_schedule


class Thermostat(eqx.Module):
    """What the letter D needs.

    Args:
        mass: mu, positive; by default the dimension, or 1 for each coordinate.
        per_coordinate: one zeta for each coordinate instead of one for all.

    Raises:
        TypeError: a mass that is not a number.
        ValueError: a mass that is not positive and finite.
    """

    mass: Float[Array, ""] | None = eqx.field(converter=check_thermal_mass, default=None)
    per_coordinate: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        """A flag must be one."""
        flag("per_coordinate", self.per_coordinate)

    def inertia(self, momentum: PyTree) -> Any:
        """mu for a momentum of this size."""
        default = 1.0 if self.per_coordinate else float(tree.size(momentum))
        return default if self.mass is None else self.mass


class Splitting(Kernel):
    """The kernel that `splitting` returns."""

    letters: tuple[tuple[str, float], ...] = eqx.field(static=True)
    gradient: GradientEstimator
    step_size: Schedule
    friction: Schedule
    temperature: Schedule
    mass: Operator
    thermostat: Thermostat | None

    @property
    def carries_gradient(self) -> bool:
        """Whether a step begins with the gradient that the step before ended with."""
        order = [letter for letter, _ in self.letters if letter in "ABU"]
        return order[0] == order[-1] == "B"

    @property
    def draws(self) -> int:
        """How many keys a step uses: one for each O and U and each evaluation of the gradient."""
        stale, count = not self.carries_gradient, 0
        for letter, _ in self.letters:
            count += letter in "OU" or (letter == "B" and stale)
            stale = letter in "AU" or (stale and letter != "B")
        return count

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Draw r ~ N(0, T M), and evaluate the gradient where a step begins with it."""
        key_momentum, key_gradient, key_estimate = jax.random.split(key, 3)
        start = jnp.int32(0)
        momentum = draw_momentum(key_momentum, position, self.mass, self.temperature(start))
        auxiliary = {"momentum": momentum}
        if self.thermostat is not None:
            auxiliary["thermostat"] = thermostat_start(
                self.friction(start), position, per_coordinate=self.thermostat.per_coordinate
            )
        state, estimate = self.gradient.init(key_gradient, position), None
        if self.carries_gradient:
            estimate, state = self.gradient.estimate(key_estimate, state, position)
        return State(position, auxiliary, state, estimate, start)

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Apply the letters in order; the gradient is evaluated anew only after an A or a U."""
        h, friction = self.step_size(state.step), self.friction(state.step)
        temperature = self.temperature(state.step)
        keys = iter(jax.random.split(key, self.draws))
        position, auxiliary, gradient = state.position, dict(state.auxiliary), state.gradient
        estimate: Estimate | None = state.estimate
        latest, cost = estimate, jnp.int32(0)
        for letter, fraction in self.letters:
            t, momentum = fraction * h, auxiliary["momentum"]
            if letter == "A":
                position, estimate = flows.drift(position, momentum, self.mass, t), None
            elif letter == "B":
                if estimate is None:
                    estimate, gradient = self.gradient.estimate(next(keys), gradient, position)
                    latest, cost = estimate, cost + estimate.evaluations
                auxiliary["momentum"] = flows.kick(momentum, estimate.gradient, t)
            elif letter == "O":
                auxiliary["momentum"] = self._damp(next(keys), auxiliary, friction, temperature, t)
            elif letter == "U":
                position, auxiliary["momentum"] = flows.free_flight(
                    next(keys), position, momentum, self.mass, friction, temperature, t
                )
                estimate = None
            else:
                auxiliary["thermostat"] = self._heat(auxiliary, temperature, t)
        kept = estimate if self.carries_gradient else None
        momentum = auxiliary["momentum"]
        kinetic = kinetic_temperature(momentum, self.mass.solve(momentum))
        info = report_step(latest, position, h, evaluations=cost, kinetic_temperature=kinetic)
        return State(position, auxiliary, gradient, kept, state.step + 1), info

    def _damp(
        self, key: PRNGKeyArray, z: dict[str, PyTree], friction: Array, temperature: Array, t: Array
    ) -> PyTree:
        if self.thermostat is None:
            return flows.ornstein_uhlenbeck(key, z["momentum"], self.mass, friction, temperature, t)
        return flows.thermostatted_noise(
            key, z["momentum"], z["thermostat"], self.mass, friction, temperature, t
        )

    def _heat(self, z: dict[str, PyTree], temperature: Array, t: Array) -> PyTree:
        assert self.thermostat is not None
        return flows.thermostat_drift(
            z["thermostat"],
            z["momentum"],
            self.mass,
            self.thermostat.inertia(z["momentum"]),
            temperature,
            t,
            per_coordinate=self.thermostat.per_coordinate,
        )


def parse(scheme: str, *, thermostat: bool) -> tuple[tuple[str, float], ...]:
    """The letters of a scheme with their fractions, which sum to 1. Raises: ValueError."""
    legal, counts = "ABOD" if thermostat else "ABOU", Counter(scheme)
    for letter in counts:
        if letter not in legal:
            raise ValueError(
                f"scheme={scheme!r} has the unknown letter {letter!r}; the legal ones are "
                f"{_named(legal)}."
            )
    if "U" in counts and counts["A"] + counts["O"]:
        raise ValueError(
            f"scheme={scheme!r} has U beside A or O, which U is made of. Try 'UBU' or 'BAOAB'."
        )
    needed, example = ("BU", "UBU") if "U" in counts else (legal.replace("U", ""), "BAOAB")
    for letter in needed:
        if letter not in counts:
            raise ValueError(
                f"scheme={scheme!r} has no {letter}; each of {_named(needed)} must stand at least "
                f"once, as in {example!r}."
            )
    return tuple((letter, 1.0 / counts[letter]) for letter in scheme)


def _named(letters: str) -> str:
    return ", ".join(f"{letter} ({flows.LETTERS[letter]})" for letter in letters)


@named
def splitting(
    scheme: str,
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    thermostat: Thermostat | None = None,
) -> Splitting:
    """Any splitting of underdamped Langevin dynamics, by its letters.

    State (position, momentum r); H = U + r^T M^-1 r / 2; D = diag(0, gamma M);
    Q = [[0, -I], [I, 0]]. With t a letter's share of the step:
        A: position += t M^-1 r        B: r -= t grad U(position)
        O: r = e^(-gamma t) r + N(0, T M (1 - e^(-2 gamma t)))
        D: zeta += t (r^T M^-1 r - d T) / mu, and O then damps with zeta instead of gamma
        U: A and O at once, the exact flow of all but the force; in place of both
    A letter that stands k times gets h / k each time. The gradient is evaluated once for each
    position, so half kicks at one position share it (and its noise), across steps too: BAOAB,
    ABOBA, OBABO and BAOA all cost one gradient a step.

    Args:
        scheme: such as "BAOAB", "ABOBA", "OBABO", "BAOA" (A, B and O at least once each), or
            "UBU", "BU" (U and B).
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma, a number or a schedule; C = gamma M.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.
        thermostat: makes D legal; the friction is then the A of the thermostat, and positive.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        ValueError: an unknown or missing letter, or a number out of range.
        TypeError: not an estimator, or not a number.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.splitting("OBABO", ex.Minibatch(model, 10), 0.02, friction=10.0)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Leimkuhler and Matthews, Molecular Dynamics, 2015, chapter 7.
    """
    if not isinstance(scheme, str):
        raise TypeError(f"scheme must be a string such as 'BAOAB', not {scheme!r}.")
    return Splitting(
        parse(scheme, thermostat=thermostat is not None),
        check_estimator(gradient),
        as_schedule(step_size, "step_size"),
        as_schedule(friction, "friction", allow_zero=thermostat is None),
        as_schedule(temperature, "temperature", allow_zero=True),
        as_definite(mass, "mass"),
        thermostat,
    )
