"""Step sizes: a first one by curvature and noise, a better one by the measured temperature."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, choice, real_number, whole_number
from ergodax.diagnostics.temperature import temperature as read_temperature
from ergodax.driver.sample import sample
from ergodax.driver.samples import Samples
from ergodax.errors import DivergenceError
from ergodax.gradient.base import GradientEstimator, check_estimator
from ergodax.kernel import check_key
from ergodax.target.base import AbstractTarget

SHARE = 0.1
POWER_STEPS = 30  # of the iteration for the largest curvature
ESTIMATES = 64  # of the gradient, for the variance of its noise
READOUTS = ("configurational", "kinetic")
# Of dual averaging, as in the no-U-turn sampler but for the gain, which suits errors in [-1, 1].
GAIN, EARLY = 0.7, 5.0
SHORTER = 0.25  # after a round that diverged


def first_step(
    gradient: GradientEstimator,
    position: PyTree,
    *,
    key: Any,
    friction: float | None = None,
    temperature: float = 1.0,
    share: float = SHARE,
) -> float:
    """The ten-per-cent rule: no variance is inflated by more than a tenth, to first order.

    On a Gaussian, with k the largest curvature and V the largest variance of the gradient's noise,
    an overdamped step h inflates variances by h k / 2 + h V / (2 T), and one with momentum and
    friction gamma by h^2 k / 4 + h V / (2 gamma T). The largest h is returned for which this is at
    most `share`. It is where to begin, not where to end: see `find_step` and `diagnostics.bias`.

    Args:
        gradient: an estimator of grad U.
        position: near the mode.
        key: a key of `jax.random.key`.
        friction: gamma, for samplers with a momentum of unit mass; None for overdamped ones.
        temperature: T.
        share: see above.

    Raises:
        ValueError: a share that is not positive, or no curvature at the position.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> gradient = ex.Minibatch(model, 10)
        >>> h = ex.tune.first_step(gradient, jnp.float32(1.0), key=jax.random.key(0))
        >>> 1e-5 < h < 1e-1
        True
    """
    real_number("share", share, above=0.0, hint="Try 0.1.")
    gradient = check_estimator(gradient)
    position = gradient.target.freeze(position)
    keys = jax.random.split(check_key(key))
    curvature = float(_curvature(gradient.target, position, keys[0]))
    if not curvature > 0:
        raise ValueError(
            f"the largest curvature at this position is {curvature:.3g}, so it says nothing of the "
            "scale. Try the position of ex.find_mode."
        )
    noise = float(_noise(gradient, position, keys[1])) / temperature
    if friction is None:
        return 2.0 * share / (curvature + noise)
    # h^2 k / 4 + h V / (2 gamma T) = share
    slope = noise / friction
    return float((np.sqrt(slope**2 + 4.0 * share * curvature) - slope) / curvature)


@dataclasses.dataclass(frozen=True)
class StepSearch:
    """What `find_step` found.

    Attributes:
        step_size: h.
        step_sizes: of each round.
        excesses: the relative deviation of the temperature in each round; NaN where it diverged.
    """

    step_size: float
    step_sizes: Float[np.ndarray, " rounds"]
    excesses: Float[np.ndarray, " rounds"]


def find_step(
    make_kernel: Callable[[float], Any],
    gradient: Any,
    position: PyTree,
    step_size: float,
    *,
    key: Any,
    excess: float = 0.05,
    readout: str = "configurational",
    temperature: float = 1.0,
    num_rounds: int = 40,
    num_steps: int = 500,
    thin: int = 5,
    num_chains: int = 4,
) -> StepSearch:
    """The step size at which the temperature is off by a given share, by dual averaging.

    In each round the chains go on with the present step, and log h moves against the sign of
    |T_measured / T - 1| - excess; the mean of log h over the second half is returned. The kinetic
    temperature suits schemes whose configurational one has no error on Gaussians (BAOAB, ABOBA).

    Args:
        make_kernel: step size -> kernel.
        gradient: an estimator or a target, for the configurational temperature.
        position: where to begin, near the mode.
        step_size: the first h; `first_step` has one.
        key: a key of `jax.random.key`.
        excess: the deviation to be allowed, relative to T.
        readout: "configurational" or "kinetic".
        temperature: T.
        num_rounds: rounds.
        num_steps: of each chain in a round.
        thin: steps to a draw at which the temperature is read.
        num_chains: chains.

    Raises:
        ValueError: an unknown readout, a number out of range, or a sampler without a momentum.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> gradient = ex.FullGradient(ex.targets.gaussian(jnp.zeros(100), jnp.ones(100)))
        >>> found = ex.tune.find_step(lambda h: ex.sgld(gradient, h), gradient, jnp.zeros(100), 0.2,
        ...     key=jax.random.key(0), num_rounds=20)
        >>> 0.08 < found.step_size < 0.14  # the temperature is 1 / (1 - h / 2): 1.05 at 0.095
        True
    """
    choice("readout", readout, READOUTS)
    for name, value in (("excess", excess), ("step_size", step_size), ("temperature", temperature)):
        real_number(name, value, above=0.0)
    num_chains, num_rounds = (
        whole_number("num_chains", num_chains),
        whole_number("num_rounds", num_rounds),
    )
    callable_function("make_kernel", make_kernel)
    search = _DualAveraging(float(np.log(step_size)))
    keys = jax.random.split(check_key(key), 2 * num_rounds)
    frozen = tree.freeze(position)
    starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), frozen)
    steps, excesses = [], []
    for number in range(num_rounds):
        h = search.step_size
        try:
            samples = sample(
                make_kernel(h),
                positions=tree.thaw(starts),
                num_steps=num_steps,
                key=keys[2 * number],
                num_chains=num_chains,
                thin=thin,
                progress=False,
            )
            measured = _readout(samples, gradient, readout, temperature, keys[2 * number + 1])
            starts = samples.final_state.position
            off = abs(measured / temperature - 1.0)
            search.update(float(np.clip((off - excess) / excess, -1.0, 1.0)))
        except DivergenceError:
            measured, search = np.nan, _DualAveraging(float(np.log(SHORTER * h)))
        steps.append(h)
        excesses.append(measured / temperature - 1.0)
    late = np.log(steps[num_rounds // 2 :])
    return StepSearch(float(np.exp(late.mean())), np.array(steps), np.array(excesses))


class _DualAveraging:
    """Nesterov's dual averaging of log h."""

    def __init__(self, start: float) -> None:
        self.start = self.current = start
        self.mean_error, self.count = 0.0, 0

    @property
    def step_size(self) -> float:
        return float(np.exp(self.current))

    def update(self, error: float) -> None:
        """Move against the error, which is positive where the step is too long."""
        self.count += 1
        self.mean_error += (error - self.mean_error) / (self.count + EARLY)
        self.current = self.start - GAIN * np.sqrt(self.count) * self.mean_error


