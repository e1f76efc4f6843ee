"""What builds a sampler: targets, estimators, recipes, samplers, schedules, networks."""

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.network import likelihoods, priors
from property.calls.subjects import (
    KEY,
    MATRIX,
    RARELY,
    SELDOM,
    START,
    Linear,
    Subject,
    X,
    Y,
    energy,
    square,
    things,
)  # fmt: skip


def builders() -> dict[str, Subject]:
    """All of them by name."""
    found = {}
    for part in (
        _targets, _estimators, _recipes, _samplers, _more_samplers, _schedules_and_exact, _networks,
    ):  # fmt: skip
        found |= part()
    return found


def _targets() -> dict[str, Subject]:
    t = things()
    posterior = {
        "log_prior": lambda w: 0.0, "log_likelihood": lambda w, e: -jnp.sum((e - w) ** 2),
        "data": X, "batched": False,
    }  # fmt: skip
    mixture = {"means": np.eye(2), "covariances": np.stack([np.eye(2)] * 2), "weights": [0.5, 0.5]}
    return {
        "Target": Subject(ex.Target, {"potential": energy}),
        "Posterior": Subject(ex.Posterior, posterior, 3),
        "find_mode": Subject(
            ex.find_mode,
            {"target": t["target"], "position": START, "max_iterations": 3, "tolerance": 1e-3,
             "optimiser": None, "gradient": None, "steps": 2, "key": None},
            SELDOM,
        ),
        "normal_like": Subject(ex.normal_like, {"key": KEY, "tree": START}, 0.2),
        "targets.double_well": Subject(
            ex.targets.double_well, {"height": 1.0, "minimum": 1.0, "dimension": 2}, 0.5
        ),
        "targets.funnel": Subject(ex.targets.funnel, {"dimension": 2, "scale": 3.0}),
        "targets.gaussian": Subject(
            ex.targets.gaussian, {"mean": np.zeros(2), "covariance": np.eye(2)}, 2
        ),
        "targets.mixture": Subject(ex.targets.mixture, mixture, 2),
    }  # fmt: skip


def _estimators() -> dict[str, Subject]:
    t = things()
    common = {"posterior": t["posterior"], "batch_size": 2, "replace": False, "batching": None}
    return {
        "FullGradient": Subject(ex.FullGradient, {"target": t["target"]}),
        "Minibatch": Subject(ex.Minibatch, common, 3),
        "ControlVariate": Subject(
            ex.ControlVariate, common | {"centre": START, "order": 1}, SELDOM * 4
        ),
        "SVRG": Subject(ex.SVRG, common | {"period": 3, "chunk": 4}, 2),
        "SAGA": Subject(ex.SAGA, common | {"max_bytes": 2**20}, 2),
        "NoisyGradient": Subject(ex.NoisyGradient, {"target": t["target"], "covariance": 0.1}),
        "KnownCovariance": Subject(ex.KnownCovariance, {"gradient": t["full"], "covariance": 0.1}),
        "ScoreCovariance": Subject(
            ex.ScoreCovariance,
            {"gradient": t["batch"], "structure": "low rank", "rows": "batch", "average": None,
             "refresh": 1, "chunk": 4},
            2,
        ),
        "Stratified": Subject(ex.Stratified, {"gradient": t["batch"], "shards": 2}),
    }  # fmt: skip


def _recipes() -> dict[str, Subject]:
    d = ex.dynamics
    metric = {"metric": square}
    return {
        "Scalar": Subject(ex.Scalar, {"value": 2.0}),
        "Diagonal": Subject(ex.Diagonal, {"values": jnp.ones(2)}),
        "Dense": Subject(ex.Dense, {"matrix": MATRIX}),
        "LowRank": Subject(ex.LowRank, {"factor": jnp.ones((1, 2)), "base": 1.0}),
        "Column": Subject(ex.Column, {"values": jnp.ones(2), "row": False}),
        "Metric": Subject(ex.Metric, {"function": square, "divergence": None}),
        "PotentialMetric": Subject(ex.PotentialMetric, {"function": square, "potential": None}),
        "Thermostat": Subject(ex.Thermostat, {"mass": 1.0, "per_coordinate": False}),
        "Recipe": Subject(ex.Recipe, {"diffusion": lambda z: {"position": ex.Scalar(1.0)}}),
        "dynamics.langevin": Subject(d.langevin, {"preconditioner": 1.0}),
        "dynamics.irreversible": Subject(
            d.irreversible_langevin,
            {"rotation": np.array([[0.0, 1.0], [-1.0, 0.0]]), "preconditioner": 1.0},
        ),
        "dynamics.hamiltonian": Subject(d.hamiltonian, {"mass": 1.0}),
        "dynamics.underdamped": Subject(d.underdamped, {"friction": 1.0, "mass": 1.0}),
        "dynamics.nose_hoover": Subject(
            d.nose_hoover,
            {"friction": 1.0, "mass": 1.0, "thermal_mass": 1.0, "per_coordinate": False},
        ),
        "dynamics.riemannian_langevin": Subject(d.riemannian_langevin, metric),
        "dynamics.riemannian_underdamped": Subject(
            d.riemannian_underdamped, metric | {"friction": 1.0}
        ),
        "dynamics.riemannian_hamiltonian": Subject(
            d.riemannian_hamiltonian, metric | {"friction": 0.0, "temperature": 1.0}
        ),
        "dynamics.without_correction": Subject(d.without_correction, {"recipe": d.langevin()}),
    }


