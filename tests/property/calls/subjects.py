"""The public constructors and functions, each with arguments that are right.

A subject's optional arguments stand beside those that it needs, so that any of them may be spoilt.
What a run costs is counted: subjects that compile are called less often.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.learn import regression, tables
from ergodax.network import likelihoods, priors


class Subject(NamedTuple):
    """A function, right arguments by name (those of `*args` as "*"), and how often it is called."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    weight: float = 1.0


KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
Y = np.array([0, 1, 0, 1, 1, 0], np.float32)
START = jnp.zeros(2)
MATRIX = jnp.array([[2.0, 0.5], [0.5, 1.0]])
SELDOM, RARELY = 0.3, 0.1  # a call that traces, and one that compiles


def square(x: Any) -> Any:
    """A metric and a potential's density of each coordinate."""
    return 1.0 + x**2


def energy(x: Any) -> Any:
    """A normal law's potential."""
    return 0.5 * jnp.sum(x**2)


@functools.cache
def things() -> dict[str, Any]:
    """What other calls are made with."""
    target = ex.Target(energy)
    posterior = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, e: -0.5 * (e[1] - e[0] @ w) ** 2, (X, Y)
    )
    full, batch = ex.FullGradient(target), ex.Minibatch(posterior, 2)
    rng = np.random.default_rng(1)
    info = {"evaluations": np.ones((2, 20), int)}
    draws = rng.normal(size=(2, 20, 2))
    return {
        "target": target, "posterior": posterior, "full": full, "batch": batch, "draws": draws,
        "normal": ex.targets.gaussian(np.zeros(2), np.eye(2)),
        "kernel": ex.sgld(full, 0.1), "samples": ex.Samples(draws, _Counts(info), None),
        "network": ex.network.posterior(
            _Linear(jnp.zeros((2,))), (X, Y), likelihoods.Gaussian(0.5), batched=True
        ),
    }  # fmt: skip


class _Counts:
    """An Info with evaluations."""

    def __init__(self, info: dict) -> None:
        self.evaluations = info["evaluations"]


class _Linear(eqx.Module):
    weights: jax.Array

    def __call__(self, x: Any) -> Any:
        return x @ self.weights


def files(folder: Path) -> dict[str, Path]:
    """A file or folder of each format."""
    import pandas as pd
    import zarr

    paths = {kind: folder / f"rows.{kind}" for kind in ("npy", "parquet", "csv", "npz", "zarr")}
    np.save(paths["npy"], X)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    frame.to_parquet(paths["parquet"])
    frame.to_csv(paths["csv"], index=False)
    np.savez(paths["npz"], x_train=X, y_train=Y)
    zarr.create_array(paths["zarr"], data=X)
    paths["samples"] = ex.Samples(np.ones((2, 5)), {}, {}).save(folder / "samples.zarr")
    return paths


def subjects(folder: Path) -> dict[str, Subject]:
    """All of them by name."""
    found = {}
    for part in (_targets, _estimators, _recipes, _samplers, _others, _statistics, _laws, _runs):
        found |= part()
    return found | _data(files(folder)) | dict(_conversions())


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
    exact = {"num_leapfrog_steps": 2}
    both = {"slow": t["target"], "fast": t["target"], "step_size": 0.1, "temperature": 1.0}
    composed = {"sampler": ex.sgld} | one
    del composed["temperature"]
    score = ex.ScoreCovariance(t["batch"])
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


