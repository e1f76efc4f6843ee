"""ergodax: stochastic-gradient MCMC from two matrices, in JAX."""

from ergodax import data, diagnostics, schedule, tree, verify
from ergodax.driver import Samples, sample
from ergodax.errors import DivergenceError
from ergodax.gradient import (
    Estimate,
    FullGradient,
    GradientEstimator,
    KnownCovariance,
    Minibatch,
    NoisyGradient,
    ScoreCovariance,
)
from ergodax.integrator import Thermostat, euler_maruyama, splitting
from ergodax.kernel import Info, Kernel, State
from ergodax.recipe import (
    Column,
    Dense,
    Diagonal,
    LowRank,
    Metric,
    Operator,
    PotentialMetric,
    Recipe,
    Scalar,
    dynamics,
)
from ergodax.sampler import (
    ccadl,
    counterexamples,
    hmc,
    langevin,
    msgld,
    nogin,
    psgld,
    rmhmc,
    sgfs,
    sghmc,
    sgld,
    sgnht,
    sgrhmc,
    sgrld,
)
from ergodax.target import Mode, Posterior, Target, find_mode
from ergodax.target import analytic as targets
from ergodax.tree import normal_like

__version__ = "0.1.0"

__all__ = [
    "Column",
    "Dense",
    "Diagonal",
    "DivergenceError",
    "Estimate",
    "FullGradient",
    "GradientEstimator",
    "Info",
    "Kernel",
    "KnownCovariance",
    "LowRank",
    "Metric",
    "Minibatch",
    "Mode",
    "NoisyGradient",
    "Operator",
    "Posterior",
    "PotentialMetric",
    "Recipe",
    "Samples",
    "Scalar",
    "ScoreCovariance",
    "State",
    "Target",
    "Thermostat",
    "ccadl",
    "counterexamples",
    "data",
    "diagnostics",
    "dynamics",
    "euler_maruyama",
    "find_mode",
    "hmc",
    "langevin",
    "msgld",
    "nogin",
    "normal_like",
    "psgld",
    "rmhmc",
    "sample",
    "schedule",
    "sgfs",
    "sghmc",
    "sgld",
    "sgnht",
    "sgrhmc",
    "sgrld",
    "splitting",
    "targets",
    "tree",
    "verify",
]
