"""Langevin dynamics with a preconditioner learned on the way: by RMSprop, by Fisher scoring."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import choice, flag, real_number, whole_number
from ergodax.control_flow import when
from ergodax.gradient.base import Estimate, GradientEstimator, check_estimator
from ergodax.gradient.batches import BatchEstimator, Minibatch
from ergodax.gradient.covariance import check_scores, sample_covariance
from ergodax.integrator.stepper import Moved, Stepper
from ergodax.kernel import State, named
from ergodax.recipe.operators import Diagonal, Operator, Scalar, as_definite
from ergodax.schedule import as_schedule


class AdaptedLangevin(Stepper):
    """Langevin dynamics whose metric is made from a running mean over gradients, until frozen."""

    decay: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    damping: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    adaptation_steps: Int[Array, ""] | None
    correction: bool = eqx.field(static=True)


def adaptation(
    decay: Any, damping: Any, steps: Any, correction: Any
) -> tuple[float, float, Int[Array, ""] | None, bool]:
    """How a metric is learned, for `AdaptedLangevin`. Raises: TypeError, ValueError."""
    if steps is not None:
        hint = "Try the burn_in of the run: the metric has to see a gradient."
        steps = jnp.int32(whole_number("adaptation_steps", steps, hint=hint))
    return (
        real_number("decay", decay, at_least=0.0, below=1.0, hint="Try 0.99."),
        real_number("damping", damping, above=0.0, hint="Try 1e-3."),
        steps,
        flag("correction", correction),
    )


def weight_of_new(kernel: AdaptedLangevin, step: Int[Array, ""]) -> Float[Array, ""]:
    """What the new square counts for: 1 at the first step, 0 once the metric is frozen."""
    power = kernel.decay ** (step + 1).astype(kernel.decay.dtype)
    weight = (1.0 - kernel.decay) / (1.0 - power)
    if kernel.adaptation_steps is None:
        return weight
    return jnp.where(step < kernel.adaptation_steps, weight, 0.0)


def estimate_along(
    kernel: AdaptedLangevin,
    key: PRNGKeyArray,
    state: State,
    probe: PyTree,
    weight: Float[Array, ""],
) -> tuple[Estimate, PyTree, PyTree]:
    """The gradient, the estimator's next state, and the gradient's derivative along `probe`.

    The derivative is zero where it is not needed: without a correction, or with weight 0.
    """

    def gradient_at(position: PyTree) -> tuple[PyTree, tuple[Estimate, PyTree]]:
        estimate, after = kernel.gradient.estimate(key, state.gradient, position)
        return estimate.gradient, (estimate, after)

    def alone() -> tuple[Estimate, PyTree, PyTree]:
        gradient, (estimate, after) = gradient_at(state.position)
        return estimate, after, tree.zeros_like(gradient)

    def with_derivative() -> tuple[Estimate, PyTree, PyTree]:
        _, change, (estimate, after) = jax.jvp(
            gradient_at, (state.position,), (probe,), has_aux=True
        )
        twice = eqx.tree_at(lambda e: e.evaluations, estimate, 2 * estimate.evaluations)
        return twice, after, change

    def without_derivative(
        found: tuple[Estimate, PyTree, PyTree],
    ) -> tuple[Estimate, PyTree, PyTree]:
        twice, after, change = found
        once = eqx.tree_at(lambda e: e.evaluations, twice, twice.evaluations // 2)
        return once, after, tree.zeros_like(change)

    if not kernel.correction:
        return alone()
    return when(weight > 0.0, with_derivative, alone, without_derivative)


class PreconditionedLangevin(AdaptedLangevin):
    """The kernel that `psgld` returns."""

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """V = 0, which the first step replaces."""
        return {"second_moment": tree.zeros_like(position)}, key

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """Move V towards the new squared gradient, then x by the metric that V gives."""
        key_gradient, key_probe, key_noise = jax.random.split(key, 3)
        weight = weight_of_new(self, state.step)
        probe = tree.rademacher_like(key_probe, state.position)
        estimate, gradient, change = estimate_along(self, key_gradient, state, probe, weight)

        per_example = 1.0 / num_data(self.gradient)
        mean = tree.scale(per_example, estimate.gradient)
        slope = tree.scale(per_example, tree.multiply(probe, change))
        moment = jax.tree.map(
            lambda v, m: tree.cast(1.0 - weight, v) * v + tree.cast(weight, v) * m**2,
            state.auxiliary["second_moment"],
            mean,
        )
        metric = jax.tree.map(lambda v: 1.0 / (tree.cast(self.damping, v) + jnp.sqrt(v)), moment)
        gamma = divergence(metric, moment, mean, slope, weight)

        drift = tree.add_scaled(tree.multiply(metric, estimate.gradient), -temperature, gamma)
        normal = tree.normal_like(key_noise, state.position)
        noise = jax.tree.map(lambda g, xi: jnp.sqrt(g) * xi, metric, normal)
        moved = tree.add_scaled(state.position, -h, drift)
        position = tree.add_scaled(moved, jnp.sqrt(2.0 * h * temperature), noise)
        return Moved(position, {"second_moment": moment}, estimate, gradient)


def divergence(
    metric: PyTree, moment: PyTree, mean: PyTree, slope: PyTree, weight: Float[Array, ""]
) -> PyTree:
    """Gamma_i = d g_i / d x_i = -w g_i^2 m_i (d m_i / d x_i) / sqrt(V_i), the old V held fixed."""

    def leaf(g: Array, v: Array, m: Array, s: Array) -> Array:
        # V >= w m^2, so where V is zero m is, and Gamma jumps; it is taken as zero there.
        relative = jnp.where(v > 0.0, m / jnp.sqrt(jnp.where(v > 0.0, v, 1.0)), 0.0)
        return -tree.cast(weight, g) * g**2 * relative * s

    return jax.tree.map(leaf, metric, moment, mean, slope)


def num_data(gradient: GradientEstimator) -> int:
    """N, or 1 for a target without data."""
    return getattr(getattr(gradient, "target", None), "num_data", 1)


@named
def psgld(
    gradient: GradientEstimator,
    step_size: Any,
    *,
    decay: Any = 0.99,
    damping: Any = 1e-3,
    temperature: Any = 1.0,
    correction: bool = True,
    adaptation_steps: int | np.integer | None = 1000,
) -> PreconditionedLangevin:
    """Stochastic-gradient Langevin dynamics with the preconditioner of RMSprop (Li et al.).

    State: position x, and V, a running mean of squared gradients. H = U, D = diag(g), Q = 0.
    Update at step t = 1, 2, ..., with ghat an estimate of grad U and m = ghat / N the gradient
    per example (N = 1 for a target without data):
        V  <- (1 - w) V + w m^2,   w = (1 - decay) / (1 - decay^t)
        g  = 1 / (damping + sqrt(V))
        x+ = x - h g ghat + h T Gamma + N(0, 2 h T diag(g))
        Gamma_i = d g_i / d x_i = -w g_i^2 m_i (d m_i / d x_i) / sqrt(V_i)
    The weight w is RMSprop's 1 - decay but for the start, where it makes V the mean of the
    squares seen so far. Gamma differentiates the gradient of the same batch, the old V held
    fixed, along one random sign vector: exact where the gradient is separable, unbiased
    otherwise, and 0 where V is 0. It costs about one more gradient, and is counted as one.

    After `adaptation_steps` V is frozen: D is constant, Gamma is zero and no longer computed, and
    the law is that of `sgld` with this preconditioner, first order in h and exact as h -> 0.
    Draw samples from then on.

    While V adapts there is a bias that no Gamma repairs, because x alone is not a Markov chain.
    It grows as h falls: V remembers about 1 / (1 - decay) steps, in which a slower chain moves
    less, so V follows x and the law nears exp(-U / T) / g. For U = (x^2 - 1)^2 / 4, exact
    gradients, damping 0.1 and decay 0.99, E x^2 is 1.19 at h = 0.02 and 1.45 at h = 0.005 in
    place of 1.04. The bias is small where gradient noise makes up most of V, which then hardly
    depends on x, or where the memory is much longer than the chain takes to mix. With no memory
    (decay = 0), exact gradients and a separable U the chain samples exp(-U / T) as h -> 0, and
    without `correction` exp(-U / T) / g in one dimension.

    Args:
        gradient: an estimator of grad U that can be differentiated, such as ex.Minibatch.
        step_size: h, a positive number or a schedule; stable for h k < 2 (damping + sqrt(V)),
            k the curvature of U. Li et al.'s epsilon is 2 h.
        decay: of V's memory, in [0, 1); it remembers about 1 / (1 - decay) steps.
        damping: positive, on the scale of sqrt(V), which is about 1 / sqrt(n) for standardised
            data and batches of n. The default is a hundredth of that for n = 100: where a
            gradient happens to vanish, D is at most a hundred times its usual size. With Li et
            al.'s 1e-5 it is ten thousand times, and the largest stable h is so much smaller.
        temperature: T, a number or a schedule.
        correction: include Gamma.
        adaptation_steps: how many steps V adapts for; pass the `burn_in` of the run. The default
            is ten memories of the default decay. None adapts for ever, with the bias above.

    Returns:
        A kernel whose states have "second_moment", V, in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.psgld(ex.Minibatch(model, 10), 1e-2)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Li, Chen, Carlson and Carin, Preconditioned stochastic gradient Langevin dynamics for
        deep neural networks, 2016.
    """
    learned = adaptation(decay, damping, adaptation_steps, correction)
    power = as_schedule(temperature, "temperature", allow_zero=True)
    return PreconditionedLangevin(gradient, step_size, power, *learned)


STRUCTURES = ("dense", "diagonal")


class FisherScoring(Stepper):
    """The kernel that `sgfs` returns."""

    preconditioner: Operator
    structure: str = eqx.field(static=True)

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """No information yet; the first step replaces it."""
        if self.structure == "diagonal":
            return {"information": tree.zeros_like(position)}, key
        d = tree.size(position)
        return {"information": jnp.zeros((d, d), tree.result_dtype(position))}, key

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """Average the scores' covariance, then take the step that it allows."""
        estimator: Any = self.gradient
        check_scores(estimator, "sgfs")  # a batch of the user's may be of one
        key_gradient, key_noise = jax.random.split(key)
        estimate, scores, gradient = estimator.estimate_with_scores(
            key_gradient, state.gradient, state.position
        )
        share = 1.0 / (state.step + 1).astype(jnp.result_type(float))
        information = jax.tree.map(
            lambda old, new: old + tree.cast(share, old) * (new - old),
            state.auxiliary["information"],
            sample_covariance(scores, self.structure),
        )
        # D0^-1 R is a root of D0^-1, for any root R of D0.
        normal = tree.normal_like(key_noise, state.position)
        noise = self.preconditioner.solve(self.preconditioner.sqrt_mv(normal))
        force = tree.subtract(tree.scale(jnp.sqrt(2.0 * temperature / h), noise), estimate.gradient)
        weight = estimator.target.num_data + estimator.noise_factor / temperature
        position = tree.add(state.position, self._scaled(force, information, weight, h))
        return Moved(position, {"information": information}, estimate, gradient)

    def _scaled(
        self, force: PyTree, information: PyTree, weight: Float[Array, ""], h: Float[Array, ""]
    ) -> PyTree:
        """2 (weight I + (2/h) D0^-1)^-1 force."""
        flat, unravel = tree.ravel(force)
        half = 0.5 * weight
        if self.structure == "diagonal":
            resistance = self.preconditioner.solve(jax.tree.map(jnp.ones_like, force))
            return jax.tree.map(
                lambda f, i, b: f / (tree.cast(half, f) * i + b / tree.cast(h, f)),
                force,
                information,
                resistance,
            )

        resistance = tree.matrix_of(self.preconditioner.solve, force)
        matrix = tree.cast(half, flat) * information + resistance / tree.cast(h, flat)
        factor = jax.scipy.linalg.cho_factor(matrix, lower=True)
        return unravel(jax.scipy.linalg.cho_solve(factor, flat))


