"""ergodax: stochastic-gradient MCMC from two matrices, in JAX."""

from ergodax import interrupts as interrupts  # first, since the rest takes seconds

# isort: split

import importlib
from typing import TYPE_CHECKING, Any

from ergodax import data, schedule, transform, tree
from ergodax.cluster import distributed
from ergodax.cluster.meshes import mesh
from ergodax.cluster.processes import ProcessFailed, ProcessLost
from ergodax.driver import Checkpoint, Samples, sample
from ergodax.errors import (
    CallbackError,
    CheckpointError,
    DivergenceError,
    Interrupted,
    StorageError,
)
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
from ergodax.references import cite
from ergodax.sampler import (
    barker,
    ccadl,
    constant_sgd,
    counterexamples,
    cyclical,
    hmc,
    langevin,
    lattice_random_walk,
    microcanonical,
    msgld,
    nogin,
    psgld,
    replica_exchange,
    rmhmc,
    sa_sgld,
    samadams,
    scir,
    sgfs,
    sghmc,
    sgld,
    sgnht,
    sgrhmc,
    sgrld,
    shampoo_sgld,
    sms_ubu,
    split_hmc,
    time_rescaled,
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
        groups,
        local,
        network,
        online,
        postprocess,
        replicas,
        tune,
        verify,
    )
    from ergodax.tune import advise, infer

__version__ = "0.2.0"

__all__ = [
    # what is sampled, and from which data
    "Target", "Posterior", "targets", "Mode", "find_mode", "data", "transform", "tree",
    "normal_like", "groups",
    # its gradient
    "GradientEstimator", "Estimate", "FullGradient", "Minibatch", "ControlVariate", "SVRG", "SAGA",
    "NoisyGradient", "KnownCovariance", "ScoreCovariance", "Stratified",
    # the recipe and its integrators
    "Recipe", "dynamics", "Operator", "Scalar", "Diagonal", "Dense", "LowRank", "Column", "Metric",
    "PotentialMetric", "Thermostat", "euler_maruyama", "splitting", "schedule",
    # samplers
    "Kernel", "State", "Info", "sgld", "psgld", "sgfs", "sgrld", "sghmc", "langevin", "sgnht",
    "sgrhmc", "sms_ubu", "nogin", "msgld", "ccadl", "hmc", "rmhmc", "split_hmc", "sa_sgld",
    "samadams", "time_rescaled", "barker", "lattice_random_walk", "scir", "microcanonical",
    "constant_sgd", "shampoo_sgld", "cyclical", "replica_exchange", "counterexamples", "exact",
    "network", "bridge", "convert",
    # running them, and what is made of the draws
    "sample", "Samples", "Checkpoint", "infer", "advise", "tune", "mesh", "distributed", "online",
    "diagnostics", "postprocess", "verify", "local", "replicas", "cite",
    # errors
    "DivergenceError", "Interrupted", "StorageError", "CheckpointError", "CallbackError",
    "ProcessFailed", "ProcessLost",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a part of the library when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("advise", "infer"):
        return getattr(importlib.import_module("ergodax.tune"), name)
    return importlib.import_module(f"ergodax.{name}")
