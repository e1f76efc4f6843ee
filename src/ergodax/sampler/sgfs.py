"""Stochastic-gradient Fisher scoring."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import check_estimator
from ergodax.gradient.batches import BatchEstimator
from ergodax.gradient.minibatch import Minibatch
from ergodax.gradient.scores import check_scores, sample_covariance
from ergodax.kernel import Info, Kernel, State, report_step
from ergodax.recipe.operators import Diagonal, Operator, Scalar, as_definite
from ergodax.schedule import as_schedule
from ergodax.schedule.constant import Schedule

STRUCTURES = ("dense", "diagonal")


class FisherScoring(Kernel):
    """The kernel that `sgfs` returns."""

    gradient: Any
    step_size: Schedule
    temperature: Schedule
    preconditioner: Operator
    structure: str = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """No information yet; the first step replaces it."""
        position = tree.freeze(position)
        gradient = self.gradient.init(key, position)
        if self.structure == "dense":
            d = tree.size(position)
            auxiliary = {"information": jnp.zeros((d, d), tree.result_dtype(position))}
        else:
            auxiliary = {"information": tree.zeros_like(position)}
        return State(position, auxiliary, gradient, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Average the scores' covariance, then take the step that it allows."""
        check_scores(self.gradient, "sgfs")  # a batch of the user's may be of one
        key_gradient, key_noise = jax.random.split(key)
        h, temperature = self.step_size(state.step), self.temperature(state.step)
        estimate, scores, gradient = self.gradient.estimate_with_scores(
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
        weight = self.gradient.target.num_data + self.gradient.noise_factor / temperature
        position = tree.add(state.position, self._scaled(force, information, weight, h))
        info = report_step(estimate, position, h)
        return State(position, {"information": information}, gradient, None, state.step + 1), info

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
    if structure not in STRUCTURES:
        raise ValueError(f"structure must be one of {STRUCTURES}, not {structure!r}.")
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
