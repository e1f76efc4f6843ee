"""Two modes with a barrier between them: a plain chain, and replicas at temperatures.

A plain chain stays where it began, and its R-hat is good. `replica_exchange` finds both modes, with
the right weights: hot replicas cross the barrier, and exchange places with cooler ones.

Example: python examples/several_modes.py
"""

import jax
import jax.numpy as jnp

import ergodax as ex

target = ex.targets.mixture([[-3.0], [3.0]], 0.25, [0.3, 0.7])
gradient = ex.FullGradient(target)
run = {"num_chains": 8, "key": jax.random.key(0)}


def share(positions):
    """Of the draws, how many are in the right-hand mode: 0.7 is right."""
    return float((positions > 0).mean())


plain = ex.sample(ex.sgld(gradient, 0.05), -3.0 * jnp.ones(1), 20_000, thin=10, **run)
print("plain SGLD, begun on the left:", share(plain.position))
assert share(plain.position) < 0.01

replicas = ex.replica_exchange(ex.sgld, gradient, 0.05, temperatures=(1.0, 3.0, 9.0, 27.0))
exchanged = ex.sample(replicas, -3.0 * jnp.ones(1), 60_000, thin=10, burn_in=5_000, **run)
print("replicas:", share(exchanged.position))
assert abs(share(exchanged.position) - 0.7) < 0.06
