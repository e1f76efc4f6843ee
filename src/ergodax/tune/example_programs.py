"""The programs that `advise` hands out: a model to be replaced, and a few lines that sample it."""

IMPORTS = """\
import jax
import jax.numpy as jnp

import ergodax as ex

"""

REGRESSION = f"""{IMPORTS}\
# Your model in place of this one: data, log-prior, log-likelihood of one example, a start.
x = jax.random.normal(jax.random.key(1), (5_000, 3))
y = (jax.random.uniform(jax.random.key(2), (5_000,)) < jax.nn.sigmoid(x[:, 0])).astype(jnp.float32)


def log_prior(w):
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w, example):
    features, label = example
    score = features @ w
    return label * score - jax.nn.softplus(score)


posterior = ex.Posterior(log_prior, log_likelihood, (x, y))
init = jnp.zeros(3)
"""

NO_DATA = f"""{IMPORTS}\
# Your potential, minus the log-density, and a start in place of these.
posterior = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
init = jnp.zeros(3)
"""

MIXTURE = f"""{IMPORTS}\
# Your model in place of this one, whose posterior has modes near -1 and 1.
data = 1.0 + jax.random.normal(jax.random.key(1), (5_000,))


def log_prior(x):
    return -0.5 * jnp.sum(x**2)


def log_likelihood(x, example):
    return -0.5e-3 * jnp.sum((example - x**2) ** 2)


posterior = ex.Posterior(log_prior, log_likelihood, data)
init = jnp.ones(1)
"""

WELLS = f"""{IMPORTS}\
# Your potential in place of this one, whose modes are at -1 and 1.
posterior = ex.Target(lambda x: jnp.sum(2.0 * (x**2 - 1.0) ** 2))
init = jnp.ones(1)
"""

NETWORK = f"""\
import equinox as eqx
{IMPORTS}\
# Your network and data in place of these.
x = jax.random.normal(jax.random.key(1), (1_000, 2))
y = (x[:, 0] * x[:, 1] > 0).astype(jnp.float32)
init = eqx.nn.MLP(2, "scalar", 8, 1, key=jax.random.key(2))


def log_prior(net):
    weights = jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array))
    return -0.5 * sum(jnp.sum(w**2) for w in weights)


def log_likelihood(net, example):
    features, label = example
    score = net(features)
    return label * score - jax.nn.softplus(score)


posterior = ex.Posterior(log_prior, log_likelihood, (x, y))
kernel = ex.cyclical(ex.sghmc, ex.Minibatch(posterior, 100), 0.02, period=2_000, friction=5.0)
samples = ex.sample(
    kernel, init, 10_000, key=jax.random.key(0), num_chains=2, thin=10, progress=False
)
draws = samples.sampling_stage()
"""


def inference(total: int) -> str:
    """`infer`, on a target without data if there are none."""
    return f"""{REGRESSION if total else NO_DATA}
result = ex.infer(posterior, init, key=jax.random.key(0))
print(result)
"""


def full() -> str:
    """HMC with full gradients in whitened coordinates."""
    return f"""{REGRESSION}
mode = ex.find_mode(posterior, init).position
mass = jax.hessian(posterior.potential)(mode)
kernel = ex.hmc(ex.FullGradient(posterior), 0.3, num_leapfrog_steps=5, mass=mass)
{_sampled("mode", 500, 100)}"""


def tempered(total: int, small: int) -> str:
    """Replica exchange on a model with two modes, by the number of examples."""
    gradient = "ex.FullGradient(posterior)" if total <= small else "ex.Minibatch(posterior, 100)"
    return f"""{MIXTURE if total else WELLS}
kernel = ex.replica_exchange(
    ex.sghmc, {gradient}, 0.05, friction=2.0, temperatures=(1.0, 2.0, 4.0, 8.0)
)
{_sampled("init", 20_000, 1_000, 10)}\
print("swap rates:", samples.final_state.auxiliary["swap_rate"])
"""


def exact() -> str:
    """Firefly with bounds that touch at the mode."""
    return f"""{REGRESSION}
mode = ex.find_mode(posterior, init).position
mass = jax.hessian(posterior.potential)(mode)
bound = ex.exact.LogisticBound(x, y, centre=mode)
kernel = ex.exact.firefly(posterior, 1.0, bound, mass=mass)
{_sampled("mode", 5_000, 500)}"""


def moving() -> str:
    """SGHMC on SVRG's gradients."""
    return f"""{REGRESSION}
n = 100
gradient = ex.SVRG(posterior, n, period=posterior.num_data // n)
mode = ex.find_mode(posterior, init).position
# Step size: about a tenth of the posterior's least sd.
kernel = ex.sghmc(gradient, 0.004, friction=20.0)
{_sampled("mode", 10_000, 1_000, 10)}"""


def preconditioned() -> str:
    """Adaptively preconditioned Langevin dynamics."""
    return f"""{REGRESSION}
mode = ex.find_mode(posterior, init).position
# Halve the step until the sds no longer fall: the batches' noise inflates them.
kernel = ex.psgld(ex.Minibatch(posterior, 1_000), 2e-7, adaptation_steps=2_000)
{_sampled("mode", 5_000, 2_000, 10)}"""


def _sampled(start: str, num_steps: int, burn_in: int, thin: int = 1) -> str:
    """The lines that sample a `kernel`."""
    return f"""\
samples = ex.sample(
    kernel,
    {start},
    {num_steps:_},
    key=jax.random.key(0),
    num_chains=4,
    burn_in={burn_in:_},
    thin={thin},
    progress=False,
)
print(samples.summary())
"""
