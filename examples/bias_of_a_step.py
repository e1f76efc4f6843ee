"""How wrong a finite step is, exactly: the stationary law of the discrete chain.

`verify.stationary_law` needs no draws. On a Gaussian it solves a Lyapunov equation, elsewhere it
puts the step on a grid. A batch's noise is part of it.

Example: python examples/bias_of_a_step.py
"""

import jax.numpy as jnp

import ergodax as ex

target = ex.targets.gaussian(jnp.zeros(1), 1.0)  # variance 1
exact = ex.FullGradient(target)
noisy = ex.NoisyGradient(target, 5.0)  # a batch whose gradient has variance 5

print("variance of the position; 1 is right\n")
print("   h     SGLD  with noise    BAOAB  with noise    NOGIN")
for h in (0.4, 0.2, 0.1):
    kernels = (
        ex.sgld(exact, h),
        ex.sgld(noisy, h),
        ex.langevin(exact, h, friction=2.0),
        ex.langevin(noisy, h, friction=2.0),
        ex.nogin(noisy, h, 2.0),
    )
    laws = [ex.verify.stationary_law(kernel, jnp.zeros(1)) for kernel in kernels]
    variances = [float(law.cov("position")[0, 0]) for law in laws]
    print(f"{h:5.2f} {variances[0]:8.4f} {variances[1]:11.4f} {variances[2]:8.4f}", end="")
    print(f" {variances[3]:11.4f} {variances[4]:8.4f}")
    assert abs(variances[0] - 1 / (1 - h / 2)) < 1e-5  # the formula for SGLD
    assert abs(variances[4] - 1) < 1e-5  # NOGIN is exact here at every stable step
