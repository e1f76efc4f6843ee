"""Your own training loop: a step under jit, with batches of your own loader, or as optax.

A kernel is `init` and `step`, both pure. `batch=` takes the place of the batch that the gradient
estimator would draw, and is scaled by N / n.

Example: python examples/your_own_loop.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ergodax as ex

rng = np.random.default_rng(0)
rows = rng.normal(1.0, 2.0, size=(5_000, 2)).astype(np.float32)
posterior = ex.Posterior(
    lambda w: -0.5 * jnp.sum(w**2) / 100.0, lambda w, x: -0.5 * jnp.sum((x - w) ** 2) / 4.0, rows
)
kernel = ex.sgld(ex.Minibatch(posterior, 50), step_size=1e-5)


def loader():
    """Batches of 50, in a new order in each epoch."""
    while True:
        yield from np.split(rng.permutation(rows), 100)


step, batches = jax.jit(kernel.step), loader()
state = kernel.init(jnp.zeros(2))
draws = []
for number in range(3_000):
    state, info = step(jax.random.fold_in(jax.random.key(0), number), state, batch=next(batches))
    if number >= 500:
        draws.append(state.position)
print("posterior mean", np.mean(draws, axis=0), "exact", rows.mean(axis=0))
assert np.allclose(np.mean(draws, axis=0), rows.mean(axis=0), atol=0.1)

# The same kernel as an optax transformation, for a loop that has its gradients already.
transformation = ex.bridge.optax(kernel, key=jax.random.key(1))
params = jnp.zeros(2)
transformed = transformation.init(params)


@jax.jit
def train(params, transformed):
    """One step of the loop."""
    update, transformed = transformation.update(posterior.gradient(params), transformed, params)
    return optax.apply_updates(params, update), transformed


for _ in range(1_000):
    params, transformed = train(params, transformed)
print("a draw by optax", params)
