"""A run looked at: R-hat, temperature, the bias of its step, a Stein discrepancy.

R-hat and the effective sample size see slow mixing and never a wrong law. The kinetic temperature,
the difference between two step sizes with the same noise, and the kernel Stein discrepancy do.

Example: python examples/is_my_run_right.py
"""

import jax
import jax.numpy as jnp

import ergodax as ex

target = ex.targets.gaussian(jnp.zeros(2), jnp.array([1.0, 4.0]))
noisy = ex.NoisyGradient(target, 3.0)  # the noise of a batch
run = {"num_chains": 4, "burn_in": 1_000, "thin": 5}


def sghmc(step_size):
    """Its noise is not compensated, so the chain is too hot."""
    return ex.sghmc(noisy, step_size, friction=1.0)


samples = ex.sample(sghmc(0.3), jnp.zeros(2), 50_000, key=jax.random.key(0), **run)
summary = samples.summary()
print(summary, "\n")
assert summary["r_hat"].max() < 1.01  # as good as it gets, and the sds are wrong

temperature = ex.diagnostics.temperature(samples, target, key=jax.random.key(1))
print(temperature, "\n")

bias = ex.diagnostics.bias(
    sghmc, jnp.zeros(2), 0.3, 50_000, key=jax.random.key(2), function=jnp.square, **run
)
print("second moments; 1 and 4 are right")
print(bias.table[["estimate", "bias", "bias_error", "extrapolated"]], "\n")
assert (bias.table["bias"] > 5 * bias.table["bias_error"]).all()

stein = ex.diagnostics.kernel_stein_discrepancy(samples, target, key=jax.random.key(3))
print(stein)
assert stein.p_value < 0.01

right = ex.sample(ex.nogin(noisy, 0.3, 1.0), jnp.zeros(2), 50_000, key=jax.random.key(4), **run)
print("variances with NOGIN, which takes the noise into account:", right.position.var((0, 1)))
