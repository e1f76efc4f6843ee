"""Hamiltonian Monte Carlo whose length is a number of the data, not of the program."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import Estimate
from ergodax.integrator.hamiltonian import leapfrog, metropolis
from ergodax.kernel import Info, Kernel, State
from ergodax.recipe.operators import Scalar
from ergodax.target.base import AbstractTarget

SHORTEST_STEP = 0.25  # of the step size; drawn anew, so that no trajectory is periodic


class Trajectories(Kernel):
    """HMC with unit mass: `length` leapfrog steps of size h u, log u ~ Uniform(log(1/4), 0).

    State: position x. H = U + |r|^2 / 2. No bias at any step size. The curvature of a singular law
    differs from place to place, and a place too stiff for one step is left by a shorter one.
    The rise of the kinetic energy is summed as (r' - r) (r' + r) / 2, which keeps its digits where
    there are 10^7 of them.
    """

    target: AbstractTarget
    step_size: Float[Array, ""]
    length: Int[Array, ""]

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Evaluate the gradient."""
        potential, gradient = self.target.value_and_gradient(position)
        cost = jnp.int32(self.target.evaluations)
        estimate = Estimate(gradient, potential, evaluations=cost)
        return State(position, {}, None, estimate, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """A fresh momentum, a trajectory, a Metropolis test."""
        key_momentum, key_step, key_accept = jax.random.split(key, 3)
        x, here, mass = state.position, state.estimate, Scalar(jnp.ones(()))
        share = jax.random.uniform(key_step, dtype=self.step_size.dtype)
        h, r = SHORTEST_STEP**share * self.step_size, tree.normal_like(key_momentum, x)
        start = here.potential, here.gradient
        value_and_gradient = self.target.value_and_gradient
        y, s, end = leapfrog(value_and_gradient, x, r, start, mass, h, self.length)
        kinetic = 0.5 * tree.dot(tree.subtract(s, r), tree.add(s, r))
        there = Estimate(end[1], end[0], evaluations=here.evaluations)
        cost = here.evaluations * self.length
        rise = end[0] - start[0] + kinetic
        return metropolis(key_accept, state, (y, there), rise, step_size=h, evaluations=cost)
