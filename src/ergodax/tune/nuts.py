"""The no-U-turn sampler of BlackJAX as a kernel, for problems whose gradient is cheap."""

import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.compile import compiled_at
from ergodax.kernel import Info, Kernel
from ergodax.target.base import AbstractTarget
from ergodax.tune.background import compile_rounds
from ergodax.tune.curvature import LARGEST_DENSE
from ergodax.tune.decisions import DecisionLog, Tuned
from ergodax.tune.host import generator, on_device, split_key
from ergodax.tune.modes import at_modes, potential_and_gradient
from ergodax.tune.whitening import Coordinates, in_coordinates

WARM_UP = 500  # steps of each chain
MOST_DOUBLINGS = 10  # of a trajectory
FEW_DOUBLINGS = 7  # where time is short
SETTLE = 100  # draws that are left out where chains begin at several modes
THREE_LEAPFROGS = 1.1  # the step at which three of them turn a normal law's trajectory around
HALVINGS = 10  # of a start that lies where the density is not finite
FEW = 30  # dimensions, beyond which such a step is accepted too rarely


class NutsState(eqx.Module):
    """BlackJAX's state as a state of ours."""

    inner: Any

    @property
    def position(self) -> PyTree:
        """Where the chain stands."""
        return self.inner.position


class Nuts(Kernel):
    """NUTS with a step size and an inverse mass, (d, d) or (d,), found by `warm_up`.

    A trajectory has up to 2^max_doublings leapfrogs.
    """

    target: AbstractTarget
    step_size: Float[Array, ""]
    inverse_mass: Array
    max_doublings: int = eqx.field(static=True, default=MOST_DOUBLINGS)

    def _algorithm(self) -> Any:
        import blackjax

        return blackjax.nuts(
            _log_density(self.target), self.step_size, self.inverse_mass,
            max_num_doublings=self.max_doublings,
        )  # fmt: skip

    def init(self, key: PRNGKeyArray, position: PyTree) -> NutsState:
        """BlackJAX's state at the position, in JAX's default precision, which BlackJAX wants."""
        with jax.numpy_dtype_promotion("standard"):
            default = jax.tree.map(lambda x: x.astype(float), tree.freeze(position))
            return NutsState(self._algorithm().init(default))

    def step(self, key: PRNGKeyArray, state: NutsState) -> tuple[NutsState, Info]:
        """One trajectory."""
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            inner, told = self._algorithm().step(key, state.inner)
        info = Info(
            step_size=self.step_size,
            potential=-inner.logdensity,
            gradient_norm=tree.norm(inner.logdensity_grad),
            finite=tree.all_finite(inner.position),
            evaluations=jnp.asarray(told.num_integration_steps, jnp.int32),
            acceptance=told.acceptance_rate,
            accepted=~told.is_divergent,
        )
        return NutsState(inner), info


def _log_density(target: AbstractTarget) -> Any:
    return lambda x: -target.potential(x).astype(float)


def tune_nuts(
    target: AbstractTarget,
    coordinates: Coordinates,
    key: PRNGKeyArray,
    num_chains: int,
    modes: Sequence[PyTree] = (),
    max_doublings: int = MOST_DOUBLINGS,
) -> Tuned:
    """Warm NUTS up in whitened coordinates, from dispersed starts at each of several modes."""
    key_start, key_run = split_key(key, 2)
    offsets = generator(key_start).standard_normal((num_chains, coordinates.dimension))
    dtype = jnp.result_type(float)  # BlackJAX wants JAX's own precision
    offsets, centres = on_device(offsets, dtype), on_device(np.zeros(offsets.shape), dtype)
    inner = in_coordinates(target, coordinates)
    starts = _inside(inner, at_modes(centres, coordinates, modes), offsets)
    d = coordinates.dimension
    dense = coordinates.basis.ndim == 1 and d <= LARGEST_DENSE  # correlations left to the mass
    mass = np.eye(d) if dense else np.ones(d)
    like = Nuts(inner, on_device(1.0, dtype), on_device(mass, dtype), max_doublings)
    compiling = compile_rounds(like, coordinates, starts, 1, key_start)
    kernel, last = warm_up(
        inner, starts, WARM_UP, key=key_run, dense=dense, max_doublings=max_doublings
    )
    compiling.exception()  # waits; what failed will fail again where it is needed
    if modes:  # where the long steps of the warm-up may have brought all chains into one
        return Tuned(kernel, coordinates, starts, None, 1, SETTLE)
    return Tuned(kernel, coordinates, last, None, 1, 0)


