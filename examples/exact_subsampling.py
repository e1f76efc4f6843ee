"""The posterior itself from subsets of the rows: firefly and TunaMH, without bias at any step.

Each step looks at some of the rows, and its Metropolis test is right all the same.

Example: python examples/exact_subsampling.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

rng = np.random.default_rng(0)
X = rng.normal(size=(5_000, 2)).astype(np.float32)
y = (rng.uniform(size=5_000) < 1 / (1 + np.exp(-X @ [1.0, -1.0]))).astype(np.float32)


def log_prior(w):
    """N(0, 1) for each coefficient."""
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w, example):
    """Of one row."""
    x, label = example
    return label * (x @ w) - jax.nn.softplus(x @ w)


posterior = ex.Posterior(log_prior, log_likelihood, (X, y))
mode = ex.find_mode(posterior, jnp.zeros(2))
hessian = jax.hessian(posterior.potential)(mode.position)
bound = ex.exact.LogisticBound(X, y, centre=mode)
kernels = {
    "HMC, all rows": ex.hmc(posterior, 0.03, num_leapfrog_steps=5),
    "firefly": ex.exact.firefly(posterior, 1.2, bound, mass=hessian),
    "TunaMH": ex.exact.tuna(
        posterior, 0.4, np.linalg.norm(X, axis=1), covariance=np.linalg.inv(hessian), chi=0.01
    ),
}
sds = {}
for name, kernel in kernels.items():
    samples = ex.sample(
        kernel, mode.position, 5_000, burn_in=500, num_chains=4, key=jax.random.key(0)
    )
    sds[name] = samples.position.std((0, 1))
    rows = samples.info.evaluations.mean()
    ess = samples.summary()["ess"].min() / samples.num_draws / samples.num_chains
    print(f"{name:14s} sd {sds[name].round(4)}  {rows:7.0f} rows a step, {ess:.2f} ess a step")
for name in ("firefly", "TunaMH"):
    assert np.allclose(sds[name], sds["HMC, all rows"], rtol=0.2)