def _samplers() -> dict[str, Subject]:
    t = things()
    one = {"gradient": t["full"], "step_size": 0.1, "temperature": 1.0}
    compensated = {"compensate": False, "clip": False}
    heavy = one | {"friction": 1.0, "mass": 1.0}
    return {
        "euler_maruyama": Subject(
            ex.euler_maruyama,
            one | compensated
            | {"recipe": ex.dynamics.langevin(), "semi_implicit": False, "resample_every": 3},
        ),
        "splitting": Subject(ex.splitting, heavy | {"scheme": "BAOAB", "thermostat": None}, 2),
        "sgld": Subject(ex.sgld, one | compensated | {"preconditioner": 1.0}, 3),
        "psgld": Subject(
            ex.psgld,
            one | {"decay": 0.9, "damping": 1e-3, "correction": True, "adaptation_steps": 5}, 2,
        ),
        "sgfs": Subject(
            ex.sgfs, one | {"gradient": t["batch"], "preconditioner": 1.0, "structure": "dense"}
        ),
        "sgrld": Subject(ex.sgrld, one | compensated | {"metric": square}),
        "sghmc": Subject(
            ex.sghmc, heavy | compensated | {"scheme": "semi-implicit", "resample_every": None}, 3
        ),
        "langevin": Subject(ex.langevin, heavy | {"scheme": "BAOAB"}, 3),
        "sgnht": Subject(
            ex.sgnht,
            heavy | {"thermal_mass": None, "per_coordinate": False, "scheme": "BADODAB"}, 2,
        ),
    }  # fmt: skip


def _more_samplers() -> dict[str, Subject]:
    t = things()
    one = {"gradient": t["full"], "step_size": 0.1, "temperature": 1.0}
    heavy = one | {"friction": 1.0, "mass": 1.0}
    both = {"slow": t["target"], "fast": t["target"], "step_size": 0.1, "temperature": 1.0}
    composed = {"sampler": ex.sgld} | one
    del composed["temperature"]
    exact = {"num_leapfrog_steps": 2}
    compensated = {"compensate": False, "clip": False}
    score = ex.ScoreCovariance(t["batch"])
    return {
        "sgrhmc": Subject(
            ex.sgrhmc,
            one | compensated | {"metric": square, "friction": 1.0, "scheme": "semi-implicit"},
        ),
        "nogin": Subject(ex.nogin, heavy),
        "msgld": Subject(ex.msgld, one | {"gradient": t["batch"], "form": "linear"}),
        "ccadl": Subject(
            ex.ccadl, heavy | {"gradient": score, "thermal_mass": None, "scheme": "euler"}, 2
        ),
        "hmc": Subject(ex.hmc, one | exact | {"mass": 1.0}, 2),
        "rmhmc": Subject(
            ex.rmhmc,
            one | exact | {"metric": square, "tolerance": None, "max_iterations": 10},
        ),
        "split_hmc": Subject(ex.split_hmc, both | exact | {"num_inner_steps": 2, "mass": 1.0}),
        "cyclical": Subject(
            ex.cyclical,
            composed | {"period": 4, "exploration": 0.5, "temperature": 1.0, "resample": False},
        ),
        "replica_exchange": Subject(
            ex.replica_exchange,
            composed | {"temperatures": (1.0, 2.0), "swap_every": 2, "correction": True,
                        "swap_batch_size": None},
        ),
        "naive_sghmc": Subject(
            ex.counterexamples.naive_sghmc, one | {"mass": 1.0, "resample_every": 2}
        ),
        "naive_sgrhmc": Subject(
            ex.counterexamples.naive_sgrhmc, one | {"metric": square, "friction": 1.0}
        ),
    }  # fmt: skip