def _inside(
    target: AbstractTarget, centres: Float[Array, "chains d"], offsets: Float[Array, "chains d"]
) -> Float[Array, "chains d"]:
    """Centres + offsets, each offset halved until the potential and its gradient are finite."""
    look = compiled_at(jax.vmap(lambda u: tree.all_finite(target.value_and_gradient(u))))
    middle, steps = np.asarray(centres), np.asarray(offsets)
    for _ in range(HALVINGS):
        finite = np.asarray(look(jax.device_put(middle + steps)))
        if finite.all():
            break
        steps = np.where(finite[:, None], steps, 0.5 * steps)
    return jax.device_put(middle + steps)


def nuts_in_time(
    target: AbstractTarget,
    coordinates: Coordinates,
    log: DecisionLog,
    key: PRNGKeyArray,
    num_chains: int,
    modes: Sequence[PyTree],
    max_seconds: float,
) -> Tuned | None:
    """As `tune_nuts`, with trajectories of 127 leapfrogs at most; None if time is too short for it.

    The warm-up mostly takes half of the time that is foreseen.
    """
    gradients = WARM_UP * 2**FEW_DOUBLINGS * num_chains
    seconds = gradients * _seconds_of_gradient(target, coordinates.centre)
    if seconds > max_seconds:
        log.decide("sampler", "not NUTS", f"its warm-up might take {seconds:,.0f} s")
        return None
    log.decide("sampler", "NUTS", "all rows, since no batch served")
    return tune_nuts(target, coordinates, key, num_chains, modes, FEW_DOUBLINGS)


def _seconds_of_gradient(target: AbstractTarget, position: PyTree) -> float:
    frozen, times = tree.freeze(position), []
    for _ in range(4):  # the first may compile
        began = time.perf_counter()
        jax.block_until_ready(potential_and_gradient(target, frozen))
        times.append(time.perf_counter() - began)
    return min(times)


def warm_up(
    target: AbstractTarget,
    positions: PyTree,
    num_steps: int,
    *,
    key: PRNGKeyArray,
    dense: bool = True,
    max_doublings: int = MOST_DOUBLINGS,
) -> tuple[Nuts, PyTree]:
    """Stan's window adaptation in every chain; median step sizes and mean masses are kept.

    Where the step that it finds says that the law is about normal, a longer one is taken
    (`turning_step`).

    Args:
        target: of a vector u.
        positions: a start for each chain, leading axis chains.
        num_steps: of each chain.
        key: a key of `jax.random.key`.
        dense: whether the mass is a matrix; in whitened coordinates a diagonal is enough.
        max_doublings: of a trajectory.

    Returns:
        The kernel, and where each chain came to.
    """
    last, steps, masses = _warm_up(target, positions, num_steps, key, dense, max_doublings)
    inverse_mass = np.mean(np.asarray(masses, np.float64), axis=0)
    step_size = turning_step(float(np.median(np.asarray(steps))), len(inverse_mass))
    mass = jnp.asarray(inverse_mass, masses.dtype)
    return Nuts(target, jnp.asarray(step_size, steps.dtype), mass, max_doublings), last


def turning_step(adapted: float, dimension: int) -> float:
    """A step at which trajectories end after three leapfrogs, where the law is about normal.

    NUTS doubles a trajectory until it turns around: on a normal law with its own mass at half a
    period, pi / step leapfrogs, rounded up to 1, 3, 7, ... The steps to which the usual acceptance
    of 0.8 leads, 0.5 to 0.9 in 10 to 30 dimensions, need seven; at 1.1 three do, and these accept
    0.45 to 0.7 and cost half as much for an effective draw of means and of squares. That the law is
    about normal is read off the adapted step, which is 1.24 / d^(1/4) if it is, and less if some
    place is rougher.

    Args:
        adapted: the step at acceptance 0.8, in whitened coordinates.
        dimension: d.

    Example:
        >>> turning_step(0.7, 10), turning_step(0.3, 10), turning_step(0.43, 100)
        (1.1, 0.3, 0.43)
    """
    normal = dimension <= FEW and adapted >= dimension**-0.25
    return THREE_LEAPFROGS if normal else adapted


@eqx.filter_jit
def _warm_up(
    target: AbstractTarget,
    positions: PyTree,
    num_steps: int,
    key: PRNGKeyArray,
    dense: bool,
    max_doublings: int,
) -> tuple[PyTree, Array, Array]:
    import blackjax

    adapt: Any = blackjax.window_adaptation
    adaptation = adapt(
        blackjax.nuts, _log_density(target), is_mass_matrix_diagonal=not dense,
        max_num_doublings=max_doublings,
    )  # fmt: skip

    def one(key: PRNGKeyArray, position: PyTree) -> tuple[Any, ...]:
        (state, parameters), _ = adaptation.run(key, position, num_steps)
        return state.position, parameters["step_size"], parameters["inverse_mass_matrix"]

    keys = jax.random.split(key, jax.tree.leaves(positions)[0].shape[0])
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.vmap(one)(keys, positions)
