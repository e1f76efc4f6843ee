"""A Bayesian network of Equinox: predictions averaged while the chains run.

The predictive keeps a mean and a spread, not the weights, so memory does not grow with the run.

Example: python examples/network.py
"""

import equinox as eqx
import jax
import numpy as np

import ergodax as ex

rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, size=(400, 1)).astype(np.float32)
y = (np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=400)).astype(np.float32)

module = eqx.nn.MLP(1, 1, width_size=30, depth=1, activation=jax.nn.tanh, key=jax.random.key(0))
posterior = ex.network.posterior(module, (x, y), ex.network.likelihoods.Gaussian())
kernel = ex.sgnht(ex.Minibatch(posterior, 50), 2e-3, friction=20.0)

x_new = np.linspace(-4, 4, 81, dtype=np.float32)[:, None]
y_new = np.sin(3 * x_new[:, 0])
predictive = ex.network.predictive(kernel, posterior, x_new, y_new, after=10_000, every=50)
samples = ex.sample(
    predictive, posterior.start, 20_000, thin=20_000, num_chains=4, key=jax.random.key(1)
)
prediction = predictive.results(samples)

sd = np.sqrt(prediction.spread)  # of the mean: what the weights leave open
inside = np.abs(x_new[:, 0]) < 1.8
error = np.sqrt(np.mean((prediction.mean[inside] - y_new[inside]) ** 2))
print(f"{prediction.count} draws; error among the data {error:.3f}; sd of the mean", end=" ")
print(f"{sd[inside].mean():.3f} among them, {sd[[0, -1]].mean():.3f} far from them")
assert sd[[0, -1]].mean() > 3 * sd[inside].mean()