def _others() -> dict[str, Subject]:
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
        "network.calibration": Subject(
            ex.network.calibration,
            {"probabilities": np.full((4, 2), 0.5), "labels": np.array([0, 1, 0, 1]), "bins": 3},
        ),
        "network.coverage": Subject(ex.network.coverage, {"below": np.ones(4) / 2, "levels": 3}),
        "network.entropy": Subject(ex.network.entropy, {"probabilities": np.full((4, 2), 0.5)}),
        "network.posterior": Subject(
            ex.network.posterior,
            {"module": _Linear(jnp.zeros((2,))), "data": (X, Y),
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


def _statistics() -> dict[str, Subject]:
    t, d = things(), ex.diagnostics
    draws, gradients = t["draws"], np.asarray(t["draws"])
    return {
        "autocorrelation": Subject(d.autocorrelation, {"draws": draws}),
        "ess": Subject(d.ess, {"draws": draws, "kind": "bulk"}),
        "autocorrelation_time": Subject(d.integrated_autocorrelation_time, {"draws": draws}),
        "r_hat": Subject(d.r_hat, {"draws": draws, "kind": "rank"}),
        "efficiency": Subject(
            d.efficiency, {"samples": t["samples"], "thin": 1, "seconds": 1.0}, 2
        ),
        "stein": Subject(
            d.kernel_stein_discrepancy,
            {"draws": draws, "gradient": None, "gradients": gradients, "temperature": 1.0, "c": 1.0,
             "power": -0.5, "whitening": None, "statistic": "u", "num_draws": 10,
             "num_resamples": 10, "block": 16, "key": KEY},
            SELDOM,
        ),
        "temperature": Subject(
            d.temperature,
            {"samples": t["samples"], "gradient": t["full"], "temperature": 1.0, "expected": None,
             "by": "total", "thin": 1, "key": KEY, "level": 0.99, "chunk": 8},
            SELDOM,
        ),
        "postprocess.gradients": Subject(
            ex.postprocess.gradients,
            {"draws": draws, "gradient": t["full"], "key": KEY, "chunk": 8}, SELDOM,
        ),
        "postprocess.weighted": Subject(
            ex.postprocess.weighted, {"samples": t["samples"], "weights": np.ones((2, 20))}
        ),
        "postprocess.zero_variance": Subject(
            ex.postprocess.zero_variance,
            {"draws": draws, "gradients": gradients, "functions": "mean", "order": 1,
             "cross": False, "fit_on": None, "diagonal": False, "folds": 2, "temperature": 1.0},
        ),
        "Samples.without": Subject(t["samples"].without, {"count": 3}, 0.3),
    }  # fmt: skip


def _laws() -> dict[str, Subject]:
    t, v = things(), ex.verify
    axis = v.Axis(-6.0, 6.0, 64)
    drift, diffusion = (lambda z: -z), (lambda z: jnp.eye(1))
    return {
        "verify.Axis": Subject(v.Axis, {"low": -1.0, "high": 1.0, "points": 8}),
        "verify.recipe": Subject(
            v.recipe,
            {"recipe": ex.dynamics.langevin(), "target": t["target"], "points": None,
             "position": START, "temperature": 1.0, "noise_covariance": None, "step_size": None,
             "tolerance": 1e-5, "key": KEY},
            RARELY,
        ),
        "verify.sde": Subject(
            v.sde,
            {"drift": drift, "diffusion": diffusion, "potential": energy, "points": None,
             "dimension": 1, "curl": None, "temperature": 1.0, "tolerance": 1e-5, "key": KEY},
            RARELY,
        ),
        "verify.curl": Subject(
            v.curl,
            {"drift": drift, "diffusion": diffusion, "potential": energy, "dimension": 1,
             "method": "auto", "temperature": 1.0, "grid": axis, "points": None},
            RARELY,
        ),
        "verify.fokker_planck": Subject(
            v.fokker_planck, {"drift": drift, "diffusion": diffusion, "grid": axis}, SELDOM
        ),
        "verify.transition_law": Subject(
            v.transition_law,
            {"drift": drift, "diffusion": diffusion, "step_size": 0.1, "axis": axis}, RARELY,
        ),
        "verify.affine_step": Subject(
            v.affine_step, {"kernel": t["kernel"], "position": START}, RARELY
        ),
        "verify.kernel": Subject(
            v.kernel,
            {"make_kernel": lambda h: ex.sgld(t["full"], h), "target": t["normal"], "key": KEY,
             "step_sizes": [0.1, 0.2], "duration": 0.4, "temperature": 1.0, "functions": None,
             "num_draws": 128, "budget": 1e-6, "tolerance": 0.1},
            RARELY / 4,
        ),
    }  # fmt: skip


def _runs() -> dict[str, Subject]:
    t = things()
    return {
        "sample": Subject(
            ex.sample,
            {"kernel": t["kernel"], "position": START, "num_steps": 4, "key": KEY, "num_chains": 2,
             "thin": 1, "burn_in": 0, "collect": None, "progress": False, "positions": None,
             "checkpoint": None, "mesh": None},
            SELDOM * 2,
        ),
        "init": Subject(t["kernel"].init, {"key": KEY, "position": START}, SELDOM * 4),
        "Checkpoint": Subject(
            ex.Checkpoint, {"folder": "r", "every": 1.0, "store": None, "resume": False}
        ),
        "mesh": Subject(ex.mesh, {"chains": 1, "data": 1}, 0.3),
        "infer": Subject(
            ex.infer,
            {"target": t["target"], "init": START, "key": KEY, "accuracy": 0.5, "num_chains": 2,
             "max_seconds": 1.0, "progress": False},
            RARELY / 4,
        ),
        "tune.find_step": Subject(
            ex.tune.find_step,
            {"make_kernel": lambda h: ex.sgld(t["full"], h), "gradient": t["full"],
             "position": START, "step_size": 0.1, "key": KEY, "excess": 0.5, "num_rounds": 1,
             "num_steps": 4, "thin": 1, "num_chains": 2},
            RARELY,
        ),
        "diagnostics.bias": Subject(
            ex.diagnostics.bias,
            {"make_kernel": lambda h: ex.sgld(t["full"], h), "position": START, "step_size": 0.1,
             "num_steps": 8, "key": KEY, "order": 1, "function": None, "num_chains": 2,
             "burn_in": 0, "thin": 1, "couple": False, "progress": False},
            RARELY,
        ),
    }  # fmt: skip


def _data(paths: dict[str, Path]) -> dict[str, Subject]:
    data, table = ex.data, tables.read_table(paths["csv"], "y")
    options = {"block_rows": 4, "passes": 1, "dtype": None}
    return {
        "data.npy": Subject(data.npy, {"*": (paths["npy"],), "page_rows": 2} | options, 2),
        "data.zarr": Subject(
            data.zarr, {"path": paths["zarr"], "names": None, "page_rows": 2} | options, 0.5
        ),
        "data.parquet": Subject(
            data.parquet, {"path": paths["parquet"], "columns": ["a"], "target": "y"} | options
        ),
        "data.stream": Subject(
            data.stream, {"factory": lambda: iter([X]), "num_rows": 6} | options, 2
        ),
        "source.subset": Subject(data.npy(paths["npy"]).subset, {"rows": 3, "seed": 0}),
        "Samples.load": Subject(ex.Samples.load, {"path": paths["samples"], "like": None}, 2),
        "tables.read": Subject(
            tables.read, {"path": paths["npz"], "target": None, "classes": None}, 0.5
        ),
        "tables.read_table": Subject(
            tables.read_table, {"path": paths["csv"], "target": "y", "classes": None}, 0.5
        ),
        "tables.read_numeric": Subject(
            tables.read_numeric, {"path": paths["csv"], "target": "y"}, 0.5
        ),
        "tables.read_npz": Subject(
            tables.read_npz,
            {"path": paths["npz"], "features": "x_train", "target": "y_train"}, 0.5,
        ),
        "tables.make_table": Subject(
            tables.make_table, {"features": X, "target": Y, "names": ["a", "b"], "classes": None}
        ),
        "tables.split": Subject(
            tables.split, {"table": table, "held_out": 0.5, "seed": 0}, 0.5
        ),
        "regression.logistic": Subject(
            regression.logistic, {"table": table, "prior_scale": 1.0}, SELDOM * 4
        ),
        "regression.linear": Subject(
            regression.linear, {"table": table, "prior_scale": 1.0}, SELDOM * 4
        ),
    }  # fmt: skip


def _conversions() -> Iterator[tuple[str, Subject]]:
    """The functions of `convert`, whose arguments are numbers of a few names."""
    import inspect

    right = {
        "num_data": 10, "num_integration_steps": 3, "resample_every": 3, "scheme": "euler",
        "momentum": 0.9, "mass": 1.0,
    }  # fmt: skip
    for name, function in vars(ex.convert).items():
        if callable(function) and name.startswith(("from_", "to_")):
            asked = inspect.signature(function).parameters
            yield f"convert.{name}", Subject(function, {k: right.get(k, 0.1) for k in asked}, 0.2)
