"""A kernel of your own: two methods, and the library runs, checks and stores it.

Here a Barker proposal for the exact posterior: each coordinate moves towards the side that the
gradient favours, and a Metropolis test makes it exact.

Example: python examples/your_own_kernel.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import ergodax as ex


class BarkerState(eqx.Module):
    """A position is all that it needs."""

    position: jax.Array


class Barker(ex.Kernel):
    """x' = x + b z, z ~ N(0, h^2), b = +1 with probability 1 / (1 + exp(z dU/dx)), else -1."""

    target: ex.Target
    step_size: float

    def init(self, key, position):
        """The first state."""
        return BarkerState(position)

    def step(self, key, state):
        """Propose, and accept with the probability that leaves exp(-U) invariant."""
        key_size, key_side, key_test = jax.random.split(key, 3)
        x = state.position
        size = self.step_size * jax.random.normal(key_size, x.shape)
        favoured = jax.nn.sigmoid(-size * self.target.gradient(x))
        move = jnp.where(jax.random.uniform(key_side, x.shape) < favoured, size, -size)
        proposal = x + move
        forward = jax.nn.log_sigmoid(-move * self.target.gradient(x)).sum()
        back = jax.nn.log_sigmoid(move * self.target.gradient(proposal)).sum()
        energy = self.target.potential(proposal) - self.target.potential(x)
        acceptance = jnp.exp(jnp.minimum(0.0, back - forward - energy))
        accepted = jax.random.uniform(key_test) < acceptance
        new = jnp.where(accepted, proposal, x)
        return BarkerState(new), {"acceptance": acceptance}


target = ex.targets.banana()
samples = ex.sample(
    Barker(target, 1.5), jnp.zeros(2), 40_000, thin=2, burn_in=1_000, num_chains=4,
    key=jax.random.key(0),
)  # fmt: skip
print(samples.summary())
print("acceptance", samples.info["acceptance"].mean(), "exact means", target.mean)
assert jnp.allclose(samples.position.mean((0, 1)), target.mean, atol=0.15)
