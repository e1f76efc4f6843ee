"""Order and bias of every sampler on one double well, with all rows and with a batch of one.

U(x) = (x^2 - 1)^2 / 4 is the sum of eight rows, U / 8 plus a slope each; the slopes add up to
nothing and are the gradient's noise. E x^2 is known by quadrature. Thousands of such coordinates
run side by side, each with an order of the slopes of its own; the standard error of a bias is from
their differences.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

SLOPES = 0.125 * np.array([1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1.5, -1.5])
NOISE = len(SLOPES) ** 2 * SLOPES.var()  # of a gradient from one row
TIME, BURN_IN = 300.0, 20.0
COORDINATES = 4096
WIDTH = 512  # of a chain, so that a step is few calls; 1 where one clock is for all coordinates


def posterior(width: int) -> ex.Posterior:
    """Double wells in eight rows."""
    share, rng = 1.0 / len(SLOPES), np.random.default_rng(0)
    slopes = np.stack([rng.permutation(SLOPES) for _ in range(width)], axis=1)
    return ex.Posterior(
        lambda x: jnp.zeros(()),
        lambda x, slope: jnp.sum(-share * 0.25 * (x**2 - 1.0) ** 2 - slope * x),
        slopes.astype(np.float32),
    )


def second_moment() -> float:
    """E x^2, by the trapezoidal rule, which is exact to rounding here."""
    x = np.linspace(-6.0, 6.0, 4001)
    weights = np.exp(-0.25 * (x**2 - 1.0) ** 2)
    return float(weights @ x**2 / weights.sum())


class Measured(NamedTuple):
    """A bias and its standard error."""

    bias: float
    error: float


def measure(kernel: ex.Kernel, key: Any, step_size: float, shape: tuple[int, int]) -> Measured:
    """The bias of E x^2 over `TIME` units of time, of chains x coordinates; weighted."""
    steps, burn_in = int(TIME / step_size), int(BURN_IN / step_size)

    @jax.jit
    def run(key: Any) -> Any:
        key_start, key_init, key_run = jax.random.split(key, 3)
        starts = jax.random.rademacher(key_start, shape, jnp.float32)
        state = jax.vmap(kernel.init)(jax.random.split(key_init, shape[0]), starts)

        def step(carry: Any, number: Any) -> tuple[Any, None]:
            state, square, total = carry
            keys = jax.random.split(jax.random.fold_in(key_run, number), shape[0])
            state, info = jax.vmap(kernel.step)(keys, state)
            weight = jnp.ones(shape[0]) if info.weight is None else info.weight
            weight = jnp.where(number >= burn_in, weight, 0.0)[:, None]
            return (state, square + weight * state.position**2, total + weight), None

        begin = state, jnp.zeros(shape), jnp.zeros((shape[0], 1))
        (_, square, total), _ = jax.lax.scan(step, begin, jnp.arange(steps + burn_in))
        return square, jnp.broadcast_to(total, shape)

    square, total = (np.asarray(x, float) for x in run(key))
    mean = square.sum() / total.sum()
    spread = (square - mean * total).std() / total.mean()
    return Measured(mean - second_moment(), float(spread / np.sqrt(square.size)))


def order(coarse: Measured, fine: Measured) -> str:
    """log2 of the ratio of biases at h and h / 2 with its error; "-" where one is lost."""
    if any(abs(one.bias) < 4.0 * one.error for one in (coarse, fine)):
        return "-"
    slope = np.log2(abs(coarse.bias / fine.bias))
    relative = np.hypot(coarse.error / coarse.bias, fine.error / fine.bias)
    return f"{slope:.1f} ± {relative / np.log(2.0):.1f}"


class Sampler(NamedTuple):
    """A sampler as it is entered.

    Attributes:
        make: gradient, step size -> kernel.
        step_size: of the coarse run on the double well.
        batch: what is told of the noise of a gradient from one row; by default nothing.
        width: coordinates of a chain.
    """

    make: Callable[[Any, float], ex.Kernel]
    step_size: float
    batch: Callable[[Any], Any] = lambda gradient: gradient
    width: int = WIDTH


def known(gradient: Any) -> ex.KnownCovariance:
    """The noise of a row, told."""
    return ex.KnownCovariance(gradient, NOISE)


CLOCK = {"bounds": (0.5, 2.0), "power": 1.0}
SAMPLERS = {
    "sgld": Sampler(ex.sgld, 0.1),
    "sghmc": Sampler(ex.sghmc, 0.25),
    "langevin, BAOAB": Sampler(ex.langevin, 0.25),
    "nogin, V known": Sampler(ex.nogin, 0.25, known),
    "langevin, UBU": Sampler(lambda g, h: ex.langevin(g, h, scheme="UBU"), 0.25),
    "langevin, BU": Sampler(lambda g, h: ex.langevin(g, h, scheme="BU"), 0.25),
    "sms_ubu": Sampler(
        lambda g, h: (
            ex.sms_ubu(g, h) if isinstance(g, ex.Minibatch) else ex.langevin(g, h, scheme="UBU")
        ),
        0.25,
    ),
    "sa_sgld": Sampler(lambda g, h: ex.sa_sgld(g, h, **CLOCK), 0.1, width=1),
    "samadams": Sampler(lambda g, h: ex.samadams(g, h, **CLOCK), 0.25, width=1),
    "barker": Sampler(ex.barker, 0.1),
    "barker, V known": Sampler(lambda g, h: ex.barker(g, h, compensate=True), 0.1, known),
    "lattice_random_walk": Sampler(ex.lattice_random_walk, 0.1),
}


def row(sampler: Sampler, key: Any, coordinates: int) -> list[str]:
    """Order and bias with all rows, then with batches of one row."""
    h, cells, percent = sampler.step_size, [], 100.0 / second_moment()
    # A chain of one coordinate costs far more, and gets by with a quarter of them.
    shape = coordinates // max(sampler.width, 4), sampler.width
    for number, gradient in enumerate(gradients(sampler)):
        keys = jax.random.split(jax.random.fold_in(key, number))
        coarse, fine = (
            measure(sampler.make(gradient, step), k, step, shape)
            for k, step in zip(keys, (h, 0.5 * h), strict=True)
        )
        bias, error = percent * coarse.bias, percent * coarse.error
        cells += [order(coarse, fine), f"{bias:+.2f} ± {error:.2f}"]
    return cells


def gradients(sampler: Sampler) -> tuple[Any, Any]:
    """From all rows, told of next to no noise where its noise must be known; and from one."""
    wells = posterior(sampler.width)
    exact = ex.FullGradient(wells)
    if sampler.batch is known:
        exact = ex.KnownCovariance(exact, 1e-12)
    return exact, sampler.batch(ex.Minibatch(wells, 1))
