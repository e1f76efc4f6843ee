"""Second-order Taylor polynomials of the log-likelihoods, which stand in for most of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.exact.proposal import centre_of
from ergodax.target.posterior import Posterior


class TaylorProxy(eqx.Module):
    """The change of each example's log-likelihood, to second order about a centre.

    From x to x', with u = x' - x and w = x' + x - 2 centre:
        xi_i = g_i . u + u^T H_i w / 2
    The sums of g_i and H_i are found once, by d + 1 passes over the data; then the sum of all
    proxies costs O(d^2), and the polynomial of a row about as much as its log-likelihood.

    Args:
        posterior: the model.
        centre: a position or ex.Mode, best the posterior's mode.
    """

    posterior: Posterior
    centre: Float[Array, " d"]
    slope: Float[Array, " d"]
    curvature: Float[Array, "d d"]

    def __init__(self, posterior: Posterior, centre: Any) -> None:
        about = centre_of(centre)
        posterior.check(about)
        self.posterior, self.centre = posterior, tree.ravel(about)[0]
        self.slope, self.curvature = _derivatives(posterior, about)

    def total(self, position: PyTree, proposal: PyTree) -> Float[Array, ""]:
        """The sum of all rows' proxies."""
        u, w = (tree.ravel(x)[0] for x in self._directions(position, proposal))
        slope, curvature = (x.astype(u.dtype) for x in (self.slope, self.curvature))
        return slope @ u + 0.5 * u @ (curvature @ w)

    def rows(self, position: PyTree, proposal: PyTree, batch: PyTree) -> Float[Array, " n"]:
        """The proxies of the rows of a batch."""
        u, w = self._directions(position, proposal)

        def slope(centre: PyTree) -> Array:
            return jax.jvp(lambda x: self.posterior.log_likelihoods(x, batch), (centre,), (u,))[1]

        first, second = jax.jvp(slope, (self.centre_like(position),), (w,))
        return first + 0.5 * second

    def centre_like(self, position: PyTree) -> PyTree:
        """The centre in the structure of a position."""
        flat, unravel = tree.ravel(position)
        return unravel(self.centre.astype(flat.dtype))

    def _directions(self, position: PyTree, proposal: PyTree) -> tuple[PyTree, PyTree]:
        centre = self.centre_like(position)
        from_centre = (tree.subtract(x, centre) for x in (position, proposal))
        return tree.subtract(proposal, position), tree.add(*from_centre)


@eqx.filter_jit
def _derivatives(posterior: Posterior, centre: PyTree) -> tuple[Array, Array]:
    flat, unravel = tree.ravel(centre)

    def total(x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum(posterior.log_likelihoods(unravel(x), posterior.data))

    slope = jax.grad(total)
    # One column after the other: all at once would take d times the memory of a pass.
    basis = jnp.eye(flat.size, dtype=flat.dtype)
    return slope(flat), jax.lax.map(lambda e: jax.jvp(slope, (flat,), (e,))[1], basis)
