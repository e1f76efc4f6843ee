"""Samplers of topics: the gradient from a batch of documents, and steps reflected at zero."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.integrator.splitting import splitting
from ergodax.integrator.stepper import Moved, Stepper
from ergodax.kernel import Info, Kernel, State
from ergodax.learn.topics.corpus import Document
from ergodax.learn.topics.gibbs import Tokens, expand, expected_counts
from ergodax.recipe.metric import Metric
from ergodax.recipe.operators import Diagonal
from ergodax.sampler import sgld, sgrld
from ergodax.schedule import Schedule, as_schedule
from ergodax.target.base import AbstractTarget

SAMPLERS = ("sgrld", "sgrhmc", "sgld", "sghmc")
LEAST = 1e-10  # theta is kept at or above it, so that n / theta stays finite in single precision


class TopicPrior(AbstractTarget):
    """The prior of the topics: independent theta_kw ~ Gamma(beta, 1), theta > 0.

    The word probabilities phi_kw = theta_kw / sum_w theta_kw are then Dirichlet(beta).
    """

    beta: Float[Array, ""] = eqx.field(converter=jnp.asarray)  # positive

    def potential(self, position: Float[Array, "K W"]) -> Float[Array, ""]:
        """The sum of theta - (beta - 1) log theta."""
        beta = self.beta.astype(position.dtype)
        return jnp.sum(position - (beta - 1.0) * jnp.log(position))

    def gradient(self, position: Float[Array, "K W"]) -> Float[Array, "K W"]:
        """1 - (beta - 1) / theta."""
        return 1.0 - (self.beta.astype(position.dtype) - 1.0) / position


class TopicGradient(GradientEstimator):
    """The gradient of U from the batch of documents that its state holds.

    With S the batch, D the number of documents and n the topic counts of a document's tokens,
        dU/dtheta_kw = 1 - (beta - 1) / theta_kw
                       - (D / |S|) sum over d in S of E[n_dkw / theta_kw - n_dk / theta_k.],
    where the expectation given words and theta comes from collapsed Gibbs sampling
    (`expected_counts`). That it is of finite length is a bias, which no covariance accounts for.

    An estimate costs |S| evaluations. It makes none of the potential.

    Args:
        beta: of the topics' prior, positive.
        alpha: of the document weights' prior, Dirichlet(alpha); positive.
        num_documents: D.
        sweeps: of the Gibbs sampler over each document.
        burn_in: how many of them are left out of the average.

    Raises:
        ValueError: a number that is not positive.

    Reference:
        Patterson and Teh, Stochastic gradient Riemannian Langevin dynamics on the probability
        simplex, 2013.
    """

    target: TopicPrior
    alpha: Float[Array, ""]
    num_documents: Float[Array, ""]
    sweeps: int = eqx.field(static=True)
    burn_in: int = eqx.field(static=True)

    def __init__(
        self, beta: Any, alpha: Any, num_documents: Any, *, sweeps: int = 50, burn_in: int = 25
    ) -> None:
        for name, value in (("beta", beta), ("alpha", alpha), ("num_documents", num_documents)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, not {value}.")
        # Narrower than in the base, which is sound since modules are frozen.
        self.target = TopicPrior(float(beta))  # pyright: ignore[reportIncompatibleVariableOverride]
        self.alpha = jnp.asarray(float(alpha))
        self.num_documents = jnp.asarray(float(num_documents))
        self.sweeps, self.burn_in = sweeps, burn_in

    def init(self, key: PRNGKeyArray, position: Float[Array, "K W"]) -> None:
        """No batch yet: see `feed`."""
        self.target.check(position)

    def feed(self, state: Tokens | None, batch: Sequence[Document] | Tokens) -> Tokens:
        """The state with the next batch, which every estimate uses until another is fed."""
        return batch if isinstance(batch, Tokens) else expand(batch)

    def estimate(
        self, key: PRNGKeyArray, state: Tokens | None, position: Float[Array, "K W"]
    ) -> tuple[Estimate, Tokens]:
        """The gradient at theta.

        Raises:
            ValueError: no batch has been fed.
        """
        if state is None:
            raise ValueError(
                "there is no batch yet; feed one: state = gradient.feed(state, batch)."
            )
        n = state.places.shape[0]
        mass = jnp.sum(position, axis=1, keepdims=True)
        counts = expected_counts(
            key, state, position / mass, self.alpha, self.sweeps, self.burn_in
        )[1]
        score = counts / position - jnp.sum(counts, axis=1, keepdims=True) / mass
        scale = (self.num_documents / n).astype(position.dtype)
        gradient = self.target.gradient(position) - scale * score
        nothing = jnp.asarray(jnp.nan, position.dtype)
        return Estimate(gradient, nothing, evaluations=jnp.int32(n)), state


class Reflected(Kernel):
    """A kernel whose positions are mirrored at zero, coordinate by coordinate.

    Where a step ends at x < 0 the next begins at |x|, and the momentum of that coordinate, if the
    sampler has one, changes its sign: the motion is mirrored, and a momentum that were kept
    would drive the coordinate back to zero.

    Close to zero the forces of the prior, (beta - 1) / x, are as large as one likes for
    beta < 1. A position below the floor max(1e-10, c h^p) is raised to it, with h the step's.
    """

    kernel: Kernel  # positions of any tree; their momenta, if any, like them
    coefficient: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)  # c >= 0
    power: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1.0)  # p
    # change the sign of the momentum; without it the law is wrong
    flip: bool = eqx.field(static=True, default=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """As the kernel does."""
        return self.kernel.init(key, position)

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """The kernel's step, then the reflection."""
        state, info = self.kernel.step(key, state)
        floor = jnp.maximum(LEAST, self.coefficient * info.step_size**self.power)
        position = jax.tree.map(
            lambda x: jnp.maximum(jnp.abs(x), floor.astype(x.dtype)), state.position
        )
        auxiliary = state.auxiliary
        if self.flip and "momentum" in auxiliary:
            flipped = jax.tree.map(
                lambda x, r: jnp.where(x < 0, -r, r), state.position, auxiliary["momentum"]
            )
            auxiliary = {**auxiliary, "momentum": flipped}
        return dataclasses.replace(state, position=position, auxiliary=auxiliary), info


