"""The table of every kernel of the library: a new sampler is tested by a new row."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import ergodax as ex
from conformance.positions import DIMENSION, flat, full, minibatch
from ergodax.data import ShuffledEpochs
from ergodax.integrator.splitting import Thermostat

H = 0.05
WEIGHTS = np.linspace(0.5, 1.5, DIMENSION)  # double precision: the position's must win
MATRIX = np.eye(DIMENSION) + 0.1


def draw_momentum(key: Any, position: Any) -> dict:
    return {"momentum": ex.normal_like(key, position)}


def kinetic(z: dict) -> Any:
    return 0.5 * ex.tree.dot(z["momentum"], z["momentum"])


def root_metric(z: dict) -> ex.Diagonal:
    return ex.Diagonal(ex.tree.map_leaves(lambda x: 1.0 + 0.1 * jnp.tanh(x), z["position"]))


def riemannian() -> ex.Recipe:
    """A user's recipe with a state-dependent curl, so with a Gamma."""
    return ex.Recipe(
        diffusion=constant_friction,
        curl=metric_curl,
        energy=kinetic,
        auxiliary=draw_momentum,
    )


def constant_friction(z: dict) -> dict:
    return {"momentum": 1.5}


def metric_curl(z: dict) -> dict:
    return {("momentum", "position"): root_metric(z)}


def low_rank_diffusion(z: dict) -> dict:
    factor = ex.tree.map_leaves(lambda x: 0.1 * jnp.stack([jnp.sin(x), x]), z["position"])
    return {"position": ex.LowRank(factor, 1.0)}


def dense_diffusion(z: dict) -> dict:
    x = 0.1 * flat(z["position"])
    return {"position": ex.Dense(jnp.eye(x.size, dtype=x.dtype) + x[:, None] * x[None, :])}


def noisy() -> ex.NoisyGradient:
    return ex.NoisyGradient(full().target, WEIGHTS)


def known() -> ex.KnownCovariance:
    return ex.KnownCovariance(minibatch(), 2.0)


# A function of the step size each, so that the same kernel can be built with another one.
KERNELS: dict[str, Callable[[float], Any]] = {
    "sgld": lambda h: ex.sgld(full(), h),
    "sgld, polynomial steps": lambda h: ex.sgld(full(), ex.schedule.Polynomial(h)),
    "sgld, cyclical steps": lambda h: ex.sgld(full(), ex.schedule.Cyclical(h, 4)),
    "sgld, minibatch": lambda h: ex.sgld(minibatch(), h),
    "sgld, with replacement": lambda h: ex.sgld(minibatch(replace=True), h),
    "sgld, shuffled epochs": lambda h: ex.sgld(minibatch(batching=ShuffledEpochs()), h),
    "sgld, preconditioned": lambda h: ex.sgld(full(), h, preconditioner=WEIGHTS),
    "sgld, dense preconditioner": lambda h: ex.sgld(full(), h, preconditioner=MATRIX),
    "sgld, compensated": lambda h: ex.sgld(noisy(), h, compensate=True),
    "sghmc": lambda h: ex.sghmc(minibatch(), h),
    "sghmc, euler": lambda h: ex.sghmc(full(), h, 2.0, mass=WEIGHTS, scheme="euler"),
    "sghmc, compensated": lambda h: ex.sghmc(known(), h, 3.0, compensate=True),
    "sghmc, compensated and clipped": lambda h: ex.sghmc(
        noisy(), h, mass=MATRIX, temperature=0.5, compensate=True, clip=True
    ),
    # JAX's checker of keys sees this scheme draw; it does not see `Permutation` read its key.
    "langevin, BAOAB": lambda h: ex.langevin(minibatch(replace=True), h),
    "langevin, ABOBA": lambda h: ex.langevin(full(), h, scheme="ABOBA"),
    "langevin, OBABO": lambda h: ex.langevin(full(), h, scheme="OBABO"),
    "langevin, BAOA": lambda h: ex.langevin(full(), h, scheme="BAOA"),
    "langevin, dense mass": lambda h: ex.langevin(full(), h, mass=MATRIX, temperature=0.5),
    "sgnht": lambda h: ex.sgnht(minibatch(), h),
    "sgnht, per coordinate": lambda h: ex.sgnht(noisy(), h, mass=WEIGHTS, per_coordinate=True),
    "splitting": lambda h: ex.splitting("OABAO", full(), h, mass=2.0),
    "splitting, thermostat": lambda h: ex.splitting(
        "ABODOBA", full(), h, thermostat=Thermostat(2.0, True)
    ),
    "hmc": lambda h: ex.hmc(full(), h, num_leapfrog_steps=3),
    "recipe, state-dependent curl": lambda h: ex.euler_maruyama(
        riemannian(), minibatch(), h, semi_implicit=True
    ),
    "recipe, low-rank diffusion": lambda h: ex.euler_maruyama(
        ex.Recipe(low_rank_diffusion), full(), h
    ),
    "recipe, dense diffusion": lambda h: ex.euler_maruyama(ex.Recipe(dense_diffusion), full(), h),
    "recipe, nose_hoover": lambda h: ex.euler_maruyama(ex.dynamics.nose_hoover(), full(), h),
    "recipe, nose_hoover per coordinate": lambda h: ex.euler_maruyama(
        ex.dynamics.nose_hoover(per_coordinate=True), full(), h, semi_implicit=True
    ),
    "optax schedule": lambda h: ex.sgld(full(), optax.exponential_decay(h, 10, 0.5)),
}
