"""Draws of the latents given draws of the shared parameters, each group on its own.

An independence Metropolis chain for each group and draw: proposals from Student's t about the mode
of the latent's density f, accepted by the ratio of weights w = exp(f) / t. It forgets its start, in
total variation by K steps at the rate (1 - 1 / M)^K, M = max w / mean w. M is estimated from the
proposals, and K doubled until that is small. Where f is quadratic the proposals come from the
normal law of its curvature, and are draws already.

Reference:
    Mengersen and Tweedie, Rates of convergence of the Hastings and Metropolis algorithms, 1996.
"""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.groups.conditional import Conditional, Mask, Normal, solved
from ergodax.groups.layout import Block, Layout
from ergodax.groups.whitened import dtype_of

FREEDOM = 5.0  # of Student's t
FIRST, LAST = 8, 512  # proposals
FORGOTTEN = 1e-3  # total variation from the law of the latent, averaged over draws, that is enough
CELLS = 2**21  # rows x draws that are worked on at once
KEPT = 2**24  # numbers of a piece


class Chain(NamedTuple):
    """An independence Metropolis chain, and the weights of its proposals."""

    b: Float[Array, " d"]
    log_weight: Float[Array, ""]
    largest: Float[Array, ""]  # log
    total: Float[Array, ""]  # log of the sum


def _proposal(key: PRNGKeyArray, law: Normal) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """A draw of Student's t, and the logarithm of its density."""
    key_z, key_v = jax.random.split(key)
    d, dtype = len(law.mean), law.mean.dtype
    z = jax.random.normal(key_z, (d,), dtype)
    v = 2.0 * jax.random.gamma(key_v, 0.5 * FREEDOM, dtype=dtype)
    b = law.at(z * jnp.sqrt(FREEDOM / v))
    return b, student(b, law)


def student(b: Float[Array, " d"], law: Normal) -> Float[Array, ""]:
    """The log density of Student's t about a normal law, up to a constant."""
    z = solved(law.root, b - law.mean)
    return -0.5 * (FREEDOM + len(b)) * jnp.log1p(jnp.sum(z * z) / FREEDOM) - law.log_root


def metropolis(
    key: PRNGKeyArray,
    f: Callable[[Array], Array],
    law: Normal,
    steps: Any,
    start: Float[Array, " d"] | None = None,
) -> Chain:
    """So many steps of the chain, from `start` or from its first proposal."""

    def weighed(key: PRNGKeyArray) -> tuple[Array, Array]:
        b, density = _proposal(key, law)
        log_weight = f(b) - density
        return b, jnp.where(jnp.isfinite(log_weight), log_weight, -jnp.inf)

    def step(number: Any, chain: Chain) -> Chain:
        key_new, key_accept = jax.random.split(jax.random.fold_in(key, number))
        b, new = weighed(key_new)
        uniform = jax.random.uniform(key_accept, (), new.dtype)
        accept = jnp.log(uniform) < new - chain.log_weight
        return Chain(
            jnp.where(accept, b, chain.b),
            jnp.where(accept, new, chain.log_weight),
            jnp.maximum(chain.largest, new),
            jnp.logaddexp(chain.total, new),
        )

    if start is None:
        b, weight = weighed(jax.random.fold_in(key, 0))
        first = Chain(b, weight, weight, weight)
    else:
        none = jnp.full((), -jnp.inf, start.dtype)
        first = Chain(start, f(start) - student(start, law), none, none)
    return lax.fori_loop(1, steps + 1, step, first)


class Draw(eqx.Module):
    """(key, shared, proposals) -> the latents of all groups, and how far each is from its law."""

    density: Conditional
    layout: Layout
    closed_form: bool = eqx.field(static=True)

    def __call__(
        self, key: PRNGKeyArray, shared: PyTree, steps: Any
    ) -> tuple[Float[Array, "groups d"], Float[Array, " groups"]]:
        """For one draw of the shared parameters."""
        keys = jax.random.split(key, self.layout.num_groups)
        parts = [self._of(keys, shared, block, steps) for block in self.layout.blocks]
        b, off = (jnp.concatenate(each)[self.layout.place] for each in zip(*parts, strict=True))
        return b, off

    def _of(self, keys: Array, shared: PyTree, block: Block, steps: Any) -> tuple[Array, Array]:
        one = lambda rows, mask, key: self.one(key, shared, rows, mask, steps)  # noqa: E731
        return block.over(one, keys[block.groups])

    def one(
        self, key: PRNGKeyArray, shared: PyTree, rows: PyTree, mask: Mask, steps: Any
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Of one group; `off` is the total variation that is left."""
        density = self.density
        start = jnp.zeros(density.dimension, dtype_of(shared))
        law = density.mode(shared, rows, mask, start)
        if self.closed_form:
            z = jax.random.normal(key, start.shape, start.dtype)
            return law.at(z), jnp.zeros((), start.dtype)
        chain = metropolis(key, lambda b: density(shared, b, rows, mask), law, steps)
        number = jnp.asarray(steps, start.dtype) + 1.0
        mean = jnp.exp(chain.total - chain.largest) / number  # of the weights, over the largest
        return chain.b, (1.0 - mean) ** number


@eqx.filter_jit
def _piece(
    draw: Draw, keys: Array, shared: PyTree, steps: Any, batch: int
) -> tuple[Float[Array, "draws groups d"], Float[Array, ""]]:
    """Of some draws, and the largest of the groups' average distances."""
    one = lambda each: draw(each[0], tree.thaw(each[1]), steps)  # noqa: E731
    b, off = lax.map(one, (keys, shared), batch_size=batch)
    return b, jnp.max(jnp.mean(off, axis=0))


def latents(
    draw: Draw,
    shared: PyTree,
    key: PRNGKeyArray,
    shape: tuple[int, ...],
    path: Path | None = None,
) -> np.ndarray:
    """Latents for frozen shared parameters with axes of chains and draws, in pieces.

    Returns:
        Shape (chains, draws, groups, ...), in memory or in a .npy file.
    """
    chains, draws = jax.tree.leaves(shared)[0].shape[:2]
    count, groups, d = chains * draws, draw.layout.num_groups, draw.density.dimension
    flat = jax.tree.map(lambda x: np.asarray(x).reshape(count, *x.shape[2:]), shared)
    dtype = np.dtype(tree.result_dtype(shared))
    whole, final = (count, groups, d), (chains, draws, groups, *shape)
    if path is None:
        out = np.empty(whole, dtype)
    else:
        out = np.lib.format.open_memmap(path, "w+", dtype, final).reshape(whole)
    size = max(1, min(count, KEPT // (groups * d)))
    batch = max(1, min(size, CELLS // draw.layout.cells))
    steps = FIRST
    for begin in range(0, count, size):
        numbers = np.minimum(np.arange(begin, begin + size), count - 1)  # the last piece is filled
        part = jax.tree.map(lambda x, n=numbers: jnp.asarray(x[n]), flat)
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(numbers)
        while True:
            b, off = _piece(draw, keys, part, jnp.int32(steps), batch)
            if float(off) < FORGOTTEN or steps >= LAST:
                break
            steps *= 2
        if not float(off) < FORGOTTEN:
            warnings.warn(
                f"some group's latents are only within {float(off):.2g} of their law in total "
                f"variation, after {steps} proposals each: it is far from normal.",
                stacklevel=3,
            )
        out[begin : begin + size] = np.asarray(b)[: count - begin]
    return out.reshape(final)
