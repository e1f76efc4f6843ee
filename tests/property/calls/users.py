"""What runs a sampler, reads files, and looks at what was drawn."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.learn import tables
from property.calls.subjects import (
    KEY,
    RARELY,
    SELDOM,
    START,
    Subject,
    X,
    Y,
    energy,
    files,
    things,
)  # fmt: skip


def users(folder: Path) -> dict[str, Subject]:
    """All of them by name."""
    found = _statistics() | _laws() | _runs() | dict(_conversions())
    return found | _data(files(folder))


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
    data, table = ex.data, tables.make_table(X, Y, ["a", "b"])
    options = {"block_rows": 4, "passes": 1, "dtype": None}
    return {
        "data.npy": Subject(data.npy, {"*": (paths["npy"],), "page_rows": 2} | options, 2),
        "data.zarr": Subject(
            data.zarr,
            {"path": paths["zarr"], "names": None, "page_rows": 2, "allow_missing_chunks": False}
            | options,
            0.5,
        ),
        "data.parquet": Subject(
            data.parquet, {"path": paths["parquet"], "columns": ["a"], "target": "y"} | options
        ),
        "data.stream": Subject(
            data.stream, {"factory": lambda: iter([X]), "num_rows": 6} | options, 2
        ),
        "source.subset": Subject(data.npy(paths["npy"]).subset, {"rows": 3, "seed": 0}),
        "Samples.load": Subject(ex.Samples.load, {"path": paths["samples"], "like": None}, 2),
        "tables.read_columns": Subject(
            tables.read_columns, {"path": paths["csv"], "target": "y", "drop_missing": False}, 0.5
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
    }  # fmt: skip


def _conversions() -> Iterator[tuple[str, Subject]]:
    """The functions of `convert`, whose arguments are numbers of a few names."""
    right = {
        "num_data": 10, "num_integration_steps": 3, "resample_every": 3, "scheme": "euler",
        "momentum": 0.9, "mass": 1.0,
    }  # fmt: skip
    for name, function in vars(ex.convert).items():
        if callable(function) and name.startswith(("from_", "to_")):
            asked = inspect.signature(function).parameters
            yield f"convert.{name}", Subject(function, {k: right.get(k, 0.1) for k in asked}, 0.2)