def _schedules_and_exact() -> dict[str, Subject]:
    t, s = things(), ex.schedule
    step = {"posterior": t["posterior"], "step_size": 0.1, "covariance": 1.0, "batch_size": 2}
    return {
        "schedule.Constant": Subject(s.Constant, {"value": 0.1}),
        "schedule.Cyclical": Subject(s.Cyclical, {"initial": 0.1, "period": 4}),
        "schedule.Phases": Subject(s.Phases, {"phases": [(3, 0.1), (None, 0.2)]}),
        "schedule.Polynomial": Subject(
            s.Polynomial, {"initial": 0.1, "offset": 10.0, "power": 0.5}
        ),
        "online.Moments": Subject(ex.online.Moments, {"batches": 8}),
        "online.Quantiles": Subject(ex.online.Quantiles, {"probabilities": (0.1, 0.9)}),
        "online.accumulate": Subject(
            ex.online.accumulate,
            {"kernel": t["kernel"], "after": 0, "every": 1, "function": None,
             "moments": ex.online.Moments(8)},
        ),
        "exact.AliasTable": Subject(ex.exact.AliasTable, {"weights": np.ones(3)}),
        "exact.LogisticBound": Subject(
            ex.exact.LogisticBound,
            {"features": X, "labels": 2 * Y - 1, "centre": None, "tangent": 1.5}, SELDOM * 4,
        ),
        "exact.LogisticRange": Subject(ex.exact.LogisticRange, {"features": X}),
        "exact.austerity": Subject(ex.exact.austerity, step | {"epsilon": 0.05, "growth": 1.5}),
        "exact.confidence": Subject(
            ex.exact.confidence,
            step | {"bound": lambda a, b: 1.0, "delta": 0.1, "centre": None,
                    "inequality": "serfling", "growth": 2.0},
        ),
        "exact.delayed_acceptance": Subject(
            ex.exact.delayed_acceptance,
            {"target": t["target"], "surrogate": t["target"], "inner": t["kernel"],
             "num_inner_steps": 1},
        ),
        "exact.condense": Subject(
            ex.exact.condense,
            {"posterior": t["posterior"], "centre": START, "draws": np.zeros((4, 2), np.float32),
             "spread": 0.4, "most": 2, "keep": None},
            RARELY,
        ),
        "exact.tuna": Subject(
            ex.exact.tuna,
            {"posterior": t["posterior"], "step_size": 0.1, "lipschitz": np.ones(6),
             "covariance": 1.0, "chi": 0.1, "block_size": 4},
        ),
    }  # fmt: skip


def _networks() -> dict[str, Subject]:
    t = things()
    return {
        "network.calibration": Subject(
            ex.network.calibration,
            {"probabilities": np.full((4, 2), 0.5), "labels": np.array([0, 1, 0, 1]), "bins": 3},
        ),
        "network.coverage": Subject(ex.network.coverage, {"below": np.ones(4) / 2, "levels": 3}),
        "network.entropy": Subject(ex.network.entropy, {"probabilities": np.full((4, 2), 0.5)}),
        "network.posterior": Subject(
            ex.network.posterior,
            {"module": Linear(jnp.zeros((2,))), "data": (X, Y),
             "likelihood": likelihoods.Gaussian(0.5), "prior": None, "batched": True}, SELDOM * 2,
        ),
        "network.Gaussian": Subject(likelihoods.Gaussian, {"noise": 0.5}),
        "network.Normal": Subject(priors.Normal, {"scale": 1.0}),
        "network.Student": Subject(priors.Student, {"scale": 1.0}),
        "network.predict": Subject(
            ex.network.predict,
            {"posterior": t["network"], "rows": X, "targets": Y,
             "positions": jax.tree.map(lambda x: x[None], t["network"].start)}, RARELY,
        ),
        "bridge.optax": Subject(ex.bridge.optax, {"kernel": t["kernel"], "key": KEY}),
        "bridge.blackjax": Subject(ex.bridge.blackjax, {"kernel": t["kernel"]}),
        "advise": Subject(
            ex.advise,
            {"num_data": 1000, "dimension": 3, "gradient_seconds": None, "condition_number": 2.0,
             "modes": 1, "exact": False, "network": False},
        ),
    }  # fmt: skip
