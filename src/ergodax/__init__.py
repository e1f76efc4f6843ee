"""ergodax: stochastic-gradient MCMC from two matrices, in JAX."""

import importlib
from typing import TYPE_CHECKING, Any

from ergodax import data, schedule, tree
from ergodax.cluster import distributed
from ergodax.cluster.meshes import mesh
from ergodax.cluster.processes import ProcessFailed, ProcessLost
from ergodax.driver import Checkpoint, Samples, sample
from ergodax.errors import CheckpointError, DivergenceError, Interrupted, StorageError
from ergodax.gradient import (
    SAGA,
    SVRG,
    ControlVariate,
    Estimate,
    FullGradient,
    GradientEstimator,
    KnownCovariance,
    Minibatch,
    NoisyGradient,
    ScoreCovariance,
    Stratified,
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
    cyclical,
    hmc,
    langevin,
    msgld,
    nogin,
    psgld,
    replica_exchange,
    rmhmc,
    sgfs,
    sghmc,
    sgld,
    sgnht,
    sgrhmc,
    sgrld,
    split_hmc,
)
from ergodax.target import Mode, Posterior, Target, find_mode
from ergodax.target import analytic as targets
from ergodax.tree import normal_like

if TYPE_CHECKING:  # the others are imported when they are first used
    from ergodax import (
        bridge,
        convert,
        diagnostics,
        exact,
        network,
        online,
        postprocess,
        tune,
        verify,
    )
    from ergodax.tune import advise, infer

__version__ = "0.1.0"

__all__ = [
    "SAGA",
    "SVRG",
    "Checkpoint",
    "CheckpointError",
    "Column",
    "ControlVariate",
    "Dense",
    "Diagonal",
    "DivergenceError",
    "Estimate",
    "FullGradient",
    "GradientEstimator",
    "Info",
    "Interrupted",
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
    "ProcessFailed",
    "ProcessLost",
    "Recipe",
    "Samples",
    "Scalar",
    "ScoreCovariance",
    "State",
    "StorageError",
    "Stratified",
    "Target",
    "Thermostat",
    "advise",
    "bridge",
    "ccadl",
    "convert",
    "counterexamples",
    "cyclical",
    "data",
    "diagnostics",
    "distributed",
    "dynamics",
    "euler_maruyama",
    "exact",
    "find_mode",
    "hmc",
    "infer",
    "langevin",
    "mesh",
    "msgld",
    "network",
    "nogin",
    "normal_like",
    "online",
    "postprocess",
    "psgld",
    "replica_exchange",
    "rmhmc",
    "sample",
    "schedule",
    "sgfs",
    "sghmc",
    "sgld",
    "sgnht",
    "sgrhmc",
    "sgrld",
    "split_hmc",
    "splitting",
    "targets",
    "tree",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a part of the library when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("advise", "infer"):
        return getattr(importlib.import_module("ergodax.tune"), name)
    return importlib.import_module(f"ergodax.{name}")
