"""Assertions on draws, gated on the effective sample size.

Chains are independent, so the means of the chains give the standard error of the whole run's
mean without any model of the correlation along a chain, and (mean - truth) / error follows
Student's t with chains - 1 degrees of freedom. Each number compared has a false-alarm
probability of `FALSE_ALARM`; the law tests compare fewer than 250 numbers in all, so with a
new key the whole suite raises a false alarm once in 4,000 runs. The key of the suite is
fixed, and was not chosen.
"""

import jax
import numpy as np
from scipy import stats

import ergodax as ex

FALSE_ALARM = 1e-6
LEAST_ESS = 1000


def run(kernel, start, num_steps, key, *, num_chains=128, burn_in=500, thin=1):
    """Draws of many chains from one start, as float64: a tree of (chains, draws, ...)."""
    samples = ex.sample(
        kernel,
        start,
        num_steps,
        key=key,
        num_chains=num_chains,
        burn_in=burn_in,
        thin=thin,
        progress=False,
    )
    return jax.tree.map(lambda x: np.asarray(x, np.float64), samples.position)


def assert_mean(values, expected, resolution: float) -> None:
    """The expectation of `values` is `expected`.

    Args:
        values: shape (chains, draws, ...).
        expected: the exact expectation of the discrete chain.
        resolution: a deviation this large would be seen: the test fails, as too small, where
            it would not.
    """
    values = np.asarray(values, np.float64)
    chains = values.shape[0]
    means = values.mean(axis=1)
    error = means.std(axis=0, ddof=1) / np.sqrt(chains)
    ess = values.var(axis=(0, 1)) / error**2
    allowed = stats.t.isf(0.5 * FALSE_ALARM, chains - 1) * error
    deviation = means.mean(axis=0) - np.asarray(expected)
    assert np.all(np.abs(deviation) <= allowed), (
        f"the law differs: deviation {deviation}, allowed {allowed}"
    )
    assert np.all(ess >= LEAST_ESS), f"too few effective draws: {ess}"
    assert np.all(allowed <= resolution), f"too few draws to see {resolution}: sees {allowed}"


class Watched(ex.Kernel):
    """A kernel whose Info is its auxiliary variables, so that they are kept with the draws."""

    kernel: ex.Kernel

    def init(self, key, position):
        return self.kernel.init(key, position)

    def step(self, key, state):
        state, _ = self.kernel.step(key, state)
        return state, state.auxiliary


def run_watched(kernel, start, num_steps, key, **options):
    """Draws of the position and of the auxiliary variables."""
    options = {"num_chains": 128, "burn_in": 500, **options}
    watched = Watched(kernel)
    samples = ex.sample(watched, start, num_steps, key=key, progress=False, **options)
    return jax.tree.map(lambda x: np.asarray(x, np.float64), (samples.position, samples.info))
