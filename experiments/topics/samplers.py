"""Samplers of topics: the gradient from a batch of documents, and steps reflected at zero."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

import ergodax as ex
from ergodax.learn.topics import (
    Document,
    Tokens,
    add_words,
    counted,
    lay_out,
    nothing_assigned,
    sweep,
)

SAMPLERS = ("sgrld", "sgrhmc", "sgld", "sghmc")
LEAST = 1e-10  # theta is kept at or above it, so that n / theta stays finite in single precision


class TopicPrior(ex.targets.AbstractTarget):
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


class Batch(eqx.Module):
    """Documents that a gradient is estimated from."""

    tokens: Tokens
    size: Int[Array, "*batches"]  # documents


def stack(batches: Sequence[Sequence[Document]], num_words: int) -> Batch:
    """Batches of equally many documents, along a leading axis."""
    sizes = [len(batch) for batch in batches]
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    bags = counted([document for batch in batches for document in batch], num_words)
    return Batch(lay_out(bags, parts)[0], jnp.asarray(sizes, jnp.int32))


class TopicGradient(ex.GradientEstimator):
    """The gradient of U from the batch of documents that its state holds.

    With S the batch, D the number of documents and n the topic counts of a document's tokens,
        dU/dtheta_kw = 1 - (beta - 1) / theta_kw
                       - (D / |S|) sum over d in S of E[n_dkw / theta_kw - n_dk / theta_k.],
    where the expectation given words and theta comes from collapsed Gibbs sampling
    (`learn.topics.sweep`). That it is of finite length is a bias, which no covariance accounts for.

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
        if not 0 <= burn_in < sweeps:
            raise ValueError(f"burn_in must lie in [0, {sweeps}), not {burn_in}.")
        # Narrower than in the base, which is sound since modules are frozen.
        self.target = TopicPrior(float(beta))  # pyright: ignore[reportIncompatibleVariableOverride]
        self.alpha = jnp.asarray(float(alpha))
        self.num_documents = jnp.asarray(float(num_documents))
        self.sweeps, self.burn_in = sweeps, burn_in

    def init(self, key: PRNGKeyArray, position: Float[Array, "K W"]) -> None:
        """No batch yet: see `stack`."""
        self.target.check(position)

    def estimate(
        self, key: PRNGKeyArray, state: Batch | None, position: Float[Array, "K W"]
    ) -> tuple[ex.Estimate, Batch]:
        """The gradient at theta.

        Raises:
            ValueError: no batch has been fed.
        """
        if state is None:
            raise ValueError("there is no batch yet; put one into the state's `gradient`.")
        mass = jnp.sum(position, axis=1, keepdims=True)
        counts = self._expected_counts(key, state.tokens, position / mass)
        score = counts / position - jnp.sum(counts, axis=1, keepdims=True) / mass
        scale = (self.num_documents / state.size.astype(jnp.float32)).astype(position.dtype)
        gradient = self.target.gradient(position) - scale * score
        nothing = jnp.asarray(jnp.nan, position.dtype)
        return ex.Estimate(gradient, nothing, evaluations=state.size), state

    def _expected_counts(
        self, key: PRNGKeyArray, tokens: Tokens, phi: Float[Array, "K W"]
    ) -> Float[Array, "K W"]:
        """E[n_kw | words, phi], the mean over the sweeps after the burn-in."""
        alpha = jnp.full(phi.shape[0], self.alpha, phi.dtype)

        def one(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            assigned, sums = carry
            assigned, _ = sweep(jax.random.fold_in(key, i), tokens, assigned, phi, alpha)
            kept = (i >= self.burn_in).astype(phi.dtype)
            return assigned, add_words(sums, tokens, assigned, kept)

        carry = nothing_assigned(tokens, phi.shape[0]), jnp.zeros_like(phi)
        _, sums = jax.lax.fori_loop(0, self.sweeps, one, carry)
        return sums / (self.sweeps - self.burn_in)


class Reflected(ex.Kernel):
    """A kernel whose positions are mirrored at zero, coordinate by coordinate.

    Where a step ends at x < 0 the next begins at |x|, and the momentum of that coordinate, if the
    sampler has one, changes its sign: the motion is mirrored, and a momentum that were kept
    would drive the coordinate back to zero.

    Close to zero the forces of the prior, (beta - 1) / x, are as large as one likes for
    beta < 1. A position below the floor max(1e-10, c h^p) is raised to it, with h the step's.
    """

    kernel: ex.Kernel  # positions of any tree; their momenta, if any, like them
    coefficient: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)  # c >= 0
    power: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1.0)  # p
    # change the sign of the momentum; without it the law is wrong
    flip: bool = eqx.field(static=True, default=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> ex.State:
        """As the kernel does."""
        return self.kernel.init(key, position)

    def step(self, key: PRNGKeyArray, state: ex.State) -> tuple[ex.State, ex.Info]:
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


class PositiveSGRHMC(ex.Kernel):
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

    gradient: ex.GradientEstimator
    step_size: Callable[[Any], Any]  # h, a schedule
    friction: Callable[[Any], Any]  # gamma, a schedule

    def init(self, key: PRNGKeyArray, position: Array) -> ex.State:
        """Draw r ~ N(0, I)."""
        key_momentum, key_gradient = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, position.shape, position.dtype)
        gradient = self.gradient.init(key_gradient, position)
        return ex.State(position, {"momentum": momentum}, gradient, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: ex.State) -> tuple[ex.State, ex.Info]:
        """B, A, O, A."""
        key_gradient, key_noise = jax.random.split(key)
        theta, r = state.position, state.auxiliary["momentum"]
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, theta)
        h = jnp.asarray(self.step_size(state.step)).astype(theta.dtype)
        root = jnp.sqrt(theta)
        r = r - h * (root * estimate.gradient - 0.5 / root)
        theta = theta + 0.5 * h * root * r
        theta, r = jnp.abs(theta), jnp.where(theta < 0, -r, r)
        loss = h * jnp.asarray(self.friction(state.step)).astype(theta.dtype) * theta
        noise = jax.random.normal(key_noise, r.shape, r.dtype)
        r = jnp.exp(-loss) * r + jnp.sqrt(-jnp.expm1(-2.0 * loss)) * noise
        theta = theta + 0.5 * h * jnp.sqrt(theta) * r
        norm = jnp.sqrt(jnp.sum(estimate.gradient**2))
        info = ex.Info(
            h, estimate.potential, norm, jnp.all(jnp.isfinite(theta)), estimate.evaluations,
            kinetic_temperature=jnp.mean(r**2),
        )  # fmt: skip
        return ex.State(theta, {"momentum": r}, gradient, None, state.step + 1), info


def topic_sampler(
    name: str, gradient: ex.GradientEstimator, step_size: Any, friction: Any = 1.0
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
            metric = ex.Metric(_diagonal, divergence=_ones)  # that of Patterson and Teh
            return Reflected(ex.sgrld(gradient, step_size, metric))
        case "sgrhmc":
            h, rate = (schedule(x) for x in (step_size, friction))
            return Reflected(PositiveSGRHMC(gradient, h, rate), 0.25, 2.0)
        case "sgld":
            return Reflected(ex.sgld(gradient, step_size), 0.5**0.5, 0.5)
        case "sghmc":
            return Reflected(ex.splitting("BAOA", gradient, step_size, friction), 1.0, 1.0)
        case _:
            raise ValueError(f"sampler must be one of {SAMPLERS}, not {name!r}.")


def schedule(value: Any) -> Any:
    """A schedule, a number being a constant one."""
    return value if callable(value) else ex.schedule.Constant(value)


def _diagonal(theta: PyTree) -> ex.Diagonal:
    return ex.Diagonal(theta)  # as an array of two axes it would be taken for a matrix


def _ones(theta: PyTree) -> PyTree:
    return jax.tree.map(jnp.ones_like, theta)