class PositiveSGRHMC(Stepper):
    """Riemannian Hamiltonian Monte Carlo of theta > 0, split as BAOA.

    State: theta, momentum r. H = U + r^T r / 2, D = diag(0, gamma theta),
    Q = [[0, -theta^(1/2)], [theta^(1/2), 0]]: those of `sgrhmc` with G^-1 = diag(theta). Update,
    with g an estimate of grad U:
        B: r <- r - h (theta^(1/2) g - 1 / (2 theta^(1/2)))
        A: theta <- |theta + h / 2 theta^(1/2) r|, r changing its sign where theta would
        O: r <- e^(-h gamma theta) r + N(0, 1 - e^(-2 h gamma theta))
        A again, for `Reflected` to mirror

    The Euler step would multiply r by 1 - h gamma theta, beyond -1 where theta > 2 / (h gamma).
    Frequent words have such theta, and the step size would be bound by them. Solved exactly, the
    factor is between 0 and 1: there r is forgotten in a step, and theta moves as in `sgrld` with
    step size h^2 / 2. Where theta is small r persists, and averages over batches.

    First order in h, and stable whatever the friction.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Section 4.2;
        Leimkuhler and Matthews, Molecular Dynamics, 2015, chapter 7, for the splitting.
    """

    friction: Schedule  # gamma

    def begin(self, key: PRNGKeyArray, position: Array) -> tuple[dict[str, Array], PRNGKeyArray]:
        """Draw r ~ N(0, I)."""
        key_momentum, key_gradient = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, position.shape, position.dtype)
        return {"momentum": momentum}, key_gradient

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """B, A, O, A."""
        key_gradient, key_noise = jax.random.split(key)
        theta, r = state.position, state.auxiliary["momentum"]
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, theta)
        h = h.astype(theta.dtype)
        root = jnp.sqrt(theta)
        r = r - h * (root * estimate.gradient - 0.5 / root)
        theta = theta + 0.5 * h * root * r
        theta, r = jnp.abs(theta), jnp.where(theta < 0, -r, r)
        loss = h * self.friction(state.step).astype(theta.dtype) * theta
        noise = jax.random.normal(key_noise, r.shape, r.dtype)
        r = jnp.exp(-loss) * r + jnp.sqrt(-jnp.expm1(-2.0 * loss)) * noise
        theta = theta + 0.5 * h * jnp.sqrt(theta) * r
        told = {"kinetic_temperature": jnp.mean(r**2)}
        return Moved(theta, {"momentum": r}, estimate, gradient, told)


def topic_sampler(
    name: str, gradient: GradientEstimator, step_size: Any, friction: Any = 1.0
) -> Reflected:
    """A sampler of theta > 0.

    State: theta, and a momentum r for "sgrhmc" and "sghmc". H, D and Q are those of the sampler,
    with G^-1 = diag(theta) for the Riemannian ones. Update, with g an estimate of grad U, before
    the reflection:
        sgrld:   theta+ = theta - h theta g + h + N(0, 2 h theta)
        sgld:    theta+ = theta - h g + N(0, 2 h)
        sgrhmc:  BAOA with a metric, see `PositiveSGRHMC`
        sghmc:   BAOA without one, see `splitting`
    With a momentum of friction rate c (gamma, or gamma theta for sgrhmc) a step h moves theta as
    far as a step h^2 / 2 coth(h c / 2) does without: h^2 / 2 for much friction, h / c for little.
    The floor (see `Reflected`) is where the kick of the prior is as large as the sampler's own
    noise: none is needed by sgrld, where theta g is finite; (h / 2)^2 for sgrhmc, (h / 2)^(1/2)
    for sgld, and h for sghmc.

    First order in h away from zero; close to it the bias falls more slowly, and for beta < 1/2
    much more slowly.

    Args:
        name: "sgrld", "sgrhmc", "sgld" or "sghmc".
        gradient: of the topics, a TopicGradient.
        step_size: h, a positive number or a schedule.
        friction: gamma, of the samplers with a momentum.

    Returns:
        The kernel.

    Raises:
        ValueError: an unknown sampler, or a number out of range.

    Reference:
        Patterson and Teh, 2013; Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC,
        2015, Section 4.2.
    """
    match name:
        case "sgrld":
            metric = Metric(_diagonal, divergence=_ones)  # that of Patterson and Teh
            return Reflected(sgrld(gradient, step_size, metric))
        case "sgrhmc":
            rate, one = as_schedule(friction, "friction"), as_schedule(1.0, "temperature")
            return Reflected(PositiveSGRHMC(gradient, step_size, one, rate), 0.25, 2.0)
        case "sgld":
            return Reflected(sgld(gradient, step_size), 0.5**0.5, 0.5)
        case "sghmc":
            return Reflected(splitting("BAOA", gradient, step_size, friction), 1.0, 1.0)
        case _:
            raise ValueError(f"sampler must be one of {SAMPLERS}, not {name!r}.")


def _diagonal(theta: PyTree) -> Diagonal:
    return Diagonal(theta)  # as an array of two axes it would be taken for a matrix


def _ones(theta: PyTree) -> PyTree:
    return jax.tree.map(jnp.ones_like, theta)
