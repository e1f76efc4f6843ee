"""The methods of the experiment on variance reduction: estimators, samplers, what they cost."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import ergodax as ex
from experiments.formalml.linear_law import Regression, covariance_of_sgld

DIMENSION, CORRELATION, DATA_SEED = 10, 0.3, 11
BATCH_SIZE = 100
NOGIN_STEPS = (0.1, 0.2, 0.4, 0.8, 1.2)  # in units of the root of that of SGLD
PLAIN = "SGLD, plain batches"


class Setting(NamedTuple):
    """What the methods need."""

    problem: Regression  # the regression
    posterior: ex.Posterior  # of it
    mode: Float[Array, " d"]  # where it is highest
    passes: int  # over the data that finding the mode took

    @property
    def unit(self) -> float:
        """The inverse of the largest curvature."""
        return 1.0 / float(np.linalg.eigvalsh(self.problem.precision)[-1])


class Metered(ex.GradientEstimator):
    """Another estimator, whose estimate of U is replaced by |g - grad U|^2, seen in Info.

    Args:
        gradient: the other estimator.
        problem: whose exact gradient is known.
    """

    gradient: Any
    precision: Float[Array, "d d"]
    mean: Float[Array, " d"]

    def __init__(self, gradient: Any, problem: Regression) -> None:
        self.gradient = gradient
        self.precision, self.mean = (
            jnp.asarray(a, float) for a in (problem.precision, problem.mean)
        )

    @property
    def target(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The other's."""
        return self.gradient.target

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The other's."""
        return self.gradient.init(key, position)

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[ex.Estimate, Any]:
        """The other's, and the square of its error."""
        found, state = self.gradient.estimate(key, state, position)
        off = found.gradient - self.precision @ (position - self.mean)
        return eqx.tree_at(lambda e: e.potential, found, jnp.sum(off**2)), state


class Method(NamedTuple):
    """A row of the table."""

    estimator: Callable[[Setting], Any]  # from a Setting
    kind: str = "sgld"  # "sgld", "nogin", "annealed" or "zero variance"
    exact: str = ""  # the stationary covariance in closed form: "plain", "centred" or ""


def _plain(s: Setting) -> Any:
    return ex.Minibatch(s.posterior, BATCH_SIZE)


def _centred(s: Setting, order: int = 1) -> Any:
    return ex.ControlVariate(s.posterior, BATCH_SIZE, s.mode, order=order)


def _svrg(s: Setting) -> Any:
    return ex.SVRG(s.posterior, BATCH_SIZE, s.posterior.num_data // BATCH_SIZE)


def _covariance(gradient: Any) -> Any:
    return ex.ScoreCovariance(gradient, "dense", average=0.99)


METHODS = {
    PLAIN: Method(_plain, exact="plain"),
    "SGLD, annealed steps": Method(_plain, "annealed"),
    "SGLD, zero variance": Method(_plain, "zero variance"),
    "SGLD, SVRG": Method(_svrg),
    "SGLD, SAGA": Method(lambda s: ex.SAGA(s.posterior, BATCH_SIZE)),
    "SGLD, control variates": Method(_centred, exact="centred"),
    "SGLD, control variates, order 2": Method(lambda s: _centred(s, 2), exact="full"),
    "NOGIN, plain batches": Method(lambda s: _covariance(_plain(s)), "nogin"),
    "NOGIN, control variates": Method(lambda s: _covariance(_centred(s)), "nogin"),
}


def prepare(num_data: int) -> Setting:
    """The regression, the same for every seed of the chains, and its mode."""
    rng = np.random.default_rng(DATA_SEED)
    lags = np.abs(np.subtract.outer(np.arange(DIMENSION), np.arange(DIMENSION)))
    x = rng.normal(size=(num_data, DIMENSION)) @ np.linalg.cholesky(CORRELATION**lags).T
    y = x @ rng.normal(size=DIMENSION) + rng.normal(size=num_data)
    problem = Regression(x, y)
    posterior = problem.posterior
    mode = ex.find_mode(posterior, jnp.zeros(DIMENSION, float))
    return Setting(problem, posterior, mode.position, int(mode.evaluations))


def step_sizes(method: Method, setting: Setting, fractions: Sequence[float]) -> list[float]:
    """Those that are tried.

    Args:
        method: of the table.
        setting: the problem.
        fractions: step sizes of SGLD in units of `Setting.unit`; NOGIN tries as many of its own.
    """
    if method.kind == "nogin":
        return [h * np.sqrt(setting.unit) for h in NOGIN_STEPS[-len(fractions) :]]
    return [fraction * setting.unit for fraction in fractions]


def make_kernel(method: Method, setting: Setting, step_size: float, num_steps: int) -> ex.Kernel:
    """The sampler of a method, with its noise measured."""
    gradient = Metered(method.estimator(setting), setting.problem)
    if method.kind == "nogin":
        return ex.nogin(gradient, step_size, np.sqrt(1.0 / setting.unit))
    if method.kind == "annealed":
        falling = ex.schedule.Polynomial(step_size, 0.05 * num_steps, 1.0 / 3.0)
        return ex.sgld(
            gradient, ex.schedule.Phases([(num_steps // 10, step_size), (None, falling)])
        )
    return ex.sgld(gradient, step_size)


def budget(method: Method, setting: Setting) -> tuple[int, int]:
    """Evaluations before the first step, the mode's included, and in a step on average."""
    rows, gradient = setting.posterior.num_data, method.estimator(setting)
    gradient = getattr(gradient, "gradient", gradient)  # whose covariance is estimated
    overhead = setting.passes * rows + getattr(gradient, "set_up_evaluations", 0)
    each = BATCH_SIZE * gradient.evaluations_per_example
    return overhead, each + (rows // int(gradient.period) if isinstance(gradient, ex.SVRG) else 0)


def exact_inflation(method: Method, setting: Setting, step_size: float) -> float:
    """The stationary bias of the sum of variances, relative; nan where there is no closed form."""
    problem, rows = setting.problem, setting.posterior.num_data
    if not method.exact:
        return float("nan")
    size = rows if method.exact == "full" else BATCH_SIZE
    try:
        found = covariance_of_sgld(problem, step_size, size, centred=method.exact == "centred")
    except ValueError:
        return float("inf")
    return float(np.trace(found) / np.trace(problem.covariance) - 1.0)
