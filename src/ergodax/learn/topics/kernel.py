"""Topics of a corpus, a block of documents a step, with the law of all of them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ergodax.kernel import Info, Kernel, State
from ergodax.learn.topics.gibbs import add_words, nothing_assigned, sweep
from ergodax.learn.topics.layout import Tokens
from ergodax.random_numbers import log_gamma


class TopicGibbs(Kernel):
    """Gibbs sampling of topics that visits a block of documents a step.

    State: phi, each topic's distribution over words; auxiliary {"assigned": z, the topic of each
    token of the corpus, "counts": n_kw, how many tokens of topic k are the word w}. With b the
    block whose turn it is, and the documents' weights integrated out, the update is
        z_b  <- a sweep of Gibbs sampling of p(z_b | words, phi), see `gibbs.sweep`
        n_kw <- n_kw - counts of the old z_b + counts of the new
        phi_k ~ Dirichlet(beta + n_k), every `draw_every`-th step.
    Both are draws of conditional laws of the posterior p(phi, z | words, alpha, beta), which is so
    the stationary law, without a step size. As in SAGA what is known of the documents that are not
    in the batch is kept, which takes an integer a token.

    A token that has not been visited counts for nothing: the first pass learns as documents come.
    While `searching`, phi is its conditional expectation, (beta + n_kw) / (W beta + n_k), after
    every step. That is stochastic EM: nearer to the mode in fewer passes, but no draw.

    Reference:
        Griffiths and Steyvers, Finding scientific topics, 2004, for the Gibbs sampler; Celeux and
        Diebolt, The SEM algorithm, 1985, for the search.
    """

    tokens: Tokens  # in blocks
    alpha: Float[Array, " K"] = eqx.field(converter=jnp.asarray)  # of the documents' weights
    beta: Float[Array, ""] = eqx.field(converter=jnp.asarray)  # of the topics' words
    draw_every: int = eqx.field(static=True, default=1)
    searching: Bool[Array, ""] = eqx.field(converter=jnp.asarray, default=False)

    def init(self, key: PRNGKeyArray, position: Float[Array, "K W"]) -> State:
        """No token has a topic yet."""
        assigned = nothing_assigned(self.tokens, position.shape[0])
        auxiliary = {"assigned": assigned, "counts": jnp.zeros(position.shape, jnp.int32)}
        return State(position, auxiliary, None, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Visit the next block."""
        key_sweep, key_phi = jax.random.split(key)
        phi, alpha = state.position, self.alpha.astype(state.position.dtype)
        number = state.step % self.tokens.words.shape[0]
        block = jax.tree.map(lambda x: x[number], self.tokens)
        # Read at once: were it read again later, XLA would copy the topics of all tokens first.
        before = jax.lax.optimization_barrier(state.auxiliary["assigned"][number])
        after, _ = sweep(key_sweep, block, before, phi, alpha)
        counts = add_words(state.auxiliary["counts"], block, before, -1)
        counts = add_words(counts, block, after, 1)
        pseudo = counts.astype(phi.dtype) + self.beta.astype(phi.dtype)
        due = (state.step + 1) % self.draw_every == 0
        way = jnp.where(self.searching, 0, 2 - due.astype(jnp.int32))
        phi = jax.lax.switch(
            way,
            (
                lambda: pseudo / jnp.sum(pseudo, axis=1, keepdims=True),
                lambda: dirichlet(key_phi, pseudo),
                lambda: phi,
            ),
        )
        assigned = state.auxiliary["assigned"].at[number].set(after)
        auxiliary = {"assigned": assigned, "counts": counts}
        new = dataclasses.replace(state, position=phi, auxiliary=auxiliary, step=state.step + 1)
        nothing = jnp.asarray(jnp.nan, phi.dtype)
        finite = jnp.all(jnp.isfinite(phi))
        return new, Info(
            nothing,
            nothing,
            nothing,
            finite,
            jnp.int32(block.words.shape[-1] * (block.starts.shape[-1] - 1)),
        )


@jax.jit
def dirichlet(key: PRNGKeyArray, concentration: Float[Array, "K W"]) -> Float[Array, "K W"]:
    """A row of each Dirichlet law, by Gamma numbers in logarithms: most are less than any float."""
    return jax.nn.softmax(log_gamma(key, concentration), axis=1)