@named
def sgfs(
    gradient: Any,
    step_size: Any,
    *,
    preconditioner: Any = 1.0,
    structure: str = "dense",
    temperature: Any = 1.0,
) -> FisherScoring:
    """Stochastic-gradient Fisher scoring (Ahn, Korattikara and Welling).

    State: position x, and I, the mean over all steps of the covariance of the batch's scores
    (divisor n - 1). H = U, Q = 0. With ghat the batch's estimate of grad U, of noise covariance
    V = c I, and D0 the preconditioner, a step updates I with the batch and then
        x+ = x + P (-ghat + nu),   nu ~ N(0, (2 T / h) D0^-1),
        P  = 2 (gamma N I + (2 / h) D0^-1)^-1,   gamma = 1 + c / (N T)
    At T = 1, gamma is (n + N) / n for rows drawn with replacement, where c = N^2 / n, and N / n
    without, where c = N (N - n) / n.

    For small h this is `sgld` with D = D0. As h grows P tends to 2 (gamma N I)^-1 and the steps
    to Newton's: P solves 2 T P = P (T N I + V + Cov nu) P, so that a Gaussian posterior whose
    precision is N I is sampled exactly, at every h, if I is known; I is learned with an error
    that falls with the number of scores seen. The injected noise has the covariance
        P Cov(nu) P = h (2 T D - h D V D) - h^2 T D (N I) D,   D = P / h,
    which is that of noise compensation (`compensate=True` of `sgld`) less what the
    discretisation itself adds. It is never negative: where V is large the step shrinks instead.

    That the precision is N times the scores' covariance holds for a well-specified model, much
    data and a flat prior. A misspecified model is sampled with a wrong covariance at large h,
    and with the right one as h -> 0. A prior's own curvature is likewise left out of P.

    Args:
        gradient: ex.Minibatch, whose scores give gradient and covariance in one pass; n >= 2.
        step_size: h, a positive number or a schedule. Ahn et al.'s epsilon is 2 h.
        preconditioner: constant D0, positive definite: number, vector, matrix or operator. Their
            matrix B is its inverse.
        structure: "dense", at O(n d^2 + d^3) a step, or "diagonal", which keeps the variances
            only and is exact where the scores are uncorrelated.
        temperature: T, a positive number or a schedule.

    Returns:
        A kernel whose states have "information", I, in `auxiliary`.

    Raises:
        TypeError: not an estimator that gives scores, or an argument that is not a number.
        ValueError: a number out of range, a batch of one, an unknown structure, or a
            preconditioner that is singular or does not fit it.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sgfs(ex.Minibatch(model, 10), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Ahn, Korattikara and Welling, Bayesian posterior sampling via stochastic gradient Fisher
        scoring, 2012.
    """
    check_scores(check_estimator(gradient), "sgfs")
    if isinstance(gradient, BatchEstimator) and not isinstance(gradient, Minibatch):
        raise TypeError(
            "sgfs takes the covariance of the batch's scores for the Fisher information, which "
            f"those of {type(gradient).__name__} are not. Try ex.Minibatch(posterior, 100)."
        )
    choice("structure", structure, STRUCTURES)
    return FisherScoring(
        gradient,
        as_schedule(step_size, "step_size"),
        as_schedule(temperature, "temperature"),
        _definite(preconditioner, structure),
        structure,
    )


def _definite(value: Any, structure: str) -> Operator:
    """D0, factored once; it must have an inverse, and a diagonal where the structure is one."""
    operator = as_definite(value, "preconditioner")
    if structure == "diagonal" and not isinstance(operator, Scalar | Diagonal):
        raise ValueError(
            "preconditioner must be a number or a vector where structure='diagonal', not a "
            f"{type(operator).__name__}. Try structure='dense'."
        )
    return operator