def _readout(
    samples: Samples, gradient: Any, readout: str, temperature: float, key: PRNGKeyArray
) -> float:
    if readout == "kinetic":
        kinetic = samples.info.kinetic_temperature
        if kinetic is None:
            raise ValueError(
                "this sampler has no momentum, so no kinetic temperature. Try "
                "readout='configurational'."
            )
        return float(np.mean(kinetic))
    report = read_temperature(samples, gradient, temperature=temperature, key=key)
    return report["configurational"].mean


@eqx.filter_jit
def _curvature(target: AbstractTarget, position: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
    """The largest eigenvalue of the Hessian, by power iteration."""

    def product(v: PyTree) -> PyTree:
        return jax.jvp(target.gradient, (position,), (v,))[1]

    def improve(v: PyTree, _: None) -> tuple[PyTree, Float[Array, ""]]:
        new = product(v)
        return tree.scale(1.0 / tree.norm(new), new), tree.dot(v, new)

    first = tree.normal_like(key, position)
    first = tree.scale(1.0 / tree.norm(first), first)
    return jax.lax.scan(improve, first, None, POWER_STEPS)[1][-1]


@eqx.filter_jit
def _noise(gradient: GradientEstimator, position: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
    """The largest variance of the gradient's coordinates, over repeated estimates."""
    key_init, key_run = jax.random.split(key)
    state = gradient.init(key_init, position)
    keys = jax.random.split(key_run, ESTIMATES)
    estimates = jax.vmap(lambda k: gradient.estimate(k, state, position)[0].gradient)(keys)
    flat = jax.vmap(lambda g: tree.ravel(g)[0])(estimates)
    return jnp.max(jnp.var(flat, axis=0, ddof=1))
